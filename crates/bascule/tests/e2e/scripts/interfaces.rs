//! Tests scripts from the command line, through a running bridge and from an MCP client.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::demo_servers;
use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::support::{Bascule, eventually, text};

const TWO_TOOLS: &str = "const [time, found] = await Promise.all([clock.now({ timezone: 'Asia/Tokyo' }), notes.searchNotes({ query: 'drawbridge' })]);
    console.log('both are there');
    return { zone: time.timezone, found: typeof found, who: context.who }";

fn document(bascule: &Bascule, code: &str, options: &[&str]) -> (i32, Value) {
    let ran = bascule.run_with_input(&[&["run", "-", "--json"], options].concat(), code);
    (ran.code.unwrap(), ran.document())
}

// req: CM-06, TR-01, CM-07
#[test]
fn command_line_prints_one_document() {
    let bascule = Bascule::with_demo_servers();
    for mode in ["worker", "subprocess"] {
        let options = ["--mode", mode, "--context", r#"{"who":"me"}"#, "--tools", "clock:now,notes:*"];
        let (code, output) = document(&bascule, TWO_TOOLS, &options);
        assert_eq!(code, 0, "{output:#}");
        assert_eq!(output["success"], true);
        assert_eq!(
            (&output["result"]["zone"], &output["result"]["who"]),
            (&json!("Asia/Tokyo"), &json!("me"))
        );
        assert_eq!(output["logs"], json!([{ "level": "log", "text": "both are there" }]));
        assert_eq!(output["traces"].as_array().unwrap().len(), 4, "{output:#}");
        assert!(output["injected"].as_array().unwrap().contains(&json!("notes:search_notes")));
        assert!(!output["injected"].as_array().unwrap().contains(&json!("clock:convert")));
        assert!(output["durationMs"].is_number());
    }
}

// req: CM-06
#[test]
fn failed_script_reports_line_and_exits_with_1() {
    let bascule = Bascule::with_demo_servers();
    let (code, output) =
        document(&bascule, "type A = 1\n\nthrow new TypeError('no')", &["--tools", "clock:*"]);
    assert_eq!((code, &output["success"]), (1, &json!(false)));
    assert_eq!((&output["error"]["name"], &output["error"]["line"]), (&json!("TypeError"), &json!(3)));
    let (code, output) = document(&bascule, "const = 1", &["--tools", "clock:*"]);
    assert_eq!(
        (code, &output["error"]["name"], &output["error"]["line"]),
        (1, &json!("SyntaxError"), &json!(1))
    );
    let ran = bascule.run_with_input(&["run", "-", "--tools", "clock:*"], "return { a: 'b' }");
    assert_eq!(ran.stdout.trim(), "{\n  \"a\": \"b\"\n}");
}

// req: CM-07
#[test]
fn unknown_tools_are_refused() {
    let bascule = Bascule::with_demo_servers();
    let (code, output) = document(&bascule, "return 1", &["--tools", "clock:nwo"]);
    assert_eq!((code, &output["error"]["code"]), (3, &json!("TOOL_NOT_FOUND")));
    assert!(output["error"]["nearest"].as_array().unwrap().contains(&json!("clock:now")), "{output}");
    assert_eq!(document(&bascule, "return 1", &["--tools", "nowhere:*"]).0, 3);
    for options in [["--tools", "clock"], ["--context", "[1]"], ["--context", "{"], ["-k", "3"]] {
        assert_eq!(document(&bascule, "return 1", &options).0, 2, "{options:?}");
    }
    assert_eq!(bascule.run(&["run", "no-such-file.ts"]).code, Some(2));
    assert_eq!(document(&bascule, "return 1", &["--tools", &vec!["clock:now"; 200].join(",")]).0, 0);
    let (code, output) = document(&bascule, "return 1", &["--tools", &vec!["clock:now"; 201].join(",")]);
    assert!(code == 2 && output.to_string().contains("at most 200"), "{output:#}");
}

// req: CM-14
#[test]
fn schema_that_cannot_be_used_stops_no_script() {
    let schemas = [
        json!({ "type": "object", "properties": { "id": { "pattern": "[" } }, "required": ["id"] }),
        json!({ "type": "object", "properties": { "id": { "$ref": "https://example.com/id.json" } }, "required": ["id"] }),
        json!({ "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"] }),
    ];
    let script = schemas.into_iter().enumerate().fold(Script::new(), |script, (n, schema)| {
        let name = format!("t{n}");
        script.tool(json!({ "name": name, "inputSchema": schema })).calls(&name, [Behaviour::text("done")])
    });
    let server = ScriptedStdio::new(script);
    let bascule = Bascule::with_server("s", server.entry());
    for tool in ["t0", "t1"] {
        let (_, output) = document(&bascule, &format!("return await s.{tool}({{}})"), &[]);
        assert_eq!(output["result"], "done", "{output:#}");
    }
    let (_, output) = document(&bascule, "return await s.t2({})", &[]);
    let message = output["error"]["message"].as_str().unwrap();
    assert!(message.contains("before any call"), "{output:#}");
}

