//! Types that the bridge learns from the answers of tools, and events about answers that differ from them.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::support::{Bascule, eventually};

const COMMENT: &str = "/** Observed result, not declared by the server. */";

/// A server with the tool `t`, which gives these answers in turn; the last one repeats.
fn server(answers: impl IntoIterator<Item = Behaviour>) -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["t"]).calls("t", answers))
}

fn structured(value: &Value) -> Behaviour {
    Behaviour::result(json!({ "content": [], "structuredContent": value }))
}

fn call(client: &Client, times: usize) {
    for _ in 0..times {
        let answer = client.request("tools/call", &json!({ "name": "t", "arguments": {} }));
        assert_ne!(answer["result"]["isError"], true, "{answer:#}");
    }
}

fn observation_file(bridge: &ServeProcess) -> Option<PathBuf> {
    let files = fs::read_dir(bridge.bascule.data_folder().join("bascule/observed")).ok()?;
    files.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|own| own == "json"))
}

fn types(bascule: &Bascule) -> String {
    bascule.run(&["types", "s"]).stdout
}

// req: CM-15
#[test]
fn learned_type_is_shown_and_survives_a_restart() {
    let first = json!({ "rows": [{ "id": 1, "mail": "s3cret@example.org" }, { "id": 2 }] });
    let server = server([structured(&first), Behaviour::text("[{'name': 's3cret', 'age': None}]")]);
    let mut bridge = ServeProcess::start(json!({ "s": server.entry() }));
    assert!(types(&bridge.bascule).contains("Promise<unknown>"));
    let client = Client::connect(bridge.address(), "/servers/s/mcp");
    call(&client, 1);
    let declared = types(&bridge.bascule);
    assert!(declared.contains(&format!("{COMMENT}\n  interface TResult {{\n    rows: {{")), "{declared}");
    assert!(declared.contains("      id: number;\n      mail?: string;"), "{declared}");
    assert!(declared.contains("Promise<S.TResult>"), "{declared}");
    let (_, described) = bridge.bascule.run_json(&["describe", "s:t"]);
    assert_eq!(described["observedSchema"]["properties"]["rows"]["type"], "array", "{described:#}");
    let found = bridge.bascule.run(&["search", "t", "--detail", "types"]).stdout;
    assert!(found.contains("{ rows: { id: number; mail?: string }[] }>"), "{found}");
    let (_, found) = bridge.bascule.run_json(&["search", "t", "--detail", "types"]);
    assert_eq!(found[0]["observedSchema"], described["observedSchema"], "{found:#}");
    call(&client, 1);
    let declared = types(&bridge.bascule);
    assert!(declared.contains("age: null;") && declared.contains("} | {"), "{declared}");
    bridge.signal("TERM");
    bridge.wait_for_exit();
    let stored = fs::read_to_string(observation_file(&bridge).unwrap()).unwrap();
    assert!(!stored.contains("s3cret") && stored.contains("mail"), "{stored}");

    bridge.start_again();
    assert_eq!(types(&bridge.bascule), declared);
    assert!(bridge.bascule.run(&["describe", "s:t", "--no-daemon"]).stdout.contains(COMMENT));
    server
        .set_script(Script::new().tool(json!({ "name": "t", "description": "changed", "inputSchema": {} })));
    bridge.bascule.run(&["refresh", "s"]);
    assert!(types(&bridge.bascule).contains("Promise<unknown>"), "a changed tool starts anew");
}

// req: CM-15
#[test]
fn damaged_file_of_types_is_ignored() {
    let server = server([Behaviour::text("[1]")]);
    let mut bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let client = Client::connect(bridge.address(), "/servers/s/mcp");
    call(&client, 1);
    eventually("the types are stored", || observation_file(&bridge).is_some());
    bridge.signal("KILL");
    bridge.wait_for_exit();
    fs::write(observation_file(&bridge).unwrap(), "{\"version\":1,").unwrap();
    bridge.start_again();
    bridge.wait_for_stderr("ignoring the observed types");
    assert!(types(&bridge.bascule).contains("Promise<unknown>"));
    call(&Client::connect(bridge.address(), "/servers/s/mcp"), 1);
    assert!(types(&bridge.bascule).contains("type TResult = number[];"));
}

// req: CM-15, BR-12
#[test]
fn long_answers_are_looked_at_elsewhere_and_very_long_ones_not() {
    let answer = |name: &str, kb: usize| structured(&json!({ "text": "x".repeat(kb << 10), name: 1 }));
    let server = server([answer("middle", 20), answer("large", 400), answer("huge", 2 << 10)]);
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let client = Client::connect(bridge.address(), "/servers/s/mcp");
    call(&client, 3);
    eventually("the long answers are learned", || {
        let declared = types(&bridge.bascule);
        declared.contains("middle?: number") && declared.contains("large?: number")
    });
    assert!(!types(&bridge.bascule).contains("huge"));
}

