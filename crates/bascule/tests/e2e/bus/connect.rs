//! `bascule connect`: an MCP client on stdio whose tools live behind a real `nats-server`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use bascule_testkit::{Behaviour, NatsServer, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::replicas::Replicas;
use super::service::{agent_on, script, scripted};
use crate::support::{Bascule, eventually};

/// An MCP client on the stdin and stdout of `bascule connect`.
struct ConnectedClient {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl ConnectedClient {
    fn start(bascule: &Bascule, url: &str) -> Self {
        let mut command = bascule.command(&["connect", "--agent", "a", "--bus", url]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self { child, lines };
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let result = client.request(1, "initialize", params);
        assert_eq!(result["result"]["capabilities"]["tools"]["listChanged"], true);
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Sends a request and returns its response, after other messages.
    fn request(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.next();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn call(&mut self, id: u64, name: &str, arguments: Value) -> Value {
        self.request(id, "tools/call", json!({ "name": name, "arguments": arguments }))
    }
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

// req: BU-01
// The client blocks its thread.
#[tokio::test(flavor = "multi_thread")]
async fn mcp_client_uses_the_tools_behind_the_bus() {
    let nats = NatsServer::start();
    let progress = Behaviour::text("done").after_progress(2);
    let calls = || script().calls("read", [progress.clone()]).calls("write", [Behaviour::silence()]);
    let server = ScriptedStdio::new(
        calls().tools(["late"]).calls("late", [Behaviour::error(json!({ "code": -32050, "message": "no" }))]),
    );
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    let elsewhere = Bascule::with_text(r#"{"mcpServers": {}}"#);
    let mut client = ConnectedClient::start(&elsewhere, &nats.url());
    let listed = client.request(2, "tools/list", json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["s__late", "s__read", "s__write"]);
    let params = json!({ "name": "s__read", "arguments": {}, "_meta": { "progressToken": "p" } });
    client.send(json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params }));
    let first = client.next();
    assert_eq!(
        (&first["method"], &first["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    assert_eq!(client.next()["method"], "notifications/progress");
    assert_eq!(client.next()["result"]["content"][0]["text"], "done");
    // Errors look as they do on the bridge's own MCP face.
    assert_eq!(client.call(4, "s__late", json!({}))["error"]["code"], -32050);
    assert_eq!(client.call(5, "s__nothing", json!({}))["error"]["code"], -32602);
    assert_eq!(client.request(6, "resources/list", json!({}))["error"]["code"], -32601);
    let twofold = json!({ "name": "s__read", "Name": "s__write", "arguments": {} });
    assert_eq!(client.request(9, "tools/call", twofold)["error"]["code"], -32602);
    // A cancelled call gets no response.
    client.send(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "s__write", "arguments": {} } }));
    eventually("the server has the call", || server.received().iter().any(|line| line.contains("\"write\"")));
    client
        .send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } }));
    server.wait_for("notifications/cancelled");
    // A changed list is announced.
    server.set_script(calls());
    let agent = agent_on(&nats, "a").await;
    agent.tell("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", json!({ "agent": "a" })).await;
    assert_eq!(client.next()["method"], "notifications/tools/list_changed");
    let listed = client.request(8, "tools/list", json!({}));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(2));
}

// req: BU-01
// The client blocks its thread.
#[tokio::test(flavor = "multi_thread")]
async fn mcp_client_may_come_before_the_bridge() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(script().calls("read", [Behaviour::text("done")]));
    let elsewhere = Bascule::with_text(r#"{"mcpServers": {}}"#);
    let mut client = ConnectedClient::start(&elsewhere, &nats.url());
    // A call waits for the bridge, and a list says that there is none.
    let params = json!({ "name": "s__read", "arguments": {} });
    client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }));
    let listed = client.request(3, "tools/list", json!({}));
    let message = listed["error"]["message"].as_str().unwrap();
    assert!(message.contains("agent `a`") && message.contains("bascule serve --agent a"), "{listed:#}");
    assert_eq!(listed["error"]["data"]["bascule/error"]["retryable"], true, "{listed:#}");
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    let (mut answer, mut is_announced) = (Value::Null, false);
    while answer.is_null() || !is_announced {
        let message = client.next();
        is_announced |= message["method"] == "notifications/tools/list_changed";
        if message["id"] == 2 {
            answer = message;
        }
    }
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer:#}");
    let listed = client.request(4, "tools/list", json!({}));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(2), "{listed:#}");
}

// req: BU-01
// The client blocks its thread.
#[tokio::test(flavor = "multi_thread")]
async fn call_of_an_mcp_client_without_a_bridge_fails_in_time() {
    let nats = NatsServer::start();
    let config = r#"{"mcpServers": {}, "bascule": {"bus": {"timeoutMs": 1000, "agentTimeoutMs": 2000}}}"#;
    let mut client = ConnectedClient::start(&Bascule::with_text(config), &nats.url());
    let answer = client.call(2, "s__read", json!({}));
    assert_eq!(answer["result"]["isError"], true, "{answer:#}");
    let error = &answer["result"]["_meta"]["bascule/error"];
    assert_eq!((&error["code"], &error["delivery"]), (&json!("PROVIDER_UNAVAILABLE"), &json!("not_sent")));
}

// req: BU-03
// The client blocks its thread.
#[tokio::test(flavor = "multi_thread")]
async fn long_results_and_tool_lists_arrive_whole() {
    let nats = NatsServer::start();
    let text = "x\"ü\n".repeat(700_000);
    let server = ScriptedStdio::new(script().calls("read", [Behaviour::text(&text)]));
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    let mut agent = agent_on(&nats, "a").await;
    let answer = agent.call("s:read", json!({})).await;
    assert!(
        answer.body()["result"].is_null() && answer.body()["resultObject"].is_object(),
        "{:#}",
        answer.envelope
    );
    let elsewhere = Bascule::with_text(r#"{"mcpServers": {}}"#);
    let mut client = ConnectedClient::start(&elsewhere, &nats.url());
    client.request(2, "tools/list", json!({}));
    let result = client.call(3, "s__read", json!({}));
    assert_eq!(result["result"]["content"][0]["text"], text);
    let description = "d".repeat(400_000);
    let many = (0..4).fold(Script::new(), |script, n| {
        script.tool(json!({ "name": format!("t{n}"), "description": description, "inputSchema": { "type": "object" } }))
    });
    server.set_script(many);
    agent.tell("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", json!({ "agent": "a" })).await;
    assert_eq!(client.next()["method"], "notifications/tools/list_changed");
    let listed = client.request(4, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.len() == 4 && tools.iter().all(|tool| tool["description"] == description));
}