// req: CM-05
#[test]
fn call_of_failed_server_throws() {
    let bascule = Bascule::with_servers(json!({ "gone": { "command": "/nowhere" } }));
    let code = "try { await gone.x({}) } catch (e) { return [e.name, e.code, e.toolName] }";
    let (_, output) = document(&bascule, code, &[]);
    assert_eq!(output["result"], json!(["MCPToolError", "PROVIDER_INIT_FAILED", "gone:x"]), "{output:#}");
    let (_, output) = document(&bascule, code, &["--tools", "gone:y"]);
    assert_eq!(output["result"][1], "TOOL_NOT_FOUND", "only selected tools may be called: {output:#}");
}

// req: CM-04
#[test]
fn script_runs_in_running_bridge() {
    let serving = ServeProcess::start(demo_servers());
    let events = serving.events();
    let (code, output) = document(&serving.bascule, "return await counter.increment({})", &[]);
    assert_eq!(code, 0, "{output:#}");
    let (_, again) = document(&serving.bascule, "return await counter.increment({})", &[]);
    assert_ne!(output["result"], again["result"], "both scripts must use the same server");
    // Calls of scripts have events with their own ids, like all calls.
    let id = output["traces"][0]["trace_id"].as_str().unwrap();
    events
        .find_json(|event| event["type"] == "provider.mcp.tool.completed" && event.to_string().contains(id));
}

