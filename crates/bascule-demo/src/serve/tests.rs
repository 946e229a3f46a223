//! Tests of the protocol, and a client that talks to a demo server without a process.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::{DemoCall, DemoServer, DemoSession};
use crate::reply::{Reply, ReplyResult};
use crate::tool::ToolDeclaration;

/// A client of a session in this process.
pub(crate) struct TestClient<D> {
    session: DemoSession<D>,
    lines: Receiver<String>,
}

impl<D: DemoServer> TestClient<D> {
    pub(crate) fn with(demo: D) -> TestClient<D> {
        let (sender, lines) = channel();
        TestClient { session: DemoSession::new(demo, Box::new(LineSender(Vec::new(), sender))), lines }
    }

    pub(crate) fn send(&self, line: &str) {
        self.session.receive(line);
    }

    /// Returns the next line; waits for slow calls.
    pub(crate) fn receive(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).expect("the demo server sends a line")
    }

    /// Returns the lines that have arrived.
    pub(crate) fn received(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Returns the result of a call.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string());
        let mut answer: Value = serde_json::from_str(&self.receive()).unwrap();
        answer["result"].take()
    }

    /// Returns the structured content of a successful result and checks that its text agrees.
    pub(crate) fn call_structured(&self, tool: &str, arguments: Value) -> Value {
        let mut result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
        result["structuredContent"].take()
    }

    /// Returns the text of a result with `isError: true`.
    pub(crate) fn failure(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

/// Sends each whole line over a channel.
struct LineSender(Vec<u8>, Sender<String>);

impl Write for LineSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            let _ = self.1.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Mirror;

impl DemoServer for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn tools(&self) -> Vec<ToolDeclaration> {
        vec![ToolDeclaration::new("mirror", "Returns its arguments")]
    }

    fn call(&self, _tool: &str, arguments: &Value, _call: &DemoCall) -> ReplyResult {
        Ok(Reply::structured(arguments.clone()))
    }
}

fn check(line: &str, expected: &[&str]) {
    let client = TestClient::with(Mirror);
    client.send(line);
    assert_eq!(client.received(), expected);
}

fn check_version(requested: &str, expected: &str) {
    let client = TestClient::with(Mirror);
    let params = json!({"protocolVersion": requested});
    client.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string());
    let answer: Value = serde_json::from_str(&client.receive()).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], expected);
    assert_eq!(answer["result"]["serverInfo"]["name"], "bascule-demo-mirror");
}

#[test]
fn negotiates_the_protocol_version() {
    check_version("2024-11-05", "2024-11-05");
    check_version("2025-06-18", "2025-06-18");
    check_version("2099-01-01", "2025-11-25");
}

#[test]
fn responses_keep_the_spelling_of_ids() {
    let ping = r#"{"jsonrpc":"2.0","id":"é-1","method":"ping"}"#;
    check(ping, &[r#"{"jsonrpc":"2.0","id":"é-1","result":{}}"#]);
    check(&ping.replace(r#""é-1""#, "-1.50"), &[r#"{"jsonrpc":"2.0","id":-1.50,"result":{}}"#]);
}

#[test]
fn ignores_notifications_and_responses() {
    check(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &[]);
    check(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#, &[]);
    check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &[]);
    check("\n", &[]);
}

#[test]
fn rejects_invalid_input() {
    check("hello", &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not valid JSON"}}"#]);
    check(
        "[]",
        &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not a JSON-RPC message"}}"#],
    );
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#,
        &[r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown method `resources/list`"}}"#],
    );
}

#[test]
fn lists_tools() {
    let client = TestClient::with(Mirror);
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let answer: Value = serde_json::from_str(&client.receive()).unwrap();
    assert_eq!(answer["result"]["tools"][0]["name"], "mirror");
}

#[test]
fn structured_content_has_matching_text() {
    assert_eq!(TestClient::with(Mirror).call_structured("mirror", json!({"a": [1]})), json!({"a": [1]}));
}
