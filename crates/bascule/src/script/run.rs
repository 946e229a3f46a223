//! Runs one script in a worker: sends the script, makes its calls and reads its end.
//!
//! The worker is not trusted: every call is checked again, the bridge keeps the time, and a worker that violates the protocol
//! is killed. Dropping the future cancels the calls and kills the process.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CallTimeout, CorrelationId, Delivery, ErrorCode,
    ToolId,
};
use bascule_sandbox::WorkerExit;
use bascule_script::wire::{
    Completed, FromWorker, Init, RpcCall, RpcResult, ScriptError, ScriptLimits, ToWorker, push_frame,
};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::{RawValue, to_raw_value};

use super::outcome::ScriptRecorder;
use super::pool::ConnectedWorker;
use super::selection::InjectedTools;
use super::traces::clipped;
use super::{ScriptCall, ScriptOutcome, ScriptRequest, ToolCaller};
use crate::McpBridgeAdapter;
use crate::config::ScriptSettings;

/// The worker stops at its time limit; the bridge kills it this much later.
const KILL_DELAY: Duration = Duration::from_millis(250);
/// Reading stops while queued calls have this many bytes.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// No call is started while the worker has this many bytes of results to read.
const MAX_UNREAD_BYTES: usize = 16 << 20;
/// A script is ended after this many refused calls.
const MAX_REFUSED_CALLS: u64 = 10_000;
/// Capacity that the empty write buffer keeps.
const KEPT_CAPACITY: usize = 1 << 20;

pub(super) async fn run<'a>(
    (bridge, caller): (&'a McpBridgeAdapter, &'a ToolCaller<'a>),
    worker: ConnectedWorker,
    request: ScriptRequest,
    tools: InjectedTools,
    settings: ScriptSettings,
    recorder: ScriptRecorder,
) -> ScriptOutcome {
    let mut run = ScriptRun {
        bridge,
        caller,
        worker,
        settings,
        outgoing: Vec::new(),
        written: 0,
        running: FuturesUnordered::new(),
        queued: VecDeque::new(),
        queued_bytes: 0,
        calls: 0,
        started: Instant::now(),
        recorder,
        tools,
    };
    let result = match run.push_init(request) {
        Ok(()) => run.handle_messages().await,
        Err(error) => Err(error),
    };
    run.finish(result)
}

type RunningCall<'a> = Pin<Box<dyn Future<Output = FinishedCall> + Send + 'a>>;

struct ScriptRun<'a> {
    bridge: &'a McpBridgeAdapter,
    caller: &'a ToolCaller<'a>,
    worker: ConnectedWorker,
    settings: ScriptSettings,
    tools: InjectedTools,
    outgoing: Vec<u8>,
    /// Number of bytes of `outgoing` that have been written.
    written: usize,
    running: FuturesUnordered<RunningCall<'a>>,
    /// Calls that wait because `max_concurrent_calls` are running.
    queued: VecDeque<RpcCall>,
    queued_bytes: usize,
    /// Number of calls received, including refused ones.
    calls: u64,
    started: Instant,
    recorder: ScriptRecorder,
}

struct FinishedCall {
    id: String,
    result: BridgeResult<CallOutcome>,
}

type ScriptResult = Result<Option<Box<RawValue>>, Box<ScriptError>>;

impl<'a> ScriptRun<'a> {
    fn push_init(&mut self, request: ScriptRequest) -> Result<(), Box<ScriptError>> {
        let limits = ScriptLimits {
            time_ms: self.settings.timeout.as_millis() as u64,
            memory_bytes: (self.settings.memory_mb as usize) << 20,
            output_bytes: self.settings.max_output_bytes as usize,
            log_bytes: self.settings.max_log_bytes as usize,
        };
        let init = Init {
            id: self.recorder.id.to_string(),
            name: request.name,
            code: request.code,
            tool_definitions: self.tools.definitions(),
            absent_servers: self.tools.absent_servers.clone(),
            context: request.context,
            limits,
        };
        push_frame(&mut self.outgoing, &ToWorker::Init(Box::new(init)))
            .map_err(|error| failed("RangeError", "SCRIPT_TOO_LONG", error.to_string()))
    }

