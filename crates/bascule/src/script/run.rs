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
    BridgeError, BridgeResult, CallRequest, CallTimeout, CorrelationId, Delivery, ErrorCode, ToolId,
};
use bascule_sandbox::WorkerExit;
use bascule_script::wire::{
    self, Completed, FromWorker, Init, RefusedToolCall, RpcCall, RpcResult, ScriptError, ScriptLimits,
    ToWorker, push_frame,
};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::{RawValue, to_raw_value};

use super::host_calls::{self, is_host_function};
use super::outcome::ScriptRecorder;
use super::pool::ConnectedWorker;
use super::selection::InjectedTools;
use super::traces::clipped;
use super::{ScriptCall, ScriptHost, ScriptOutcome, ScriptRequest};
use crate::McpBridgeAdapter;
use crate::call::refused_tool;
use crate::config::ScriptSettings;
use crate::deadline::CALLER;

/// The worker stops at its time limit; the bridge kills it this much later.
const KILL_DELAY: Duration = Duration::from_millis(250);
/// Reading stops while queued calls have this many bytes.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// No call is started while the worker has this many bytes of results to read.
const MAX_UNREAD_BYTES: usize = 16 << 20;
/// A script is ended after this many refused calls.
const MAX_REFUSED_CALLS: u64 = 10_000;
/// The interval of progress notifications.
const PROGRESS: Duration = Duration::from_millis(500);
/// Capacity that the empty write buffer keeps.
const KEPT_CAPACITY: usize = 1 << 20;

