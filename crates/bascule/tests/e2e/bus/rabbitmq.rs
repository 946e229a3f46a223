//! `bascule serve --agent` with a RabbitMQ that is killed in mid-call.

use std::time::Duration;

use bascule_agent::{McpToolProxy, ProxyOptions, ToolOutput, ToolRequest};
use bascule_bus::{AgentName, Bus, BusOptions, BusUrl};
use bascule_testkit::{Behaviour, RabbitMqServer, Script, ScriptedStdio};
use serde_json::json;

use super::replicas::Replicas;
use crate::support::eventually;

fn text(output: ToolOutput) -> String {
    let block = output.into_block("t").to_anthropic();
    serde_json::to_value(block).unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

// req: BU-09
#[tokio::test(flavor = "multi_thread")]
async fn call_survives_a_restart_of_rabbitmq() {
    let mut broker = RabbitMqServer::start();
    // The first answer is ready while the broker is away, the second one probably later.
    let answer = |text: &str, seconds| Behaviour::text(text).after_delay(Duration::from_secs(seconds));
    let script = Script::new().tools(["soon", "later"]);
    let script = script.calls("soon", [answer("one", 1)]).calls("later", [answer("two", 8)]);
    let server = ScriptedStdio::new(script);
    let mut replicas = Replicas::new(&json!({ "mcpServers": { "s": server.entry() } }), "a", &broker.url());
    let replica = replicas.start();
    // RabbitMQ 3.10 loses a stream if it is killed within a second of making it.
    broker.stop();
    broker.restart();
    replicas.wait_for_line(replica, "connected to the bus at");

    let bus = Bus::connect(&BusOptions::new(BusUrl::parse(&broker.url()).unwrap())).await.unwrap();
    let agent = AgentName::parse("a").unwrap();
    let proxy = McpToolProxy::connect(&bus, &agent, ProxyOptions::default()).await.unwrap();
    let call = async |tool: &str| proxy.start(ToolRequest::new(tool, &json!({}))).await.unwrap();
    let (soon, later) = (call("s:soon").await, call("s:later").await);
    let calls = || server.received().iter().filter(|line| line.contains("tools/call")).count();
    eventually("both calls have begun", || calls() == 2);
    broker.restart();

    assert_eq!(text(soon.finish().await.unwrap()), "one");
    assert_eq!(text(later.finish().await.unwrap()), "two");
    // The bridge goes on, and has run nothing twice.
    assert_eq!(text(proxy.call("s:soon", &json!({})).await.unwrap()), "one");
    assert_eq!(calls(), 3);
    assert_eq!(proxy.counts().pending, 0);
}
