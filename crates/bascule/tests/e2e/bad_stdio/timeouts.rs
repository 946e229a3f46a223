//! Time limits of calls: the shortest one applies and is named; progress restarts only `timeoutMs`.

use std::time::Duration;

use bascule_testkit::{Behaviour, ScriptedStdio};
use serde_json::{Value, json};

use super::{check, scripted_with, tool_x};
use crate::embedded::{bridge, call_with_timeout, terminate};
use crate::support::{text, with_settings};

/// Checks the timeout of a call that is never answered, with these settings of the server.
#[track_caller]
fn check_timeout(settings: Value, expected: &str) {
    let (bascule, _server) = scripted_with(tool_x([Behaviour::silence()]), settings);
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &[expected]);
}

/// `timeoutMs` of servers that report progress, far longer than their pauses.
const TIMEOUT_MS: u32 = 5_000;

/// Reports progress once a second, this many times, and then answers.
fn busy(times: usize) -> Behaviour {
    let pause = Duration::from_secs(1);
    (0..times).fold(Behaviour::text("done"), |busy, _| busy.after_delay(pause).after_progress(1))
}

// req: BR-05
#[test]
fn shorter_limit_of_server_applies() {
    let limits = |timeout: u32, execution: u32| json!({ "timeoutMs": timeout, "limits": { "maxExecutionMs": execution } });
    check_timeout(limits(200, 60_000), "within 200 ms (`timeoutMs`)");
    check_timeout(limits(60_000, 200), "within 200 ms (`maxExecutionMs`)");
}

// req: BR-01
// req: BR-05
#[test]
fn limits_of_tool_override_those_of_server() {
    let limits = json!({ "maxExecutionMs": 60_000 });
    let own = |tool: Value| json!({ "timeoutMs": 60_000, "limits": limits, "tools": { "x": tool } });
    check_timeout(own(json!({ "limits": { "maxExecutionMs": 200 } })), "within 200 ms (`maxExecutionMs`)");
    check_timeout(own(json!({ "timeoutMs": 200 })), "within 200 ms (`timeoutMs`)");
    let other = json!({ "timeoutMs": 200, "tools": { "other": { "timeoutMs": 60_000 } } });
    check_timeout(other, "within 200 ms (`timeoutMs`)");
}

// req: BR-05
#[test]
fn shorter_timeout_of_caller_applies() {
    let (bascule, server) = scripted_with(tool_x([Behaviour::silence()]), json!({ "timeoutMs": 60_000 }));
    let (code, document) = bascule.run_json(&["call", "s:x", "--timeout-ms", "6000"]);
    assert_eq!(code, 3);
    check(&document["error"], "PROVIDER_TIMEOUT unknown true", &["the caller's timeout"]);
    server.wait_for("notifications/cancelled");
}

// req: BR-05
#[test]
fn longer_timeout_of_caller_is_ignored() {
    let (bascule, _server) = scripted_with(tool_x([Behaviour::silence()]), json!({ "timeoutMs": 200 }));
    let (_, document) = bascule.run_json(&["call", "s:x", "--timeout-ms", "60000"]);
    check(&document["error"], "PROVIDER_TIMEOUT unknown true", &["within 200 ms (`timeoutMs`)"]);
}

// req: BR-05
#[test]
fn timeout_of_caller_includes_server_start() {
    let script = tool_x([]).on("initialize", [Behaviour::silence()]);
    let (bascule, server) = scripted_with(script, json!({}));
    let (code, document) = bascule.run_json(&["call", "s:x", "--timeout-ms", "5000"]);
    assert_eq!(code, 3);
    let message = ["did not respond to `initialize` within 5000 ms (the caller's timeout)"];
    check(&document["error"], "PROVIDER_TIMEOUT not_sent true", &message);
    assert_eq!(server.methods(), ["initialize"]);
}

// req: BR-05
#[test]
fn progress_restarts_timeout_of_server() {
    let (bascule, _server) = scripted_with(tool_x([busy(7)]), json!({ "timeoutMs": TIMEOUT_MS }));
    assert_eq!(text(&bascule.call("s:x", "{}")), "done");
}

// req: BR-05
#[test]
fn progress_does_not_extend_max_execution() {
    let limits = json!({ "timeoutMs": TIMEOUT_MS, "limits": { "maxExecutionMs": 2500 } });
    let (bascule, server) = scripted_with(tool_x([busy(100)]), limits);
    let error = bascule.call_error("s:x", "{}");
    check(&error, "PROVIDER_TIMEOUT unknown true", &["within 2500 ms (`maxExecutionMs`)"]);
    server.wait_for("notifications/cancelled");
}

// req: BR-05
#[tokio::test]
async fn progress_does_not_extend_timeout_of_caller() {
    let server = ScriptedStdio::new(tool_x([busy(100)]));
    let bridge = bridge(with_settings(server.entry(), json!({ "timeoutMs": TIMEOUT_MS }))).await;
    let most = Some(Duration::from_millis(2500));
    let error = call_with_timeout(&bridge, "s:x", "{}", most).await.unwrap_err();
    check(&error, "PROVIDER_TIMEOUT unknown true", &["within 2500 ms (the caller's timeout)"]);
    terminate(&bridge).await;
}

// req: BR-12
#[tokio::test]
async fn timed_out_call_does_not_affect_later_calls() {
    let server = ScriptedStdio::new(tool_x([Behaviour::silence(), Behaviour::text("next")]));
    let bridge = bridge(server.entry()).await;
    let soon = Some(Duration::from_millis(300));
    assert!(call_with_timeout(&bridge, "s:x", "{}", soon).await.is_err());
    assert_eq!(text(&call_with_timeout(&bridge, "s:x", "{}", None).await.unwrap()), "next");
    assert_eq!(server.started().len(), 1);
    terminate(&bridge).await;
}
