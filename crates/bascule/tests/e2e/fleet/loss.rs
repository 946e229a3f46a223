//! Child processes that are lost, and what it takes to have them back.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::listening::Fleet;
use super::{count, eager, signal, with};
use crate::bad_stdio::{check, in_shell};
use crate::support::text;

const DOWN: &str = "PROVIDER_UNAVAILABLE not_sent true";

fn echoing() -> Script {
    Script::new().tools(["x"])
}

// req: BR-07, BR-08, BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_is_lost_brought_back_and_serves_again() {
    let server = ScriptedStdio::new(echoing());
    let mut fleet = Fleet::start(json!({ "s": eager(server.entry()) })).await;
    let first = fleet.health("s");
    server.kill();
    let degraded = fleet.until_health("s", "degraded").await;
    assert_eq!((&degraded["from"], &degraded["to"]), (&json!("healthy"), &json!("degraded")));
    assert!(degraded["cause"].as_str().unwrap().contains("SIGKILL"), "{degraded}");
    let lost = fleet.until("disconnected").await;
    assert!(lost["server"] == "s" && lost["cause"].as_str().unwrap().contains("SIGKILL"), "{lost}");
    let refreshed = fleet.until("tools.refreshed").await;
    assert_eq!(
        refreshed,
        json!({ "type": "provider.mcp.tools.refreshed", "server": "s", "added": [], "removed": [], "unchanged": 1 })
    );
    fleet.until_health("s", "healthy").await;
    let back = fleet.until("reconnected").await;
    assert_eq!((&back["server"], &back["attempts"]), (&json!("s"), &json!(1)));
    let second = fleet.health("s");
    assert_eq!(
        (&second["health"], &second["restarts"], &second["cause"]),
        (&json!("healthy"), &json!(1), &json!(null))
    );
    assert_ne!(first["pid"], second["pid"]);
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-10, BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_server_is_down_a_call_fails_at_once_and_says_when_to_come_back() {
    let server = ScriptedStdio::new(echoing());
    let entry = with(server.entry(), json!({ "reconnectBackoffMs": 30_000 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    server.kill();
    fleet.until_health("s", "degraded").await;
    let error = fleet.call("s:x", "{}").await.unwrap_err();
    check(&error, DOWN, &["`s` is down", "SIGKILL"]);
    let health = fleet.health("s");
    assert_eq!((&health["health"], &health["pid"]), (&json!("degraded"), &json!(null)));
    assert_eq!(fleet.tools(), ["s:x"], "what it can do is still known");
    fleet.refresh("s").await.unwrap();
    fleet.until("reconnected").await;
    assert_eq!(fleet.health("s")["restarts"], 1);
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_that_has_stopped_is_found_out_by_a_ping() {
    let server = ScriptedStdio::new(echoing());
    let entry = with(eager(server.entry()), json!({ "keepAliveMs": 50 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    signal(server.started()[0], "STOP");
    let lost = fleet.until("disconnected").await;
    assert!(lost["cause"].as_str().unwrap().contains("ping"), "{lost}");
    fleet.until("reconnected").await;
    assert_eq!(server.started().len(), 2);
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_not_pinged_and_an_idle_one_is() {
    let moment = Behaviour::text("done").after_delay(std::time::Duration::from_millis(100));
    let script =
        Script::new().tools(["busy", "x"]).calls("busy", [Behaviour::silence()]).calls("x", [moment]);
    let server = ScriptedStdio::new(script);
    let entry = with(server.entry(), json!({ "keepAliveMs": 10 }));
    let fleet = Fleet::start(json!({ "s": entry })).await;
    let busy = fleet.calling("s:busy");
    server.wait_for("tools/call");
    for _ in 0..5 {
        fleet.call("s:x", "{}").await.unwrap();
    }
    let methods = server.methods();
    let called = methods.iter().position(|method| method == "tools/call").unwrap();
    // One may have been on its way already.
    assert!(count(&methods[called..], "ping") <= 1, "{methods:?}");
    busy.abort();
    let before = count(&methods, "ping");
    crate::support::eventually("it is pinged again", || count(&server.methods(), "ping") > before + 2);
    assert_eq!(fleet.health("s")["restarts"], 0);
    fleet.end().await;
}

// req: BR-09, BR-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_with_other_tools_has_those() {
    let server = ScriptedStdio::new(Script::new().tools(["stays", "goes"]));
    let mut fleet = Fleet::start(json!({ "s": eager(server.entry()) })).await;
    server.change(Script::new().tools(["stays", "comes"]));
    server.kill();
    let refreshed = fleet.until("tools.refreshed").await;
    assert_eq!((&refreshed["added"], &refreshed["removed"]), (&json!(["comes"]), &json!(["goes"])));
    assert_eq!(refreshed["unchanged"], 1);
    fleet.until("reconnected").await;
    assert_eq!(fleet.tools(), ["s:stays", "s:comes"]);
    fleet.call("s:comes", "{}").await.unwrap();
    check(&fleet.call("s:goes", "{}").await.unwrap_err(), "TOOL_NOT_FOUND not_sent false", &[]);
    fleet.end().await;
}

// req: BR-09, BR-08, BR-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_is_given_up_and_comes_back_on_request() {
    let server = ScriptedStdio::new(echoing());
    let entry = with(eager(server.entry()), json!({ "maxRetries": 2 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    server.change(echoing().exit_at_start(7));
    server.kill();
    let exhausted = fleet.until("reconnect.exhausted").await;
    assert_eq!((&exhausted["server"], &exhausted["attempts"]), (&json!("s"), &json!(2)));
    assert!(exhausted["cause"].as_str().unwrap().contains("exit code 7"), "{exhausted}");
    assert_eq!(fleet.health("s")["health"], "unavailable");
    assert_eq!(server.started().len(), 3, "one start and two attempts");
    check(&fleet.call("s:x", "{}").await.unwrap_err(), DOWN, &["exit code 7"]);
    assert!(fleet.refresh("s").await.is_err(), "a refresh says that it failed");

    server.change(echoing());
    fleet.refresh("s").await.unwrap();
    fleet.until_health("s", "healthy").await;
    fleet.until("reconnected").await;
    assert_eq!(fleet.health("s")["restarts"], 1);
    assert_eq!(text(&fleet.call("s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    fleet.end().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_after_every_start_is_given_up_too() {
    let entry = with(eager(in_shell("exit 9", "flaps")), json!({ "maxRetries": 3 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    let exhausted = fleet.until("reconnect.exhausted").await;
    assert_eq!(exhausted["attempts"], 3, "{exhausted}");
    assert_eq!(fleet.health("s")["health"], "unavailable");
    fleet.end().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_started_at_first_is_tried_again() {
    let server = ScriptedStdio::new(echoing().exit_at_start(7));
    // More often than it can be tried before the script is another.
    let entry = with(eager(server.entry()), json!({ "maxRetries": 1_000_000 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    let error = fleet.call("s:x", "{}").await.unwrap_err();
    assert_eq!(error["code"], "PROVIDER_INIT_FAILED", "{error:#}");
    server.change(echoing());
    fleet.until_health("s", "healthy").await;
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_brought_back_is_not_after_the_end() {
    let server = ScriptedStdio::new(echoing());
    let entry = with(server.entry(), json!({ "reconnectBackoffMs": 30_000 }));
    let mut fleet = Fleet::start(json!({ "s": entry })).await;
    server.kill();
    fleet.until_health("s", "degraded").await;
    crate::embedded::terminate(&fleet.bridge).await;
    fleet.until_health("s", "stopped").await;
    assert!(fleet.tools().is_empty());
    assert_eq!(server.started().len(), 1);
    check(&fleet.call("s:x", "{}").await.unwrap_err(), DOWN, &["stopped"]);
}
