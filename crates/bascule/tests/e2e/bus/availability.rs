//! The tools of an agent on the bus.

use std::sync::Arc;
use std::time::Duration;

use bascule_bus::{BusEventSink, EmbeddedBus, MessageIdGenerator};
use bascule_model::ProviderAdapter;
use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::test_agent::{TestAgent, TestMessage};
use crate::embedded::{bridge_with_config, settings, within_timeout};

async fn availability(agent: &mut TestAgent) -> TestMessage {
    agent.next(&["McpToolsAvailable"]).await
}

fn names(available: &TestMessage) -> Vec<&str> {
    available.body()["tools"].as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap()).collect()
}

fn health(available: &TestMessage) -> Vec<(&str, &str)> {
    let servers = available.body()["servers"].as_array().unwrap();
    servers.iter().map(|one| (one["name"].as_str().unwrap(), one["health"].as_str().unwrap())).collect()
}

fn config(server: &ScriptedStdio) -> Value {
    json!({ "mcpServers": { "s": server.entry() } })
}

// req: BU-05
#[tokio::test]
async fn tools_are_published_at_the_start_and_on_request() {
    let server = ScriptedStdio::new(Script::new().tools(["x", "y"]));
    let mut entry = server.entry();
    entry["deniedTools"] = json!(["y"]);
    let bridge = Arc::new(bridge_with_config(json!({ "mcpServers": { "s": entry } })).await);
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let first = availability(&mut agent).await;
    assert_eq!((first.topic.as_str(), names(&first)), ("tool.meta.mcp.a", vec!["s:x"]));
    assert_eq!(first.body()["agent"], "a");
    assert_eq!(health(&first), [("s", "healthy")]);
    assert_eq!(first.body()["tools"][0]["inputSchema"], json!({ "type": "object" }));
    assert_eq!(first.envelope["headers"]["rb-content-trust"], "tool-output");

    server.set_script(Script::new().tools(["x", "z"]));
    agent.tell("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", json!({ "agent": "b" })).await;
    agent
        .tell("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", json!({ "agent": "a", "server": "s" }))
        .await;
    assert_eq!(names(&availability(&mut agent).await), ["s:x", "s:z"]);
    // For all agents, and though nothing has changed.
    agent.tell("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", json!({ "agent": null })).await;
    assert_eq!(names(&availability(&mut agent).await), ["s:x", "s:z"]);
    assert!(agent.rest("McpToolsAvailable").await.is_empty());
    let listings = server.methods().iter().filter(|method| *method == "tools/list").count();
    assert_eq!(listings, 3, "the request of agent `b` is not for this bridge");
    bridge.terminate().await;
}

// req: BU-05
#[tokio::test]
async fn changed_list_and_health_are_published() {
    let script = || Script::new().tools(["x"]).capabilities(json!({ "tools": { "listChanged": true } }));
    let server = ScriptedStdio::new(script());
    let bridge = Arc::new(bridge_with_config(config(&server)).await);
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    assert_eq!(names(&availability(&mut agent).await), ["s:x"]);
    server.set_script(script().tools(["y"]).calls("x", [Behaviour::text("").after_list_changed()]));
    agent.call("s:x", json!({})).await;
    assert_eq!(names(&availability(&mut agent).await), ["s:x", "s:y"]);
    server.kill();
    loop {
        let available = availability(&mut agent).await;
        if health(&available) == [("s", "healthy")] {
            panic!("the loss was not published");
        }
        if health(&available) == [("s", "degraded")] {
            break;
        }
    }
    assert_eq!(health(&availability(&mut agent).await), [("s", "healthy")]);
    bridge.terminate().await;
}

// req: BU-05
#[tokio::test]
async fn reload_publishes_once() {
    let (one, two) =
        (ScriptedStdio::new(Script::new().tools(["x"])), ScriptedStdio::new(Script::new().tools(["y"])));
    let both = json!({ "mcpServers": { "s": one.entry(), "t": two.entry() } });
    let changed = json!({ "mcpServers": { "u": one.entry(), "t": two.entry() } });
    let bridge = Arc::new(bridge_with_config(both).await);
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    assert_eq!(names(&availability(&mut agent).await), ["s:x", "t:y"]);
    within_timeout(bridge.reload(settings(&changed), Duration::from_secs(1))).await;
    assert_eq!(names(&availability(&mut agent).await), ["t:y", "u:x"]);
    assert!(agent.rest("McpToolsAvailable").await.is_empty());
    // A reload that changes nothing is published too: whoever reloads waits for it.
    within_timeout(bridge.reload(settings(&changed), Duration::from_secs(1))).await;
    assert_eq!(names(&availability(&mut agent).await), ["t:y", "u:x"]);
    assert!(agent.rest("McpToolsAvailable").await.is_empty());
    bridge.terminate().await;
}

