//! Limits on concurrent calls, queued calls and the call rate.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::observed_bridge::ObservedBridge;
use super::{count, with_settings};
use crate::bad_stdio::check;
use crate::embedded::call_with_timeout;
use crate::support::text;

const RATE_LIMITED: &str = "RATE_LIMITED not_sent true";

async fn limited(script: Script, settings: Value) -> (ScriptedStdio, ObservedBridge) {
    let server = ScriptedStdio::new(script);
    let bridge = ObservedBridge::start(json!({ "s": with_settings(server.entry(), settings) })).await;
    (server, bridge)
}

#[track_caller]
fn check_rejected(error: &Value, part: &str) {
    check(error, RATE_LIMITED, &[part, "try again in"]);
    assert!(error["retryAfterMs"].as_u64().is_some_and(|wait| wait > 0), "{error:#}");
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_call_beyond_concurrency_and_queue() {
    let script = Script::new().tools(["x"]).calls("x", [Behaviour::silence(), Behaviour::text("fine")]);
    let (server, bridge) = limited(script, json!({ "limits": { "maxConcurrent": 1, "maxQueue": 1 } })).await;
    let first = bridge.spawn_call("s:x");
    tokio::task::block_in_place(|| server.wait_for("tools/call"));
    // One of the two is queued and the other rejected; either may come first.
    let (mut second, mut third) = (bridge.spawn_call("s:x"), bridge.spawn_call("s:x"));
    let (rejected, queued) = tokio::select! {
        ended = &mut second => (ended, third),
        ended = &mut third => (ended, second),
    };
    check_rejected(&rejected.unwrap().unwrap_err(), "`maxQueue`");
    check_rejected(&bridge.call("s:x", "{}").await.unwrap_err(), "`maxConcurrent`");
    first.abort();
    assert_eq!(text(&queued.await.unwrap().unwrap()), "fine", "the queued call runs");
    assert_eq!(count(&server.methods(), "tools/call"), 2);
    bridge.terminate().await;
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_call_times_out_as_not_sent() {
    let script = Script::new().tools(["x"]).calls("x", [Behaviour::silence()]);
    let (server, bridge) = limited(script, json!({ "limits": { "maxConcurrent": 1 } })).await;
    let first = bridge.spawn_call("s:x");
    tokio::task::block_in_place(|| server.wait_for("tools/call"));
    let late = call_with_timeout(&bridge.adapter, "s:x", "{}", Some(Duration::from_millis(50))).await;
    check(&late.unwrap_err(), "PROVIDER_TIMEOUT not_sent true", &["slot", "`maxConcurrent`"]);
    assert_eq!(count(&server.methods(), "tools/call"), 1);
    first.abort();
    bridge.terminate().await;
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_calls_above_rate_with_retry_time() {
    let (server, bridge) =
        limited(Script::new().tools(["x", "y"]), json!({ "limits": { "ratePerSecond": 0.01 } })).await;
    bridge.call("s:x", "{}").await.unwrap();
    let error = bridge.call("s:y", "{}").await.unwrap_err();
    check_rejected(&error, "`ratePerSecond`");
    assert!(error["retryAfterMs"].as_u64().unwrap() <= 100_000, "{error:#}");
    assert_eq!(count(&server.methods(), "tools/call"), 1, "the rejected call did not reach the server");
    assert_eq!(bridge.events("tool.failed")[0]["code"], "RATE_LIMITED");
    bridge.terminate().await;
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_limits_of_tools() {
    let script = Script::new().tools(["x", "y", "z"]).calls("y", [Behaviour::silence()]);
    let tools = json!({ "tools": {
        "x": { "limits": { "ratePerSecond": 0.01 } }, "y": { "limits": { "maxConcurrent": 1, "maxQueue": 0 } } } });
    let (server, bridge) = limited(script, tools).await;
    bridge.call("s:x", "{}").await.unwrap();
    check_rejected(&bridge.call("s:x", "{}").await.unwrap_err(), "`ratePerSecond`");
    let held = bridge.spawn_call("s:y");
    tokio::task::block_in_place(|| {
        server.wait_until(|line| line.contains("tools/call") && line.contains(r#""y""#))
    });
    check_rejected(&bridge.call("s:y", "{}").await.unwrap_err(), "`maxConcurrent`");
    assert_eq!(text(&bridge.call("s:z", r#"{"n":1}"#).await.unwrap()), r#"{"n":1}"#);
    held.abort();
    bridge.terminate().await;
}

// req: BR-17, BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_limits_of_servers_apart() {
    let (a, b) =
        (ScriptedStdio::new(Script::new().tools(["x"])), ScriptedStdio::new(Script::new().tools(["x"])));
    let tight = with_settings(a.entry(), json!({ "limits": { "ratePerSecond": 0.01 } }));
    let bridge = ObservedBridge::start(json!({ "a": tight, "b": b.entry() })).await;
    bridge.call("a:x", "{}").await.unwrap();
    check_rejected(&bridge.call("a:x", "{}").await.unwrap_err(), "`ratePerSecond`");
    for _ in 0..20 {
        bridge.call("b:x", "{}").await.unwrap();
    }
    bridge.terminate().await;
}
