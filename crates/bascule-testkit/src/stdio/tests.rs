//! Tests of `scripted-server` over its pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::ScriptedStdio;
use crate::{Behaviour, IdPosition, Script};

struct Pipes {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Pipes {
    fn to(server: &ScriptedStdio) -> Pipes {
        let mut command = server.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Pipes { child, input, output }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    fn call(&mut self, id: u32, tool: &str) {
        self.send(&json!({"id": id, "method": "tools/call", "params": {"name": tool}}).to_string());
    }

    /// Returns the next line, or an empty one at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn response(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().unwrap().code()
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the lines that a server sends for one call of the tool `x`.
fn check(behaviour: Behaviour, expected: &[&str]) {
    let server = ScriptedStdio::new(Script::new().tools(["x"]).calls("x", [behaviour]));
    let mut pipes = Pipes::to(&server);
    pipes.call(1, "x");
    for line in expected {
        assert_eq!(pipes.line(), *line);
    }
    pipes.input = None;
    assert_eq!(pipes.line(), "", "nothing more");
}

#[test]
fn initializes_and_lists_tools() {
    let server = ScriptedStdio::new(Script::new().tools(["a", "b"]));
    let mut pipes = Pipes::to(&server);
    pipes.send(r#"{"id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#);
    assert_eq!(pipes.response()["result"]["protocolVersion"], "2025-06-18");
    pipes.send(r#"{"method":"notifications/initialized"}"#);
    pipes.send(r#"{"id":1,"method":"tools/list"}"#);
    assert_eq!(pipes.response()["result"]["tools"][1]["name"], "b");
    assert_eq!(server.methods(), ["initialize", "notifications/initialized", "tools/list"]);
}

#[test]
fn initialize_can_fail() {
    let initialize = |script: Script| {
        let server = ScriptedStdio::new(script);
        let mut pipes = Pipes::to(&server);
        pipes.send(r#"{"id":0,"method":"initialize"}"#);
        pipes.input = None;
        pipes.line()
    };
    assert!(initialize(Script::new().version("1999-01-01")).contains(r#""protocolVersion":"1999-01-01""#));
    assert!(
        initialize(Script::new().on("initialize", [Behaviour::error(json!({"code": -1}))]))
            .contains(r#""code":-1"#)
    );
    assert_eq!(initialize(Script::new().on("initialize", [Behaviour::silence()])), "");
}

#[test]
fn exit_at_start_prints_stderr_first() {
    let server = ScriptedStdio::new(Script::new().stderr("no licence\n").exit_at_start(3));
    let mut pipes = Pipes::to(&server);
    let mut stderr = String::new();
    pipes.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((stderr.as_str(), pipes.exit_code()), ("no licence\n", Some(3)));
}

#[test]
fn prints_junk_around_messages() {
    let script = Script::new().junk_at_start(["Welcome!", "{"]).junk_between(["…"]);
    let server = ScriptedStdio::new(script);
    let mut pipes = Pipes::to(&server);
    pipes.send(r#"{"id":0,"method":"ping"}"#);
    for expected in ["Welcome!", "{", "…", r#"{"jsonrpc":"2.0","id":0,"result":{}}"#] {
        assert_eq!(pipes.line(), expected);
    }
}

#[test]
fn results_and_errors_are_verbatim() {
    check(Behaviour::result(r#"{"b":1.0,"a":2}"#), &[r#"{"jsonrpc":"2.0","id":1,"result":{"b":1.0,"a":2}}"#]);
    check(Behaviour::error(r#"{"code":-7}"#), &[r#"{"jsonrpc":"2.0","id":1,"error":{"code":-7}}"#]);
}

#[test]
fn behaviours_continue_after_a_crash() {
    let script = Script::new().calls("x", [Behaviour::exit(7), Behaviour::text("alive")]);
    let server = ScriptedStdio::new(script);
    let mut first = Pipes::to(&server);
    first.call(1, "x");
    assert_eq!((first.line().as_str(), first.exit_code()), ("", Some(7)));
    let mut second = Pipes::to(&server);
    second.call(2, "x");
    assert_eq!(second.response()["result"]["content"][0]["text"], "alive");
    assert_eq!(server.started(), [first.child.id(), second.child.id()]);
}

#[test]
fn abort_ends_by_signal() {
    let server = ScriptedStdio::new(Script::new().calls("x", [Behaviour::abort()]));
    let mut pipes = Pipes::to(&server);
    pipes.call(1, "x");
    assert_eq!((pipes.line().as_str(), pipes.exit_code()), ("", None));
}

#[test]
fn sends_garbage_duplicates_and_stray_responses() {
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    check(Behaviour::silence().after_line("%$!"), &["%$!"]);
    check(Behaviour::result("{}").after_line("%$!"), &["%$!", answer]);
    check(Behaviour::result("{}").twice(), &[answer, answer]);
    let stray = r#"{"id":"nobody-used-this","jsonrpc":"2.0","result":{}}"#;
    check(Behaviour::result("{}").after_stray_response(), &[stray, answer]);
}

#[test]
fn delayed_call_does_not_block_others() {
    let script = Script::new().tools(["x", "y"]);
    let slow = Behaviour::echo().after_delay(Duration::from_secs(3));
    let server = ScriptedStdio::new(script.calls("x", [slow]));
    let mut pipes = Pipes::to(&server);
    pipes.call(1, "x");
    pipes.call(2, "y");
    assert_eq!([pipes.response()["id"].clone(), pipes.response()["id"].clone()], [2, 1]);
}

#[test]
fn oversized_line_has_its_id_at_the_requested_position() {
    let find_id = |position| {
        let server = ScriptedStdio::new(Script::new().calls("x", [Behaviour::big(100_000, position)]));
        let mut pipes = Pipes::to(&server);
        pipes.call(1, "x");
        let line = pipes.line();
        assert_eq!(line.len(), 100_000);
        serde_json::from_str::<Value>(&line).unwrap();
        line.find(r#""id":1"#)
    };
    assert!(find_id(IdPosition::Before) < Some(100));
    assert!(find_id(IdPosition::After) > Some(90_000));
    assert_eq!(find_id(IdPosition::Missing), None);
}

#[test]
fn reports_progress_only_with_a_token() {
    let server = ScriptedStdio::new(Script::new().calls("x", [Behaviour::echo().after_progress(2)]));
    let mut pipes = Pipes::to(&server);
    pipes.call(1, "x");
    assert_eq!(pipes.response()["id"], 1);
    pipes.send(r#"{"id":2,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"t"}}}"#);
    let reports = [pipes.response(), pipes.response()].map(|report| report["params"].clone());
    assert_eq!(reports[0], json!({"progressToken": "t", "progress": 1, "total": 2}));
    assert_eq!(reports[1]["progress"], 2);
    assert_eq!(pipes.response()["id"], 2);
}

#[test]
fn returns_the_clients_responses() {
    let script = Script::new()
        .calls("x", [Behaviour::asking([json!({"method": "ping"}), json!({"method": "roots/list"})])]);
    let server = ScriptedStdio::new(script);
    let mut pipes = Pipes::to(&server);
    pipes.call(1, "x");
    for expected in ["ping", "roots/list"] {
        let request = pipes.response();
        assert_eq!(request["method"], expected);
        pipes.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {"to": expected}}).to_string());
    }
    let answers = &pipes.response()["result"]["structuredContent"]["answers"];
    assert_eq!([&answers[0]["result"]["to"], &answers[1]["result"]["to"]], ["ping", "roots/list"]);
}

#[test]
fn pages_end_or_are_endless() {
    let list = |script: Script, cursor: &str| {
        let server = ScriptedStdio::new(script.tools(["a", "b", "c"]).page_size(2));
        let mut pipes = Pipes::to(&server);
        pipes.send(&json!({"id": 1, "method": "tools/list", "params": {"cursor": cursor}}).to_string());
        let page = pipes.response()["result"].take();
        (page["tools"][0]["name"].clone(), page["nextCursor"].clone())
    };
    assert_eq!(list(Script::new(), "0"), (json!("a"), json!("2")));
    assert_eq!(list(Script::new(), "2"), (json!("c"), Value::Null));
    assert_eq!(list(Script::new().with_endless_pages(), "1000"), (json!("b"), json!("1002")));
}

#[test]
fn new_script_applies_to_the_running_server() {
    let server = ScriptedStdio::new(Script::new().tools(["a"]));
    let mut pipes = Pipes::to(&server);
    for name in ["a", "b"] {
        pipes.send(r#"{"id":1,"method":"tools/list"}"#);
        assert_eq!(pipes.response()["result"]["tools"][0]["name"], name);
        server.set_script(Script::new().tools(["b"]));
    }
}

#[test]
fn records_received_bytes() {
    let server = ScriptedStdio::new(Script::new());
    let mut pipes = Pipes::to(&server);
    let line = r#"{ "method":"notifications/cancelled" , "params":{"requestId":1.0} }"#;
    pipes.send(line);
    assert_eq!(server.wait_for("cancelled"), line);
    assert_eq!(server.wait_until(|line| line.contains("1.0")), line);
}

#[test]
fn invalid_message_gets_a_parse_error() {
    let server = ScriptedStdio::new(Script::new());
    let mut pipes = Pipes::to(&server);
    pipes.send("hello");
    assert_eq!(pipes.response()["error"]["code"], -32700);
}

#[test]
fn outlives_stdin_until_killed() {
    let server = ScriptedStdio::new(Script::new().outlives_stdin());
    let mut pipes = Pipes::to(&server);
    pipes.send(r#"{"id":1,"method":"ping"}"#);
    pipes.line();
    pipes.input = None;
    assert!(pipes.child.try_wait().unwrap().is_none());
    server.kill();
    assert_eq!(pipes.exit_code(), None);
}