// req: GW-08
#[test]
fn mcp_client_runs_scripts() {
    let serving = ServeProcess::start(demo_servers());
    let client = Client::connect(serving.address(), "/mcp");
    let listed = client.request("tools/list", &json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(names.contains(&"execute_code") && names.contains(&"clock__now"), "{names:?}");
    let arguments = json!({ "code": TWO_TOOLS, "context": { "who": "client" } });
    let answer = client.call("execute_code", &arguments);
    let result = &answer["result"];
    assert_eq!(result["isError"], false, "{answer:#}");
    assert_eq!(result["structuredContent"]["result"]["who"], "client");
    let keys: Vec<&String> = result["structuredContent"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["logs", "result", "success"]);
    let short = &result["_meta"]["bascule/script"];
    assert_eq!(
        (&short["calls"], &short["failedCalls"], &short["traces"]),
        (&json!(2), &json!(0), &Value::Null)
    );
    assert!(text(result).contains("Asia/Tokyo") && text(result).contains("both are there"));
    let failed = client.call("execute_code", &json!({ "code": "\nawait trouble.fail({})" }));
    assert_eq!(failed["result"]["isError"], true);
    assert!(text(&failed["result"]).contains("script.ts:2:"), "{failed:#}");
    assert_eq!(failed["result"]["_meta"]["bascule/script"]["failures"][0]["tool"], "trouble:fail");
    let detailed = client.call("execute_code", &json!({ "code": "await clock.now({})", "details": true }));
    let whole = &detailed["result"]["_meta"]["bascule/script"];
    assert_eq!(whole["traces"].as_array().unwrap().len(), 2, "{detailed:#}");
    assert!(whole["injected"].as_array().unwrap().len() > 10);
    for wrong in [json!({ "kode": 1 }), json!({ "code": "return 1", "timeoutMs": 0 })] {
        assert_eq!(client.call("execute_code", &wrong)["result"]["isError"], true, "{wrong}");
    }
}

// req: CM-07
#[test]
fn intent_selects_tools() {
    let bascule = Bascule::with_demo_servers();
    let options = ["--intent", "what time is it in Tokyo", "-k", "2"];
    let (code, output) = document(&bascule, "return bascule.tools", &options);
    assert_eq!((code, output["injected"].as_array().unwrap().len()), (0, 2), "{output:#}");
    assert_eq!(output["injected"], output["result"]);
    assert!(output["injected"].as_array().unwrap().contains(&json!("clock:now")), "{output:#}");
    let options = ["--intent", "what time is it in Tokyo", "--tools", "notes:*"];
    let (_, output) = document(&bascule, "return bascule.tools", &options);
    let injected = output["injected"].as_array().unwrap();
    assert!(injected.iter().all(|id| id.as_str().unwrap().starts_with("notes:")), "{output:#}");
    let refused = document(&bascule, "return 1", &["--intent", "x", "--tools", "nowhere:*"]);
    assert_eq!(refused.0, 3);
}

// req: GW-08, SE-01, CM-07
#[test]
fn mcp_client_searches_tools() {
    let mut servers = demo_servers();
    servers["clock"]["deniedTools"] = json!(["convert"]);
    let serving = ServeProcess::start_with(servers, &["--show", "code"]);
    let client = Client::connect(serving.address(), "/mcp");
    let search = |arguments: Value| client.call("search_tools", &arguments)["result"].clone();
    let found = search(json!({ "intent": "what time is it", "k": 100 }));
    let tools = found["structuredContent"]["tools"].as_array().unwrap();
    assert_eq!(tools[0]["call"], "mcp.clock.now", "{found:#}");
    assert!(tools[0]["description"].is_string() && tools.len() > 5);
    assert!(tools.iter().all(|tool| tool["id"] != "clock:convert"), "denied tools are not found");
    let names = search(json!({ "intent": "what time is it", "k": 1, "detail": "names" }));
    assert_eq!(names["structuredContent"]["tools"], json!([{ "id": "clock:now", "call": "mcp.clock.now" }]));
    let types = search(json!({ "intent": "what time is it", "detail": "types" }));
    assert_eq!(types["structuredContent"]["tools"].as_array().unwrap().len(), 5);
    assert!(text(&types).contains("mcp.clock.now(args?: { timezone?: string }): Promise<{"), "{types:#}");
    let signature = types["structuredContent"]["tools"][0]["signature"].as_str().unwrap();
    assert!(signature.starts_with("mcp.clock.now("), "{types:#}");
    for wrong in [json!({}), json!({ "intent": " " }), json!({ "intent": "x", "detail": "all" })] {
        assert_eq!(search(wrong.clone())["isError"], true, "{wrong}");
    }
    let arguments = json!({ "code": "return bascule.tools", "intent": "what time is it", "k": 1 });
    let ran = client.call("execute_code", &arguments);
    assert!(text(&ran["result"]).contains(r#"["clock:now"]"#), "{ran:#}");
}

/// Each server writes its name into a file when it starts.
// req: CM-07
#[test]
fn intent_starts_only_the_servers_of_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("started");
    let mut servers = demo_servers();
    for (name, server) in servers.as_object_mut().unwrap() {
        let mut words = vec![server["command"].clone()];
        words.extend(server["args"].as_array().into_iter().flatten().cloned());
        let script = format!("echo {name} >> {}; exec \"$@\"", log.display());
        server["command"] = json!("sh");
        server["args"] = [json!("-c"), json!(script), json!("sh")].into_iter().chain(words).collect();
        server["sandbox"] = json!("off");
    }
    let bascule = Bascule::with_servers(servers);
    let started = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        let _ = std::fs::remove_file(&log);
        names
    };
    let run = || {
        let options = ["--intent", "what time is it", "-k", "1"];
        let (code, output) = document(&bascule, "return bascule.tools", &options);
        assert_eq!((code, &output["result"]), (0, &json!(["clock:now"])), "{output:#}");
    };
    run();
    assert_eq!(started(), ["clock", "counter", "notes", "trouble"], "no listing is stored");
    run();
    assert_eq!(started(), ["clock"]);
}

// req: GW-08
#[test]
fn code_view_names_servers_that_could_not_start() {
    let mut servers = demo_servers();
    servers["broken-one"] = json!({ "command": "this-program-does-not-exist" });
    let serving = ServeProcess::start_with(servers, &["--show", "code"]);
    let client = Client::connect(serving.address(), "/mcp");
    let summary = || {
        let listed = client.request("tools/list", &json!({}));
        listed["result"]["tools"][2]["description"].as_str().unwrap().to_owned()
    };
    eventually("the broken server is named", || summary().contains("mcp.brokenOne (down: "));
    assert!(summary().contains("mcp.clock (3 tools"), "{}", summary());
}

// req: GW-08
#[test]
fn code_view_lists_only_own_tools() {
    let serving = ServeProcess::start_with(demo_servers(), &["--show", "code"]);
    let client = Client::connect(serving.address(), "/mcp");
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["search_tools", "describe_tools", "execute_code"]);
    assert!(tools.iter().all(|tool| tool["_meta"]["anthropic/alwaysLoad"] == true), "{listed:#}");
    let summary = tools[2]["description"].as_str().unwrap();
    assert!(summary.contains("mcp.clock (3 tools") && summary.contains(": now, convert"), "{summary}");
    let ran = client.call("execute_code", &json!({ "code": "return bascule.tools.length" }));
    assert!(ran["result"]["structuredContent"]["result"].as_u64().unwrap() > 10);
    assert_eq!(client.call("clock__now", &json!({}))["error"]["code"], -32602);
}

