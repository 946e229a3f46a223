//! Runs one script: transpiles it, executes its pending jobs, waits for call results and timers, and sends the end.
//!
//! A worker has one thread and no asynchronous runtime. It runs one script and is not reused.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::{CatchResultExt, Ctx, Function, Persistent, Promise};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ending::ScriptEnding;
use crate::engine::{Engine, GC_THRESHOLD};
use crate::large_integers::{LostDigits, find_lost_digits};
use crate::script_error::{SYNTAX_ERROR, certain_mistake, failed, syntax_error};
use crate::tool_lookup::ToolLookup;
use crate::tool_result::{LeftOut, ParsedResult, ScriptValue, has_text, left_out};
use crate::typescript::TranspiledScript;
use crate::wire::{
    self, Completed, FrameDecoder, FromWorker, Init, Ready, RefusedToolCall, RpcResult, ScriptError, ToWorker,
};

/// Size of the read buffer.
const READ_SIZE: usize = 256 << 10;
/// Timeout of a single wait while there is no deadline.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

const WARM_UP_SCRIPT: &str = include_str!("warm_up.ts");

/// A worker that waits for its script.
pub struct ScriptWorker {
    pub(crate) engine: Engine,
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
        let script = TranspiledScript::from_source(&init.code, &ToolLookup::default(), &|_| true).ok()?;
        self.engine.context.with(|ctx| {
            let promise = ctx.eval::<Promise, _>(script.code).ok()?;
            while ctx.execute_pending_job() {}
            self.check_completed(&ctx, &promise, &mut ScriptEnding::default())
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
            for reason in self.engine.state.take_unhandled_rejections() {
                // The engine cannot be dropped while they are kept.
                drop(reason.restore(&ctx));
            }
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
        self.engine.state.set_limits(limits);
        let mut ending = ScriptEnding::default();
        let promise = match self.start(ctx, init) {
            Ok(promise) => promise,
            Err(error) => return Ok(RunEnd::Completed(failed(*error))),
        };
        loop {
            self.execute_pending_jobs(ctx);
            if let Some(completed) = self.check_completed(ctx, &promise, &mut ending) {
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

    /// Executes all pending jobs. Returns true if there were some.
    pub(crate) fn execute_pending_jobs(&self, ctx: &Ctx<'_>) -> bool {
        let mut has_executed = false;
        while ctx.execute_pending_job() {
            has_executed = true;
            if self.engine.deadline.interrupts() {
                break;
            }
        }
        has_executed
    }

    /// Runs the script up to its first `await`.
    fn start<'js>(&self, ctx: &Ctx<'js>, init: Init) -> Result<Promise<'js>, Box<ScriptError>> {
        let state = &self.engine.state;
        let context = init.context.as_deref().map_or("{}", RawValue::get);
        let tools = ToolLookup::new(init.tool_definitions, init.absent_servers, init.not_granted)
            .with_denied(init.denied)
            .limited_by_intent(init.is_limited_by_intent)
            .with_context(context);
        let globals = ctx.globals();
        let is_global = |name: &str| globals.contains_key(name).unwrap_or(true);
        let script = TranspiledScript::from_source(&init.code, &tools, &is_global)
            .map_err(|error| syntax_error(&init.name, error))?;
        if let Some(error) = certain_mistake(&init.name, &script.mistakes) {
            if let Some(refused) = refused_call(&error) {
                state.refuse_call(tools.with_original_names(refused));
            }
            return Err(error);
        }
        let code = script.code.clone();
        let _ = state.source.set(init.code);
        let (_, _, _) = (state.id.set(init.id), state.transpiled.set(script), state.tools.set(tools));
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

    pub(crate) fn call<'js, R: rquickjs::FromJs<'js>>(
        &self,
        ctx: &Ctx<'js>,
        function: &Persistent<Function<'static>>,
        arguments: impl rquickjs::function::IntoArgs<'js>,
    ) -> Result<R, Box<ScriptError>> {
        let called = function.clone().restore(ctx).and_then(|function| function.call(arguments));
        called.catch(ctx).map_err(|thrown| Box::new(self.describe_caught(ctx, thrown)))
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
            ParsedResult::Failure(text) => (
                "failed",
                answer.hint.as_ref().map_or(text.clone(), |hint| format!("{text} ({hint})")).into(),
            ),
            ParsedResult::Value(ScriptValue::Json(json)) => ("json", json.into()),
            ParsedResult::Value(ScriptValue::JsonText(text)) => ("data", text.into()),
            ParsedResult::Value(ScriptValue::Text(text)) => ("text", text.into()),
        };
        if matches!(kind, "json" | "data" | "text") {
            self.engine.state.keep_result(&call.tool, kind == "text", &payload);
            self.engine.state.warn_of_arguments(&call);
            if !call.wants_raw {
                let value = (kind != "text").then_some(&*payload);
                self.warn_of_losses(&call.tool, result, value);
            }
        }
        let raw_result = (kind == "failed" || (answer.success && call.wants_raw)).then_some(result);
        let signature = argument_error(kind, &payload)
            .and_then(|error| self.signature(&call.tool).or_else(|| error.signature.map(Cow::into_owned)));
        let advice: String =
            call.advice.into_iter().chain(signature).map(|line| format!("\n  {line}")).collect();
        let arguments = (number as f64, kind, &*payload, raw_result, advice);
        // This fails only if the script runs out of memory or has broken its promises. The script sees that when it awaits.
        let _ = self.call::<()>(ctx, &self.engine.prelude.settle_call, arguments);
    }

    /// Warns of what the value of a call does not have of the tool's result. The value is JSON; `None` if it is text.
    fn warn_of_losses(&self, tool: &str, result: &str, value: Option<&str>) {
        self.engine.state.warn_of_result(tool, "content", || {
            let LeftOut { blocks, number } = left_out(result, value.is_none())?;
            let them = if number == 1 { "it" } else { "them" };
            Some(format!("{tool} also returned {blocks}: `bascule.raw` has {them}"))
        });
        self.engine.state.warn_of_result(tool, "digits", || {
            let LostDigits { path, integer, rounded, others } = find_lost_digits(value?)?;
            let others = if others == 0 { String::new() } else { format!(" (so did {others} more)") };
            let advice = match has_text(result, &integer) {
                true => "the text in `bascule.raw` has all digits",
                false => "only a tool that returns it as text keeps its digits",
            };
            Some(format!(
                "{tool}: `{path}` is {integer}, which a number cannot hold: it became {rounded}{others}; {advice}"
            ))
        });
    }

    /// Returns the call of a tool (`server:tool`) and the type of its arguments.
    fn signature(&self, tool: &str) -> Option<String> {
        let (server, tool) = tool.split_once(':')?;
        let mut servers = self.engine.state.tools.get()?.servers().iter();
        servers.find(|entry| entry.name == server)?.tool(tool)?.signature.clone()
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
}

/// An error about the arguments of a call.
#[derive(Default, Deserialize)]
struct ArgumentError<'a> {
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
}

/// Returns the error of a call if it is about its arguments: that of the bridge, or one of the forms that servers use.
fn argument_error<'a>(kind: &str, payload: &'a str) -> Option<ArgumentError<'a>> {
    const MAX_SEARCHED: usize = 4096;
    let beginning = &payload[..payload.floor_char_boundary(MAX_SEARCHED)];
    let has_any = |signs: &[&str]| signs.iter().any(|sign| beginning.contains(sign));
    match kind {
        "error" if has_any(&[r#""code":"INVALID_INPUT""#]) => serde_json::from_str(payload).ok(),
        "error" if has_any(&[r#""code":-32602"#]) => Some(ArgumentError::default()),
        "failed" if has_any(&["-32602", "validation error", "nvalid argument"]) => {
            Some(ArgumentError::default())
        }
        _ => None,
    }
}

/// Returns the call that a mistake would have made.
fn refused_call(error: &ScriptError) -> Option<RefusedToolCall> {
    let (server, tool) = error.tool_name.as_deref()?.split_once(':')?;
    let (code, message) = (error.code.clone()?, error.message.clone());
    Some(RefusedToolCall { server: server.into(), tool: tool.into(), code, message })
}

fn raw(part: &Option<Box<RawValue>>) -> &str {
    part.as_deref().map_or("null", RawValue::get)
}

fn protocol_error(error: impl std::error::Error) -> WorkerError {
    WorkerError::Protocol(error.to_string())
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
