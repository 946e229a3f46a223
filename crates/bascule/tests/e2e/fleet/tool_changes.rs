//! `notifications/tools/list_changed` from servers.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::count;
use super::observed_bridge::ObservedBridge;

/// A server whose tool `x` sends `list_changed` this many times before it answers.
fn announcing<const N: usize>(tools: [&str; N], times: usize) -> Script {
    let answer = (0..times).fold(Behaviour::text("ok"), |answer, _| answer.after_list_changed());
    Script::new().tools(tools).calls("x", [answer])
}

// req: BR-14, BR-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_tools_again_after_list_changed() {
    let server = ScriptedStdio::new(Script::new().tools(["x", "old"]));
    let mut bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    server.set_script(announcing(["x", "new"], 1));
    bridge.call("s:x", "{}").await.unwrap();
    let refreshed = bridge.wait_for_event("tools.refreshed").await;
    assert_eq!(
        refreshed,
        json!({ "type": "provider.mcp.tools.refreshed", "server": "s", "added": ["new"], "removed": ["old"], "unchanged": 1 })
    );
    assert_eq!(bridge.tools(), ["s:x", "s:new"]);
    bridge.call("s:new", "{}").await.unwrap();
    assert_eq!(bridge.health("s")["tools"], 2);
    bridge.terminate().await;
}

// req: BR-14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_redefined_tool_as_removed_and_added() {
    let tool = |description: &str| json!({ "name": "t", "description": description, "inputSchema": { "type": "object" } });
    let server = ScriptedStdio::new(announcing(["x"], 1).tool(tool("one")));
    let mut bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    server.set_script(announcing(["x"], 1).tool(tool("two")));
    bridge.call("s:x", "{}").await.unwrap();
    let refreshed = bridge.wait_for_event("tools.refreshed").await;
    assert_eq!((&refreshed["added"], &refreshed["removed"]), (&json!(["t"]), &json!(["t"])));
    bridge.terminate().await;
}

// req: BR-14, BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coalesces_bursts_of_list_changed() {
    let server = ScriptedStdio::new(announcing(["x"], 100));
    let mut bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    bridge.call("s:x", "{}").await.unwrap();
    bridge.wait_for_event("tools.refreshed").await;
    server.set_script(announcing(["x", "last"], 1));
    bridge.call("s:x", "{}").await.unwrap();
    bridge.wait_for_event_where("tools.refreshed", |event| event["added"] == json!(["last"])).await;
    let listed = count(&server.methods(), "tools/list");
    assert!(listed <= 5, "listed {listed} times");
    bridge.terminate().await;
}

// req: BR-14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_tools_if_listing_fails() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let mut bridge = ObservedBridge::start(json!({ "s": server.entry() })).await;
    let fault = json!({ "code": -32000, "message": "not now" });
    server.set_script(
        announcing(["x", "new"], 1).on("tools/list", [Behaviour::error(fault), Behaviour::usual()]),
    );
    bridge.call("s:x", "{}").await.unwrap();
    crate::support::eventually("the tools are listed again", || count(&server.methods(), "tools/list") == 2);
    assert_eq!(bridge.tools(), ["s:x"]);
    bridge.refresh("s").await.unwrap();
    bridge.wait_for_event("tools.refreshed").await;
    assert_eq!(bridge.tools(), ["s:x", "s:new"]);
    bridge.terminate().await;
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_times_out_and_keeps_server() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let entry = super::with_settings(server.entry(), json!({ "startTimeoutMs": 6_000 }));
    let bridge = ObservedBridge::start(json!({ "s": entry })).await;
    server.set_script(Script::new().tools(["x"]).on("tools/list", [Behaviour::silence()]));
    let error = bridge.refresh("s").await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("6000 ms"), "{error:#}");
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}