// req: CM-15
#[test]
fn answer_that_differs_from_a_stable_type_is_announced_once() {
    let same = json!({ "rows": [{ "id": 1 }], "total": 1 });
    let other = json!({ "rows": [{ "id": "s3cret", "note": "s3cret" }], "total": 1 });
    let answers = (0..17).map(|_| structured(&same)).chain([structured(&other)]);
    let server = server(answers);
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let events = bridge.events();
    let client = Client::connect(bridge.address(), "/servers/s/mcp");
    // A stable type is looked at in one of sixteen calls.
    call(&client, 17 + 2 * 16);
    let drifted = events.wait_for_event("result.drifted");
    assert_eq!(drifted["tool"], "s:t");
    assert_eq!(drifted["expected"], "observed");
    assert_eq!(drifted["pointers"], json!(["/rows/*/id", "/rows/*/note"]));
    assert!(drifted["correlationId"].is_string(), "{drifted:#}");
    let (_, replayed) = bridge.bascule.run_json(&["describe", "s:t"]);
    assert_eq!(
        replayed["observedSchema"]["properties"]["rows"]["items"]["properties"]["id"]["type"],
        json!(["number", "string"])
    );
    // The failed call marks the end of the events.
    bridge.bascule.call_error("s:unknown", "{}");
    let late = bridge.follow(&["events", "provider.mcp.#", "--replay", "200", "--json"]);
    let announced = Cell::new(0);
    late.find_json(|event| {
        announced.set(announced.get() + usize::from(event["type"] == "provider.mcp.result.drifted"));
        event["type"] == "provider.mcp.tool.failed"
    });
    assert_eq!(announced.get(), 1);
}

// req: CM-15
#[test]
fn answer_that_violates_the_declared_schema_is_announced_once() {
    let schema = json!({ "type": "object", "properties": { "rows": { "type": "array", "items": { "type": "number" } } } });
    let tool = json!({ "name": "t", "inputSchema": { "type": "object" }, "outputSchema": schema });
    let wrong = |value: Value| structured(&json!({ "rows": value }));
    let answers = [wrong(json!([1, "x"])), wrong(json!(["y", 2])), wrong(json!("z"))];
    let server = ScriptedStdio::new(Script::new().tool(tool).calls("t", answers));
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let events = bridge.events();
    let client = Client::connect(bridge.address(), "/servers/s/mcp");
    call(&client, 4);
    let pointers = || {
        let event = events.wait_for_event("result.drifted");
        assert_eq!(event["expected"], "declared", "{event:#}");
        event["pointers"].clone()
    };
    assert_eq!(pointers(), json!(["/rows/*"]));
    assert_eq!(pointers(), json!(["/rows"]));
    assert!(!types(&bridge.bascule).contains(COMMENT));
}

// req: CM-05, CM-15
#[test]
fn clients_see_the_signature_under_wrong_arguments() {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" }, "head": { "type": "number" } }, "required": ["path"] });
    let script = Script::new().tool(json!({ "name": "read", "inputSchema": schema }));
    let server = ScriptedStdio::new(script);
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let client = Client::connect(bridge.address(), "/servers/s/mcp");
    let answer = client.request("tools/call", &json!({ "name": "read", "arguments": { "path": 5 } }));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.ends_with("\nread(args: { head?: number; path: string })"), "{text}");
    let output = bridge.bascule.run(&["call", "s:read", "{}"]);
    assert!(output.stderr.contains("read(args: { head?: number; path: string })"), "{output:?}");
    let file = bridge.bascule.folder().join("wrong.ts");
    fs::write(&file, "const path = () => 5; await mcp.s.read({ path: path() })").unwrap();
    let error = bridge.bascule.run_json(&["run", file.to_str().unwrap()]).1["error"].clone();
    assert!(
        error["message"].as_str().unwrap().contains("\n  mcp.s.read(args: { head?: number; path: string })"),
        "{error:#}"
    );
}

// req: CM-15
#[test]
fn learning_can_be_switched_off() {
    let server = server([structured(&json!({ "rows": [{ "id": 1 }] }))]);
    let text = |learns: bool| {
        json!({ "mcpServers": { "s": server.entry() }, "bascule": { "learnResultTypes": learns } })
            .to_string()
    };
    let mut bridge = ServeProcess::start_with_config(&text(false), &[]);
    call(&Client::connect(bridge.address(), "/servers/s/mcp"), 2);
    assert!(types(&bridge.bascule).contains("Promise<unknown>"));
    bridge.signal("TERM");
    bridge.wait_for_exit();
    assert_eq!(observation_file(&bridge), None);
    // Types that were learned before are not shown either.
    fs::write(bridge.bascule.folder().join("mcp.json"), text(true)).unwrap();
    bridge.start_again();
    call(&Client::connect(bridge.address(), "/servers/s/mcp"), 1);
    assert!(types(&bridge.bascule).contains("rows: {"));
    bridge.signal("TERM");
    bridge.wait_for_exit();
    assert!(observation_file(&bridge).is_some());
    fs::write(bridge.bascule.folder().join("mcp.json"), text(false)).unwrap();
    bridge.start_again();
    eventually("the tool is listed", || types(&bridge.bascule).contains("t("));
    assert!(types(&bridge.bascule).contains("Promise<unknown>"));
}
