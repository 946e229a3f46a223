//! The conversation with one worker: its script goes in, its calls are made, its end is told.
//!
//! The worker is not trusted. What it may do is checked here again, its clock is ours, and whatever it says that was not
//! agreed on ends it. Dropping the conversation cancels the calls and kills the process.

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
    Completed, FromWorker, Init, Limits, RpcCall, RpcResult, ScriptError, ToWorker, push,
};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::{RawValue, to_raw_value};

use super::outcome::Record;
use super::pool::Cell;
use super::selection::Injected;
use super::{Caller, ScriptOutcome, ScriptRequest};
use crate::McpBridgeAdapter;
use crate::config::ScriptSettings;

/// The worker keeps the time itself; if it has not stopped so long after, it is stopped.
const GRACE: Duration = Duration::from_millis(250);
/// While calls of so many bytes wait for their turn, no more are read.
const MOST_WAITING: usize = 64 << 20;

/// While answers of so many bytes wait to be read, no more calls are begun.
const MOST_UNREAD: usize = 16 << 20;
/// Who goes on calling so often after the last call it may make is ended.
const MOST_REFUSED: u64 = 10_000;
/// So much room for answers is kept between them.
const KEPT: usize = 1 << 20;
/// What is said of a call is cut here.
const LONGEST_REASON: usize = 1024;

/// Runs a script in a worker.
pub(super) async fn run<'a>(
    (bridge, caller): (&'a McpBridgeAdapter, &'a Caller<'a>),
    cell: Cell,
    request: ScriptRequest,
    injected: Injected,
    settings: ScriptSettings,
    record: Record,
) -> ScriptOutcome {
    let mut run = Run {
        bridge,
        caller,
        cell,
        settings,
        outgoing: Vec::new(),
        written: 0,
        running: FuturesUnordered::new(),
        under_way: Vec::new(),
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        made: 0,
        began: Instant::now(),
        record,
        injected,
    };
    let ended = match run.begin(request) {
        Ok(()) => run.converse().await,
        Err(error) => Err(error),
    };
    run.end(ended)
}

type Running<'a> = Pin<Box<dyn Future<Output = Answered> + Send + 'a>>;

struct Run<'a> {
    bridge: &'a McpBridgeAdapter,
    caller: &'a Caller<'a>,
    cell: Cell,
    settings: ScriptSettings,
    injected: Injected,
    outgoing: Vec<u8>,
    /// How much of that has been written.
    written: usize,
    running: FuturesUnordered<Running<'a>>,
    /// The calls that have begun and not ended.
    under_way: Vec<(String, String, Instant)>,
    /// Those that wait for their turn.
    waiting: VecDeque<RpcCall>,
    waiting_bytes: usize,
    /// How many calls the script has made.
    made: u64,
    began: Instant,
    record: Record,
}

/// A call that has ended.
struct Answered {
    id: String,
    ended: BridgeResult<CallOutcome>,
}

type Ended = Result<Option<Box<RawValue>>, Box<ScriptError>>;

impl<'a> Run<'a> {
    fn begin(&mut self, request: ScriptRequest) -> Result<(), Box<ScriptError>> {
        let limits = Limits {
            time_ms: self.settings.timeout.as_millis() as u64,
            memory_bytes: (self.settings.memory_mb as usize) << 20,
            output_bytes: self.settings.max_output_bytes as usize,
            log_bytes: self.settings.max_log_bytes as usize,
        };
        let init = Init {
            id: self.record.id.to_string(),
            name: request.name,
            code: request.code,
            tool_definitions: self.injected.definitions(),
            absent_servers: self.injected.absent.clone(),
            context: request.context,
            limits,
        };
        push(&mut self.outgoing, &ToWorker::Init(Box::new(init)))
            .map_err(|error| failed("RangeError", "SCRIPT_TOO_LONG", error.to_string()))
    }

    /// Until the script has ended, one way or the other.
    async fn converse(&mut self) -> Ended {
        let hard_clock = tokio::time::sleep(self.settings.timeout + GRACE);
        let closing = self.bridge.fleet.stop.cancelled();
        tokio::pin!(hard_clock, closing);
        loop {
            if let Err(error) = self.flush() {
                return lost(&error);
            }
            self.start_waiting();
            tokio::select! {
                heard = self.cell.incoming.read(&mut self.cell.frames), if self.waiting_bytes < MOST_WAITING => {
                    match heard {
                        Ok(true) => {}
                        Ok(false) => return self.gone().await,
                        Err(error) => return lost(&error),
                    }
                    if let Some(ended) = self.hear() {
                        return ended;
                    }
                }
                Some(answered) = self.running.next() => self.answer_all(answered),
                _ = self.cell.outgoing.room(), if !self.outgoing.is_empty() => {}
                () = &mut hard_clock => return Err(out_of_time()),
                () = &mut closing => return Err(cancelled()),
            }
        }
    }

