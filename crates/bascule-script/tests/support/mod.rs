//! Runs a script against a test bridge that answers calls with a function.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use bascule_script::wire::{
    Completed, ConsoleLine, FrameDecoder, FromWorker, Init, InjectedTool, RpcCall, RpcResult, ScriptLimits,
    ToWorker, push_frame,
};
use bascule_script::worker::ScriptWorker;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// A finished script.
pub(crate) struct ScriptRun {
    pub(crate) completed: Completed,
    pub(crate) logs: Vec<ConsoleLine>,
    pub(crate) calls: Vec<RpcCall>,
}

impl ScriptRun {
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

pub(crate) fn test_tools() -> Vec<InjectedTool> {
    let tool = |server: &str, name: &str, schema: Value| InjectedTool {
        server: server.into(),
        name: name.into(),
        input_schema: Some(to_raw_value(&schema).unwrap()),
        ..InjectedTool::default()
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

/// Runs a script. Each call returns its own arguments.
pub(crate) fn run(code: &str) -> ScriptRun {
    run_with(code, |_| {}, |call| Some(structured(&json!({ "tool": call.tool, "args": call.args }))))
}

pub(crate) fn structured(value: &Value) -> Result<Value, Value> {
    Ok(json!({ "content": [], "structuredContent": value }))
}

/// Runs a script. A call stays in flight if `answer` returns `None`.
pub(crate) fn run_with(
    code: &str,
    change: impl FnOnce(&mut Init),
    answer: impl Fn(&RpcCall) -> Option<Result<Value, Value>>,
) -> ScriptRun {
    let (mut bridge_end, worker_end) = UnixStream::pair().unwrap();
    let worker = thread::Builder::new().stack_size(16 << 20).spawn(move || {
        ScriptWorker::new().unwrap().serve(worker_end, Vec::new()).unwrap();
    });
    let mut init = Init {
        id: "s".into(),
        name: "script.ts".into(),
        code: code.into(),
        tool_definitions: test_tools(),
        absent_servers: vec!["gone".into()],
        limits: ScriptLimits { time_ms: 10_000, ..ScriptLimits::default() },
        ..Init::default()
    };
    change(&mut init);
    let (mut frames, mut logs, mut calls) = (FrameDecoder::default(), Vec::new(), Vec::new());
    let mut buffer = vec![0; 65_536];
    let completed = 'run: loop {
        let read = bridge_end.read(&mut buffer).unwrap();
        assert!(read > 0, "the worker has disconnected");
        frames.feed(&buffer[..read]);
        let mut out = Vec::new();
        while let Some(message) = frames.next_message::<FromWorker>().unwrap() {
            match message {
                FromWorker::Ready(_) => {
                    push_frame(&mut out, &ToWorker::Init(Box::new(std::mem::take(&mut init)))).unwrap()
                }
                FromWorker::Console(line) => logs.push(line),
                // The end of the script tells the same.
                FromWorker::CallRefused(_) => {}
                FromWorker::RpcCall(call) => {
                    if let Some(answer) = answer(&call) {
                        push_frame(&mut out, &ToWorker::RpcResult(result(&call.id, answer))).unwrap();
                    }
                    calls.push(call);
                }
                FromWorker::ExecutionComplete(completed) => break 'run completed,
            }
        }
        bridge_end.write_all(&out).unwrap();
    };
    drop(bridge_end);
    worker.unwrap().join().unwrap();
    ScriptRun { completed, logs, calls }
}

fn result(id: &str, answer: Result<Value, Value>) -> RpcResult {
    let raw = |value: Option<Value>| value.map(|value| to_raw_value(&value).unwrap());
    let success = answer.is_ok();
    let (result, error): (Option<Box<RawValue>>, _) = (raw(answer.clone().ok()), raw(answer.err()));
    RpcResult { id: id.into(), success, result, error, hint: None }
}
