//! A bridge that takes over another configuration while it works.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::held::Held;
use super::listening::{Fleet, GRACE, settings};
use super::{eager, with};
use crate::embedded::patiently;
use crate::support::{is_running, text};

fn echoing() -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["x"]))
}

fn names(list: &[bascule_model::ServerName]) -> Vec<&str> {
    list.iter().map(bascule_model::ServerName::as_str).collect()
}

fn available(fleet: &Fleet) -> Vec<Value> {
    fleet.told("tools.available").iter().map(|event| event["tools"].clone()).collect()
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_new_starts_what_went_ends_and_the_rest_is_not_touched() {
    let (stays, goes, comes) = (echoing(), echoing(), echoing());
    let fleet = Fleet::start(json!({ "stays": stays.entry(), "goes": goes.entry() })).await;
    let pid = fleet.health("stays")["pid"].clone();
    let reloaded = fleet.reload(json!({ "comes": comes.entry(), "stays": stays.entry() })).await;
    let plan = &reloaded.plan;
    assert_eq!((names(&plan.added), names(&plan.removed)), (vec!["comes"], vec!["goes"]));
    assert_eq!((plan.changed.len(), plan.unchanged, reloaded.refused.len()), (0, 1, 0));
    assert_eq!((&fleet.health("stays")["pid"], stays.started().len()), (&pid, 1));
    assert!(!is_running(goes.started()[0]), "what went has ended");
    fleet.call("comes:x", "{}").await.unwrap();
    assert_eq!(fleet.tools(), ["comes:x", "stays:x"], "in the order of the configuration");
    assert_eq!(fleet.call("goes:x", "{}").await.unwrap_err()["code"], "TOOL_NOT_FOUND");
    assert_eq!(available(&fleet), [json!(["comes:x", "stays:x"])], "one word on what there is now");
    fleet.end().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_configured_differently_is_replaced() {
    let (one, two, other) = (echoing(), ScriptedStdio::new(Script::new().tools(["y"])), echoing());
    let fleet = Fleet::start(json!({ "s": one.entry(), "other": other.entry() })).await;
    let reloaded = fleet.reload(json!({ "s": two.entry(), "other": other.entry() })).await;
    assert_eq!((names(&reloaded.plan.changed), reloaded.plan.unchanged), (vec!["s"], 1));
    fleet.call("s:y", "{}").await.unwrap();
    assert!(!is_running(one.started()[0]));
    assert_eq!(other.started().len(), 1);
    assert_eq!(available(&fleet), [json!(["other:x", "s:y"])]);
    assert_eq!(fleet.health("s")["health"], "healthy");
    fleet.end().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_setting_counts_even_if_the_command_is_the_same() {
    let server = echoing();
    let fleet = Fleet::start(json!({ "s": server.entry() })).await;
    fleet.reload(json!({ "s": with(server.entry(), json!({ "deniedTools": ["x"] })) })).await;
    assert_eq!(fleet.call("s:x", "{}").await.unwrap_err()["code"], "POLICY_DENIED");
    assert!(fleet.tools().is_empty());
    fleet.end().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_server_that_does_not_start_goes_on_as_it_was() {
    let server = echoing();
    let fleet = Fleet::start(json!({ "s": server.entry() })).await;
    let pid = fleet.health("s")["pid"].clone();
    let broken = ScriptedStdio::new(Script::new().exit_at_start(5));
    let reloaded = fleet.reload(json!({ "s": eager(broken.entry()) })).await;
    let [(name, why)] = &reloaded.refused[..] else { panic!("{reloaded:?}") };
    assert!(name.as_str() == "s" && why.contains("exit code 5"), "{reloaded:?}");
    fleet.call("s:x", "{}").await.unwrap();
    let health = fleet.health("s");
    assert_eq!((&health["pid"], &health["health"]), (&pid, &json!("healthy")));
    assert_eq!(available(&fleet), [json!(["s:x"])]);
    let tries = broken.started().len();
    // As soon as it would start, the same configuration is taken over.
    broken.change(Script::new().tools(["z"]));
    let reloaded = fleet.reload(json!({ "s": eager(broken.entry()) })).await;
    assert!(reloaded.refused.is_empty(), "{reloaded:?}");
    assert_eq!(broken.started().len(), tries + 1, "what was refused was not tried behind our back");
    fleet.call("s:z", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_finish_where_they_began() {
    let held @ [untouched, removed, changed] = &[Held::new(), Held::new(), Held::new()];
    let before =
        json!({ "untouched": untouched.entry(), "removed": removed.entry(), "changed": changed.entry() });
    let fleet = Fleet::start(before).await;
    let calls = ["untouched:x", "removed:x", "changed:x"].map(|tool| fleet.calling(tool));
    let pids = [untouched.wait_called(), removed.wait_called(), changed.wait_called()];
    let next = ScriptedStdio::new(Script::new().tools(["new"]));
    let reloading = {
        let bridge = fleet.bridge.clone();
        let after = settings(&json!({ "untouched": untouched.entry(), "changed": next.entry() }));
        tokio::spawn(async move { bridge.reload(after, GRACE).await })
    };
    // The new one serves while the old one still finishes.
    patiently(async { while fleet.call("changed:new", "{}").await.is_err() {} }).await;
    assert!(pids.iter().all(|pid| is_running(*pid)), "their calls are not over");
    held.iter().for_each(Held::release);
    for call in calls {
        assert_eq!(text(&call.await.unwrap().unwrap()), "finished");
    }
    patiently(reloading).await.unwrap();
    assert_eq!(pids.map(is_running), [true, false, false]);
    fleet.end().await;
}

// req: BR-13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_does_not_finish_in_time_does_not_hold_a_server_for_ever() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]).calls("x", [Behaviour::silence()]));
    let fleet = Fleet::start(json!({ "s": server.entry() })).await;
    let call = fleet.calling("s:x");
    block_in_place(|| server.wait_for("tools/call"));
    patiently(fleet.bridge.reload(settings(&json!({})), Duration::from_millis(100))).await;
    assert!(!is_running(server.started()[0]));
    assert!(call.await.unwrap().is_err());
    fleet.end().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_tries_a_server_again_that_was_given_up() {
    let server = ScriptedStdio::new(Script::new().exit_at_start(1));
    let entry = with(eager(server.entry()), json!({ "maxRetries": 1 }));
    let mut fleet = Fleet::start(json!({ "s": entry.clone() })).await;
    fleet.until("reconnect.exhausted").await;
    server.change(Script::new().tools(["x"]));
    fleet.reload(json!({ "s": entry })).await;
    fleet.until_health("s", "healthy").await;
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-13, BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_a_servers_health_by_its_name_ends_up_with_the_truth() {
    let (one, two) = (echoing(), echoing());
    let broken = ScriptedStdio::new(Script::new().exit_at_start(5));
    let fleet = Fleet::start(json!({ "s": one.entry() })).await;
    fleet.reload(json!({ "s": broken.entry() })).await;
    fleet.reload(json!({ "s": two.entry() })).await;
    let last = fleet.told("health.changed").pop().unwrap();
    assert_eq!(last["to"], fleet.health("s")["health"], "{:#?}", fleet.told("health.changed"));
    fleet.end().await;
}
