//! The bridge serves calls while some of its servers are still starting.

use std::fs;
use std::time::Duration;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::observed_bridge::ObservedBridge;
use super::serve_process::{ServeProcess, spawn};
use crate::bad_stdio::check;
use crate::embedded::call_with_timeout;
use crate::support::{demo_program, demo_server, wait_for_output};

/// A server that starts when this file exists.
fn server_waiting_for(file: &str) -> Value {
    let script = format!(r#"while [ ! -e "{file}" ]; do sleep 0.02; done; exec "$0" counter"#);
    json!({ "command": "sh", "args": ["-c", script, demo_program()] })
}

// req: BR-10, BR-12
#[test]
fn slow_server_does_not_delay_others() {
    let bridge =
        ServeProcess::start(json!({ "slow": server_waiting_for("go"), "counter": demo_server("counter") }));
    let early = spawn(&bridge.bascule, &["call", "slow:increment", "--json"]);
    bridge.bascule.call("counter:increment", "{}");
    assert_eq!(bridge.server_status("slow")["health"], "starting");
    let late = bridge.bascule.run(&["call", "slow:increment", "--timeout-ms", "100", "--json"]);
    check(
        &late.document()["error"],
        "PROVIDER_TIMEOUT not_sent true",
        &["`slow`", "did not start", "100 ms"],
    );
    fs::write(bridge.bascule.folder().join("go"), "").unwrap();
    let early = wait_for_output(early);
    assert_eq!(early.document()["result"]["structuredContent"]["value"], 1, "{early:?}");
}

// req: BR-10
#[test]
fn listing_waits_for_starting_servers() {
    let bridge =
        ServeProcess::start(json!({ "slow": server_waiting_for("go"), "clock": demo_server("clock") }));
    let listing = spawn(&bridge.bascule, &["tools", "--json"]);
    let describing = spawn(&bridge.bascule, &["describe", "slow:read", "--json"]);
    bridge.bascule.call("clock:now", "{}");
    fs::write(bridge.bascule.folder().join("go"), "").unwrap();
    assert_eq!(wait_for_output(listing).document().as_array().unwrap().len(), 6);
    assert_eq!(wait_for_output(describing).code, Some(0));
}

// req: BR-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_waiting_for_start_reports_start_failure() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = format!("while [ ! -e {:?} ]; do sleep 0.02; done; echo no >&2; exit 4", go);
    let entry = json!({ "command": "sh", "args": ["-c", script], "maxRetries": 0 });
    let other = ScriptedStdio::new(Script::new().tools(["x"]));
    let bridge = ObservedBridge::start_without_waiting(json!({ "slow": entry, "s": other.entry() })).await;
    let late = call_with_timeout(&bridge.adapter, "slow:x", "{}", Some(Duration::from_millis(50)))
        .await
        .unwrap_err();
    check(&late, "PROVIDER_TIMEOUT not_sent true", &["`slow` did not start", "the caller's timeout"]);
    let waiting = bridge.spawn_call("slow:x");
    bridge.call("s:x", "{}").await.unwrap();
    fs::write(go, "").unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(
        (&error["code"], &error["stderr"]),
        (&json!("PROVIDER_INIT_FAILED"), &json!("no")),
        "{error:#}"
    );
    bridge.terminate().await;
}
