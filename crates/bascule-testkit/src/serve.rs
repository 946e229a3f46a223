//! Serves a script over stdin and stdout: the program `scripted-server`.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::client_requests::ClientRequests;
use crate::folder::ScriptFolder;
use crate::message::ParsedMessage;
use crate::padded_text::PaddedText;
use crate::perform::perform;
use crate::script::Script;
use crate::steps::{Completion, Step, behaviour, kind, steps};

/// Serves the script in this file until stdin ends. Reads the file again for every message.
pub fn serve(script: &Path) -> ExitCode {
    let folder = ScriptFolder::of(script);
    let Some(script) = folder.script() else { return ExitCode::from(64) };
    folder.append("started", process::id().to_string().as_bytes());
    let _ = io::stderr().write_all(script.text("stderr").unwrap_or_default().as_bytes());
    if let Some(code) = script.number("exit") {
        process::exit(code as i32);
    }
    let _ = print(&script.list("junkAtStart"), None);
    serve_stdin(&folder);
    if script.is_set("outlives_stdin") {
        thread::sleep(Duration::from_secs(60));
    }
    ExitCode::SUCCESS
}

fn serve_stdin(folder: &ScriptFolder) {
    let requests = Arc::new(ClientRequests::default());
    let mut stdin = io::stdin().lock();
    let mut line = Vec::new();
    let mut is_capable = false;
    while stdin.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        folder.append("received", text);
        let Some(script) = folder.script() else { return };
        let text = String::from_utf8_lossy(text);
        is_capable |= is_initialize_with_capabilities(&text);
        let script = if is_capable { script.for_capable_client() } else { script };
        respond(folder, script, &requests, &text);
        line.clear();
    }
}

/// Returns true for the `initialize` request of a client with capabilities.
fn is_initialize_with_capabilities(text: &str) -> bool {
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    let capabilities = message["params"]["capabilities"].as_object();
    message["method"] == "initialize" && capabilities.is_some_and(|capabilities| !capabilities.is_empty())
}

fn respond(folder: &ScriptFolder, script: Script, requests: &Arc<ClientRequests>, text: &str) {
    let Some(message) = ParsedMessage::parse(text) else { return send_parse_error(&script) };
    if message.method().is_none() {
        return requests.complete(&message, text);
    }
    let behaviour = behaviour(&script, &message, folder.next_turn(&kind(&message)));
    let steps = steps(&script, &message, &behaviour);
    match steps.iter().any(is_blocking) {
        // The reader continues meanwhile: it serves other requests and receives the client's responses.
        true => drop(thread::spawn({
            let requests = requests.clone();
            move || execute(&script, &steps, &requests)
        })),
        false => execute(&script, &steps, requests),
    }
}

fn send_parse_error(script: &Script) {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not a JSON object"}}"#;
    let _ = print(&script.list("junkBetween"), Some(&PaddedText::from(error.to_owned())));
}

fn is_blocking(step: &Step) -> bool {
    matches!(step, Step::Wait(_) | Step::Request(_))
}

fn execute(script: &Script, steps: &[Step], requests: &ClientRequests) {
    let junk = script.list("junkBetween");
    match perform(steps, requests, &mut |line| print(&junk, Some(line))) {
        Ok(Completion::Done | Completion::Silence) => {}
        Ok(Completion::Exit(code)) => process::exit(code),
        Ok(Completion::Abort) => process::abort(),
        // The client closed its end.
        Err(_) => process::exit(0),
    }
}

/// Writes whole lines under one lock.
fn print(junk: &[String], line: Option<&PaddedText>) -> io::Result<()> {
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