    /// Exchanges messages with the worker until the script ends.
    async fn handle_messages(&mut self) -> ScriptResult {
        let kill_timer = tokio::time::sleep(self.settings.timeout + KILL_DELAY);
        let shutdown = self.bridge.fleet.stop.cancelled();
        tokio::pin!(kill_timer, shutdown);
        loop {
            if let Err(error) = self.flush() {
                return Err(worker_lost(&error));
            }
            self.start_queued();
            tokio::select! {
                read = self.worker.reader.read(&mut self.worker.frames), if self.queued_bytes < MAX_QUEUED_BYTES => {
                    match read {
                        Ok(true) => {}
                        Ok(false) => return self.disconnected().await,
                        Err(error) => return Err(worker_lost(&error)),
                    }
                    if let Some(result) = self.handle_received() {
                        return result;
                    }
                }
                Some(finished) = self.running.next() => self.send_results(finished),
                _ = self.worker.writer.writable(), if !self.outgoing.is_empty() => {}
                () = &mut kill_timer => return Err(out_of_time()),
                () = &mut shutdown => return Err(cancelled()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.worker.writer.write(&self.outgoing[self.written..]) {
            Ok(length) => self.written += length,
            // The worker has exited; its last messages can still be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.written = self.outgoing.len(),
            Err(error) => return Err(error),
        }
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing.shrink_to(KEPT_CAPACITY);
            self.written = 0;
        }
        Ok(())
    }

    /// Handles the complete messages in the buffer. Returns the result if the script has ended.
    fn handle_received(&mut self) -> Option<ScriptResult> {
        loop {
            match self.worker.frames.next_message() {
                Ok(None) => break,
                Ok(Some(FromWorker::Console(line))) => {
                    self.recorder.log(line, self.settings.max_log_bytes as usize);
                }
                Ok(Some(FromWorker::RpcCall(call))) => match self.receive_call(call) {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
                Ok(Some(FromWorker::ExecutionComplete(completed))) => {
                    return Some(self.check_completed(completed));
                }
                Ok(Some(FromWorker::Ready(_))) => {
                    return Some(Err(protocol_violation("it sent `ready` twice")));
                }
                Err(error) => return Some(Err(protocol_violation(&error.to_string()))),
            }
        }
        None
    }

    /// Queues a call. Our workers number their calls, so an unexpected id is a protocol violation. A call that the script may
    /// not make is refused at once and does not use a place in the queue.
    fn receive_call(&mut self, call: RpcCall) -> Result<(), Box<ScriptError>> {
        self.calls += 1;
        if call.id != format!("{}-{}", self.recorder.id, self.calls) {
            let id = clipped(&call.id).escape_debug();
            return Err(protocol_violation(&format!("it sent a call with the unexpected id `{id}`")));
        }
        match self.refusal(&call) {
            Some(_) if self.recorder.refused_calls >= MAX_REFUSED_CALLS => {
                let limit = self.settings.max_calls;
                let message = format!("the script went on calling tools after its limit of {limit} calls");
                return Err(failed("CallLimitError", "CALL_LIMIT", message));
            }
            Some(error) => {
                self.recorder.refused_calls += 1;
                self.send_result(call.id, false, None, to_raw_value(&error).ok());
            }
            None => {
                self.queued_bytes += memory_size(&call);
                self.queued.push_back(call);
            }
        }
        Ok(())
    }

    fn refusal(&self, RpcCall { server, tool, .. }: &RpcCall) -> Option<Box<BridgeError>> {
        if self.calls > self.settings.max_calls.into() {
            let message = format!("the script has reached its limit of {} calls", self.settings.max_calls);
            return Some(BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, message));
        }
        let is_allowed = self.tools.allows(server, tool);
        let message = || format!("the script may not call `{}:{}`", clipped(server), clipped(tool));
        (!is_allowed).then(|| BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, message()))
    }

    fn start_queued(&mut self) {
        let limit = self.settings.max_concurrent_calls as usize;
        while self.running.len() < limit && self.outgoing.len() - self.written < MAX_UNREAD_BYTES {
            let Some(call) = self.queued.pop_front() else { return };
            self.queued_bytes -= memory_size(&call);
            let future = self.call(call);
            self.running.push(future);
        }
    }

    fn call(&self, RpcCall { id, server, tool, args }: RpcCall) -> RunningCall<'a> {
        let (caller, duration) = (self.caller, self.call_timeout());
        let (script, observer) = (self.recorder.id.clone(), self.recorder.traces.clone());
        Box::pin(async move {
            let call = async {
                let tool = ToolId::parse(&format!("{server}:{tool}")).map_err(|error| {
                    BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, error.to_string())
                })?;
                let timeout = Some(CallTimeout { since: Instant::now(), duration });
                let request = CallRequest { tool, arguments: args, timeout };
                let correlation_id = CorrelationId::parse(&id).ok();
                caller(ScriptCall { request, correlation_id, script, observer }).await
            };
            FinishedCall { result: call.await, id }
        })
    }

    /// A call times out a little before the script does, so that the script can handle the error (CM-11).
    fn call_timeout(&self) -> Duration {
        let limit = self.settings.timeout;
        let margin = (limit / 20).min(Duration::from_millis(500));
        let left = limit.saturating_sub(self.started.elapsed()).saturating_sub(margin);
        self.settings.call_timeout.min(left)
    }

    /// Sends the results of all calls that have finished by now in one write.
    fn send_results(&mut self, first: FinishedCall) {
        self.finish_call(first);
        while let Some(Some(next)) = self.running.next().now_or_never() {
            self.finish_call(next);
        }
    }

    fn finish_call(&mut self, FinishedCall { id, result }: FinishedCall) {
        let (success, result, error) = match result {
            Ok(outcome) => (true, Some(outcome.result.raw), None),
            Err(error) => (false, None, to_raw_value(&error).ok()),
        };
        self.send_result(id, success, result, error);
    }

    fn send_result(
        &mut self,
        id: String,
        success: bool,
        result: Option<Box<RawValue>>,
        error: Option<Box<RawValue>>,
    ) {
        let message = RpcResult { id: id.clone(), success, result, error };
        if let Err(error) = push_frame(&mut self.outgoing, &ToWorker::RpcResult(message)) {
            let error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, error.to_string());
            let message = RpcResult { id, success: false, result: None, error: to_raw_value(&error).ok() };
            let _ = push_frame(&mut self.outgoing, &ToWorker::RpcResult(message));
        }
    }

    /// Checks the end that the worker reports.
    fn check_completed(&self, Completed { success, result, error }: Completed) -> ScriptResult {
        let limit = self.settings.max_output_bytes as usize;
        match (success, error) {
            (true, _) if result.as_ref().is_some_and(|result| result.get().len() > limit) => {
                let message = format!("the returned value exceeds the limit of {limit} bytes of JSON");
                Err(failed("OutputLimitError", "OUTPUT_LIMIT", message))
            }
            (true, _) => Ok(result),
            (false, Some(error)) if self.ran_out_of_memory(&error) => Err(out_of_memory()),
            (false, Some(error)) => Err(bounded(error)),
            (false, None) => Err(protocol_violation("it reported a failure without an error")),
        }
    }

    /// Detects a memory limit that the engine could not report. At its limit it may have no memory for an error, and throws
    /// `null` or stops settling promises. So an error without a position counts as out of memory if the worker has used most
    /// of its limit.
    fn ran_out_of_memory(&self, error: &ScriptError) -> bool {
        let is_unclear = error.line.is_none()
            && matches!(error.name.as_str(), "Error" | "DeadlockError" | "InternalError");
        is_unclear && self.worker.peak_bytes() > (u64::from(self.settings.memory_mb) << 20) / 4 * 3
    }

    /// Handles the end of the connection: uses the messages before it, else the exit of the process.
    async fn disconnected(&mut self) -> ScriptResult {
        if let Some(result) = self.handle_received() {
            return result;
        }
        match self.worker.wait_exit().await {
            Ok((exit, stderr)) => Err(exit_error(exit, &stderr)),
            Err(error) => Err(worker_lost(&error)),
        }
    }

    /// Cancels the calls that are still running, and builds the outcome.
    fn finish(mut self, result: ScriptResult) -> ScriptOutcome {
        self.running.clear();
        self.recorder.finish(result)
    }
}

