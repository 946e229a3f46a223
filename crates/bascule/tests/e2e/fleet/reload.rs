//! Reloading the configuration of a running bridge.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::held_server::HeldServer;
use super::observed_bridge::{GRACE, ObservedBridge, settings};
use super::{with_fast_reconnect, with_settings};
use crate::embedded::within_timeout;
use crate::support::{is_running, text};

fn echoing() -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["x"]))
}

fn names(list: &[bascule_model::ServerName]) -> Vec<&str> {
    list.iter().map(bascule_model::ServerName::as_str).collect()
}

fn available_events(bridge: &ObservedBridge) -> Vec<Value> {
    bridge.events("tools.available").iter().map(|event| event["tools"].clone()).collect()
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_added_stops_removed_and_keeps_unchanged_servers() {
    let (kept, removed, added) = (echoing(), echoing(), echoing());
    let bridge = ObservedBridge::start(json!({ "kept": kept.entry(), "removed": removed.entry() })).await;
    let pid = bridge.health("kept")["pid"].clone();
    let reloaded = bridge.reload(json!({ "added": added.entry(), "kept": kept.entry() })).await;
    let plan = &reloaded.plan;
    assert_eq!((names(&plan.added), names(&plan.removed)), (vec!["added"], vec!["removed"]));
    assert_eq!((plan.changed.len(), plan.unchanged, reloaded.refused.len()), (0, 1, 0));
    assert_eq!((&bridge.health("kept")["pid"], kept.started().len()), (&pid, 1));
    assert!(!is_running(removed.started()[0]), "the removed server has exited");
    bridge.call("added:x", "{}").await.unwrap();
    assert_eq!(bridge.tools(), ["added:x", "kept:x"], "in the order of the configuration");
    assert_eq!(bridge.call("removed:x", "{}").await.unwrap_err()["code"], "TOOL_NOT_FOUND");
    assert_eq!(available_events(&bridge), [json!(["added:x", "kept:x"])], "one event with the new catalog");
    bridge.terminate().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaces_changed_server() {
    let (one, two, other) = (echoing(), ScriptedStdio::new(Script::new().tools(["y"])), echoing());
    let bridge = ObservedBridge::start(json!({ "s": one.entry(), "other": other.entry() })).await;
    let reloaded = bridge.reload(json!({ "s": two.entry(), "other": other.entry() })).await;
    assert_eq!((names(&reloaded.plan.changed), reloaded.plan.unchanged), (vec!["s"], 1));
    bridge.call("s:y", "{}").await.unwrap();
    assert!(!is_running(one.started()[0]));
    assert_eq!(other.started().len(), 1);
    assert_eq!(available_events(&bridge), [json!(["other:x", "s:y"])]);
    assert_eq!(bridge.health("s")["health"], "healthy");
    bridge.terminate().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_changed_settings_of_same_command() {
    let server = echoing();
    let bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    bridge.reload(json!({ "s": with_settings(server.entry(), json!({ "deniedTools": ["x"] })) })).await;
    assert_eq!(bridge.call("s:x", "{}").await.unwrap_err()["code"], "POLICY_DENIED");
    assert!(bridge.tools().is_empty());
    bridge.terminate().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_old_server_if_new_one_does_not_start() {
    let server = echoing();
    let bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    let pid = bridge.health("s")["pid"].clone();
    let broken = ScriptedStdio::new(Script::new().exit_at_start(5));
    let reloaded = bridge.reload(json!({ "s": with_fast_reconnect(broken.entry()) })).await;
    let [(name, reason)] = &reloaded.refused[..] else { panic!("{reloaded:?}") };
    assert!(name.as_str() == "s" && reason.contains("exit code 5"), "{reloaded:?}");
    bridge.call("s:x", "{}").await.unwrap();
    let health = bridge.health("s");
    assert_eq!((&health["pid"], &health["health"]), (&pid, &json!("healthy")));
    assert_eq!(available_events(&bridge), [json!(["s:x"])]);
    let tries = broken.started().len();
    // A second reload succeeds once the server can start.
    broken.set_script(Script::new().tools(["z"]));
    let reloaded = bridge.reload(json!({ "s": with_fast_reconnect(broken.entry()) })).await;
    assert!(reloaded.refused.is_empty(), "{reloaded:?}");
    assert_eq!(broken.started().len(), tries + 1, "a refused server is not retried in the background");
    bridge.call("s:z", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reload_does_not_undo_a_later_one() {
    let (old, other) = (echoing(), echoing());
    let slow = ScriptedStdio::new(Script::new().on("initialize", [Behaviour::silence()]));
    let bridge = ObservedBridge::start(json!({ "s": old.entry(), "other": other.entry() })).await;
    let slow_reload = {
        let adapter = bridge.adapter.clone();
        let after = settings(&json!({ "s": slow.entry(), "other": other.entry() }));
        tokio::spawn(async move { adapter.reload(after, GRACE).await })
    };
    block_in_place(|| slow.wait_for("initialize"));
    let later = bridge.reload(json!({ "s": old.entry() })).await;
    assert_eq!(names(&later.plan.removed), ["other"]);
    slow.set_script(Script::new().tools(["y"]));
    // The end of the silent process ends the wait for its start.
    slow.kill();
    let reloaded = within_timeout(slow_reload).await.unwrap();
    assert!(reloaded.is_superseded && reloaded.plan == bascule::Plan::default(), "{reloaded:?}");
    assert_eq!(bridge.tools(), ["s:x"]);
    bridge.call("s:x", "{}").await.unwrap();
    let running =
        |server: &ScriptedStdio| server.started().into_iter().filter(|pid| is_running(*pid)).count();
    assert_eq!([&old, &other, &slow].map(running), [1, 0, 0]);
    assert_eq!([&old, &other, &slow].map(|server| server.started().len()), [1, 1, 1]);
    bridge.terminate().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_finish_in_the_old_process() {
    let held @ [untouched, removed, changed] = &[HeldServer::new(), HeldServer::new(), HeldServer::new()];
    let before =
        json!({ "untouched": untouched.entry(), "removed": removed.entry(), "changed": changed.entry() });
    let bridge = ObservedBridge::start(before).await;
    let calls = ["untouched:x", "removed:x", "changed:x"].map(|tool| bridge.spawn_call(tool));
    let pids = [untouched.wait_for_call(), removed.wait_for_call(), changed.wait_for_call()];
    let next = ScriptedStdio::new(Script::new().tools(["new"]));
    let reloading = {
        let adapter = bridge.adapter.clone();
        let after = settings(&json!({ "untouched": untouched.entry(), "changed": next.entry() }));
        tokio::spawn(async move { adapter.reload(after, GRACE).await })
    };
    // The new server serves calls while the old one finishes its call.
    within_timeout(async { while bridge.call("changed:new", "{}").await.is_err() {} }).await;
    assert!(pids.iter().all(|pid| is_running(*pid)), "the old processes still run their calls");
    held.iter().for_each(HeldServer::release);
    for call in calls {
        assert_eq!(text(&call.await.unwrap().unwrap()), "finished");
    }
    within_timeout(reloading).await.unwrap();
    assert_eq!(pids.map(is_running), [true, false, false]);
    bridge.terminate().await;
}

// req: BR-13, US-03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_waits_for_a_lazy_server_moves_to_its_replacement() {
    let silent = ScriptedStdio::new(Script::new().on("initialize", [Behaviour::silence()]));
    let next = echoing();
    let lazy =
        |server: &ScriptedStdio| json!({ "s": with_settings(server.entry(), json!({ "start": "lazy" })) });
    let bridge = ObservedBridge::start_without_waiting(lazy(&silent)).await;
    let call = bridge.spawn_call("s:x");
    block_in_place(|| silent.wait_for("initialize"));
    within_timeout(bridge.adapter.reload(settings(&lazy(&next)), Duration::from_millis(100))).await;
    within_timeout(call).await.unwrap().unwrap();
    bridge.terminate().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stops_removed_server_after_grace_period() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]).calls("x", [Behaviour::silence()]));
    let bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    let call = bridge.spawn_call("s:x");
    block_in_place(|| server.wait_for("tools/call"));
    within_timeout(bridge.adapter.reload(settings(&json!({})), Duration::from_millis(100))).await;
    assert!(!is_running(server.started()[0]));
    assert!(call.await.unwrap().is_err());
    bridge.terminate().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_given_up_server() {
    let server = ScriptedStdio::new(Script::new().exit_at_start(1));
    let entry = with_settings(with_fast_reconnect(server.entry()), json!({ "maxRetries": 1 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry.clone() })).await;
    bridge.wait_for_event("reconnect.exhausted").await;
    server.set_script(Script::new().tools(["x"]));
    bridge.reload(json!({ "s": entry })).await;
    bridge.wait_for_health("s", "healthy").await;
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-13, BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_health_event_matches_current_health() {
    let (one, two) = (echoing(), echoing());
    let broken = ScriptedStdio::new(Script::new().exit_at_start(5));
    let bridge = ObservedBridge::start(json!({ "s": one.entry() })).await;
    bridge.reload(json!({ "s": broken.entry() })).await;
    bridge.reload(json!({ "s": two.entry() })).await;
    let last = bridge.events("health.changed").pop().unwrap();
    assert_eq!(last["to"], bridge.health("s")["health"], "{:#?}", bridge.events("health.changed"));
    bridge.terminate().await;
}
