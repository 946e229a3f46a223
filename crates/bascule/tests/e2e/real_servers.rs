//! Third-party MCP servers, installed from the registries by `make test-env`.

mod compatibility;
mod confined;
mod everything;
mod files;
mod http;
mod python;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::{Bascule, test_env};
use http::HttpServer;

/// Start timeout in ms: real servers start slowly on a busy machine.
const START: u64 = 60_000;

/// A server from npm.
fn node(package: &str, arguments: &[&str]) -> Value {
    let script = test_env(&format!("node/node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    let arguments = [&[script.to_str().unwrap()], arguments].concat();
    json!({ "command": "node", "args": arguments, "startTimeoutMs": START })
}

/// A server from PyPI.
fn python(name: &str, arguments: &[&str]) -> Value {
    json!({ "command": test_env(&format!("python/bin/{name}")), "args": arguments, "startTimeoutMs": START })
}

/// A tool of `tools/list` with its schemas unparsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    name: String,
    description: Option<String>,
    input_schema: Box<RawValue>,
    output_schema: Option<Box<RawValue>>,
}

impl ListedTool {
    fn raw_parts(&self) -> [Option<&str>; 4] {
        let output = self.output_schema.as_deref().map(RawValue::get);
        [Some(&self.name), self.description.as_deref(), Some(self.input_schema.get()), output]
    }
}

/// Lists the tools of a server without the bridge.
fn list_directly(entry: &Value) -> Vec<ListedTool> {
    #[derive(Deserialize)]
    struct Answer {
        result: Page,
    }
    #[derive(Deserialize)]
    struct Page {
        tools: Vec<ListedTool>,
    }
    let line = ask_for_line(entry, "tools/list", &json!({}));
    serde_json::from_str::<Answer>(&line).expect("the server did not list its tools").result.tools
}

/// Makes one request of a server without the bridge.
fn ask_directly(entry: &Value, method: &str, params: &Value) -> Value {
    serde_json::from_str(&ask_for_line(entry, method, params)).unwrap()
}

/// Starts a server, writes three lines, and returns the response to the last one.
fn ask_for_line(entry: &Value, method: &str, params: &Value) -> String {
    let arguments = entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let mut command = Command::new(entry["command"].as_str().unwrap());
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let home = tempfile::tempdir().unwrap();
    command.env("HOME", home.path());
    let env = entry["env"].as_object().into_iter().flatten();
    command.envs(env.map(|(name, value)| (name, value.as_str().unwrap())));
    let mut server = command.spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params }),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_response =
        |line: &String| serde_json::from_str::<Value>(line).is_ok_and(|message| message["id"] == 2);
    let response = lines.find(is_response).expect("the server did not respond");
    server.kill().unwrap();
    server.wait().unwrap();
    response
}

/// Checks that `check`, `tools` and `describe` show the server's own text byte for byte.
fn check_catalog(bascule: &Bascule, server: &str, own_name: &str, own: &[ListedTool]) {
    let (code, report) = bascule.run_json(&["check"]);
    let shown = &report["servers"][0];
    assert_eq!((code, &shown["name"], &shown["health"]), (0, &json!(server), &json!("healthy")), "{report}");
    assert_eq!(
        (&shown["tools"], &shown["serverInfo"]["name"]),
        (&json!(own.len()), &json!(own_name)),
        "{report}"
    );
    assert_eq!(shown["protocolVersion"], "2025-11-25");

    let output = bascule.run(&["tools", server, "--json"]);
    let listed: Vec<ListedTool> = serde_json::from_str(&output.stdout).unwrap();
    let raw_parts =
        |tools: &[ListedTool]| tools.iter().map(|tool| format!("{:?}", tool.raw_parts())).collect::<Vec<_>>();
    assert_eq!(raw_parts(&listed), raw_parts(own));
    let document = output.document();
    let ids = document.as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap());
    assert!(ids.eq(own.iter().map(|tool| format!("{server}:{}", tool.name))), "{document}");

    let tool = own.iter().find(|tool| tool.output_schema.is_some()).unwrap_or(&own[0]);
    let output = bascule.run(&["describe", &format!("{server}:{}", tool.name), "--json"]);
    let described: ListedTool = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(described.raw_parts(), tool.raw_parts());
}

/// Checks that a call is rejected before it is sent, with violations at these pointers.
fn check_rejected(bascule: &Bascule, tool: &str, arguments: &str, pointers: &[&str]) {
    let error = bascule.call_error(tool, arguments);
    assert_eq!(
        (&error["code"], &error["delivery"]),
        (&json!("INVALID_INPUT"), &json!("not_sent")),
        "{error}"
    );
    let violations = error["violations"].as_array().unwrap();
    let mut found: Vec<&str> =
        violations.iter().map(|violation| violation["pointer"].as_str().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, pointers, "{error}");
}

// req: BR-01, BR-03
#[test]
fn merges_all_servers_into_one_catalog() {
    let http = HttpServer::start();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let bascule = Bascule::with_servers(json!({
        "everything": node("server-everything", &[]),
        "files": node("server-filesystem", &[root]),
        "git": python("mcp-server-git", &[]),
        "memory": node("server-memory", &[]),
        "remote": { "url": http.url(), "startTimeoutMs": START },
        "time": python("mcp-server-time", &[]),
    }));
    let (code, tools) = bascule.run_json(&["tools"]);
    let tools = tools.as_array().unwrap();
    let of = |server: &str| tools.iter().filter(|tool| tool["server"] == server).count();
    assert_eq!(code, 0);
    for server in ["everything", "files", "git", "memory", "remote", "time"] {
        assert!(of(server) > 0, "no tools of `{server}`");
    }
    assert_eq!(of("remote"), of("everything"), "both instances of `server-everything` have the same tools");
    let mut ids: Vec<&str> = tools.iter().map(|tool| tool["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), tools.len(), "duplicate ids");
    for tool in tools {
        assert_eq!(
            tool["id"],
            format!("{}:{}", tool["server"].as_str().unwrap(), tool["name"].as_str().unwrap())
        );
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
}
