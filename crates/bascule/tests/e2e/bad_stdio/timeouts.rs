//! How long a call may take: the smallest bound holds and is named, and progress moves only one of them.

use std::time::Duration;

use bascule_testkit::{Behaviour, ScriptedStdio};
use serde_json::{Value, json};

use super::{check, entry_with, scripted_with, tool_x};
use crate::embedded::{bridge, call_with_timeout, terminate};
use crate::support::text;

/// A call of a silent tool `x`: which bound it meets when the server's entry says this.
#[track_caller]
fn check_late(also: Value, expected: &str) {
    let (bascule, _server) = scripted_with(tool_x([Behaviour::silence()]), also);
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &[expected]);
}

/// In milliseconds: how long a server may be silent, far more than the one that is busy is.
const SILENT: u32 = 5_000;

/// Reports progress every second, so many times, and then answers.
fn busy(times: usize) -> Behaviour {
    let pause = Duration::from_secs(1);
    (0..times).fold(Behaviour::text("done"), |busy, _| busy.after_delay(pause).after_progress(1))
}

// req: BR-05
#[test]
fn of_a_servers_two_bounds_the_smaller_holds_and_is_named() {
    let bounds = |timeout: u32, execution: u32| json!({ "timeoutMs": timeout, "limits": { "maxExecutionMs": execution } });
    check_late(bounds(200, 60_000), "within 200 ms (`timeoutMs`)");
    check_late(bounds(60_000, 200), "within 200 ms (`maxExecutionMs`)");
}

// req: BR-01
// req: BR-05
#[test]
fn a_tools_own_bounds_replace_its_servers() {
    let limits = json!({ "maxExecutionMs": 60_000 });
    let own = |tool: Value| json!({ "timeoutMs": 60_000, "limits": limits, "tools": { "x": tool } });
    check_late(own(json!({ "limits": { "maxExecutionMs": 200 } })), "within 200 ms (`maxExecutionMs`)");
    check_late(own(json!({ "timeoutMs": 200 })), "within 200 ms (`timeoutMs`)");
    let other = json!({ "timeoutMs": 200, "tools": { "other": { "timeoutMs": 60_000 } } });
    check_late(other, "within 200 ms (`timeoutMs`)");
}

// req: BR-05
#[test]
fn the_callers_time_out_holds_where_it_is_the_smallest() {
    let (bascule, server) = scripted_with(tool_x([Behaviour::silence()]), json!({ "timeoutMs": 60_000 }));
    let (code, document) = bascule.run_json(&["call", "s:x", "--timeout-ms", "6000"]);
    assert_eq!(code, 3);
    check(&document["error"], "PROVIDER_TIMEOUT unknown true", &["the caller's time-out"]);
    server.wait_for("notifications/cancelled");
}

// req: BR-05
#[test]
fn a_callers_longer_time_out_lengthens_nothing() {
    let (bascule, _server) = scripted_with(tool_x([Behaviour::silence()]), json!({ "timeoutMs": 200 }));
    let (_, document) = bascule.run_json(&["call", "s:x", "--timeout-ms", "60000"]);
    check(&document["error"], "PROVIDER_TIMEOUT unknown true", &["within 200 ms (`timeoutMs`)"]);
}

// req: BR-05
#[test]
fn the_callers_time_out_covers_the_start_of_the_server() {
    let script = tool_x([]).on("initialize", [Behaviour::silence()]);
    let (bascule, server) = scripted_with(script, json!({}));
    let (code, document) = bascule.run_json(&["call", "s:x", "--timeout-ms", "5000"]);
    assert_eq!(code, 3);
    let late = ["did not answer `initialize` within 5000 ms (the caller's time-out)"];
    check(&document["error"], "PROVIDER_TIMEOUT not_sent true", &late);
    assert_eq!(server.methods(), ["initialize"]);
}

// req: BR-05
#[test]
fn progress_restarts_the_time_out_of_the_server() {
    let (bascule, _server) = scripted_with(tool_x([busy(7)]), json!({ "timeoutMs": SILENT }));
    assert_eq!(text(&bascule.call("s:x", "{}")), "done");
}

// req: BR-05
#[test]
fn progress_does_not_restart_the_longest_execution() {
    let bounds = json!({ "timeoutMs": SILENT, "limits": { "maxExecutionMs": 2500 } });
    let (bascule, server) = scripted_with(tool_x([busy(100)]), bounds);
    let error = bascule.call_error("s:x", "{}");
    check(&error, "PROVIDER_TIMEOUT unknown true", &["within 2500 ms (`maxExecutionMs`)"]);
    server.wait_for("notifications/cancelled");
}

// req: BR-05
#[tokio::test]
async fn progress_does_not_restart_the_callers_time_out() {
    let server = ScriptedStdio::new(tool_x([busy(100)]));
    let bridge = bridge(entry_with(&server, json!({ "timeoutMs": SILENT }))).await;
    let most = Some(Duration::from_millis(2500));
    let error = call_with_timeout(&bridge, "s:x", "{}", most).await.unwrap_err();
    check(&error, "PROVIDER_TIMEOUT unknown true", &["within 2500 ms (the caller's time-out)"]);
    terminate(&bridge).await;
}

// req: BR-12
#[tokio::test]
async fn a_call_that_ran_out_of_time_leaves_the_server_to_others() {
    let server = ScriptedStdio::new(tool_x([Behaviour::silence(), Behaviour::text("next")]));
    let bridge = bridge(server.entry()).await;
    let soon = Some(Duration::from_millis(300));
    assert!(call_with_timeout(&bridge, "s:x", "{}", soon).await.is_err());
    assert_eq!(text(&call_with_timeout(&bridge, "s:x", "{}", None).await.unwrap()), "next");
    assert_eq!(server.started().len(), 1);
    terminate(&bridge).await;
}
