//! Every call has exactly one event that tells how it ended, whatever happens to its caller.

use std::time::{Duration, Instant};

use bascule_model::{CallRequest, CallTimeout, CorrelationId, ProviderAdapter, ToolId};
use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::block_in_place;

use super::listening::Fleet;
use super::{eager, with};

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

/// The one event of this call: its kind, and its code where it failed.
#[track_caller]
fn ending(fleet: &Fleet, id: &str) -> String {
    let all = [fleet.told("tool.completed"), fleet.told("tool.failed")].concat();
    let own: Vec<_> = all.iter().filter(|event| event["correlationId"] == id).collect();
    assert_eq!(own.len(), 1, "{id}: {own:?}");
    own[0]["code"].as_str().unwrap_or("completed").to_owned()
}

// req: BR-07, BR-06
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_a_call_ends_it_is_told_once() {
    let server = ScriptedStdio::new(script());
    let mut fleet = Fleet::start(json!({ "s": eager(server.entry()) })).await;
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
        let _ = fleet.bridge.execute(request(&format!("s:{tool}"), arguments, timeout), Some(id(tool))).await;
        assert_eq!(ending(&fleet, tool), expected);
    }
    fleet.until("reconnected").await;
    assert_eq!(fleet.told("tool.completed").len() + fleet.told("tool.failed").len(), calls.len());
    fleet.end().await;
}

// req: BR-07, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_leaves_is_told_of_as_cancelled_wherever_the_call_was() {
    let server = ScriptedStdio::new(script());
    let slow = ScriptedStdio::new(script().on("initialize", [Behaviour::silence()]));
    let tight = with(server.entry(), json!({ "limits": { "maxConcurrent": 1 } }));
    let mut fleet = Fleet::open(json!({ "s": tight, "slow": slow.entry() })).await;
    fleet.until_health("s", "healthy").await;
    let call = |tool: &'static str, name: &'static str| {
        let bridge = fleet.bridge.clone();
        async move { bridge.execute(request(tool, "{}", None), Some(id(name))).await }
    };
    let sent = tokio::spawn(call("s:silent", "sent"));
    block_in_place(|| server.wait_for("tools/call"));
    for (tool, name) in [("s:good", "queued"), ("slow:good", "waiting")] {
        let mut call = Box::pin(call(tool, name));
        assert!(futures_util::poll!(&mut call).is_pending());
        drop(call);
        assert_eq!(ending(&fleet, name), "CANCELLED");
    }
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    assert_eq!(ending(&fleet, "sent"), "CANCELLED");
    block_in_place(|| server.wait_for("notifications/cancelled"));
    fleet.bridge.execute(request("s:good", "{}", None), Some(id("next"))).await.unwrap();
    assert_eq!(ending(&fleet, "next"), "completed");
    fleet.end().await;
}

// req: BR-07, BR-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_when_the_bridge_ends_are_told_of_too() {
    let server = ScriptedStdio::new(script());
    let fleet = Fleet::start(json!({ "s": server.entry() })).await;
    let bridge = fleet.bridge.clone();
    let call =
        tokio::spawn(async move { bridge.execute(request("s:silent", "{}", None), Some(id("last"))).await });
    block_in_place(|| server.wait_for("tools/call"));
    crate::embedded::terminate(&fleet.bridge).await;
    assert!(call.await.unwrap().is_err());
    assert_ne!(ending(&fleet, "last"), "completed");
}
