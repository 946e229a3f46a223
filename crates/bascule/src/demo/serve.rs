//! Serves one demo server over lines: the protocol that all of them share.
//!
//! What a tool does is the demo's business. A demo runs in one thread; only calls that take their time get
//! one of their own, so that the rest goes on and a cancellation is heard.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::process::{self, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::message::Message;
use super::reply::Reply;
use super::tool::Tool;

/// Oldest first.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A server: its tools and what they do.
pub(super) trait Demo: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    fn tools(&self) -> Vec<Tool>;
    fn call(&self, tool: &str, arguments: &Value, call: &Call) -> Reply;

    /// Whether a call of this tool may take its time.
    fn is_slow(&self, _tool: &str) -> bool {
        false
    }
}

/// Serves stdin and stdout until stdin ends.
pub(super) fn run(demo: impl Demo) -> ExitCode {
    let session = Session::new(demo, Box::new(io::stdout()));
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        session.receive(&String::from_utf8_lossy(&line));
        line.clear();
    }
    ExitCode::SUCCESS
}

/// One client's conversation with one demo.
pub(super) struct Session<D> {
    demo: Arc<D>,
    out: Out,
    running: Arc<Mutex<Running>>,
}

/// The slow calls that can still be cancelled, by [`key`].
type Running = HashMap<String, Sender<()>>;

impl<D: Demo> Session<D> {
    pub(super) fn new(demo: D, out: Box<dyn Write + Send>) -> Session<D> {
        Session { demo: Arc::new(demo), out: Out(Arc::new(Mutex::new(out))), running: Arc::default() }
    }

    /// Takes one line, and writes whatever is to be said about it.
    pub(super) fn receive(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => self.request(&method, id, params),
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                self.cancel(&params);
            }
            Ok(Message::Notification { .. } | Message::Answer) => {}
            Err(refusal) => self.out.error(refusal.id, refusal.code, refusal.message),
        }
    }

    fn request(&self, method: &str, id: &str, params: Value) {
        match method {
            "initialize" => self.out.result(id, &self.introduction(&params)),
            "ping" => self.out.result(id, &json!({})),
            "tools/list" => self.out.result(id, &self.list()),
            "tools/call" => self.call(id, params),
            _ => self.out.error(id, -32601, &format!("there is no method `{method}`")),
        }
    }

    fn introduction(&self, params: &Value) -> Value {
        let asked = params["protocolVersion"].as_str().filter(|asked| VERSIONS.contains(asked));
        json!({
            "protocolVersion": asked.unwrap_or(VERSIONS[VERSIONS.len() - 1]),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": format!("bascule-demo-{}", self.demo.name()), "version": env!("CARGO_PKG_VERSION")},
        })
    }

    fn list(&self) -> Value {
        let tools = self.demo.tools();
        json!({"tools": tools.iter().map(Tool::definition).collect::<Vec<_>>()})
    }

    fn call(&self, id: &str, params: Value) {
        let tool = params["name"].as_str().unwrap_or_default();
        let (canceller, cancelled) = channel();
        let call = Call { out: self.out.clone(), token: params["_meta"]["progressToken"].clone(), cancelled };
        if !self.demo.is_slow(tool) {
            return finish(self.demo.call(tool, &params["arguments"], &call), id, &self.out);
        }
        lock(&self.running).insert(key(id), canceller);
        let (demo, running, id) = (self.demo.clone(), self.running.clone(), id.to_owned());
        thread::spawn(move || {
            let tool = params["name"].as_str().unwrap_or_default();
            let reply = demo.call(tool, &params["arguments"], &call);
            lock(&running).remove(&key(&id));
            finish(reply, &id, &call.out);
        });
    }

    fn cancel(&self, params: &Value) {
        if let Some(canceller) = lock(&self.running).remove(&params["requestId"].to_string()) {
            // The call may be over already.
            let _ = canceller.send(());
        }
    }
}

fn finish(reply: Reply, id: &str, out: &Out) {
    match reply {
        Reply::Result(result) => out.result(id, &result),
        Reply::Error(code, message) => out.error(id, code, &message),
        Reply::Silence => {}
        Reply::Exit(code) => process::exit(code.into()),
        Reply::Abort => process::abort(),
    }
}

/// What a tool may do while it is called.
pub(super) struct Call {
    out: Out,
    token: Value,
    cancelled: Receiver<()>,
}

impl Call {
    /// Waits, unless the call is cancelled meanwhile: then false.
    pub(super) fn wait(&self, time: Duration) -> bool {
        match self.cancelled.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => true,
            // A canceller that was dropped has been used, or its session is over.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Reports progress, if the caller asked for it.
    pub(super) fn progress(&self, progress: u64, total: u64) {
        if !self.token.is_null() {
            let params = json!({"progressToken": self.token, "progress": progress, "total": total});
            let method = "notifications/progress";
            self.out.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
        }
    }

    /// Prints a line on stdout that is no message at all.
    pub(super) fn junk(&self, line: &str) {
        self.out.line(line);
    }
}

/// The one way to stdout: whole lines under one lock.
#[derive(Clone)]
struct Out(Arc<Mutex<Box<dyn Write + Send>>>);

impl Out {
    fn result(&self, id: &str, result: &Value) {
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    fn error(&self, id: &str, code: i32, message: &str) {
        let error = json!({"code": code, "message": message});
        self.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    }

    fn line(&self, line: &str) {
        let mut out = lock(&self.0);
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            // Nobody reads any more.
            process::exit(0);
        }
    }
}

/// An id as JSON text that does not depend on how it was written.
fn key(id: &str) -> String {
    serde_json::from_str::<Value>(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

/// What these locks guard is whole at every moment, even if a tool panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
pub(super) mod tests;
