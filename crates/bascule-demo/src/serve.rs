//! The MCP protocol over stdio, shared by all demo servers.
//!
//! A server runs on one thread. Each call of a slow tool gets its own thread, so that other requests and
//! cancellations are handled meanwhile.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::process::{self, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::message::IncomingMessage;
use crate::reply::{Reply, ReplyResult};
use crate::tool::ToolDeclaration;

/// The supported protocol versions, oldest first.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The tools of one demo server.
pub(crate) trait DemoServer: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    fn tools(&self) -> Vec<ToolDeclaration>;
    fn call(&self, tool: &str, arguments: &Value, call: &DemoCall) -> ReplyResult;

    /// Returns true if a call of this tool runs in its own thread, because it may take long and must not block others.
    fn runs_in_thread(&self, _tool: &str) -> bool {
        false
    }
}

/// Serves stdin and stdout until stdin ends.
pub(crate) fn run(demo: impl DemoServer) -> ExitCode {
    let session = DemoSession::new(demo, Box::new(io::stdout()));
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        session.receive(&String::from_utf8_lossy(&line));
        line.clear();
    }
    ExitCode::SUCCESS
}

/// The session of one client with one demo server.
pub(crate) struct DemoSession<D> {
    demo: Arc<D>,
    out: MessageWriter,
    running: Arc<Mutex<CancellableCalls>>,
}

/// The slow calls under way, by [`normalised_id`].
type CancellableCalls = HashMap<String, Sender<()>>;

impl<D: DemoServer> DemoSession<D> {
    pub(crate) fn new(demo: D, out: Box<dyn Write + Send>) -> DemoSession<D> {
        DemoSession {
            demo: Arc::new(demo),
            out: MessageWriter(Arc::new(Mutex::new(out))),
            running: Arc::default(),
        }
    }

    /// Handles one line and writes the response, if any.
    pub(crate) fn receive(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        match IncomingMessage::parse(line) {
            Ok(IncomingMessage::Request { id, method, params }) => self.request(&method, id, params),
            Ok(IncomingMessage::Notification { method, params }) if method == "notifications/cancelled" => {
                self.cancel(&params);
            }
            Ok(IncomingMessage::Notification { .. } | IncomingMessage::Response) => {}
            Err(invalid) => self.out.error(invalid.id, invalid.code, invalid.message),
        }
    }

    fn request(&self, method: &str, id: &str, params: Value) {
        match method {
            "initialize" => self.out.result(id, &self.initialize(&params)),
            "ping" => self.out.result(id, &json!({})),
            "tools/list" => self.out.result(id, &self.list_tools()),
            "tools/call" => self.call(id, params),
            _ => self.out.error(id, -32601, &format!("unknown method `{method}`")),
        }
    }

    fn initialize(&self, params: &Value) -> Value {
        let requested = params["protocolVersion"].as_str().filter(|version| VERSIONS.contains(version));
        json!({
            "protocolVersion": requested.unwrap_or(VERSIONS[VERSIONS.len() - 1]),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": format!("bascule-demo-{}", self.demo.name()), "version": env!("CARGO_PKG_VERSION")},
        })
    }

    fn list_tools(&self) -> Value {
        let tools = self.demo.tools();
        json!({"tools": tools.iter().map(ToolDeclaration::definition).collect::<Vec<_>>()})
    }

    fn call(&self, id: &str, params: Value) {
        let tool = params["name"].as_str().unwrap_or_default();
        let (cancel, cancelled) = channel();
        let call =
            DemoCall { out: self.out.clone(), token: params["_meta"]["progressToken"].clone(), cancelled };
        if !self.demo.runs_in_thread(tool) {
            return finish(self.demo.call(tool, &params["arguments"], &call), id, &self.out);
        }
        lock(&self.running).insert(normalised_id(id), cancel);
        let (demo, running, id) = (self.demo.clone(), self.running.clone(), id.to_owned());
        thread::spawn(move || {
            let tool = params["name"].as_str().unwrap_or_default();
            let result = demo.call(tool, &params["arguments"], &call);
            lock(&running).remove(&normalised_id(&id));
            finish(result, &id, &call.out);
        });
    }

    fn cancel(&self, params: &Value) {
        if let Some(cancel) = lock(&self.running).remove(&params["requestId"].to_string()) {
            // The call may have ended.
            let _ = cancel.send(());
        }
    }
}

fn finish(result: ReplyResult, id: &str, out: &MessageWriter) {
    match result.unwrap_or_else(|failure| failure) {
        Reply::Result(result) => out.result(id, &result),
        Reply::Error(code, message) => out.error(id, code, &message),
        Reply::Silence => {}
        Reply::Exit(code) => process::exit(code.into()),
        Reply::Abort => process::abort(),
    }
}

/// The operations of a tool during a call.
pub(crate) struct DemoCall {
    out: MessageWriter,
    token: Value,
    cancelled: Receiver<()>,
}

impl DemoCall {
    /// Sleeps for `time`. Returns false at once if the call is cancelled.
    pub(crate) fn sleep_unless_cancelled(&self, time: Duration) -> bool {
        match self.cancelled.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => true,
            // The sender is dropped when the call is cancelled or its session ends.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Reports progress if the caller gave a progress token.
    pub(crate) fn progress(&self, progress: u64, total: u64) {
        if !self.token.is_null() {
            let params = json!({"progressToken": self.token, "progress": progress, "total": total});
            let method = "notifications/progress";
            self.out.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
        }
    }

    /// Prints a line on stdout that is not a message.
    pub(crate) fn junk(&self, line: &str) {
        self.out.line(line);
    }
}

/// Writes whole lines to stdout under one lock.
#[derive(Clone)]
struct MessageWriter(Arc<Mutex<Box<dyn Write + Send>>>);

impl MessageWriter {
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
            // The client closed its end.
            process::exit(0);
        }
    }
}

/// Returns the id as JSON text that does not depend on the client's spelling.
fn normalised_id(id: &str) -> String {
    serde_json::from_str::<Value>(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

/// Ignores poisoning: the guarded data is consistent even after a tool panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
pub(crate) mod tests;
