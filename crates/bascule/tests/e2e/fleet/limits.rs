//! How many calls a server takes, at once and a second.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::listening::Fleet;
use super::{count, with};
use crate::bad_stdio::check;
use crate::embedded::call_within;
use crate::support::text;

const TURNED_AWAY: &str = "RATE_LIMITED not_sent true";

async fn limited(script: Script, settings: Value) -> (ScriptedStdio, Fleet) {
    let server = ScriptedStdio::new(script);
    let fleet = Fleet::start(json!({ "s": with(server.entry(), settings) })).await;
    (server, fleet)
}

#[track_caller]
fn check_turned_away(error: &Value, part: &str) {
    check(error, TURNED_AWAY, &[part, "try again in"]);
    assert!(error["retryAfterMs"].as_u64().is_some_and(|wait| wait > 0), "{error:#}");
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_one_in_line_and_the_third_is_turned_away() {
    let script = Script::new().tools(["x"]).calls("x", [Behaviour::silence(), Behaviour::text("fine")]);
    let (server, fleet) = limited(script, json!({ "limits": { "maxConcurrent": 1, "maxQueue": 1 } })).await;
    let first = fleet.calling("s:x");
    tokio::task::block_in_place(|| server.wait_for("tools/call"));
    // One of the two waits in line: which one is not ours to say.
    let (mut second, mut third) = (fleet.calling("s:x"), fleet.calling("s:x"));
    let (turned_away, waiting) = tokio::select! {
        ended = &mut second => (ended, third),
        ended = &mut third => (ended, second),
    };
    check_turned_away(&turned_away.unwrap().unwrap_err(), "`maxQueue`");
    check_turned_away(&fleet.call("s:x", "{}").await.unwrap_err(), "`maxConcurrent`");
    first.abort();
    assert_eq!(text(&waiting.await.unwrap().unwrap()), "fine", "who was in line is let in");
    assert_eq!(count(&server.methods(), "tools/call"), 2);
    fleet.end().await;
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_line_too_long_was_not_sent() {
    let script = Script::new().tools(["x"]).calls("x", [Behaviour::silence()]);
    let (server, fleet) = limited(script, json!({ "limits": { "maxConcurrent": 1 } })).await;
    let first = fleet.calling("s:x");
    tokio::task::block_in_place(|| server.wait_for("tools/call"));
    let late = call_within(&fleet.bridge, "s:x", "{}", Some(Duration::from_millis(50))).await;
    check(&late.unwrap_err(), "PROVIDER_TIMEOUT not_sent true", &["slot", "`maxConcurrent`"]);
    assert_eq!(count(&server.methods(), "tools/call"), 1);
    first.abort();
    fleet.end().await;
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_a_second_than_allowed_are_told_when_to_come_back() {
    let (server, fleet) =
        limited(Script::new().tools(["x", "y"]), json!({ "limits": { "ratePerSecond": 0.01 } })).await;
    fleet.call("s:x", "{}").await.unwrap();
    let error = fleet.call("s:y", "{}").await.unwrap_err();
    check_turned_away(&error, "`ratePerSecond`");
    assert!(error["retryAfterMs"].as_u64().unwrap() <= 100_000, "{error:#}");
    assert_eq!(count(&server.methods(), "tools/call"), 1, "it never reached the server");
    assert_eq!(fleet.told("tool.failed")[0]["code"], "RATE_LIMITED");
    fleet.end().await;
}

// req: BR-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_may_have_limits_of_its_own() {
    let script = Script::new().tools(["x", "y", "z"]).calls("y", [Behaviour::silence()]);
    let tools = json!({ "tools": {
        "x": { "limits": { "ratePerSecond": 0.01 } }, "y": { "limits": { "maxConcurrent": 1, "maxQueue": 0 } } } });
    let (server, fleet) = limited(script, tools).await;
    fleet.call("s:x", "{}").await.unwrap();
    check_turned_away(&fleet.call("s:x", "{}").await.unwrap_err(), "`ratePerSecond`");
    let held = fleet.calling("s:y");
    tokio::task::block_in_place(|| {
        server.wait_until(|line| line.contains("tools/call") && line.contains(r#""y""#))
    });
    check_turned_away(&fleet.call("s:y", "{}").await.unwrap_err(), "`maxConcurrent`");
    assert_eq!(text(&fleet.call("s:z", r#"{"n":1}"#).await.unwrap()), r#"{"n":1}"#);
    held.abort();
    fleet.end().await;
}

// req: BR-17, BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_one_server_are_nothing_to_another() {
    let (a, b) =
        (ScriptedStdio::new(Script::new().tools(["x"])), ScriptedStdio::new(Script::new().tools(["x"])));
    let tight = with(a.entry(), json!({ "limits": { "ratePerSecond": 0.01 } }));
    let fleet = Fleet::start(json!({ "a": tight, "b": b.entry() })).await;
    fleet.call("a:x", "{}").await.unwrap();
    check_turned_away(&fleet.call("a:x", "{}").await.unwrap_err(), "`ratePerSecond`");
    for _ in 0..20 {
        fleet.call("b:x", "{}").await.unwrap();
    }
    fleet.end().await;
}