// req: BU-06
#[tokio::test]
async fn two_agents_see_only_their_own_tools() {
    let (one, two) =
        (ScriptedStdio::new(Script::new().tools(["x"])), ScriptedStdio::new(Script::new().tools(["y"])));
    let (first, second) =
        (Arc::new(bridge_with_config(config(&one)).await), Arc::new(bridge_with_config(config(&two)).await));
    let mut a = TestAgent::embedded().await;
    let mut b = TestAgent::subscribe(&a.bus, "b").await;
    let _services = (a.serve(&first).await, b.serve(&second).await);
    let mut seen = [availability(&mut a).await, availability(&mut a).await];
    seen.sort_by_key(|available| available.topic.clone());
    assert_eq!(names(&seen[0]), ["s:x"]);
    assert_eq!((seen[1].topic.as_str(), names(&seen[1])), ("tool.meta.mcp.b", vec!["s:y"]));
    assert_eq!(a.call("s:y", json!({})).await.body()["code"], "tool_not_found");
    assert_eq!(
        b.call("s:y", json!({})).await.envelope["type"],
        "ToolError",
        "the answer of `a` is seen first"
    );
    assert_eq!(b.answer().await.envelope["type"], "ToolInvokeResponse");
    first.terminate().await;
    second.terminate().await;
}

// req: BR-07
#[tokio::test]
async fn call_that_waits_in_the_queue_has_one_event() {
    let calls = [Behaviour::exit(1), Behaviour::text("back")];
    let server = ScriptedStdio::new(Script::new().tools(["x"]).calls("x", calls));
    let mut config = config(&server);
    config["mcpServers"]["s"]["reconnectBackoffMs"] = 1500.into();
    let events = Arc::new(CollectedEvents::default());
    let config =
        bascule::BridgeConfig { events: events.clone(), ..bascule::BridgeConfig::new(settings(&config)) };
    let bridge = Arc::new(bascule::McpBridgeAdapter::init(config).await.unwrap());
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    assert_eq!(agent.call("s:x", json!({})).await.body()["code"], "provider_crashed");
    // Down until the server is started again: the queue brings the call several times.
    let answer = agent.call("s:x", json!({})).await;
    assert_eq!(answer.envelope["type"], "ToolInvokeResponse", "{:#}", answer.envelope);
    let id = answer.envelope["correlationId"].as_str().unwrap();
    let names: Vec<&str> = {
        let events = events.0.lock().unwrap();
        let of_call =
            |event: &&bascule_model::Event| event.correlation_id().is_some_and(|own| own.as_str() == id);
        events.iter().filter(of_call).map(|event| event.name()).collect()
    };
    assert_eq!(names, ["provider.mcp.tool.completed"]);
    bridge.terminate().await;
}

#[derive(Default)]
struct CollectedEvents(std::sync::Mutex<Vec<bascule_model::Event>>);

impl bascule_model::EventSink for CollectedEvents {
    fn offer(&self, event: bascule_model::Event) {
        self.0.lock().unwrap().push(event);
    }
}

// req: BR-07
#[tokio::test]
async fn events_are_published_under_their_names() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let local = Arc::new(EmbeddedBus::default());
    let sink =
        BusEventSink::new(local.clone(), "bascule", MessageIdGenerator::new(1), std::time::SystemTime::now);
    let config = bascule::BridgeConfig {
        events: Arc::new(sink),
        ..bascule::BridgeConfig::new(settings(&config(&server)))
    };
    let bridge = Arc::new(bascule::McpBridgeAdapter::init(config).await.unwrap());
    let mut agent = TestAgent::embedded().await;
    let pattern = bascule_bus::TopicPattern::parse("provider.mcp.tool.#").unwrap();
    let mut events = agent.bus.subscribe(&pattern).await.unwrap();
    let _service = agent.serve_with(&bridge, |options| options.events = Some(local.clone())).await;
    let mut request = agent.request(agent.call_body("s:x", json!({})));
    request["headers"]["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into();
    agent.send(&request).await;
    agent.answer().await;
    let Some(bascule_bus::ReceivedItem::Message(message)) = within_timeout(events.next()).await else {
        panic!("no event")
    };
    let envelope = message.content.unwrap();
    assert_eq!(message.topic.as_str(), "provider.mcp.tool.completed");
    assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), request["correlationId"]);
    assert_eq!(envelope.source, "bascule/a");
    let parent = &envelope.headers["traceparent"];
    assert!(
        parent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && !parent.contains("00f067aa0ba902b7")
    );
    bridge.terminate().await;
}
