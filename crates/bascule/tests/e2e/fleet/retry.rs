//! Retries of calls whose server crashes.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::observed_bridge::ObservedBridge;
use super::{count, tool_with_hint, with_fast_reconnect, with_settings};
use crate::bad_stdio::check;
use crate::support::text;

const CRASHED: &str = "PROVIDER_CRASHED unknown true";

/// Calls a tool whose server crashes this often and then answers. Returns the outcome and how often the call was sent.
async fn call_with_crashes(tool: Value, crashes: usize, settings: Value) -> (Result<Value, Value>, usize) {
    let mut behaviours = vec![Behaviour::exit(3); crashes];
    behaviours.push(Behaviour::text("fine"));
    let server = ScriptedStdio::new(Script::new().tool(tool).calls("x", behaviours));
    let bridge =
        ObservedBridge::start(json!({ "s": with_settings(with_fast_reconnect(server.entry()), settings) }))
            .await;
    let ended = bridge.call("s:x", "{}").await;
    let events = bridge.events("tool.completed").len() + bridge.events("tool.failed").len();
    assert_eq!(events, 1, "every call has one event, however often it is sent");
    bridge.terminate().await;
    (ended, count(&server.methods(), "tools/call"))
}

fn tool_without_hints() -> Value {
    json!({ "name": "x", "inputSchema": { "type": "object" } })
}

fn retry(when: &str) -> Value {
    json!({ "tools": { "x": { "retry": when } } })
}

#[track_caller]
fn check_crashed((ended, sent): (Result<Value, Value>, usize), attempts: usize) {
    let error = ended.unwrap_err();
    check(&error, CRASHED, &["exit code 3"]);
    assert_eq!((&error["attempts"], sent), (&json!(attempts), attempts), "{error:#}");
}

#[track_caller]
fn check_answered((ended, sent): (Result<Value, Value>, usize), expected: usize) {
    assert_eq!((text(&ended.unwrap()).as_str(), sent), ("fine", expected));
}

// req: BR-05, BR-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn does_not_retry_call_that_may_have_run() {
    check_crashed(call_with_crashes(tool_without_hints(), 1, json!({})).await, 1);
    check_crashed(call_with_crashes(tool_without_hints(), 1, retry("safe")).await, 1);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_idempotent_call_after_crash() {
    check_answered(call_with_crashes(tool_with_hint("x", "readOnlyHint"), 1, json!({})).await, 2);
    check_answered(call_with_crashes(tool_with_hint("x", "idempotentHint"), 2, json!({})).await, 3);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_overrides_tool_hints() {
    check_answered(call_with_crashes(tool_without_hints(), 1, retry("always")).await, 2);
    check_crashed(call_with_crashes(tool_with_hint("x", "readOnlyHint"), 1, retry("never")).await, 1);
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_at_most_twice() {
    check_crashed(call_with_crashes(tool_with_hint("x", "readOnlyHint"), 9, json!({})).await, 3);
    check_crashed(call_with_crashes(tool_without_hints(), 9, retry("always")).await, 3);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_call_does_not_wait_for_given_up_server() {
    let outcome = call_with_crashes(tool_with_hint("x", "readOnlyHint"), 1, json!({ "maxRetries": 0 })).await;
    check_crashed(outcome, 1);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_call_does_not_wait_beyond_deadline() {
    // Long enough to detect the crash first.
    let settings = json!({ "reconnectBackoffMs": 30_000, "timeoutMs": 5_000 });
    check_crashed(call_with_crashes(tool_with_hint("x", "readOnlyHint"), 1, settings).await, 1);
}