pub(super) async fn run<'a>(
    (bridge, host): (&'a McpBridgeAdapter, ScriptHost<'a>),
    worker: ConnectedWorker,
    request: ScriptRequest,
    tools: InjectedTools,
    settings: ScriptSettings,
    recorder: ScriptRecorder,
) -> ScriptOutcome {
    let mut run = ScriptRun {
        bridge,
        host,
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
    run.tools.compile_schemas(&request.code).await;
    let result = match run.push_init(request) {
        Ok(()) => run.handle_messages().await,
        Err(error) => Err(error),
    };
    run.finish(result)
}

type RunningCall<'a> = Pin<Box<dyn Future<Output = RpcResult> + Send + 'a>>;

struct ScriptRun<'a> {
    bridge: &'a McpBridgeAdapter,
    host: ScriptHost<'a>,
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

type ScriptResult = Result<Option<Box<RawValue>>, Box<ScriptError>>;

impl<'a> ScriptRun<'a> {
    fn push_init(&mut self, request: ScriptRequest) -> Result<(), Box<ScriptError>> {
        let limits = ScriptLimits {
            time_ms: self.settings.timeout.as_millis() as u64,
            memory_bytes: (self.settings.memory_mb as usize) << 20,
            output_bytes: self.settings.max_output_bytes as usize,
            log_bytes: self.settings.max_log_bytes as usize,
            calls: self.settings.max_calls.into(),
        };
        let init = Init {
            id: self.recorder.id.to_string(),
            name: request.name,
            tool_definitions: self.tools.definitions(&request.code),
            code: request.code,
            absent_servers: self.tools.absent_servers.clone(),
            not_granted: self.tools.not_granted(self.bridge),
            is_limited_by_intent: request.intent.is_some(),
            denied: InjectedTools::denied(self.bridge),
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
        let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
        progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
                _ = progress.tick(), if self.host.progress.is_some() => self.report_progress(),
                () = &mut kill_timer => return Err(self.out_of_time()),
                () = &mut shutdown => return Err(cancelled()),
            }
        }
    }

    /// Tells a client that has asked for it the time that has passed and the calls so far.
    fn report_progress(&self) {
        let Some(sink) = &self.host.progress else { return };
        let waiting = self.running.len() + self.queued.len();
        let ended = self.calls.saturating_sub(waiting as u64);
        let progress = serde_json::json!({
            "progress": self.started.elapsed().as_millis() as u64,
            "total": self.settings.timeout.as_millis() as u64,
            "message": format!("{ended} calls ended, {waiting} under way"),
        });
        if let Ok(progress) = to_raw_value(&progress) {
            sink(&progress, None);
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
                Ok(Some(FromWorker::CallRefused(refused))) => match self.receive_refused(refused) {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
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
        match self.refusal(&call.server, &call.tool) {
            Some(error) => {
                let error = self.record_refusal(&call.server, &call.tool, call.args, &call.id, error)?;
                self.send_result(result_of(call.id, Err(error)));
            }
            None => {
                self.queued_bytes += memory_size(&call);
                self.queued.push_back(call);
            }
        }
        Ok(())
    }

    /// Records a call that the worker has refused.
    fn receive_refused(&mut self, refused: RefusedToolCall) -> Result<(), Box<ScriptError>> {
        let RefusedToolCall { server, tool, code, message } = refused;
        let code = match code.as_str() {
            "INVALID_INPUT" => ErrorCode::InvalidInput,
            "POLICY_DENIED" => ErrorCode::PolicyDenied,
            _ => ErrorCode::ToolNotFound,
        };
        // The worker knows the spelling that the script used, and the script has got its message.
        let own = BridgeError::new(code, Delivery::NotSent, clipped(&message).to_owned());
        let refusal = self.refusal(&server, &tool).filter(|error| error.code == ErrorCode::PolicyDenied);
        let error = refusal.filter(|_| code == ErrorCode::ToolNotFound).unwrap_or(own);
        let id = format!("{}-refused-{}", self.recorder.id, self.recorder.refused_calls + 1);
        self.record_refusal(&server, &tool, no_arguments(), &id, error).map(drop)
    }

    /// Records a refused call like any other. Fails if the script does not stop.
    fn record_refusal(
        &mut self,
        server: &str,
        tool: &str,
        arguments: Box<RawValue>,
        id: &str,
        error: Box<BridgeError>,
    ) -> Result<Box<BridgeError>, Box<ScriptError>> {
        self.recorder.refused_calls += 1;
        if self.recorder.refused_calls > MAX_REFUSED_CALLS {
            let limit = match self.calls > self.settings.max_calls.into() {
                true => format!("has reached its limit of {} calls, and ", self.settings.max_calls),
                false => String::new(),
            };
            let message = format!("the script {limit}went on after {MAX_REFUSED_CALLS} refused calls");
            return Err(failed("CallLimitError", "CALL_LIMIT", message));
        }
        let request = CallRequest { tool: refused_tool(server, tool), arguments, timeout: None };
        let id = CorrelationId::parse(id).unwrap_or_else(|_| self.recorder.id.clone());
        let (caller, observer) = (self.recorder.caller.clone(), self.recorder.traces.clone());
        Ok(self.bridge.record_refusal(&request, caller, &id, Some(&*observer), error))
    }

    fn refusal(&self, server: &str, tool: &str) -> Option<Box<BridgeError>> {
        if self.calls > self.settings.max_calls.into() {
            let message = format!("the script has reached its limit of {} calls", self.settings.max_calls);
            return Some(BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, message));
        }
        let is_host_call = server == wire::HOST && is_host_function(tool);
        if is_host_call || self.tools.allows(server, tool) {
            return None;
        }
        // Scripts may use another spelling, which the bridge does not know to be denied.
        let id = ToolId::parse(&format!("{server}:{tool}")).ok();
        let denied = id.and_then(|id| self.bridge.get_tool(&id).err());
        if let Some(error) = denied.filter(|error| error.code == ErrorCode::PolicyDenied) {
            return Some(error);
        }
        let message = || format!("the script may not call `{}:{}`", clipped(server), clipped(tool));
        Some(BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, message()))
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

    fn call(&self, call: RpcCall) -> RunningCall<'a> {
        if call.server == wire::HOST {
            let (id, granted) = (call.id.clone(), self.tools.selection().clone());
            let answer = host_calls::answer((self.bridge, &self.host), call, granted);
            return Box::pin(async move { result_of(id, answer.await.map(|value| (value, None))) });
        }
        let (caller, duration) = (self.host.caller, self.call_timeout());
        let (limit, is_last) = (self.settings.timeout, duration < self.settings.call_timeout);
        let (originator, observer) = (self.recorder.caller.clone(), self.recorder.traces.clone());
        Box::pin(async move {
            let RpcCall { id, server, tool, args } = call;
            let call = async {
                let tool = ToolId::parse(&format!("{server}:{tool}")).map_err(|error| {
                    BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, error.to_string())
                })?;
                let timeout = Some(CallTimeout { since: Instant::now(), duration });
                let request = CallRequest { tool, arguments: args, timeout };
                let correlation_id = CorrelationId::parse(&id).ok();
                caller(ScriptCall { request, correlation_id, caller: originator, observer }).await
            };
            let outcome = call.await.map(|outcome| (outcome.result.raw, outcome.hint));
            let outcome = outcome.map_err(|error| match is_last {
                true => ended_by_script(error, limit),
                false => error,
            });
            result_of(id, outcome)
        })
    }

    /// A call times out a little before the script does, so that the script can handle the error.
    fn call_timeout(&self) -> Duration {
        let limit = self.settings.timeout;
        let margin = (limit / 20).min(Duration::from_millis(500));
        let left = limit.saturating_sub(self.started.elapsed()).saturating_sub(margin);
        self.settings.call_timeout.min(left)
    }

    /// Sends the results of all calls that have finished by now in one write.
    fn send_results(&mut self, first: RpcResult) {
        self.send_result(first);
        while let Some(Some(next)) = self.running.next().now_or_never() {
            self.send_result(next);
        }
    }

    fn send_result(&mut self, message: RpcResult) {
        let id = message.id.clone();
        if let Err(error) = push_frame(&mut self.outgoing, &ToWorker::RpcResult(message)) {
            let error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, error.to_string());
            let _ = push_frame(&mut self.outgoing, &ToWorker::RpcResult(result_of(id, Err(error))));
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
            (false, Some(error)) if self.ran_out_of_memory(&error) => Err(self.out_of_memory()),
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
            Ok((exit, stderr)) => Err(self.exit_error(exit, &stderr)),
            Err(error) => Err(worker_lost(&error)),
        }
    }

    /// Describes a script that did not stop at its time limit: it was inside one long operation of the engine.
    fn out_of_time(&self) -> Box<ScriptError> {
        let limit = self.settings.timeout.as_millis();
        let mut message = format!("the script exceeded its time limit of {limit} ms and was killed");
        let calls = self.recorder.traces.tools_in_flight();
        if !calls.is_empty() {
            message.push_str(&format!("; calls under way: `{}`", calls.join("`, `")));
        }
        failed("TimeLimitError", "TIME_LIMIT", message)
    }

    fn out_of_memory(&self) -> Box<ScriptError> {
        let message = format!("the script exceeded its memory limit of {} MB", self.settings.memory_mb);
        failed("MemoryLimitError", "MEMORY_LIMIT", message)
    }

    fn exit_error(&self, exit: WorkerExit, stderr: &str) -> Box<ScriptError> {
        match exit {
            WorkerExit::Violation => {
                let message = "the script's process made a forbidden system call and was killed".into();
                failed("SandboxViolation", "SANDBOX_VIOLATION", message)
            }
            WorkerExit::OutOfTime => self.out_of_time(),
            _ if stderr.contains("memory allocation") => self.out_of_memory(),
            _ if stderr.contains("overflowed its stack") => failed(
                "RangeError",
                "NESTED_TOO_DEEPLY",
                "the source of the script is nested too deeply".into(),
            ),
            exit => {
                let message = format!("the script's process ended unexpectedly: {exit}; {stderr}");
                failed("WorkerError", "WORKER_CRASHED", message)
            }
        }
    }

    /// Cancels the calls that are still running, and builds the outcome.
    fn finish(mut self, result: ScriptResult) -> ScriptOutcome {
        self.running.clear();
        self.recorder.finish(result)
    }
}

/// Names the limit of the script in the error of a call that ended only because the script has no time left.
fn ended_by_script(mut error: Box<BridgeError>, limit: Duration) -> Box<BridgeError> {
    if error.code == ErrorCode::ProviderTimeout && error.message.contains(CALLER) {
        let tool = error.tool.as_ref().map_or_else(|| "a call".into(), |tool| format!("`{tool}`"));
        let limit = limit.as_millis();
        error.message = format!("the script exceeded its time limit of {limit} ms; {tool} was under way");
    }
    error
}

/// Returns the message with the result of a call and its hint, or with its error.
fn result_of(id: String, outcome: BridgeResult<(Box<RawValue>, Option<String>)>) -> RpcResult {
    match outcome {
        Ok((result, hint)) => RpcResult { id, success: true, result: Some(result), error: None, hint },
        Err(error) => {
            RpcResult { id, success: false, result: None, error: to_raw_value(&error).ok(), hint: None }
        }
    }
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".into()).expect("an empty object is JSON")
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
