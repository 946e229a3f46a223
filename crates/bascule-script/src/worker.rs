//! Runs one script: transpiles it, executes its pending jobs, waits for call results and timers, and sends the end.
//!
//! A worker has one thread and no asynchronous runtime. It runs one script and is not reused.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt, CaughtError, Ctx, Function, Persistent, Promise, Value};
use serde_json::value::RawValue;

use crate::engine::{Engine, GC_THRESHOLD};
use crate::tool_lookup::ToolLookup;
use crate::tool_result::{ParsedResult, ScriptValue};
use crate::typescript::{SyntaxError, TranspiledScript};
use crate::wire::{self, Completed, FrameDecoder, FromWorker, Init, Ready, RpcResult, ScriptError, ToWorker};

/// Size of the read buffer.
const READ_SIZE: usize = 256 << 10;
const SYNTAX_ERROR: &str = "SYNTAX_ERROR";
/// Timeout of a single wait while there is no deadline.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

const WARM_UP_SCRIPT: &str = include_str!("warm_up.ts");

/// A worker that waits for its script.
pub struct ScriptWorker {
    engine: Engine,
    frames: FrameDecoder,
    buffer: Vec<u8>,
}

/// The worker cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The engine could not be created.
    #[error("could not create the script engine")]
    Engine(#[from] rquickjs::Error),
    /// The socket failed.
    #[error("could not read from the bridge")]
    Socket(#[from] io::Error),
    /// The bridge violated the protocol.
    #[error("the bridge violated the worker protocol: {0}")]
    Protocol(String),
}

enum RunEnd {
    Completed(Completed),
    Disconnected,
}

impl ScriptWorker {
    /// Creates the engine and evaluates the prelude. The process can be locked down after this.
    pub fn new() -> Result<Self, WorkerError> {
        Ok(Self { engine: Engine::new()?, frames: FrameDecoder::default(), buffer: vec![0; READ_SIZE] })
    }

    /// Runs a small script that leaves no trace. The first run of any code takes several times as long as the next, so this
    /// pays for a worker that waits in a pool.
    pub fn warm_up(&self) {
        let mut frame = Vec::new();
        if let Some(completed) = self.run_detached(WARM_UP_SCRIPT) {
            let _ = wire::push_frame(&mut frame, &completed);
        }
    }

    /// Runs code without a bridge, through the same steps as a script.
    fn run_detached(&self, code: &str) -> Option<Completed> {
        let (mut frames, mut received) = (FrameDecoder::default(), Vec::new());
        let init = Init { code: code.to_owned(), ..Init::default() };
        wire::push_frame(&mut received, &ToWorker::Init(Box::new(init))).ok()?;
        frames.feed(&received);
        let Ok(Some(ToWorker::Init(init))) = frames.next_message() else { return None };
        let script = TranspiledScript::from_source(&init.code).ok()?;
        self.engine.context.with(|ctx| {
            let promise = ctx.eval::<Promise, _>(script.code).ok()?;
            while ctx.execute_pending_job() {}
            self.check_completed(&ctx, &promise, init.limits.output_bytes)
        })
    }

    /// Sends `ready`, runs the one script that arrives, and sends its end. Call this once.
    pub fn serve(&mut self, socket: impl AsFd + 'static, missing: Vec<String>) -> Result<(), WorkerError> {
        self.engine.state.set_socket(socket);
        self.engine.state.send(&FromWorker::Ready(Ready { missing }));
        self.engine.state.flush();
        let Some(init) = self.receive_init()? else { return Ok(()) };
        self.engine.runtime.set_memory_limit(init.limits.memory_bytes);
        self.engine.runtime.set_gc_threshold((init.limits.memory_bytes / 8).min(GC_THRESHOLD));
        let context = self.engine.context.clone();
        let end = context.with(|ctx| {
            let end = self.run(&ctx, init);
            let succeeded = matches!(&end, Ok(RunEnd::Completed(completed)) if completed.success);
            self.log_unhandled_rejections(&ctx, succeeded);
            end
        });
        if let RunEnd::Completed(completed) = end? {
            self.engine.state.report_dropped_lines();
            self.engine.state.send_completed(&completed);
            // The bridge may still inspect this process, and ends it when it is done.
            while self.read(Instant::now() + IDLE_WAIT)? {}
        }
        Ok(())
    }

    fn receive_init(&mut self) -> Result<Option<Init>, WorkerError> {
        loop {
            match self.frames.next_message().map_err(protocol_error)? {
                Some(ToWorker::Init(init)) => return Ok(Some(*init)),
                Some(ToWorker::RpcResult(_)) => {
                    return Err(WorkerError::Protocol("`rpc_result` before `init`".into()));
                }
                None if !self.read(Instant::now() + IDLE_WAIT)? => return Ok(None),
                None => {}
            }
        }
    }

    /// Waits for bytes from the bridge until the deadline. Returns false if the bridge has disconnected.
    fn read(&mut self, deadline: Instant) -> Result<bool, WorkerError> {
        match self.engine.state.read(deadline, &mut self.buffer)? {
            Some(0) => return Ok(false),
            Some(read) => self.frames.feed(&self.buffer[..read]),
            None => {}
        }
        Ok(true)
    }

    fn run(&mut self, ctx: &Ctx<'_>, init: Init) -> Result<RunEnd, WorkerError> {
        let limits = init.limits;
        let deadline = Instant::now() + Duration::from_millis(limits.time_ms);
        self.engine.deadline.set(deadline);
        self.engine.state.set_log_limit(limits.log_bytes);
        let promise = match self.start(ctx, init) {
            Ok(promise) => promise,
            Err(error) => return Ok(RunEnd::Completed(failed(*error))),
        };
        loop {
            self.execute_pending_jobs(ctx);
            if let Some(completed) = self.check_completed(ctx, &promise, limits.output_bytes) {
                return Ok(RunEnd::Completed(completed));
            }
            self.engine.state.flush();
            if self.engine.state.is_disconnected() {
                return Ok(RunEnd::Disconnected);
            }
            let next_timer = self.engine.state.timers.borrow_mut().next_due();
            if !self.read(next_timer.map_or(deadline, |due| due.min(deadline)))? {
                return Ok(RunEnd::Disconnected);
            }
            self.deliver_results(ctx)?;
            if let Err(error) = self.fire_due_timers(ctx) {
                return Ok(RunEnd::Completed(failed(*error)));
            }
        }
    }

    fn execute_pending_jobs(&self, ctx: &Ctx<'_>) {
        while !self.engine.deadline.has_passed() && ctx.execute_pending_job() {}
    }

    /// Runs the script up to its first `await`.
    fn start<'js>(&self, ctx: &Ctx<'js>, init: Init) -> Result<Promise<'js>, Box<ScriptError>> {
        let state = &self.engine.state;
        let script =
            TranspiledScript::from_source(&init.code).map_err(|error| syntax_error(&init.name, error))?;
        let code = script.code.clone();
        let (_, _) = (state.id.set(init.id), state.transpiled.set(script));
        let _ = state.tools.set(ToolLookup::new(init.tool_definitions, init.absent_servers));
        let context = init.context.as_deref().map_or("{}", RawValue::get);
        self.call::<()>(ctx, &self.engine.prelude.define_globals, (context,)).and_then(|()| {
            let mut options = EvalOptions::default();
            options.filename = Some(init.name.clone());
            let _ = state.name.set(init.name);
            ctx.eval_with_options(code, options).catch(ctx).map_err(|thrown| {
                let error = self.describe_caught(ctx, thrown);
                let is_syntax = error.name == "SyntaxError";
                Box::new(ScriptError { code: error.code.or(is_syntax.then(|| SYNTAX_ERROR.into())), ..error })
            })
        })
    }

    fn call<'js, R: rquickjs::FromJs<'js>>(
        &self,
        ctx: &Ctx<'js>,
        function: &Persistent<Function<'static>>,
        arguments: impl rquickjs::function::IntoArgs<'js>,
    ) -> Result<R, Box<ScriptError>> {
        let called = function.clone().restore(ctx).and_then(|function| function.call(arguments));
        called.catch(ctx).map_err(|thrown| Box::new(self.describe_caught(ctx, thrown)))
    }

    /// Returns the end of the script, if it has ended.
    fn check_completed<'js>(
        &self,
        ctx: &Ctx<'js>,
        promise: &Promise<'js>,
        output_bytes: usize,
    ) -> Option<Completed> {
        if self.engine.deadline.has_passed() {
            return Some(failed(out_of_time()));
        }
        match promise.state() {
            PromiseState::Pending if self.engine.state.is_idle() => Some(failed(deadlock())),
            PromiseState::Pending => None,
            PromiseState::Resolved => Some(self.returned(ctx, promise, output_bytes)),
            PromiseState::Rejected => {
                let _ = promise.result::<Value>();
                Some(failed(self.describe(ctx, ctx.catch())))
            }
        }
    }

    fn returned<'js>(&self, ctx: &Ctx<'js>, promise: &Promise<'js>, output_bytes: usize) -> Completed {
        let value = match promise.result::<Value>() {
            Some(Ok(value)) => value,
            _ => return failed(out_of_memory()),
        };
        let text: String = match self.call(ctx, &self.engine.prelude.value_to_json, (value,)) {
            Ok(text) => text,
            Err(error) => return failed(*error),
        };
        if text.len() > output_bytes {
            return failed(too_much_output(text.len(), output_bytes));
        }
        match RawValue::from_string(text) {
            Ok(result) => Completed { success: true, result: Some(result), error: None },
            Err(error) => {
                failed(plain("TypeError", format!("the returned value cannot be converted to JSON: {error}")))
            }
        }
    }

    /// Settles the calls whose results have arrived.
    fn deliver_results(&mut self, ctx: &Ctx<'_>) -> Result<(), WorkerError> {
        while let Some(message) = self.frames.next_message().map_err(protocol_error)? {
            match message {
                ToWorker::RpcResult(result) => self.settle_call(ctx, &result),
                ToWorker::Init(_) => return Err(WorkerError::Protocol("a second `init`".into())),
            }
        }
        Ok(())
    }

    fn settle_call(&self, ctx: &Ctx<'_>, answer: &RpcResult) {
        let Some((number, call)) = self.engine.state.take_call(&answer.id) else { return };
        let (result, error) = (raw(&answer.result), raw(&answer.error));
        let (kind, payload) = match ParsedResult::parse(result) {
            _ if !answer.success => ("error", Cow::Borrowed(error)),
            ParsedResult::Failure(text) => ("failed", text.into()),
            ParsedResult::Value(ScriptValue::Json(json)) => ("json", json.into()),
            ParsedResult::Value(ScriptValue::JsonText(text)) => ("json", text.into()),
            ParsedResult::Value(ScriptValue::Text(text)) => ("text", text.into()),
        };
        let raw_result = (kind == "failed" || (answer.success && call.wants_raw)).then_some(result);
        let arguments = (number as f64, kind, &*payload, raw_result);
        // This fails only if the script runs out of memory or has broken its promises. The script sees that when it awaits.
        let _ = self.call::<()>(ctx, &self.engine.prelude.settle_call, arguments);
    }

    /// Fires the timers that are due, each followed by the jobs it causes.
    fn fire_due_timers(&self, ctx: &Ctx<'_>) -> Result<(), Box<ScriptError>> {
        let (now, starts) = (Instant::now(), self.engine.state.timers.borrow().starts());
        loop {
            let due = self.engine.state.timers.borrow_mut().take_due(now, starts);
            let Some(id) = due else { return Ok(()) };
            self.call::<()>(ctx, &self.engine.prelude.fire_timer, (id,))?;
            self.execute_pending_jobs(ctx);
        }
    }

    /// Logs the rejections that a successful script did not handle. The promises of a failed one are rejected by its end.
    fn log_unhandled_rejections(&self, ctx: &Ctx<'_>, succeeded: bool) {
        for reason in self.engine.state.take_unhandled_rejections() {
            let Ok(reason) = reason.restore(ctx) else { continue };
            if succeeded {
                let ScriptError { name, message, .. } = self.describe(ctx, reason);
                let text = format!("unhandled promise rejection: {name}: {message}");
                self.engine.state.log("warn".into(), text);
            }
        }
    }

    fn describe_caught<'js>(&self, ctx: &Ctx<'js>, thrown: CaughtError<'js>) -> ScriptError {
        match thrown {
            CaughtError::Exception(exception) => self.describe(ctx, exception.into_object().into_value()),
            CaughtError::Value(value) => self.describe(ctx, value),
            CaughtError::Error(error) => plain("InternalError", error.to_string()),
        }
    }

    /// Converts a thrown value to an error with its position in the source.
    fn describe<'js>(&self, ctx: &Ctx<'js>, thrown: Value<'js>) -> ScriptError {
        if self.engine.deadline.has_passed() {
            return out_of_time();
        }
        let describe = self.engine.prelude.describe_error.clone().restore(ctx);
        let text: Result<String, _> = describe.and_then(|describe| describe.call((thrown,)));
        let described = text.ok().and_then(|text| serde_json::from_str::<ScriptError>(&text).ok());
        let Some(mut error) = described else {
            return plain("Error", "the script threw a value that cannot be described".into());
        };
        if error.name == "InternalError" && error.message.contains("out of memory") {
            return out_of_memory();
        }
        let name = self.engine.state.name.get().map_or("script.ts", String::as_str);
        (error.line, error.column) =
            error.stack.as_deref().and_then(|stack| position_in(stack, name)).unzip();
        error
    }
}

