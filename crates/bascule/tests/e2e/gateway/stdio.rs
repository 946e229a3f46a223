//! `bascule serve --stdio`, with all servers or with one.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use bascule_testkit::{Behaviour, IdPosition, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::initialize_request;
use super::{parse, with_settings};
use crate::fleet::serve_process::config_text;
use crate::support::{Bascule, eventually, is_running, signal};

/// A running `bascule serve --stdio` with an initialized session. Killed when dropped.
struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    bascule: Bascule,
}

impl StdioClient {
    fn start(servers: Value, options: &[&str]) -> Self {
        Self::start_with_config(&config_text(&servers), options)
    }

    fn start_with_config(text: &str, options: &[&str]) -> Self {
        let bascule = Bascule::with_text(text);
        let mut command = bascule.command(&[&["serve", "--stdio"], options].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut client = Self { child, stdin, stdout, stderr, bascule };
        let response = client.exchange(&initialize_request(&json!({ "roots": {} })));
        assert!(parse(&response)["result"].is_object(), "{response}");
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn receive(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn exchange(&mut self, line: &str) -> String {
        self.send(line);
        self.receive()
    }

    fn call(&mut self, id: u32, tool: &str) {
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
        ));
    }

    /// Reads stderr until a line contains this.
    fn wait_for_stderr(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "exited without `{part}` on stderr");
        }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits until the process exits with code 0.
    fn wait_for_success(&mut self) {
        eventually("the process exits", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script() -> Script {
    Script::new()
        .tools(["t", "ask", "count"])
        .calls("count", [Behaviour::text("done").after_progress(200)])
        .calls("ask", [Behaviour::asking([json!({ "method": "roots/list" })])])
        .on("x/ask", [Behaviour::result(r#"{"n":1e400,"n":-0}"#)])
}

fn check(client: &mut StdioClient, prefix: &str) {
    let sent = r#"{"a":1.0,"b":"\u0061"}"#;
    let answer = client.exchange(&format!(
        r#"{{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{{"name":"{prefix}t","arguments":{sent}}}}}"#
    ));
    assert!(answer.ends_with(&format!(r#""structuredContent":{sent},"isError":false}}}}"#)), "{answer}");
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"{prefix}count","_meta":{{"progressToken":"p"}}}}}}"#
    ));
    for n in 1..=200 {
        assert_eq!(
            parse(&client.receive())["params"],
            json!({ "progressToken": "p", "progress": n, "total": 200 })
        );
    }
    assert_eq!(parse(&client.receive())["id"], 2);
    let request = parse(&client.exchange(&format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"{prefix}ask"}}}}"#
    )));
    assert_eq!(request["method"], "roots/list");
    let answer =
        client.exchange(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#, request["id"]));
    assert_eq!(parse(&answer)["result"]["structuredContent"]["answers"][0]["result"], json!({ "roots": [] }));
    assert!(client.exchange("{nonsense").contains("-32700"));
}

// req: GW-01, GW-03
#[test]
fn serves_client_and_exits_when_stdin_closes() {
    for (options, prefix) in [(&[][..], "s__"), (&["--server", "s"][..], "")] {
        let server = ScriptedStdio::new(script());
        let mut client = StdioClient::start(json!({ "s": server.entry() }), options);
        check(&mut client, prefix);
        if prefix.is_empty() {
            let answer = client.exchange(r#"{"jsonrpc":"2.0","id":4,"method":"x/ask","params":[1]}"#);
            assert_eq!(answer, r#"{"jsonrpc":"2.0","id":4,"result":{"n":1e400,"n":-0}}"#);
        }
        drop(client.stdin.take());
        client.wait_for_success();
        assert!(server.started().iter().all(|pid| !is_running(*pid)));
    }
}

// req: GW-01
#[test]
fn exits_on_signal_while_stdin_is_open() {
    for name in ["TERM", "INT"] {
        let server = ScriptedStdio::new(script());
        let mut client = StdioClient::start(json!({ "s": server.entry() }), &[]);
        client.signal(name);
        client.wait_for_success();
        assert!(client.stdin.is_some() && server.started().iter().all(|pid| !is_running(*pid)));
    }
}

// req: GW-01
#[test]
fn exits_on_second_signal_without_waiting_for_calls() {
    let script = Script::new().tools(["hold"]).calls("hold", [Behaviour::silence()]);
    let server = ScriptedStdio::new(script);
    let slow = json!({ "s": with_settings(server.entry(), json!({ "timeoutMs": 600_000 })) });
    let mut client = StdioClient::start(slow, &["--grace-ms", "600000"]);
    client.call(1, "s__hold");
    server.wait_for("tools/call");
    client.signal("INT");
    client.wait_for_stderr("a second signal ends them");
    client.signal("INT");
    client.wait_for_success();
    assert!(server.started().iter().all(|pid| !is_running(*pid)));
}

// req: GW-03
#[test]
fn delivers_responses_that_exceed_the_message_limit_together() {
    let script = Script::new().tools(["big"]).calls("big", [Behaviour::big(400_000, IdPosition::Before)]);
    let server = ScriptedStdio::new(script);
    let text = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 500_000 } });
    let mut client = StdioClient::start_with_config(&text.to_string(), &[]);
    (1..=12).for_each(|id| client.call(id, "s__big"));
    // The client reads nothing before all calls have reached the server.
    eventually("all calls have reached the server", || {
        server.methods().iter().filter(|method| *method == "tools/call").count() == 12
    });
    let ids: BTreeSet<u64> = (0..12).map(|_| parse(&client.receive())["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=12).collect());
    client.call(13, "s__big");
    assert_eq!(parse(&client.receive())["id"], 13);
}

// req: GW-01
#[test]
fn finishes_calls_within_grace_period_after_stdin_closes() {
    let slow = Behaviour::text("done").after_delay(Duration::from_secs(7));
    let server = ScriptedStdio::new(Script::new().tools(["slow"]).calls("slow", [slow]));
    let mut client = StdioClient::start(json!({ "s": server.entry() }), &["--grace-ms", "60000"]);
    client.call(1, "s__slow");
    drop(client.stdin.take());
    assert_eq!(parse(&client.receive())["result"]["isError"], false);
    client.wait_for_success();
}

// req: GW-01, BR-13
#[test]
fn ends_with_its_client_during_a_reload() {
    let server = ScriptedStdio::new(script());
    let mut client = StdioClient::start(json!({ "s": server.entry() }), &[]);
    let silent = ScriptedStdio::new(Script::new().on("initialize", [Behaviour::silence()]));
    let entry = with_settings(silent.entry(), json!({ "startTimeoutMs": 600_000 }));
    let file = client.bascule.folder().join("mcp.json");
    std::fs::write(file, config_text(&json!({ "s": entry }))).unwrap();
    silent.wait_for("initialize");
    drop(client.stdin.take());
    client.wait_for_success();
    assert!(silent.started().iter().all(|pid| !is_running(*pid)));
}

// req: GW-03, GW-04
#[test]
fn cancels_call() {
    let script = Script::new().tools(["hold", "t"]).calls("hold", [Behaviour::silence()]);
    let server = ScriptedStdio::new(script);
    let mut client = StdioClient::start(json!({ "s": server.entry() }), &[]);
    client.call(1, "s__hold");
    let held = parse(&server.wait_for("tools/call"));
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let cancelled = parse(&server.wait_for("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], held["id"]);
    // A cancelled call gets no response: the next message answers another call.
    client.call(2, "s__t");
    assert_eq!(parse(&client.receive())["id"], 2);
}
