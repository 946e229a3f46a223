//! Servers that ignore cancellations and pings.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::observed_bridge::ObservedBridge;
use super::{count, with_fast_reconnect, with_settings};
use crate::bad_stdio::{check, in_shell};
use crate::embedded::call_with_timeout;
use crate::support::eventually;

const TIMED_OUT: &str = "PROVIDER_TIMEOUT unknown true";

// req: BR-12, BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_server_that_ignores_two_cancellations() {
    // The server stops reading after it has listed its tools.
    let entry = with_settings(
        with_fast_reconnect(in_shell("sleep 600", "unresponsive")),
        json!({ "timeoutMs": 200, "cancelGraceMs": 50 }),
    );
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    for _ in 0..2 {
        check(&bridge.call("s:x", "{}").await.unwrap_err(), TIMED_OUT, &["200 ms"]);
    }
    let lost = bridge.wait_for_event("disconnected").await;
    assert!(lost["cause"].as_str().unwrap().contains("ignored 2 cancellations"), "{lost}");
    bridge.wait_for_event("reconnected").await;
    assert_eq!(bridge.health("s")["restarts"], 1);
    bridge.terminate().await;
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_server_that_answers_pings() {
    let server = ScriptedStdio::new(Script::new().tools(["x", "y"]).calls("x", [Behaviour::silence()]));
    let settings =
        json!({ "tools": { "x": { "timeoutMs": 100 } }, "cancelGraceMs": 10_000, "keepAliveMs": 0 });
    let entry = with_settings(server.entry(), settings);
    let bridge = ObservedBridge::start(json!({ "s": entry })).await;
    for n in 1..=3 {
        check(&bridge.call("s:x", "{}").await.unwrap_err(), TIMED_OUT, &[]);
        eventually("the server is pinged", || count(&server.methods(), "ping") >= n);
    }
    call_with_timeout(&bridge.adapter, "s:y", "{}", Some(Duration::from_secs(30))).await.unwrap();
    assert_eq!((server.started().len(), &bridge.health("s")["restarts"]), (1, &json!(0)));
    assert!(bridge.events("disconnected").is_empty());
    bridge.terminate().await;
}

// req: BR-12, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_leaving_callers_as_cancellations() {
    // The server writes what it reads to a file, and answers nothing.
    let received = tempfile::NamedTempFile::new().unwrap();
    let server =
        in_shell(r#"while read -r line; do echo "$line" >> "$0"; done"#, received.path().to_str().unwrap());
    let entry = with_settings(with_fast_reconnect(server), json!({ "cancelGraceMs": 50 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    let has_received = |method: &str, times: usize| {
        let messages = std::fs::read_to_string(received.path()).unwrap();
        messages.matches(&format!(r#""method":"{method}""#)).count() >= times
    };
    for times in 1..=2 {
        let call = bridge.spawn_call("s:x");
        eventually("the server has read the call", || has_received("tools/call", times));
        call.abort();
        eventually("the server is pinged", || has_received("ping", times));
    }
    bridge.wait_for_event("disconnected").await;
    bridge.wait_for_event("reconnected").await;
    bridge.terminate().await;
}
