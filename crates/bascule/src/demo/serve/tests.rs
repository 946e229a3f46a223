//! Speaks to a demo in lines, without a process.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Call, Demo, Session};
use crate::demo::reply::Reply;
use crate::demo::tool::Tool;

/// A session whose lines can be read back.
pub(in crate::demo) struct Talk<D> {
    session: Session<D>,
    lines: Receiver<String>,
}

impl<D: Demo> Talk<D> {
    pub(in crate::demo) fn with(demo: D) -> Talk<D> {
        let (sender, lines) = channel();
        Talk { session: Session::new(demo, Box::new(Lines(Vec::new(), sender))), lines }
    }

    pub(in crate::demo) fn say(&self, line: &str) {
        self.session.receive(line);
    }

    /// The next line, which may take a slow call's time.
    pub(in crate::demo) fn hear(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).expect("the demo says something")
    }

    /// All lines that were said and not yet heard.
    pub(in crate::demo) fn heard(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// The result of a call.
    pub(in crate::demo) fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string());
        let mut answer: Value = serde_json::from_str(&self.hear()).unwrap();
        answer["result"].take()
    }

    /// The structure of a successful result, which is there as text too.
    pub(in crate::demo) fn structure(&self, tool: &str, arguments: Value) -> Value {
        let mut result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
        result["structuredContent"].take()
    }

    /// The text of a result that reports failure.
    pub(in crate::demo) fn failure(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

/// Hands over whole lines.
struct Lines(Vec<u8>, Sender<String>);

impl Write for Lines {
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

impl Demo for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn tools(&self) -> Vec<Tool> {
        vec![Tool::new("mirror", "Returns its arguments")]
    }

    fn call(&self, _tool: &str, arguments: &Value, _call: &Call) -> Reply {
        Reply::structured(arguments.clone())
    }
}

fn check(line: &str, expected: &[&str]) {
    let talk = Talk::with(Mirror);
    talk.say(line);
    assert_eq!(talk.heard(), expected);
}

fn check_version(asked: &str, expected: &str) {
    let talk = Talk::with(Mirror);
    let params = json!({"protocolVersion": asked});
    talk.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string());
    let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], expected);
    assert_eq!(answer["result"]["serverInfo"]["name"], "bascule-demo-mirror");
}

#[test]
fn a_known_version_is_agreed_to_and_an_unknown_one_countered() {
    check_version("2024-11-05", "2024-11-05");
    check_version("2025-06-18", "2025-06-18");
    check_version("2099-01-01", "2025-11-25");
}

#[test]
fn ids_come_back_as_they_were_written() {
    let ping = r#"{"jsonrpc":"2.0","id":"é-1","method":"ping"}"#;
    check(ping, &[r#"{"jsonrpc":"2.0","id":"é-1","result":{}}"#]);
    check(&ping.replace(r#""é-1""#, "-1.50"), &[r#"{"jsonrpc":"2.0","id":-1.50,"result":{}}"#]);
}

#[test]
fn notifications_and_answers_are_passed_over() {
    check(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &[]);
    check(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#, &[]);
    check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &[]);
    check("\n", &[]);
}

#[test]
fn bad_input_is_refused_by_its_kind() {
    check("hello", &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"this is no JSON"}}"#]);
    check(
        "[]",
        &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"this is no JSON-RPC message"}}"#],
    );
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#,
        &[
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"there is no method `resources/list`"}}"#,
        ],
    );
}

#[test]
fn tools_are_listed() {
    let talk = Talk::with(Mirror);
    talk.say(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
    assert_eq!(answer["result"]["tools"][0]["name"], "mirror");
}

#[test]
fn structure_is_there_as_text_too() {
    assert_eq!(Talk::with(Mirror).structure("mirror", json!({"a": [1]})), json!({"a": [1]}));
}