fn memory_size(call: &RpcCall) -> usize {
    size_of::<RpcCall>() + call.id.len() + call.server.len() + call.tool.len() + call.args.get().len()
}

/// Clips the texts of an error. Our workers do so too, but the worker is not trusted.
fn bounded(mut error: ScriptError) -> Box<ScriptError> {
    const MAX_TEXT: usize = 256 << 10;
    let texts = [Some(&mut error.name), Some(&mut error.message), error.code.as_mut(), error.stack.as_mut()];
    for text in texts.into_iter().chain([error.tool_name.as_mut()]).flatten() {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
    }
    Box::new(error)
}

fn failed(name: &str, code: &str, message: String) -> Box<ScriptError> {
    Box::new(ScriptError { name: name.into(), code: Some(code.into()), message, ..ScriptError::default() })
}

fn out_of_time() -> Box<ScriptError> {
    failed("TimeLimitError", "TIME_LIMIT", "the script exceeded its time limit and was killed".into())
}

fn out_of_memory() -> Box<ScriptError> {
    failed("MemoryLimitError", "MEMORY_LIMIT", "the script exceeded its memory limit".into())
}

fn worker_lost(error: &io::Error) -> Box<ScriptError> {
    let message = format!("the connection to the script's process failed: {error}");
    failed("WorkerError", "WORKER_LOST", message)
}

fn cancelled() -> Box<ScriptError> {
    failed("CancelledError", "CANCELLED", "the bridge is shutting down".into())
}

fn protocol_violation(violation: &str) -> Box<ScriptError> {
    let message = format!("the script's process violated the worker protocol and was killed: {violation}");
    failed("SandboxViolation", "SANDBOX_VIOLATION", message)
}

fn exit_error(exit: WorkerExit, stderr: &str) -> Box<ScriptError> {
    match exit {
        WorkerExit::Violation => {
            let message = "the script's process made a forbidden system call and was killed".into();
            failed("SandboxViolation", "SANDBOX_VIOLATION", message)
        }
        WorkerExit::OutOfTime => out_of_time(),
        _ if stderr.contains("memory allocation") => out_of_memory(),
        _ if stderr.contains("overflowed its stack") => {
            failed("RangeError", "NESTED_TOO_DEEPLY", "the source of the script is nested too deeply".into())
        }
        exit => {
            let message = format!("the script's process ended unexpectedly: {exit}; {stderr}");
            failed("WorkerError", "WORKER_CRASHED", message)
        }
    }
}
