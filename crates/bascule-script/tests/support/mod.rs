//! A bridge that answers a script's calls by a function.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use bascule_script::wire::{
    Completed, Frames, FromWorker, Init, Limits, LogLine, RpcCall, RpcResult, ToWorker, ToolDefinition, push,
};
use bascule_script::worker::Worker;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// What a script did.
pub(crate) struct Ran {
    pub(crate) completed: Completed,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) calls: Vec<RpcCall>,
}

impl Ran {
    pub(crate) fn value(&self) -> Value {
        assert!(self.completed.success, "the script failed: {:?}", self.completed.error);
        self.completed
            .result
            .as_ref()
            .map_or(Value::Null, |result| serde_json::from_str(result.get()).unwrap())
    }

    pub(crate) fn error(&self) -> bascule_script::wire::ScriptError {
        let error = self.completed.error.clone();
        error.unwrap_or_else(|| panic!("the script succeeded: {:?}", self.completed.result))
    }

    pub(crate) fn log(&self) -> String {
        self.logs.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// The tools that there are in these tests.
pub(crate) fn definitions() -> Vec<ToolDefinition> {
    let tool = |server: &str, name: &str, schema: Value| ToolDefinition {
        server: server.into(),
        name: name.into(),
        description: None,
        input_schema: Some(to_raw_value(&schema).unwrap()),
    };
    let page = json!({ "type": "object", "properties": { "per_page": {}, "repo": {} } });
    vec![
        tool("github", "list_commits", page),
        tool("github", "get-sum", json!({ "type": "object" })),
        tool("github", "then", json!({})),
        tool("my-server", "echo", json!({})),
        tool("console", "write", json!({})),
        tool("twins", "a_b", json!({})),
        tool("twins", "a-b", json!({})),
    ]
}

/// Runs a script whose every call is answered with its own arguments.
pub(crate) fn run(code: &str) -> Ran {
    run_with(code, |_| {}, |call| Some(structured(&json!({ "tool": call.tool, "args": call.args }))))
}

pub(crate) fn structured(value: &Value) -> Result<Value, Value> {
    Ok(json!({ "content": [], "structuredContent": value }))
}

/// Runs a script. A call that gets no answer stays open.
pub(crate) fn run_with(
    code: &str,
    change: impl FnOnce(&mut Init),
    answer: impl Fn(&RpcCall) -> Option<Result<Value, Value>>,
) -> Ran {
    let (mut here, there) = UnixStream::pair().unwrap();
    let worker = thread::Builder::new().stack_size(16 << 20).spawn(move || {
        Worker::new().unwrap().serve(there, Vec::new()).unwrap();
    });
    let mut init = Init {
        id: "s".into(),
        name: "script.ts".into(),
        code: code.into(),
        tool_definitions: definitions(),
        absent_servers: vec!["gone".into()],
        limits: Limits { time_ms: 10_000, ..Limits::default() },
        ..Init::default()
    };
    change(&mut init);
    let (mut frames, mut logs, mut calls) = (Frames::default(), Vec::new(), Vec::new());
    let mut piece = vec![0; 65_536];
    let completed = 'ran: loop {
        let read = here.read(&mut piece).unwrap();
        assert!(read > 0, "the worker has gone");
        frames.feed(&piece[..read]);
        let mut out = Vec::new();
        while let Some(message) = frames.next::<FromWorker>().unwrap() {
            match message {
                FromWorker::Ready(_) => {
                    push(&mut out, &ToWorker::Init(Box::new(std::mem::take(&mut init)))).unwrap()
                }
                FromWorker::Console(line) => logs.push(line),
                FromWorker::RpcCall(call) => {
                    if let Some(answer) = answer(&call) {
                        push(&mut out, &ToWorker::RpcResult(result(&call.id, answer))).unwrap();
                    }
                    calls.push(call);
                }
                FromWorker::ExecutionComplete(completed) => break 'ran completed,
            }
        }
        here.write_all(&out).unwrap();
    };
    drop(here);
    worker.unwrap().join().unwrap();
    Ran { completed, logs, calls }
}

fn result(id: &str, answer: Result<Value, Value>) -> RpcResult {
    let raw = |value: Option<Value>| value.map(|value| to_raw_value(&value).unwrap());
    let success = answer.is_ok();
    let (result, error): (Option<Box<RawValue>>, _) = (raw(answer.clone().ok()), raw(answer.err()));
    RpcResult { id: id.into(), success, result, error }
}
