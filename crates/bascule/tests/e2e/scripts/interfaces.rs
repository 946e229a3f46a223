//! Tests scripts from the command line, through a running bridge and from an MCP client.

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
    for options in [["--tools", "clock"], ["--context", "[1]"], ["--context", "{"], ["--intent", "x"]] {
        assert_eq!(document(&bascule, "return 1", &options).0, 2, "{options:?}");
    }
    assert_eq!(bascule.run(&["run", "no-such-file.ts"]).code, Some(2));
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
    assert_eq!(result["structuredContent"]["traces"].as_array().unwrap().len(), 4);
    assert!(text(result).contains("Asia/Tokyo") && text(result).contains("both are there"));
    let failed = client.call("execute_code", &json!({ "code": "\nawait trouble.fail({})" }));
    assert_eq!(failed["result"]["isError"], true);
    assert!(text(&failed["result"]).contains("script.ts:2:"), "{failed:#}");
    let wrong = client.call("execute_code", &json!({ "kode": 1 }));
    assert_eq!(wrong["result"]["isError"], true);
}

// req: GW-08
#[test]
fn code_view_lists_only_own_tools() {
    let serving = ServeProcess::start_with(demo_servers(), &["--show", "code"]);
    let client = Client::connect(serving.address(), "/mcp");
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["describe_tools", "execute_code"]);
    assert!(tools[1]["description"].as_str().unwrap().contains("mcp.clock: now, convert"), "{listed:#}");
    let described = client.call("describe_tools", &json!({ "tools": ["clock:now"] }));
    let described = &described["result"]["structuredContent"]["tools"][0];
    assert_eq!(described["call"], "mcp.clock.now");
    assert!(described["inputSchema"]["properties"].is_object());
    let all = client.call("describe_tools", &json!({}));
    assert!(all["result"]["structuredContent"]["tools"].as_array().unwrap().len() > 10);
    let ran = client.call("execute_code", &json!({ "code": "return bascule.tools.length" }));
    assert!(ran["result"]["structuredContent"]["result"].as_u64().unwrap() > 10);
    assert_eq!(client.call("clock__now", &json!({}))["error"]["code"], -32602);
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
