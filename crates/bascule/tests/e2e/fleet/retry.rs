//! Calls whose server breaks under them: which are sent again, how often, and what is said of the others.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::listening::Fleet;
use super::{count, eager, harmless, with};
use crate::bad_stdio::check;
use crate::support::text;

const CRASHED: &str = "PROVIDER_CRASHED unknown true";

/// A call of `x`, defined so, whose server dies as often as that and then answers. How it ended, how often it was sent.
async fn sent(tool: Value, deaths: usize, settings: Value) -> (Result<Value, Value>, usize) {
    let mut behaviours = vec![Behaviour::exit(3); deaths];
    behaviours.push(Behaviour::text("fine"));
    let server = ScriptedStdio::new(Script::new().tool(tool).calls("x", behaviours));
    let fleet = Fleet::start(json!({ "s": with(eager(server.entry()), settings) })).await;
    let ended = fleet.call("s:x", "{}").await;
    let events = fleet.told("tool.completed").len() + fleet.told("tool.failed").len();
    assert_eq!(events, 1, "however often it was sent, it is one call");
    fleet.end().await;
    (ended, count(&server.methods(), "tools/call"))
}

fn plain() -> Value {
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
async fn a_call_that_may_have_run_is_not_sent_again() {
    check_crashed(sent(plain(), 1, json!({})).await, 1);
    check_crashed(sent(plain(), 1, retry("safe")).await, 1);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harmless_call_is_sent_again_when_its_server_is_back() {
    check_answered(sent(harmless("x", "readOnlyHint"), 1, json!({})).await, 2);
    check_answered(sent(harmless("x", "idempotentHint"), 2, json!({})).await, 3);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_has_the_last_word_on_retries() {
    check_answered(sent(plain(), 1, retry("always")).await, 2);
    check_crashed(sent(harmless("x", "readOnlyHint"), 1, retry("never")).await, 1);
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_kills_its_server_every_time_is_sent_three_times_and_no_more() {
    check_crashed(sent(harmless("x", "readOnlyHint"), 9, json!({})).await, 3);
    check_crashed(sent(plain(), 9, retry("always")).await, 3);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harmless_call_does_not_wait_for_a_server_that_is_given_up() {
    let ended = sent(harmless("x", "readOnlyHint"), 1, json!({ "maxRetries": 0 })).await;
    check_crashed(ended, 1);
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harmless_call_does_not_wait_beyond_its_deadline() {
    // Long enough for the crash to be seen first.
    let settings = json!({ "reconnectBackoffMs": 30_000, "timeoutMs": 5_000 });
    check_crashed(sent(harmless("x", "readOnlyHint"), 1, settings).await, 1);
}
