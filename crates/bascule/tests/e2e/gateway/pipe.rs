//! The same over stdin and stdout: all servers, or one alone.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use bascule_testkit::{Behaviour, IdPlace, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::hello;
use super::{extended, parsed};
use crate::fleet::serving::configuration;
use crate::fleet::signal;
use crate::support::{Bascule, eventually, is_running};

struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// Its folder, which goes when this does.
    _bascule: Bascule,
}

impl Pipe {
    fn open(servers: Value, options: &[&str]) -> Self {
        Self::configured(&configuration(&servers), options)
    }

    fn configured(text: &str, options: &[&str]) -> Self {
        let bascule = Bascule::with_text(text);
        let mut command = bascule.command(&[&["serve", "--stdio"], options].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut pipe = Self { child, stdin, stdout, stderr, _bascule: bascule };
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

    fn call(&mut self, id: u32, tool: &str) {
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
        ));
    }

    /// Reads what it says on the side until this comes.
    fn wait_said(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "it ended and never said `{part}`");
        }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end, which must be a good one.
    fn ended(&mut self) {
        eventually("it ends", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success());
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
        pipe.ended();
        assert!(server.started().iter().all(|pid| !is_running(*pid)));
    }
}

// req: GW-01
#[test]
fn a_signal_ends_it_though_its_client_holds_the_pipes() {
    for name in ["TERM", "INT"] {
        let server = ScriptedStdio::new(script());
        let mut pipe = Pipe::open(json!({ "s": server.entry() }), &[]);
        pipe.signal(name);
        pipe.ended();
        assert!(pipe.stdin.is_some() && server.started().iter().all(|pid| !is_running(*pid)));
    }
}

// req: GW-01
#[test]
fn a_second_signal_does_not_wait_for_calls() {
    let script = Script::new().tools(["hold"]).calls("hold", [Behaviour::silence()]);
    let server = ScriptedStdio::new(script);
    let patient = json!({ "s": extended(server.entry(), json!({ "timeoutMs": 600_000 })) });
    let mut pipe = Pipe::open(patient, &["--grace-ms", "600000"]);
    pipe.call(1, "s__hold");
    server.wait_for("tools/call");
    pipe.signal("INT");
    pipe.wait_said("once more to end at once");
    pipe.signal("INT");
    pipe.ended();
    assert!(server.started().iter().all(|pid| !is_running(*pid)));
}

// req: GW-03
#[test]
fn answers_that_are_too_much_together_come_all_the_same() {
    let script = Script::new().tools(["big"]).calls("big", [Behaviour::big(400_000, IdPlace::Before)]);
    let server = ScriptedStdio::new(script);
    let text = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 500_000 } });
    let mut pipe = Pipe::configured(&text.to_string(), &[]);
    (1..=12).for_each(|id| pipe.call(id, "s__big"));
    // Nothing is read before all of them have been sent.
    eventually("all have been called", || {
        server.methods().iter().filter(|method| *method == "tools/call").count() == 12
    });
    let ids: BTreeSet<u64> = (0..12).map(|_| parsed(&pipe.hear())["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=12).collect());
    pipe.call(13, "s__big");
    assert_eq!(parsed(&pipe.hear())["id"], 13);
}

// req: GW-01
#[test]
fn calls_under_way_are_given_their_grace_when_the_client_has_said_its_last_word() {
    let slow = Behaviour::text("done").after_delay(Duration::from_secs(7));
    let server = ScriptedStdio::new(Script::new().tools(["slow"]).calls("slow", [slow]));
    let mut pipe = Pipe::open(json!({ "s": server.entry() }), &["--grace-ms", "60000"]);
    pipe.call(1, "s__slow");
    drop(pipe.stdin.take());
    assert_eq!(parsed(&pipe.hear())["result"]["isError"], false);
    pipe.ended();
}

// req: GW-03, GW-04
#[test]
fn a_client_on_the_pipes_can_cancel() {
    let script = Script::new().tools(["hold", "t"]).calls("hold", [Behaviour::silence()]);
    let server = ScriptedStdio::new(script);
    let mut pipe = Pipe::open(json!({ "s": server.entry() }), &[]);
    pipe.call(1, "s__hold");
    let held = parsed(&server.wait_for("tools/call"));
    pipe.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let cancelled = parsed(&server.wait_for("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], held["id"]);
    // What was cancelled is not answered: the next thing said is another answer.
    pipe.call(2, "s__t");
    assert_eq!(parsed(&pipe.hear())["id"], 2);
}
