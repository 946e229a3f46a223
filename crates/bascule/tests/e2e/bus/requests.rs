//! The life of one request, on the bus inside the process and with servers that are real processes.

use std::sync::Arc;
use std::time::Duration;

use bascule::{BusService, BusServiceOptions, McpBridgeAdapter};
use bascule_bus::{AgentName, Bus, Claim, MessageId, RequestDelivery};
use bascule_model::ProviderAdapter;
use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::test_agent::{TestAgent, in_seconds};
use crate::embedded::{bridge_with_config, within_timeout};
use crate::support::{demo_servers, with_settings};

async fn demo_bridge() -> Arc<McpBridgeAdapter> {
    Arc::new(bridge_with_config(json!({ "mcpServers": demo_servers() })).await)
}

async fn scripted_bridge(server: &ScriptedStdio, settings: Value) -> Arc<McpBridgeAdapter> {
    let entry = with_settings(server.entry(), settings);
    Arc::new(bridge_with_config(json!({ "mcpServers": { "s": entry } })).await)
}

/// A server whose tool `read` is safe to repeat and whose tool `write` is not.
fn script() -> Script {
    let tool = |name: &str, read_only: bool| json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": read_only } });
    Script::new().tool(tool("read", true)).tool(tool("write", false))
}

/// Waits for a line that the server receives. The bridge runs on this thread, so it must not be blocked.
async fn received(server: &ScriptedStdio, part: &str) {
    let is_there = || server.received().iter().any(|line| line.contains(part));
    within_timeout(async {
        while !is_there() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

// req: BU-03
// req: BU-04
#[tokio::test]
async fn request_is_answered_with_the_result_as_the_server_sent_it() {
    let result = r#"{"content":[ {"type":"text","text":"ü"} ],"n":1.00,"isError":false}"#;
    let server = ScriptedStdio::new(script().calls("read", [Behaviour::result(result)]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let mut request = agent.request(agent.call_body("s:read", json!({ "a": 1 })));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request["headers"]["traceparent"] = parent.into();
    agent.send(&request).await;
    let answer = agent.answer().await;
    assert_eq!(answer.topic, "tool.result.a");
    let envelope = &answer.envelope;
    assert_eq!(envelope["type"], "ToolInvokeResponse");
    assert_eq!(envelope["correlationId"], request["correlationId"]);
    assert_eq!(envelope["source"], "bascule/a");
    assert_eq!(envelope["destination"], "a");
    assert_eq!(envelope["headers"]["rb-content-trust"], "tool-output");
    assert_eq!(envelope["headers"]["traceparent"], parent);
    assert_eq!(answer.body()["toolCallId"], request["body"]["toolCallId"]);
    assert_eq!(answer.body()["toolName"], "s:read");
    assert_eq!(answer.body()["isError"], false);
    assert_eq!(answer.body()["result"], serde_json::from_str::<Value>(result).unwrap());
    // The server's span is below the call's, which is in the agent's trace.
    let sent = server.received().into_iter().find(|line| line.contains("tools/call")).unwrap();
    assert!(sent.contains("00-4bf92f3577b34da6a3ce929d0e0e4736-") && !sent.contains("00f067aa0ba902b7"));
    bridge.terminate().await;
}

// req: BU-03
#[tokio::test]
async fn failing_tools_and_errors_have_their_codes() {
    let bridge = demo_bridge().await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let failed = agent.call("trouble:fail", json!({})).await;
    assert_eq!(
        (&failed.envelope["type"], &failed.body()["isError"]),
        (&json!("ToolInvokeResponse"), &json!(true))
    );
    for (tool, arguments, code, is_retryable) in [
        ("trouble:rpc_error", json!({}), "provider_error", false),
        ("trouble:lie", json!({}), "invalid_output", false),
        ("trouble:sleep", json!({ "ms": "x" }), "invalid_input", false),
        ("trouble:sleep", json!([1]), "invalid_input", false),
        ("trouble:slep", json!({}), "tool_not_found", false),
        ("no tool", json!({}), "tool_not_found", false),
        ("nobody:x", json!({}), "tool_not_found", false),
        ("trouble:crash", json!({}), "provider_crashed", true),
    ] {
        let answer = agent.call(tool, arguments).await;
        let body = answer.body();
        assert_eq!(answer.envelope["type"], "ToolError", "{body}");
        assert_eq!((&body["code"], &body["isRetryable"]), (&json!(code), &json!(is_retryable)), "{body}");
        assert_eq!(body["correlationId"], answer.envelope["correlationId"]);
        assert_eq!(body["details"]["code"], code.to_uppercase());
        assert_eq!(answer.envelope["headers"]["rb-content-trust"], "tool-output");
        assert!(!body["message"].as_str().unwrap().is_empty());
    }
    bridge.terminate().await;
}

// req: BU-08
#[tokio::test]
async fn call_that_takes_too_long_is_answered_with_timeout() {
    let bridge = demo_bridge().await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve_with(&bridge, |options| options.timeout = Duration::from_millis(300)).await;
    let answer = agent.call("trouble:sleep", json!({ "ms": 60_000 })).await;
    assert_eq!(answer.body()["code"], "timeout", "{:#}", answer.envelope);
    assert_eq!(answer.body()["isRetryable"], true);
    bridge.terminate().await;
}

// req: BU-08
// req: BU-09
#[tokio::test]
async fn deadline_shortens_the_call_and_an_expired_request_is_not_run() {
    let server = ScriptedStdio::new(script().calls("write", [Behaviour::silence()]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let mut body = agent.call_body("s:read", json!({}));
    body["deadline"] = in_seconds(-1).into();
    let answer = agent.call_with(body).await;
    assert_eq!(answer.body()["code"], "timeout");
    assert!(answer.body()["message"].as_str().unwrap().contains("not run"), "{:#}", answer.envelope);
    // An agent that sends no deadline has given up after its own timeout.
    let mut old = agent.request(agent.call_body("s:read", json!({})));
    old["timestamp"] = in_seconds(-61).into();
    agent.send(&old).await;
    assert_eq!(agent.answer().await.body()["code"], "timeout");
    assert!(!server.methods().contains(&"tools/call".to_owned()));
    let mut body = agent.call_body("s:write", json!({}));
    body["deadline"] = in_seconds(1).into();
    assert_eq!(agent.call_with(body).await.body()["code"], "timeout");
    assert!(server.methods().contains(&"tools/call".to_owned()));
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn messages_that_cannot_be_handled_become_dead_letters_with_the_reason() {
    let server = ScriptedStdio::new(script());
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve_with(&bridge, |options| options.max_request_bytes = 10_000).await;
    let good = agent.request(agent.call_body("s:read", json!({})));
    let with = |key: &str, value: Value| {
        let mut envelope = good.clone();
        envelope[key] = value;
        envelope
    };
    for (envelope, reason) in [
        (with("type", "Hello".into()), "type `Hello`"),
        (with("body", json!({ "toolName": "s:read" })), "`toolCallId`"),
        (with("body", json!("text")), "`toolCallId`"),
        (with("destination", "x".repeat(20_000).into()), "at most 10000"),
    ] {
        agent.send(&envelope).await;
        let letter = agent.next(&["DeadLetter"]).await;
        assert_eq!(letter.topic, "tool.dead.mcp");
        assert!(letter.body()["reason"].as_str().unwrap().contains(reason), "{:#}", letter.envelope);
        assert_eq!(letter.body()["topic"], "tool.invoke.mcp.a");
        let kept: Value = serde_json::from_str(letter.body()["message"].as_str().unwrap()).unwrap();
        assert_eq!(kept["messageId"], good["messageId"]);
    }
    // They are removed from the queue, and the bridge goes on.
    agent.send(&good).await;
    assert_eq!(agent.answer().await.envelope["type"], "ToolInvokeResponse");
    bridge.terminate().await;
}

// req: BU-06
#[tokio::test]
async fn answer_goes_to_reply_topics_of_the_agent_only() {
    let server = ScriptedStdio::new(script());
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let mut request = agent.request(agent.call_body("s:read", json!({})));
    request["replyTo"] = "tool.result.a.inbox-7".into();
    agent.send(&request).await;
    assert_eq!(agent.answer().await.topic, "tool.result.a.inbox-7");
    let mut request = agent.request(agent.call_body("s:write", json!({})));
    request["replyTo"] = "tool.result.b".into();
    agent.send(&request).await;
    let answer = agent.answer().await;
    assert_eq!((answer.topic.as_str(), &answer.body()["code"]), ("tool.result.a", &json!("policy_denied")));
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/call").count(), 1);
    bridge.terminate().await;
}

// req: BU-02
// req: BU-06
#[tokio::test]
async fn shared_topic_serves_the_agent_in_source_and_no_other() {
    let server = ScriptedStdio::new(script());
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let mut foreign = agent.request(agent.call_body("s:write", json!({})));
    foreign["source"] = "b".into();
    agent.publish("tool.invoke.mcp", &foreign).await;
    agent.publish("tool.invoke.mcp.b", &foreign).await;
    let own = agent.request(agent.call_body("s:read", json!({})));
    agent.publish("tool.invoke.mcp", &own).await;
    assert_eq!(agent.answer().await.envelope["correlationId"], own["correlationId"]);
    assert!(!server.received().iter().any(|line| line.contains("\"write\"")));
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn duplicate_message_is_not_run_twice_and_gets_the_same_answer() {
    let bridge = demo_bridge().await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let request = agent.request(agent.call_body("counter:increment", json!({ "token": "d" })));
    agent.send(&request).await;
    let first = agent.answer().await;
    agent.send(&request).await;
    let second = agent.answer().await;
    assert_eq!(first.envelope, second.envelope);
    let seen = agent.call("counter:seen", json!({ "token": "d" })).await;
    assert_eq!(seen.body()["result"]["structuredContent"]["times"], 1);
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn duplicate_of_a_running_request_is_dropped() {
    let server = ScriptedStdio::new(script().calls("write", [Behaviour::silence()]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve_with(&bridge, |options| options.timeout = Duration::from_secs(2)).await;
    let request = agent.request(agent.call_body("s:write", json!({})));
    agent.send(&request).await;
    received(&server, "tools/call").await;
    agent.send(&request).await;
    assert_eq!(agent.answer().await.body()["code"], "timeout");
    assert!(agent.rest("ToolError").await.is_empty());
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/call").count(), 1);
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn reused_id_with_another_body_is_refused_and_gets_no_other_result() {
    let server = ScriptedStdio::new(script().calls("read", [Behaviour::text("of the first")]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let request = agent.request(agent.call_body("s:read", json!({})));
    agent.send(&request).await;
    let first = agent.answer().await;
    assert!(first.envelope.to_string().contains("of the first"));
    let mut other = agent.request(agent.call_body("s:write", json!({ "n": 2 })));
    other["messageId"] = request["messageId"].clone();
    agent.send(&other).await;
    let second = agent.answer().await;
    assert_eq!(second.body()["code"], "invalid_input", "{:#}", second.envelope);
    assert_eq!(second.body()["toolCallId"], other["body"]["toolCallId"]);
    assert_ne!(second.envelope["messageId"], first.envelope["messageId"]);
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/call").count(), 1);
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn repetition_with_another_topic_is_answered_there_too() {
    let slow = Behaviour::text("done").after_delay(Duration::from_secs(1));
    let server = ScriptedStdio::new(script().calls("write", [slow]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let mut request = agent.request(agent.call_body("s:write", json!({})));
    agent.send(&request).await;
    received(&server, "tools/call").await;
    request["replyTo"] = "tool.result.a.new".into();
    agent.send(&request).await;
    let mut topics = [agent.answer().await.topic, agent.answer().await.topic];
    topics.sort();
    assert_eq!(topics, ["tool.result.a", "tool.result.a.new"]);
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/call").count(), 1);
    bridge.terminate().await;
}

/// Plays a replica that claims a request and dies.
async fn abandon(agent: &TestAgent, request: &Value) {
    let mut queue = agent.bus.requests(&agent.name, 1).await.unwrap();
    agent.send(request).await;
    let delivery: RequestDelivery = within_timeout(queue.next()).await.unwrap();
    let id = MessageId::parse(request["messageId"].as_str().unwrap()).unwrap();
    assert!(matches!(delivery.claim(&id).await, Ok(Claim::Won(_))));
}

// req: BU-06
#[tokio::test]
async fn abandoned_call_is_repeated_only_if_that_is_safe() {
    let server = ScriptedStdio::new(script());
    let always = json!({ "tools": { "write": { "retry": "always" } } });
    let (careful, careless) =
        (scripted_bridge(&server, json!({})).await, scripted_bridge(&server, always).await);
    for (bridge, tool, kind) in [
        (&careful, "s:write", "ToolError"),
        (&careful, "s:read", "ToolInvokeResponse"),
        (&careless, "s:write", "ToolInvokeResponse"),
    ] {
        let mut agent = TestAgent::embedded().await;
        let request = agent.request(agent.call_body(tool, json!({})));
        abandon(&agent, &request).await;
        let _service = agent.serve(bridge).await;
        let answer = agent.answer().await;
        assert_eq!(answer.envelope["type"], kind, "{:#}", answer.envelope);
        if kind == "ToolError" {
            assert_eq!(answer.body()["code"], "outcome_unknown");
        }
    }
    let calls: Vec<_> = server.received().into_iter().filter(|line| line.contains("tools/call")).collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    careful.terminate().await;
    careless.terminate().await;
}

// req: BU-02
#[tokio::test]
async fn cancelled_call_is_cancelled_at_its_server() {
    let server = ScriptedStdio::new(script().calls("write", [Behaviour::silence()]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let body = agent.call_body("s:write", json!({}));
    agent.send(&agent.request(body.clone())).await;
    received(&server, "tools/call").await;
    let cancel = json!({ "toolCallId": body["toolCallId"] });
    agent.tell("tool.cancel.mcp.a", "ToolCancelRequest", cancel).await;
    let answer = agent.answer().await;
    assert_eq!((&answer.body()["code"], &answer.body()["isRetryable"]), (&json!("cancelled"), &json!(false)));
    received(&server, "notifications/cancelled").await;
    bridge.terminate().await;
}

// req: BU-02
#[tokio::test]
async fn cancellation_before_its_request_does_not_depend_on_clocks() {
    let server = ScriptedStdio::new(script());
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    for offset in [-30, 30] {
        let body = agent.call_body("s:write", json!({}));
        let mut cancel = agent.request(json!({ "toolCallId": body["toolCallId"] }));
        (cancel["type"], cancel["timestamp"]) = ("ToolCancelRequest".into(), in_seconds(offset).into());
        agent.publish("tool.cancel.mcp.a", &cancel).await;
        // The bridge has read the cancellation once it has answered what was published later.
        assert_eq!(agent.call("s:read", json!({})).await.envelope["type"], "ToolInvokeResponse");
        assert_eq!(agent.call_with(body).await.body()["code"], "cancelled", "{offset} s");
    }
    assert!(!server.received().iter().any(|line| line.contains("\"write\"")));
    bridge.terminate().await;
}

// req: BU-03
#[tokio::test]
async fn progress_is_published_before_the_answer_if_the_agent_wants_it() {
    let server = ScriptedStdio::new(script().calls("read", [Behaviour::text("done").after_progress(3)]));
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    let mut body = agent.call_body("s:read", json!({}));
    body["progress"] = true.into();
    agent.send(&agent.request(body.clone())).await;
    let mut seen = Vec::new();
    loop {
        let message = agent.next(&["ToolProgress", "ToolInvokeResponse"]).await;
        assert_eq!(message.body()["toolCallId"], body["toolCallId"]);
        assert_eq!(message.envelope["headers"]["rb-content-trust"], "tool-output");
        if message.envelope["type"] == "ToolInvokeResponse" {
            break;
        }
        assert!(message.body()["progress"]["progressToken"].is_null());
        seen.push(message.body()["progress"]["progress"].clone());
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    agent.call("s:read", json!({})).await;
    assert!(agent.rest("ToolProgress").await.is_empty());
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn call_of_a_server_that_is_down_waits_in_the_queue() {
    let server = ScriptedStdio::new(script().calls("read", [Behaviour::exit(1), Behaviour::text("back")]));
    let settings = json!({ "reconnectBackoffMs": 1500, "tools": { "read": { "retry": "never" } } });
    let bridge = scripted_bridge(&server, settings).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve(&bridge).await;
    assert_eq!(agent.call("s:read", json!({})).await.body()["code"], "provider_crashed");
    // Down until the first attempt at reconnecting: a call fails at once, and the queue brings it again.
    let answer = agent.call("s:read", json!({})).await;
    assert_eq!(answer.envelope["type"], "ToolInvokeResponse", "{:#}", answer.envelope);
    bridge.terminate().await;
}

// req: BU-09
#[tokio::test]
async fn call_that_cannot_be_sent_is_answered_in_the_end() {
    let server = ScriptedStdio::new(script());
    let settings = json!({ "limits": { "ratePerSecond": 0.001, "maxQueue": 1 } });
    let bridge = scripted_bridge(&server, settings).await;
    let mut agent = TestAgent::embedded().await;
    let _service = agent.serve_with(&bridge, |options| options.timeout = Duration::from_millis(600)).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        agent.send(&agent.request(agent.call_body("s:read", json!({})))).await;
    }
    for _ in 0..3 {
        codes.push(agent.answer().await.body()["code"].clone());
    }
    codes.sort_by_key(ToString::to_string);
    assert!(codes.contains(&Value::Null), "{codes:?}");
    assert!(codes.contains(&json!("rate_limited")) || codes.contains(&json!("timeout")), "{codes:?}");
    bridge.terminate().await;
}

// req: BU-06
#[tokio::test]
async fn stopped_bridge_gives_safe_calls_to_the_next_one() {
    let server = ScriptedStdio::new(
        script()
            .calls("read", [Behaviour::silence(), Behaviour::text("second")])
            .calls("write", [Behaviour::silence()]),
    );
    let bridge = scripted_bridge(&server, json!({})).await;
    let mut agent = TestAgent::embedded().await;
    let first = agent.serve(&bridge).await;
    for tool in ["s:read", "s:write"] {
        agent.send(&agent.request(agent.call_body(tool, json!({})))).await;
        received(&server, &format!("\"name\":\"{}\"", &tool[2..])).await;
    }
    within_timeout(first.close(Duration::ZERO)).await;
    let unsafe_answer = agent.answer().await;
    assert_eq!(unsafe_answer.body()["code"], "outcome_unknown", "{:#}", unsafe_answer.envelope);
    let _second = agent.serve(&bridge).await;
    let answer = agent.answer().await;
    assert_eq!(answer.body()["result"]["content"][0]["text"], "second", "{:#}", answer.envelope);
    bridge.terminate().await;
}

// req: BR-07
#[tokio::test]
async fn many_requests_at_once_get_one_answer_each() {
    let bridge = demo_bridge().await;
    let mut agent = TestAgent::embedded().await;
    let _first = agent.serve_with(&bridge, |options| options.prefetch = 4).await;
    let _second = agent.serve_with(&bridge, |options| options.prefetch = 4).await;
    let mut expected = std::collections::BTreeSet::new();
    for n in 0..100 {
        let request =
            agent.request(agent.call_body("counter:increment", json!({ "token": format!("n-{n}") })));
        expected.insert(request["correlationId"].as_str().unwrap().to_owned());
        agent.send(&request).await;
    }
    while !expected.is_empty() {
        let answer = agent.answer().await;
        assert_eq!(answer.envelope["type"], "ToolInvokeResponse");
        assert!(expected.remove(answer.envelope["correlationId"].as_str().unwrap()));
    }
    let count = agent.call("counter:read", json!({})).await;
    assert_eq!(count.body()["result"]["structuredContent"]["increments"], 100);
    bridge.terminate().await;
}

// req: BU-08
#[tokio::test]
async fn service_that_is_slower_than_its_agent_is_refused() {
    let bridge = Arc::new(bridge_with_config(json!({ "mcpServers": {} })).await);
    let default = BusServiceOptions::new(AgentName::parse("a").unwrap());
    for (timeout, agent_timeout) in [(30, 30), (61, 60)] {
        let [timeout, agent_timeout] = [timeout, agent_timeout].map(Duration::from_secs);
        let options = BusServiceOptions { timeout, agent_timeout, ..default.clone() };
        let started = BusService::start(bridge.clone(), Bus::embedded(Arc::default()), options).await;
        let error = started.err().unwrap().to_string();
        assert!(error.contains("must be shorter than that of the agent"), "{error}");
    }
    bridge.terminate().await;
}
