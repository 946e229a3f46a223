//! Every call has exactly one final event, also if its caller leaves.

use std::time::{Duration, Instant};

use bascule_model::{CallRequest, CallTimeout, CorrelationId, ProviderAdapter, ToolId};
use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::block_in_place;

use super::observed_bridge::ObservedBridge;
use super::{with_fast_reconnect, with_settings};

fn request(tool: &str, arguments: &str, timeout: Option<Duration>) -> CallRequest {
    let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
    let timeout = timeout.map(|duration| CallTimeout { since: Instant::now(), duration });
    CallRequest { tool: ToolId::parse(tool).unwrap(), arguments, timeout }
}

fn id(name: &str) -> CorrelationId {
    CorrelationId::parse(name).unwrap()
}

fn script() -> Script {
    let fault = json!({ "code": -32000, "message": "no" });
    Script::new()
        .tools(["good", "silent", "dies", "errs"])
        .tool(json!({ "name": "picky", "inputSchema": { "type": "object", "required": ["a"] } }))
        .calls("silent", [Behaviour::silence()])
        .calls("dies", [Behaviour::exit(1)])
        .calls("errs", [Behaviour::error(fault)])
}

/// Error code of the only final event of a call, or `completed`.
#[track_caller]
fn outcome(bridge: &ObservedBridge, id: &str) -> String {
    let all = [bridge.events("tool.completed"), bridge.events("tool.failed")].concat();
    let own: Vec<_> = all.iter().filter(|event| event["correlationId"] == id).collect();
    assert_eq!(own.len(), 1, "{id}: {own:?}");
    own[0]["code"].as_str().unwrap_or("completed").to_owned()
}

// req: BR-07, BR-06
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_one_event_for_every_outcome() {
    let server = ScriptedStdio::new(script());
    let mut bridge = ObservedBridge::start(json!({ "s": with_fast_reconnect(server.entry()) })).await;
    let soon = Some(Duration::from_millis(100));
    let calls = [
        ("good", "{}", None, "completed"),
        ("picky", "{}", None, "INVALID_INPUT"),
        ("errs", "{}", None, "PROVIDER_ERROR"),
        ("silent", "{}", soon, "PROVIDER_TIMEOUT"),
        ("nothing", "{}", None, "TOOL_NOT_FOUND"),
        ("dies", "{}", None, "PROVIDER_CRASHED"),
    ];
    for (tool, arguments, timeout, expected) in calls {
        let _ =
            bridge.adapter.execute(request(&format!("s:{tool}"), arguments, timeout), Some(id(tool))).await;
        assert_eq!(outcome(&bridge, tool), expected);
    }
    bridge.wait_for_event("reconnected").await;
    assert_eq!(bridge.events("tool.completed").len() + bridge.events("tool.failed").len(), calls.len());
    bridge.terminate().await;
}

// req: BR-07, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_cancelled_when_caller_leaves_at_any_stage() {
    let server = ScriptedStdio::new(script());
    let slow = ScriptedStdio::new(script().on("initialize", [Behaviour::silence()]));
    let tight = with_settings(server.entry(), json!({ "limits": { "maxConcurrent": 1 } }));
    let mut bridge = ObservedBridge::start_without_waiting(json!({ "s": tight, "slow": slow.entry() })).await;
    bridge.wait_for_health("s", "healthy").await;
    let call = |tool: &'static str, name: &'static str| {
        let adapter = bridge.adapter.clone();
        async move { adapter.execute(request(tool, "{}", None), Some(id(name))).await }
    };
    let sent = tokio::spawn(call("s:silent", "sent"));
    block_in_place(|| server.wait_for("tools/call"));
    for (tool, name) in [("s:good", "queued"), ("slow:good", "waiting")] {
        let mut call = Box::pin(call(tool, name));
        assert!(futures_util::poll!(&mut call).is_pending());
        drop(call);
        assert_eq!(outcome(&bridge, name), "CANCELLED");
    }
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    assert_eq!(outcome(&bridge, "sent"), "CANCELLED");
    block_in_place(|| server.wait_for("notifications/cancelled"));
    bridge.adapter.execute(request("s:good", "{}", None), Some(id("next"))).await.unwrap();
    assert_eq!(outcome(&bridge, "next"), "completed");
    bridge.terminate().await;
}

// req: BR-07, BR-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_event_for_call_under_way_at_shutdown() {
    let server = ScriptedStdio::new(script());
    let bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    let adapter = bridge.adapter.clone();
    let call =
        tokio::spawn(async move { adapter.execute(request("s:silent", "{}", None), Some(id("last"))).await });
    block_in_place(|| server.wait_for("tools/call"));
    crate::embedded::terminate(&bridge.adapter).await;
    assert!(call.await.unwrap().is_err());
    assert_ne!(outcome(&bridge, "last"), "completed");
}