/// Returns the first position of a stack trace that is in the script.
fn position_in(stack: &str, name: &str) -> Option<(u32, u32)> {
    let position = stack.lines().find_map(|line| {
        let line = line.trim_start().strip_prefix("at ")?;
        let (_, position) = line.rsplit_once(&format!("{name}:"))?;
        Some(position.trim_end_matches(')'))
    })?;
    let (line, column) = position.split_once(':')?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

fn raw(part: &Option<Box<RawValue>>) -> &str {
    part.as_deref().map_or("null", RawValue::get)
}

fn protocol_error(error: impl std::error::Error) -> WorkerError {
    WorkerError::Protocol(error.to_string())
}

fn failed(error: ScriptError) -> Completed {
    Completed { success: false, result: None, error: Some(error) }
}

fn plain(name: &str, message: String) -> ScriptError {
    ScriptError { name: name.into(), message, ..ScriptError::default() }
}

fn with_code(name: &str, code: &str, message: &str) -> ScriptError {
    ScriptError { code: Some(code.into()), ..plain(name, message.into()) }
}

fn syntax_error(name: &str, error: SyntaxError) -> Box<ScriptError> {
    let (line, column) = error.position.map(|position| (position.line, position.column)).unzip();
    let at = line.zip(column).map(|(line, column)| format!("\n    at {name}:{line}:{column}"));
    let stack = Some(format!("SyntaxError: {}{}", error.message, at.unwrap_or_default()));
    Box::new(ScriptError { line, column, stack, ..with_code("SyntaxError", SYNTAX_ERROR, &error.message) })
}

fn out_of_time() -> ScriptError {
    with_code("TimeLimitError", "TIME_LIMIT", "the script exceeded its time limit")
}

fn out_of_memory() -> ScriptError {
    with_code("MemoryLimitError", "MEMORY_LIMIT", "the script exceeded its memory limit")
}

fn too_much_output(length: usize, limit: usize) -> ScriptError {
    let message = format!("the returned value is {length} bytes of JSON; the limit is {limit} bytes");
    with_code("OutputLimitError", "OUTPUT_LIMIT", &message)
}

fn deadlock() -> ScriptError {
    let message = "the script awaits a promise that nothing can settle: no call and no timer is pending";
    with_code("DeadlockError", "DEADLOCK", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_completes_and_leaves_no_trace() {
        let worker = ScriptWorker::new().unwrap();
        let names = || -> String {
            let names = "Reflect.ownKeys(globalThis).map(String).join()";
            worker.engine.context.with(|ctx| ctx.eval(names)).unwrap()
        };
        let before = names();
        let value = worker.run_detached(WARM_UP_SCRIPT).unwrap().result.unwrap();
        assert_eq!(value.get(), r#"{"found":[{"name":"a","n":1}],"text":"c, d"}"#);
        assert_eq!(names(), before);
        assert!(worker.engine.state.is_idle() && worker.engine.state.take_unhandled_rejections().is_empty());
    }
}