// req: GW-08, CM-08
#[test]
fn describes_tools_in_typescript() {
    let serving = ServeProcess::start_with(demo_servers(), &["--show", "code"]);
    let client = Client::connect(serving.address(), "/mcp");
    let describe = |arguments: Value| client.call("describe_tools", &arguments)["result"].clone();
    let tools = |result: &Value| result["structuredContent"]["tools"].as_array().unwrap().clone();
    eventually("all servers have listed their tools", || tools(&describe(json!({}))).len() >= 19);
    let spellings = [
        "clock:now",
        "mcp.clock.now",
        "clock.now",
        "clock__now",
        "await mcp.clock.now({})",
        "mcp['clock']['now']",
    ];
    for spelling in spellings {
        let described = describe(json!({ "tools": [spelling] }));
        assert_eq!(tools(&described)[0]["id"], "clock:now", "{spelling}: {described:#}");
        assert!(
            text(&described).starts_with("mcp.clock.now(args?: { timezone?: string }): Promise<{"),
            "{described:#}"
        );
    }
    let camel = describe(json!({ "tools": ["mcp.clock.listTimezones", "notes:addNote", "notes:add_note"] }));
    let ids: Vec<Value> = tools(&camel).iter().map(|tool| tool["id"].clone()).collect();
    assert_eq!(ids, ["clock:list_timezones", "notes:add_note"]);
    let schema = describe(json!({ "tools": ["clock:now"], "format": "schema" }));
    assert!(tools(&schema)[0]["inputSchema"]["properties"].is_object(), "{schema:#}");
    let declared = describe(json!({ "tools": ["clock:now"], "format": "declaration" }));
    assert!(text(&declared).contains("IANA name"), "{declared:#}");
    let all = describe(json!({}));
    assert!(
        tools(&all).len() > 10 && tools(&all).iter().all(|tool| tool["signature"].is_string()),
        "{all:#}"
    );
    assert!(all.to_string().len() < describe(json!({ "format": "schema" })).to_string().len() / 2);
    let selected = json!({ "code": "return bascule.tools", "tools": ["mcp.clock.listTimezones"] });
    let ran = client.call("execute_code", &selected);
    assert!(text(&ran["result"]).contains(r#"["clock:list_timezones"]"#), "{ran:#}");
    // The names are counted before they are compared with tools.
    let many: Vec<String> = (0..300).map(|n| format!("name{n}")).collect();
    let refused = client.call("execute_code", &json!({ "code": "return 1", "tools": many }));
    assert!(text(&refused["result"]).contains("too many tools are named"), "{refused:#}");
}

// req: GW-08
#[test]
fn unknown_name_is_answered_with_nearest_tools() {
    let serving = ServeProcess::start_with(demo_servers(), &["--show", "code"]);
    let client = Client::connect(serving.address(), "/mcp");
    for unknown in ["clock:nwo", "nowhere:get_the_time", "x", "mcp.clock.currentTime", "", "🦀"] {
        let described = client.call("describe_tools", &json!({ "tools": [unknown] }))["result"].clone();
        let entry = &described["structuredContent"]["tools"][0];
        assert!(!entry["nearest"].as_array().unwrap().is_empty(), "{unknown}: {described:#}");
        assert!(entry["error"].is_string() && described["isError"] == true, "{unknown}: {described:#}");
        assert!(text(&described).contains("the nearest tools are `"), "{unknown}: {described:#}");
    }
    let both =
        client.call("describe_tools", &json!({ "tools": ["clock:now", "clock:nwo"] }))["result"].clone();
    assert_eq!(
        (both["isError"].as_bool(), &both["structuredContent"]["tools"][0]["id"]),
        (Some(false), &json!("clock:now"))
    );
}

// req: SE-01, CM-07
#[test]
fn scripts_search_and_describe_granted_tools() {
    let bascule = Bascule::with_demo_servers();
    let code = "const found = await mcp.search('what time is it', { k: 1, detail: 'types' });
        const now = await bascule.call(found[0].id, { timezone: 'Asia/Tokyo' });
        const described = await mcp.describe(['clock.now', found[0], 'clock:nwo']);
        return { found, zone: now.timezone, described }";
    let (code, output) = document(&bascule, code, &[]);
    assert_eq!(code, 0, "{output:#}");
    let result = &output["result"];
    assert_eq!((&result["found"][0]["id"], &result["zone"]), (&json!("clock:now"), &json!("Asia/Tokyo")));
    assert!(
        result["described"][0]["signature"].as_str().unwrap().starts_with("mcp.clock.now("),
        "{result:#}"
    );
    assert_eq!(
        result["described"].as_array().unwrap().len(),
        2,
        "one tool, and one unknown name: {result:#}"
    );
    assert_eq!(result["described"][1]["nearest"][0], "clock:now");
    let code = "return [await mcp.search('add a note', { k: 50, detail: 'names' }), await mcp.describe('notes:add_note'), await mcp.describe()]";
    let (_, output) = document(&bascule, code, &["--tools", "clock:*"]);
    let (found, withheld, all) = (&output["result"][0], &output["result"][1][0], &output["result"][2]);
    assert!(
        found.as_array().unwrap().iter().all(|tool| tool["id"].as_str().unwrap().starts_with("clock:")),
        "{output:#}"
    );
    assert!(withheld["error"].as_str().unwrap().contains("exists, but"), "{output:#}");
    assert_eq!(all.as_array().unwrap().len(), 3);
    let (code, output) = document(&bascule, "return await mcp.search('x', { limit: 2 })", &[]);
    let message = output["error"]["message"].as_str().unwrap();
    assert!(
        code == 1 && message.contains("mcp.search: unknown field `limit`, expected one of"),
        "{output:#}"
    );
}

// req: CM-05
#[test]
fn server_that_is_not_granted_is_told_apart_from_unknown_one() {
    let bascule = Bascule::with_demo_servers();
    let message = |code: &str| {
        let (_, output) = document(&bascule, code, &["--tools", "clock:now"]);
        output["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(
        message("return await mcp.notes.listNotes()")
            .contains("`notes` exists, but none of its tools was granted")
    );
    assert!(message("return await mcp.nodes.listNotes()").contains("no server is named `nodes`"));
    assert!(
        message("return await mcp.clock.convert({})").contains("`clock:convert` exists, but was not granted")
    );
    assert!(message("return await mcp.clock.convrt({})").contains("has no tool `convrt`"));
}

// req: GW-04, GW-08
#[test]
fn cancellation_kills_script() {
    let serving = ServeProcess::start(demo_servers());
    let client = Client::connect(serving.address(), "/mcp");
    let code = json!({ "name": "execute_code", "arguments": { "code": "for (;;) await bascule.sleep(5)" } });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": code }).to_string();
    let request = {
        let client = client.clone();
        std::thread::spawn(move || drop(client.post(&body)))
    };
    eventually("the script runs", || running_workers(serving.pid()) == 1);
    client.notify("notifications/cancelled", &json!({ "requestId": 7 }));
    request.join().unwrap();
    eventually("its worker is killed", || running_workers(serving.pid()) == 0);
    let done = client.call("execute_code", &json!({ "code": "return 1" }));
    assert_eq!(done["result"]["structuredContent"]["result"], 1);
}

/// Returns the number of workers, including idle ones.
pub fn worker_count(bridge: u32) -> usize {
    crate::support::children(bridge).into_iter().filter(|pid| is_worker(*pid)).count()
}

/// Counts workers with many context switches: a script that sleeps and wakes has them, an idle worker does not.
fn running_workers(bridge: u32) -> usize {
    let switches = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    crate::support::children(bridge).into_iter().filter(|pid| is_worker(*pid) && switches(*pid) > 50).count()
}

fn is_worker(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.windows(8).any(|part| part == b"__worker"))
}