    /// Writes as much as the worker takes.
    fn flush(&mut self) -> io::Result<()> {
        match self.cell.outgoing.write(&self.outgoing[self.written..]) {
            Ok(length) => self.written += length,
            // It has ended, and why can be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.written = self.outgoing.len(),
            Err(error) => return Err(error),
        }
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing.shrink_to(KEPT);
            self.written = 0;
        }
        Ok(())
    }

    /// Everything that the worker has said by now.
    fn hear(&mut self) -> Option<Ended> {
        loop {
            match self.cell.frames.next_message() {
                Ok(None) => break,
                Ok(Some(FromWorker::Console(line))) => {
                    self.record.log(line, self.settings.max_log_bytes as usize);
                }
                Ok(Some(FromWorker::RpcCall(call))) => match self.take_call(call) {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
                Ok(Some(FromWorker::ExecutionComplete(completed))) => {
                    return Some(self.completed(completed));
                }
                Ok(Some(FromWorker::Ready(_))) => return Some(Err(misbehaved("it was ready twice"))),
                Err(error) => return Some(Err(misbehaved(&error.to_string()))),
            }
        }
        None
    }

    /// Ids are counted: one that does not follow its predecessor is not a worker's of ours. A call that the script may not
    /// make is answered at once, and takes no place among those that it may.
    fn take_call(&mut self, call: RpcCall) -> Result<(), Box<ScriptError>> {
        self.made += 1;
        if call.id != format!("{}-{}", self.record.id, self.made) {
            let said = format!("it made up the id `{}` of a call", clipped(&call.id).escape_debug());
            return Err(misbehaved(&said));
        }
        match self.refusal(&call) {
            Some(_) if self.record.refused >= MOST_REFUSED => {
                let said = format!("the script may make {} calls, and did not stop", self.settings.max_calls);
                return Err(failed("CallLimitError", "CALL_LIMIT", said));
            }
            Some(error) => {
                self.record.refused += 1;
                self.send(call.id, false, None, to_raw_value(&error).ok());
            }
            None => {
                self.waiting_bytes += weight(&call);
                self.waiting.push_back(call);
            }
        }
        Ok(())
    }

    fn refusal(&self, RpcCall { server, tool, .. }: &RpcCall) -> Option<Box<BridgeError>> {
        if self.made > self.settings.max_calls.into() {
            let said = format!("the script may make {} calls", self.settings.max_calls);
            return Some(BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, said));
        }
        let may = self.injected.allows(server, tool);
        let said = || format!("the script was not given `{}:{}`", clipped(server), clipped(tool));
        (!may).then(|| BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, said()))
    }

    fn start_waiting(&mut self) {
        let most = self.settings.max_concurrent_calls as usize;
        while self.running.len() < most && self.outgoing.len() - self.written < MOST_UNREAD {
            let Some(call) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= weight(&call);
            let tool = format!("{}:{}", call.server, call.tool);
            self.record.call_began(&call.id, tool.clone());
            self.under_way.push((call.id.clone(), tool, Instant::now()));
            let made = self.call(call);
            self.running.push(made);
        }
    }

    fn call(&self, RpcCall { id, server, tool, args }: RpcCall) -> Running<'a> {
        let (caller, duration) = (self.caller, self.call_timeout());
        Box::pin(async move {
            let call = async {
                let tool = ToolId::parse(&format!("{server}:{tool}")).map_err(|error| {
                    BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, error.to_string())
                })?;
                let timeout = Some(CallTimeout { since: Instant::now(), duration });
                let request = CallRequest { tool, arguments: args, timeout };
                caller(request, CorrelationId::parse(&id).ok()).await
            };
            let ended = call.await;
            Answered { id, ended }
        })
    }

    /// A call ends a little before its script must, so that the script hears of it (CM-11).
    fn call_timeout(&self) -> Duration {
        let whole = self.settings.timeout;
        let margin = (whole / 20).min(Duration::from_millis(500));
        let left = whole.saturating_sub(self.began.elapsed()).saturating_sub(margin);
        self.settings.call_timeout.min(left)
    }

    /// The worker hears of everything that has ended by now at once.
    fn answer_all(&mut self, first: Answered) {
        self.answer(first);
        while let Some(Some(next)) = self.running.next().now_or_never() {
            self.answer(next);
        }
    }

    fn answer(&mut self, Answered { id, ended }: Answered) {
        if let Some(at) = self.under_way.iter().position(|(begun, ..)| *begun == id) {
            let (id, tool, since) = self.under_way.swap_remove(at);
            self.record.call_ended(&id, tool, since.elapsed(), why_not(&ended));
        }
        let (success, result, error) = match ended {
            Ok(outcome) => (true, Some(outcome.result.raw), None),
            Err(error) => (false, None, to_raw_value(&error).ok()),
        };
        self.send(id, success, result, error);
    }

    fn send(
        &mut self,
        id: String,
        success: bool,
        result: Option<Box<RawValue>>,
        error: Option<Box<RawValue>>,
    ) {
        let answer = RpcResult { id: id.clone(), success, result, error };
        if let Err(error) = push(&mut self.outgoing, &ToWorker::RpcResult(answer)) {
            let said = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, error.to_string());
            let answer = RpcResult { id, success: false, result: None, error: to_raw_value(&said).ok() };
            let _ = push(&mut self.outgoing, &ToWorker::RpcResult(answer));
        }
    }

    /// What the worker says its script came to.
    fn completed(&self, Completed { success, result, error }: Completed) -> Ended {
        let most = self.settings.max_output_bytes as usize;
        match (success, error) {
            (true, _) if result.as_ref().is_some_and(|result| result.get().len() > most) => {
                let said = format!("the script's value is longer than {most} bytes of JSON");
                Err(failed("OutputLimitError", "OUTPUT_LIMIT", said))
            }
            (true, _) => Ok(result),
            (false, Some(error)) if self.ran_out_of_memory(&error) => Err(out_of_memory()),
            (false, Some(error)) => Err(bounded(error)),
            (false, None) => Err(misbehaved("it failed without a reason")),
        }
    }

    /// At its limit the engine may have no room for an error that says so: it throws nothing at all, or settles nothing any
    /// more. What has no place in the author's text, of a worker that used nearly all it may, is that.
    fn ran_out_of_memory(&self, error: &ScriptError) -> bool {
        let is_odd = error.line.is_none()
            && matches!(error.name.as_str(), "Error" | "DeadlockError" | "InternalError");
        is_odd && self.cell.peak_bytes() > (u64::from(self.settings.memory_mb) << 20) / 4 * 3
    }

    /// The worker is no more, and has not said why.
    async fn gone(&mut self) -> Ended {
        if let Some(ended) = self.hear() {
            return ended;
        }
        match self.cell.end().await {
            Ok((end, words)) => Err(died(end, &words)),
            Err(error) => lost(&error),
        }
    }

    /// Calls that have not ended are cancelled by being dropped.
    fn end(mut self, ended: Ended) -> ScriptOutcome {
        for (id, tool, since) in std::mem::take(&mut self.under_way) {
            let why = "CANCELLED: the script ended first".to_owned();
            self.record.call_ended(&id, tool, since.elapsed(), Some(why));
        }
        self.record.close(ended)
    }
}

