//! Servers that go on with what nobody waits for, and do not listen meanwhile.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::listening::Fleet;
use super::{count, eager, with};
use crate::bad_stdio::{check, in_shell};
use crate::embedded::call_within;
use crate::support::eventually;

const LATE: &str = "PROVIDER_TIMEOUT unknown true";

// req: BR-12, BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ignores_two_cancellations_is_restarted() {
    // It reads no more after its tools were listed.
    let entry = with(eager(in_shell("sleep 600", "deaf")), json!({ "timeoutMs": 200, "cancelGraceMs": 50 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    for _ in 0..2 {
        check(&fleet.call("s:x", "{}").await.unwrap_err(), LATE, &["200 ms"]);
    }
    let lost = fleet.until("disconnected").await;
    assert!(lost["cause"].as_str().unwrap().contains("ignored 2 cancellations"), "{lost}");
    fleet.until("reconnected").await;
    assert_eq!(fleet.health("s")["restarts"], 1);
    fleet.end().await;
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_still_answers_pings_is_left_alone() {
    let server = ScriptedStdio::new(Script::new().tools(["x", "y"]).calls("x", [Behaviour::silence()]));
    let late = json!({ "tools": { "x": { "timeoutMs": 100 } }, "cancelGraceMs": 10_000, "keepAliveMs": 0 });
    let entry = with(server.entry(), late);
    let fleet = Fleet::start(json!({ "s": entry })).await;
    for n in 1..=3 {
        check(&fleet.call("s:x", "{}").await.unwrap_err(), LATE, &[]);
        eventually("it is asked whether it listens", || count(&server.methods(), "ping") >= n);
    }
    let bridge = &fleet.bridge;
    call_within(bridge, "s:y", "{}", Some(Duration::from_secs(30))).await.unwrap();
    assert_eq!((server.started().len(), &fleet.health("s")["restarts"]), (1, &json!(0)));
    assert!(fleet.told("disconnected").is_empty());
    fleet.end().await;
}

// req: BR-12, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_leave_count_as_cancellations_too() {
    let entry = with(eager(in_shell("sleep 600", "deaf")), json!({ "cancelGraceMs": 50 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    for _ in 0..2 {
        // Long enough that it is surely sent.
        let calling = fleet.call("s:x", "{}");
        assert!(tokio::time::timeout(Duration::from_secs(2), calling).await.is_err());
    }
    fleet.until("disconnected").await;
    fleet.until("reconnected").await;
    fleet.end().await;
}
