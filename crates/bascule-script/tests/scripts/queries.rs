//! Tests `mcp.search` and `mcp.describe`, which the bridge answers itself.

use bascule_script::wire::{HOST, Init, InjectedTool, RpcCall};
use serde_json::{Value, json};

use crate::support::{ScriptRun, run_with, structured};

/// Runs a script. The bridge answers a query with its arguments, and a call with the tool's name.
fn run(code: &str, change: impl FnOnce(&mut Init)) -> ScriptRun {
    run_with(code, change, |call: &RpcCall| {
        let args: Value = serde_json::from_str(call.args.get()).unwrap();
        Some(match call.server.as_str() {
            HOST => structured(&json!([{ "id": "my-server:echo", "asked": [call.tool, args] }])),
            _ => structured(&json!({ "called": call.tool })),
        })
    })
}

// req: SE-01, CM-07
#[test]
fn asks_the_bridge_about_tools() {
    let asked = |code: &str| run(&format!("return ({code})[0].asked"), |_| {}).value();
    assert_eq!(
        asked("await mcp.search('open an issue', { k: 2, detail: 'types' })"),
        json!(["search", { "intent": "open an issue", "k": 2, "detail": "types" }])
    );
    assert_eq!(asked("await mcp.search({ intent: 'x' })"), json!(["search", { "intent": "x" }]));
    assert_eq!(
        asked("await mcp.describe('a:b', { format: 'schema' })"),
        json!(["describe", { "tools": "a:b", "format": "schema" }])
    );
    assert_eq!(asked("await mcp.describe(['a:b'])"), json!(["describe", { "tools": ["a:b"] }]));
    assert_eq!(asked("await bascule.search('x')"), json!(["search", { "intent": "x" }]));
    let code = "const found = await mcp.search('x');
        return [found.tools === found, found.length, await bascule.call(found[0].id, {})]";
    assert_eq!(run(code, |_| {}).value(), json!([true, 1, { "called": "echo" }]));
}

// req: SE-01, CM-09
#[test]
fn servers_named_like_queries_stay_reachable() {
    let add = |init: &mut Init| {
        init.tool_definitions.push(InjectedTool {
            server: "search".into(),
            name: "web_pages".into(),
            ..InjectedTool::default()
        });
    };
    let code = "return [(await mcp.search('x'))[0].asked[0], await mcp.search.webPages({}), await search.webPages({}),
        await bascule.call('search:web_pages'), Object.keys(mcp).includes('search'), Object.keys(mcp.search),
        (await bascule.search('y'))[0].asked[1].intent]";
    let called = json!({ "called": "web_pages" });
    assert_eq!(run(code, add).value(), json!(["search", called, called, called, true, ["webPages"], "y"]));
    let error = run("await mcp.search.webPage({})", add).error();
    assert!(error.message.contains("did you mean `webPages`?"), "{}", error.message);
}

// req: SE-01, CM-14
#[test]
fn unawaited_query_is_explained() {
    let ran = run("return mcp.search('x').map((tool) => tool.id)", |_| {});
    assert!(ran.error().message.contains("write `await` before `mcp.search(…)`"), "{}", ran.error().message);
    assert!(ran.calls.is_empty());
    let log = run("mcp.describe('x'); return 1", |_| {}).log();
    assert!(log.contains("not awaited") && log.contains("`mcp.describe`"), "{log}");
    let error = run("await mcp.callTool('a:b', {})", |_| {}).error();
    assert!(error.message.contains("bascule.call("), "{}", error.message);
}
