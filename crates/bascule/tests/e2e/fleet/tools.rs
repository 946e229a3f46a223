//! Servers that say that their tools have changed.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::count;
use super::listening::Fleet;

/// A server with these tools whose `x` says so many times that they have changed, and answers.
fn announcing<const N: usize>(tools: [&str; N], times: usize) -> Script {
    let answer = (0..times).fold(Behaviour::text("ok"), |answer, _| answer.after_list_changed());
    Script::new().tools(tools).calls("x", [answer])
}

// req: BR-14, BR-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_that_have_changed_are_listed_again() {
    let server = ScriptedStdio::new(Script::new().tools(["x", "old"]));
    let mut fleet = Fleet::start(json!({ "s": server.entry() })).await;
    server.change(announcing(["x", "new"], 1));
    fleet.call("s:x", "{}").await.unwrap();
    let refreshed = fleet.until("tools.refreshed").await;
    assert_eq!(
        refreshed,
        json!({ "type": "provider.mcp.tools.refreshed", "server": "s", "added": ["new"], "removed": ["old"], "unchanged": 1 })
    );
    assert_eq!(fleet.tools(), ["s:x", "s:new"]);
    fleet.call("s:new", "{}").await.unwrap();
    assert_eq!(fleet.health("s")["tools"], 2);
    fleet.end().await;
}

// req: BR-14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_is_another_than_before_was_removed_and_added() {
    let tool = |description: &str| json!({ "name": "t", "description": description, "inputSchema": { "type": "object" } });
    let server = ScriptedStdio::new(announcing(["x"], 1).tool(tool("one")));
    let mut fleet = Fleet::start(json!({ "s": server.entry() })).await;
    server.change(announcing(["x"], 1).tool(tool("two")));
    fleet.call("s:x", "{}").await.unwrap();
    let refreshed = fleet.until("tools.refreshed").await;
    assert_eq!((&refreshed["added"], &refreshed["removed"]), (&json!(["t"]), &json!(["t"])));
    fleet.end().await;
}

// req: BR-14, BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_changes_is_listed_a_few_times() {
    let server = ScriptedStdio::new(announcing(["x"], 100));
    let mut fleet = Fleet::start(json!({ "s": server.entry() })).await;
    fleet.call("s:x", "{}").await.unwrap();
    fleet.until("tools.refreshed").await;
    server.change(announcing(["x", "last"], 1));
    fleet.call("s:x", "{}").await.unwrap();
    fleet.until_such("tools.refreshed", |event| event["added"] == json!(["last"])).await;
    let listed = count(&server.methods(), "tools/list");
    assert!(listed <= 5, "listed {listed} times");
    fleet.end().await;
}

// req: BR-14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_fails_leaves_the_tools_as_they_were() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let mut fleet = Fleet::start(json!({ "s": server.entry() })).await;
    let fault = json!({ "code": -32000, "message": "not now" });
    server
        .change(announcing(["x", "new"], 1).on("tools/list", [Behaviour::error(fault), Behaviour::usual()]));
    fleet.call("s:x", "{}").await.unwrap();
    crate::support::eventually("it was asked", || count(&server.methods(), "tools/list") == 2);
    assert_eq!(fleet.tools(), ["s:x"]);
    fleet.refresh("s").await.unwrap();
    fleet.until("tools.refreshed").await;
    assert_eq!(fleet.tools(), ["s:x", "s:new"]);
    fleet.end().await;
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_that_is_never_answered_ends_and_the_server_stays() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let entry = super::with(server.entry(), json!({ "startTimeoutMs": 6_000 }));
    let fleet = Fleet::start(json!({ "s": entry })).await;
    server.change(Script::new().tools(["x"]).on("tools/list", [Behaviour::silence()]));
    let error = fleet.refresh("s").await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("6000 ms"), "{error:#}");
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}
