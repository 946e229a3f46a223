//! Plays a script over stdin and stdout: what the program `scripted-server` does.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::asked::Asked;
use crate::folder::Folder;
use crate::line::Line;
use crate::message::Message;
use crate::perform::perform;
use crate::script::Script;
use crate::steps::{Ending, Step, behaviour, kind, steps};

/// Plays the script in this file until stdin ends, reading it again for every message.
pub fn serve(script: &Path) -> ExitCode {
    let folder = Folder::of(script);
    let Some(script) = folder.script() else { return ExitCode::from(64) };
    folder.append("started", process::id().to_string().as_bytes());
    let _ = io::stderr().write_all(script.text("stderr").unwrap_or_default().as_bytes());
    if let Some(code) = script.number("exit") {
        process::exit(code as i32);
    }
    let _ = print(&script.list("junkAtStart"), None);
    read_to_the_end(&folder);
    if script.is("lingers") {
        thread::sleep(Duration::from_secs(60));
    }
    ExitCode::SUCCESS
}

fn read_to_the_end(folder: &Folder) {
    let asked = Arc::new(Asked::default());
    let mut stdin = io::stdin().lock();
    let mut line = Vec::new();
    let mut is_able = false;
    while stdin.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        folder.append("received", text);
        let Some(script) = folder.script() else { return };
        let text = String::from_utf8_lossy(text);
        is_able |= speaks_for_the_able(&text);
        let script = if is_able { script.for_the_able() } else { script };
        answer(folder, script, &asked, &text);
        line.clear();
    }
}

/// Whether this is the `initialize` of a client that can do something for a server.
fn speaks_for_the_able(text: &str) -> bool {
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    let abilities = message["params"]["capabilities"].as_object();
    message["method"] == "initialize" && abilities.is_some_and(|abilities| !abilities.is_empty())
}

fn answer(folder: &Folder, script: Script, asked: &Arc<Asked>, text: &str) {
    let Some(message) = Message::parse(text) else { return refuse(&script) };
    if message.method().is_none() {
        return asked.hear(&message, text);
    }
    let behaviour = behaviour(&script, &message, folder.turn(&kind(&message)));
    let steps = steps(&script, &message, &behaviour);
    match steps.iter().any(takes_time) {
        // The reader must go on meanwhile: others are to be answered, and a question's answer to be heard.
        true => drop(thread::spawn({
            let asked = asked.clone();
            move || play(&script, &steps, &asked)
        })),
        false => play(&script, &steps, asked),
    }
}

fn refuse(script: &Script) {
    let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not a JSON object"}}"#;
    let _ = print(&script.list("junkBetween"), Some(&Line::from(refusal.to_owned())));
}

fn takes_time(step: &Step) -> bool {
    matches!(step, Step::Wait(_) | Step::Ask(_))
}

fn play(script: &Script, steps: &[Step], asked: &Asked) {
    let junk = script.list("junkBetween");
    match perform(steps, asked, &mut |line| print(&junk, Some(line))) {
        Ok(Ending::Done | Ending::Silence) => {}
        Ok(Ending::Exit(code)) => process::exit(code),
        Ok(Ending::Abort) => process::abort(),
        // Nobody reads any more.
        Err(_) => process::exit(0),
    }
}

/// Writes whole lines: the lock is held over all of them.
fn print(junk: &[String], line: Option<&Line>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for junk in junk {
        writeln!(out, "{junk}")?;
    }
    if let Some(line) = line {
        line.write_to(&mut out)?;
        writeln!(out)?;
    }
    out.flush()
}
