//! The same over stdin and stdout: all servers, or one alone.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use bascule_testkit::{Behaviour, IdPlace, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::hello;
use super::parsed;
use crate::support::{Bascule, eventually, is_running};

struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Its folder, which goes when this does.
    _bascule: Bascule,
}

impl Pipe {
    fn open(servers: Value, options: &[&str]) -> Self {
        Self::of(Bascule::with_servers(servers), options)
    }

    fn of(bascule: Bascule, options: &[&str]) -> Self {
        let mut command = bascule.command(&[&["serve", "--stdio"], options].concat());
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut pipe = Self { child, stdin, stdout, _bascule: bascule };
        let welcome = pipe.ask(&hello(&json!({ "roots": {} })));
        assert!(parsed(&welcome)["result"].is_object(), "{welcome}");
        pipe.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        pipe
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }
}

impl Drop for Pipe {
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

fn check(pipe: &mut Pipe, prefix: &str) {
    let sent = r#"{"a":1.0,"a":"\ud800"}"#;
    let answer = pipe.ask(&format!(
        r#"{{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{{"name":"{prefix}t","arguments":{sent}}}}}"#
    ));
    assert!(answer.ends_with(&format!(r#""structuredContent":{sent},"isError":false}}}}"#)), "{answer}");
    pipe.say(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"{prefix}count","_meta":{{"progressToken":"p"}}}}}}"#
    ));
    for n in 1..=200 {
        assert_eq!(
            parsed(&pipe.hear())["params"],
            json!({ "progressToken": "p", "progress": n, "total": 200 })
        );
    }
    assert_eq!(parsed(&pipe.hear())["id"], 2);
    let question = parsed(&pipe.ask(&format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"{prefix}ask"}}}}"#
    )));
    assert_eq!(question["method"], "roots/list");
    let answer = pipe.ask(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#, question["id"]));
    assert_eq!(
        parsed(&answer)["result"]["structuredContent"]["answers"][0]["result"],
        json!({ "roots": [] })
    );
    assert!(pipe.ask("{nonsense").contains("-32700"));
}

// req: GW-01, GW-03
#[test]
fn a_client_on_the_pipes_is_served_and_its_end_is_ours() {
    for (options, prefix) in [(&[][..], "s__"), (&["--server", "s"][..], "")] {
        let server = ScriptedStdio::new(script());
        let mut pipe = Pipe::open(json!({ "s": server.entry() }), options);
        check(&mut pipe, prefix);
        if prefix.is_empty() {
            let answer = pipe.ask(r#"{"jsonrpc":"2.0","id":4,"method":"x/ask","params":[1]}"#);
            assert_eq!(answer, r#"{"jsonrpc":"2.0","id":4,"result":{"n":1e400,"n":-0}}"#);
        }
        drop(pipe.stdin.take());
        eventually("it ends with its client", || pipe.child.try_wait().unwrap().is_some());
        assert!(pipe.child.wait().unwrap().success());
        assert!(server.started().iter().all(|pid| !is_running(*pid)));
    }
}

// req: GW-04
#[test]
fn a_signal_ends_it_though_its_client_has_not_hung_up() {
    for signal in ["TERM", "INT"] {
        let server = ScriptedStdio::new(script());
        let mut pipe = Pipe::open(json!({ "s": server.entry() }), &[]);
        let kill = format!("kill -{signal} {}", pipe.child.id());
        Command::new("sh").args(["-c", &kill]).status().unwrap();
        eventually("it ends", || pipe.child.try_wait().unwrap().is_some());
        assert!(pipe.child.wait().unwrap().success());
    }
}

// req: GW-03
#[test]
fn answers_that_are_too_long_together_all_arrive() {
    const EACH: usize = 400_000;
    let big = Behaviour::big(EACH, IdPlace::Before).after_delay(Duration::from_millis(100));
    let server = ScriptedStdio::new(Script::new().tools(["big"]).calls("big", [big]));
    let text = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 1_000_000 } });
    let mut pipe = Pipe::of(Bascule::with_text(&text.to_string()), &["--server", "s"]);
    for id in 0..8 {
        pipe.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"big"}}}}"#
        ));
    }
    server.wait_until(|_| server.methods().iter().filter(|method| *method == "tools/call").count() == 8);
    let mut ids: Vec<_> = (0..8).map(|_| parsed(&pipe.hear())["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
}
