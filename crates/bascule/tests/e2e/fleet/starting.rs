//! The bridge is there at once, while some of its servers take their time.

use std::fs;
use std::time::Duration;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::listening::Fleet;
use super::serving::{Serving, begin, finish};
use crate::bad_stdio::check;
use crate::commands::demo;
use crate::embedded::call_within;
use crate::support::program;

/// A server that starts when there is a file of this name.
fn waiting_for(file: &str) -> Value {
    let script = format!(r#"while [ ! -e "{file}" ]; do sleep 0.02; done; exec "$0" __demo counter"#);
    json!({ "command": "sh", "args": ["-c", script, program()] })
}

// req: BR-10, BR-12
#[test]
fn a_slow_server_keeps_nobody_from_another() {
    let serving = Serving::start(json!({ "slow": waiting_for("go"), "counter": demo("counter") }));
    let early = begin(&serving.bascule, &["call", "slow:increment", "--json"]);
    serving.bascule.call("counter:increment", "{}");
    assert_eq!(serving.server("slow")["health"], "starting");
    let late = serving.bascule.run(&["call", "slow:increment", "--timeout-ms", "100", "--json"]);
    check(
        &late.document()["error"],
        "PROVIDER_TIMEOUT not_sent true",
        &["`slow`", "did not start", "100 ms"],
    );
    fs::write(serving.bascule.folder().join("go"), "").unwrap();
    let early = finish(early);
    assert_eq!(early.document()["result"]["structuredContent"]["value"], 1, "{early:?}");
}

// req: BR-10
#[test]
fn a_listing_waits_for_those_that_start() {
    let serving = Serving::start(json!({ "slow": waiting_for("go"), "clock": demo("clock") }));
    let listing = begin(&serving.bascule, &["tools", "--json"]);
    let describing = begin(&serving.bascule, &["describe", "slow:read", "--json"]);
    serving.bascule.call("clock:now", "{}");
    fs::write(serving.bascule.folder().join("go"), "").unwrap();
    assert_eq!(finish(listing).document().as_array().unwrap().len(), 6);
    assert_eq!(finish(describing).code, Some(0));
}

// req: BR-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waited_for_a_start_in_vain_says_why_it_failed() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = format!("while [ ! -e {:?} ]; do sleep 0.02; done; echo no >&2; exit 4", go);
    let entry = json!({ "command": "sh", "args": ["-c", script], "maxRetries": 0 });
    let other = ScriptedStdio::new(Script::new().tools(["x"]));
    let fleet = Fleet::open(json!({ "slow": entry, "s": other.entry() })).await;
    let late = call_within(&fleet.bridge, "slow:x", "{}", Some(Duration::from_millis(50))).await.unwrap_err();
    check(&late, "PROVIDER_TIMEOUT not_sent true", &["`slow` did not start", "the caller's time-out"]);
    let waiting = fleet.calling("slow:x");
    fleet.call("s:x", "{}").await.unwrap();
    fs::write(go, "").unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(
        (&error["code"], &error["stderr"]),
        (&json!("PROVIDER_INIT_FAILED"), &json!("no")),
        "{error:#}"
    );
    fleet.end().await;
}