/// A tool that reports failure has answered, but not as the script hoped.
fn why_not(ended: &BridgeResult<CallOutcome>) -> Option<String> {
    match ended {
        Ok(outcome) if outcome.result.is_error => Some("TOOL_ERROR: the tool reported failure".into()),
        Ok(_) => None,
        Err(error) => {
            let code = serde_json::to_value(error.code).unwrap_or_default();
            Some(format!("{}: {}", code.as_str().unwrap_or_default(), clipped(&error.message)))
        }
    }
}

/// What a call takes up while it waits.
fn weight(call: &RpcCall) -> usize {
    size_of::<RpcCall>() + call.id.len() + call.server.len() + call.tool.len() + call.args.get().len()
}

fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_REASON)]
}

/// The worker cuts what its script threw; one that does not is cut here.
fn bounded(mut error: ScriptError) -> Box<ScriptError> {
    const LONGEST: usize = 256 << 10;
    let texts = [Some(&mut error.name), Some(&mut error.message), error.code.as_mut(), error.stack.as_mut()];
    for text in texts.into_iter().chain([error.tool_name.as_mut()]).flatten() {
        text.truncate(text.floor_char_boundary(LONGEST));
    }
    Box::new(error)
}

fn failed(name: &str, code: &str, message: String) -> Box<ScriptError> {
    Box::new(ScriptError { name: name.into(), code: Some(code.into()), message, ..ScriptError::default() })
}

fn out_of_time() -> Box<ScriptError> {
    failed("TimeLimitError", "TIME_LIMIT", "the script ran longer than it may, and was killed".into())
}

fn out_of_memory() -> Box<ScriptError> {
    failed("MemoryLimitError", "MEMORY_LIMIT", "the script used more memory than it may".into())
}

fn lost(error: &io::Error) -> Ended {
    Err(failed("WorkerError", "WORKER_LOST", format!("the script's worker was lost: {error}")))
}

fn cancelled() -> Box<ScriptError> {
    failed("CancelledError", "CANCELLED", "the bridge is ending".into())
}

fn misbehaved(how: &str) -> Box<ScriptError> {
    let said = format!("the script's worker did what no worker does, and was killed: {how}");
    failed("SandboxViolation", "SANDBOX_VIOLATION", said)
}

fn died(end: WorkerExit, words: &str) -> Box<ScriptError> {
    match end {
        WorkerExit::Violation => {
            let said = "the script's process made a system call that is forbidden, and was killed".into();
            failed("SandboxViolation", "SANDBOX_VIOLATION", said)
        }
        WorkerExit::OutOfTime => out_of_time(),
        _ if words.contains("memory allocation") => out_of_memory(),
        _ if words.contains("overflowed its stack") => {
            let said = "the script is nested too deeply".into();
            failed("RangeError", "NESTED_TOO_DEEPLY", said)
        }
        end => {
            failed("WorkerError", "WORKER_CRASHED", format!("the script's process is gone: {end}; {words}"))
        }
    }
}
