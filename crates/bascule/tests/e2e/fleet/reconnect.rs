//! Lost child processes and their restart.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::observed_bridge::ObservedBridge;
use super::{count, with_fast_reconnect, with_settings};
use crate::bad_stdio::{check, in_shell};
use crate::support::{signal, text};

const DOWN: &str = "PROVIDER_UNAVAILABLE not_sent true";

fn echoing() -> Script {
    Script::new().tools(["x"])
}

// req: BR-07, BR-08, BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_killed_server() {
    let server = ScriptedStdio::new(echoing());
    let mut bridge = ObservedBridge::start(json!({ "s": with_fast_reconnect(server.entry()) })).await;
    let first = bridge.health("s");
    server.kill();
    let degraded = bridge.wait_for_health("s", "degraded").await;
    assert_eq!((&degraded["from"], &degraded["to"]), (&json!("healthy"), &json!("degraded")));
    assert!(degraded["cause"].as_str().unwrap().contains("SIGKILL"), "{degraded}");
    let lost = bridge.wait_for_event("disconnected").await;
    assert!(lost["server"] == "s" && lost["cause"].as_str().unwrap().contains("SIGKILL"), "{lost}");
    let refreshed = bridge.wait_for_event("tools.refreshed").await;
    assert_eq!(
        refreshed,
        json!({ "type": "provider.mcp.tools.refreshed", "server": "s", "added": [], "removed": [], "unchanged": 1 })
    );
    bridge.wait_for_health("s", "healthy").await;
    let reconnected = bridge.wait_for_event("reconnected").await;
    assert_eq!((&reconnected["server"], &reconnected["attempts"]), (&json!("s"), &json!(1)));
    let second = bridge.health("s");
    assert_eq!(
        (&second["health"], &second["restarts"], &second["cause"]),
        (&json!("healthy"), &json!(1), &json!(null))
    );
    assert_ne!(first["pid"], second["pid"]);
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-10, BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_fails_immediately_while_server_is_down() {
    let server = ScriptedStdio::new(echoing());
    let entry = with_settings(server.entry(), json!({ "reconnectBackoffMs": 30_000 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    server.kill();
    bridge.wait_for_health("s", "degraded").await;
    let error = bridge.call("s:x", "{}").await.unwrap_err();
    check(&error, DOWN, &["`s` is down", "SIGKILL"]);
    let health = bridge.health("s");
    assert_eq!((&health["health"], &health["pid"]), (&json!("degraded"), &json!(null)));
    assert_eq!(bridge.tools(), ["s:x"], "the tools stay in the catalog");
    bridge.refresh("s").await.unwrap();
    bridge.wait_for_event("reconnected").await;
    assert_eq!(bridge.health("s")["restarts"], 1);
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detects_stopped_idle_server_by_ping() {
    let server = ScriptedStdio::new(echoing());
    let entry = with_settings(with_fast_reconnect(server.entry()), json!({ "keepAliveMs": 50 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    signal(server.started()[0], "STOP");
    let lost = bridge.wait_for_event("disconnected").await;
    assert!(lost["cause"].as_str().unwrap().contains("ping"), "{lost}");
    bridge.wait_for_event("reconnected").await;
    assert_eq!(server.started().len(), 2);
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_only_idle_servers() {
    let brief = Behaviour::text("done").after_delay(std::time::Duration::from_millis(100));
    let script = Script::new().tools(["busy", "x"]).calls("busy", [Behaviour::silence()]).calls("x", [brief]);
    let server = ScriptedStdio::new(script);
    let entry = with_settings(server.entry(), json!({ "keepAliveMs": 10 }));
    let bridge = ObservedBridge::start(json!({ "s": entry })).await;
    let busy = bridge.spawn_call("s:busy");
    server.wait_for("tools/call");
    for _ in 0..5 {
        bridge.call("s:x", "{}").await.unwrap();
    }
    let methods = server.methods();
    let called = methods.iter().position(|method| method == "tools/call").unwrap();
    // One ping may have been under way already.
    assert!(count(&methods[called..], "ping") <= 1, "{methods:?}");
    busy.abort();
    let before = count(&methods, "ping");
    crate::support::eventually("the server is pinged again", || {
        count(&server.methods(), "ping") > before + 2
    });
    assert_eq!(bridge.health("s")["restarts"], 0);
    bridge.terminate().await;
}

// req: BR-09, BR-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_tools_again_after_restart() {
    let server = ScriptedStdio::new(Script::new().tools(["stays", "goes"]));
    let mut bridge = ObservedBridge::start(json!({ "s": with_fast_reconnect(server.entry()) })).await;
    server.set_script(Script::new().tools(["stays", "comes"]));
    server.kill();
    let refreshed = bridge.wait_for_event("tools.refreshed").await;
    assert_eq!((&refreshed["added"], &refreshed["removed"]), (&json!(["comes"]), &json!(["goes"])));
    assert_eq!(refreshed["unchanged"], 1);
    bridge.wait_for_event("reconnected").await;
    assert_eq!(bridge.tools(), ["s:stays", "s:comes"]);
    bridge.call("s:comes", "{}").await.unwrap();
    check(&bridge.call("s:goes", "{}").await.unwrap_err(), "TOOL_NOT_FOUND not_sent false", &[]);
    bridge.terminate().await;
}

// req: BR-09, BR-08, BR-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gives_up_after_max_retries_and_restarts_on_refresh() {
    let server = ScriptedStdio::new(echoing());
    let entry = with_settings(with_fast_reconnect(server.entry()), json!({ "maxRetries": 2 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    server.set_script(echoing().exit_at_start(7));
    server.kill();
    let exhausted = bridge.wait_for_event("reconnect.exhausted").await;
    assert_eq!((&exhausted["server"], &exhausted["attempts"]), (&json!("s"), &json!(2)));
    assert!(exhausted["cause"].as_str().unwrap().contains("exit code 7"), "{exhausted}");
    assert_eq!(bridge.health("s")["health"], "unavailable");
    assert_eq!(server.started().len(), 3, "one start and two attempts");
    check(&bridge.call("s:x", "{}").await.unwrap_err(), DOWN, &["exit code 7"]);
    assert!(bridge.refresh("s").await.is_err(), "the refresh must fail");

    server.set_script(echoing());
    bridge.refresh("s").await.unwrap();
    bridge.wait_for_health("s", "healthy").await;
    bridge.wait_for_event("reconnected").await;
    assert_eq!(bridge.health("s")["restarts"], 1);
    assert_eq!(text(&bridge.call("s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    bridge.terminate().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gives_up_server_that_exits_after_every_start() {
    let entry =
        with_settings(with_fast_reconnect(in_shell("exit 9", "flapping")), json!({ "maxRetries": 3 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    let exhausted = bridge.wait_for_event("reconnect.exhausted").await;
    assert_eq!(exhausted["attempts"], 3, "{exhausted}");
    assert_eq!(bridge.health("s")["health"], "unavailable");
    bridge.terminate().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_failed_first_start() {
    let server = ScriptedStdio::new(echoing().exit_at_start(7));
    // More attempts than fit before the script changes.
    let entry = with_settings(with_fast_reconnect(server.entry()), json!({ "maxRetries": 1_000_000 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    let error = bridge.call("s:x", "{}").await.unwrap_err();
    assert_eq!(error["code"], "PROVIDER_INIT_FAILED", "{error:#}");
    server.set_script(echoing());
    bridge.wait_for_health("s", "healthy").await;
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn does_not_restart_server_after_shutdown() {
    let server = ScriptedStdio::new(echoing());
    let entry = with_settings(server.entry(), json!({ "reconnectBackoffMs": 30_000 }));
    let mut bridge = ObservedBridge::start(json!({ "s": entry })).await;
    server.kill();
    bridge.wait_for_health("s", "degraded").await;
    crate::embedded::terminate(&bridge.adapter).await;
    bridge.wait_for_health("s", "stopped").await;
    assert!(bridge.tools().is_empty());
    assert_eq!(server.started().len(), 1);
    check(&bridge.call("s:x", "{}").await.unwrap_err(), DOWN, &["stopped"]);
}
