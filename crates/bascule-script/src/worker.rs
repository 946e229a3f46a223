//! The life of one script: it is read, stripped of its types, run until nothing is ready, and waits for answers.
//!
//! One thread, no runtime. A worker runs one script and is never used again.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt, CaughtError, Ctx, Function, Persistent, Promise, Value};
use serde_json::value::RawValue;

use crate::directory::Directory;
use crate::engine::{Engine, LOOK_THROUGH};
use crate::outcome::{self, Said, Worth};
use crate::typescript::{SyntaxError, Translated};
use crate::wire::{self, Completed, Frames, FromWorker, Init, Ready, RpcResult, ScriptError, ToWorker};

/// How much is read from the bridge at a time.
const PIECE: usize = 256 << 10;
const SYNTAX_ERROR: &str = "SYNTAX_ERROR";
/// A worker that is given nothing waits so long between looks at the clock.
const A_WHILE: Duration = Duration::from_secs(3600);

/// A script of our own.
const REHEARSAL: &str = include_str!("rehearsal.ts");

/// A machine that waits for its script.
pub struct Worker {
    engine: Engine,
    frames: Frames,
    buffer: Vec<u8>,
}

/// Why a worker could not go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The engine could not be made.
    #[error("could not make the script engine")]
    Engine(#[from] rquickjs::Error),
    /// The link to the bridge is broken.
    #[error("could not read from the bridge")]
    Link(#[from] io::Error),
    /// The bridge said something else than what is agreed.
    #[error("the bridge sent {0}")]
    Protocol(String),
}

/// The script has ended, or the bridge has gone.
enum End {
    Completed(Completed),
    Alone,
}

impl Worker {
    /// Makes the engine and evaluates the prelude. The process can be locked after this.
    pub fn new() -> Result<Self, WorkerError> {
        Ok(Self { engine: Engine::new()?, frames: Frames::default(), buffer: vec![0; PIECE] })
    }

    /// Goes once through what every script goes through, with one of our own that leaves nothing behind: what is done for the
    /// first time takes several times as long. Worth it for a worker that will wait.
    pub fn rehearse(&self) {
        let mut said = Vec::new();
        if let Some(completed) = self.play(REHEARSAL) {
            let _ = wire::push(&mut said, &completed);
        }
    }

    fn play(&self, code: &str) -> Option<Completed> {
        let (mut frames, mut heard) = (Frames::default(), Vec::new());
        let init = Init { code: code.to_owned(), ..Init::default() };
        wire::push(&mut heard, &ToWorker::Init(Box::new(init))).ok()?;
        frames.feed(&heard);
        let Ok(Some(ToWorker::Init(init))) = frames.next_message() else { return None };
        let translated = Translated::of(&init.code).ok()?;
        self.engine.context.with(|ctx| {
            let promise = ctx.eval::<Promise, _>(translated.code).ok()?;
            while ctx.execute_pending_job() {}
            self.ended(&ctx, &promise, init.limits.output_bytes)
        })
    }

    /// Says that it is ready, runs the one script that comes, and says how it ended. To be called once.
    pub fn serve(&mut self, link: impl AsFd + 'static, missing: Vec<String>) -> Result<(), WorkerError> {
        self.engine.state.connect(link);
        self.engine.state.say(&FromWorker::Ready(Ready { missing }));
        self.engine.state.flush();
        let Some(init) = self.first()? else { return Ok(()) };
        self.engine.runtime.set_memory_limit(init.limits.memory_bytes);
        self.engine.runtime.set_gc_threshold((init.limits.memory_bytes / 8).min(LOOK_THROUGH));
        let context = self.engine.context.clone();
        let end = context.with(|ctx| {
            let end = self.run(&ctx, init);
            self.tell_unheard(&ctx, matches!(&end, Ok(End::Completed(completed)) if completed.success));
            end
        });
        if let End::Completed(completed) = end? {
            self.engine.state.close_log();
            self.engine.state.say_last(&completed);
            // The bridge may want to look at us before we go; it ends us when it has seen enough.
            while self.read(Instant::now() + A_WHILE)? {}
        }
        Ok(())
    }

    fn first(&mut self) -> Result<Option<Init>, WorkerError> {
        loop {
            match self.frames.next_message().map_err(unreadable)? {
                Some(ToWorker::Init(init)) => return Ok(Some(*init)),
                Some(ToWorker::RpcResult(_)) => {
                    return Err(WorkerError::Protocol("an answer before a script".into()));
                }
                None if !self.read(Instant::now() + A_WHILE)? => return Ok(None),
                None => {}
            }
        }
    }

    /// Waits for more from the bridge, at most until then. Says whether the bridge is still there.
    fn read(&mut self, until: Instant) -> Result<bool, WorkerError> {
        match self.engine.state.wait(until, &mut self.buffer)? {
            Some(0) => return Ok(false),
            Some(read) => self.frames.feed(&self.buffer[..read]),
            None => {}
        }
        Ok(true)
    }

    fn run(&mut self, ctx: &Ctx<'_>, init: Init) -> Result<End, WorkerError> {
        let limits = init.limits;
        let deadline = Instant::now() + Duration::from_millis(limits.time_ms);
        self.engine.clock.set(deadline);
        self.engine.state.allow_log(limits.log_bytes);
        let promise = match self.begin(ctx, init) {
            Ok(promise) => promise,
            Err(error) => return Ok(End::Completed(failed(*error))),
        };
        loop {
            while !self.engine.clock.strikes() && ctx.execute_pending_job() {}
            if let Some(completed) = self.ended(ctx, &promise, limits.output_bytes) {
                return Ok(End::Completed(completed));
            }
            self.engine.state.flush();
            if self.engine.state.is_cut() {
                return Ok(End::Alone);
            }
            let next = self.engine.state.timers.borrow_mut().next();
            if !self.read(next.map_or(deadline, |next| next.min(deadline)))? {
                return Ok(End::Alone);
            }
            self.deliver(ctx)?;
            if let Err(error) = self.fire_due(ctx) {
                return Ok(End::Completed(failed(*error)));
            }
        }
    }

    /// Runs the script up to its first `await`.
    fn begin<'js>(&self, ctx: &Ctx<'js>, init: Init) -> Result<Promise<'js>, Box<ScriptError>> {
        let state = &self.engine.state;
        let translated = Translated::of(&init.code).map_err(|error| wrong_syntax(&init.name, error))?;
        let code = translated.code.clone();
        let (_, _) = (state.id.set(init.id), state.translated.set(translated));
        let _ = state.directory.set(Directory::new(init.tool_definitions, init.absent_servers));
        let context = init.context.as_deref().map_or("{}", RawValue::get);
        self.call::<()>(ctx, &self.engine.harness.furnish, (context,)).and_then(|()| {
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

    /// How the script ended, if it has.
    fn ended<'js>(&self, ctx: &Ctx<'js>, promise: &Promise<'js>, output_bytes: usize) -> Option<Completed> {
        if self.engine.clock.strikes() {
            return Some(failed(out_of_time()));
        }
        match promise.state() {
            PromiseState::Pending if self.engine.state.is_idle() => Some(failed(deadlock())),
            PromiseState::Pending => None,
            PromiseState::Resolved => Some(self.value(ctx, promise, output_bytes)),
            PromiseState::Rejected => {
                let _ = promise.result::<Value>();
                Some(failed(self.describe(ctx, ctx.catch())))
            }
        }
    }

    fn value<'js>(&self, ctx: &Ctx<'js>, promise: &Promise<'js>, output_bytes: usize) -> Completed {
        let value = match promise.result::<Value>() {
            Some(Ok(value)) => value,
            _ => return failed(out_of_memory()),
        };
        let text: String = match self.call(ctx, &self.engine.harness.value_text, (value,)) {
            Ok(text) => text,
            Err(error) => return failed(*error),
        };
        if text.len() > output_bytes {
            return failed(too_much_output(text.len(), output_bytes));
        }
        match RawValue::from_string(text) {
            Ok(result) => Completed { success: true, result: Some(result), error: None },
            Err(error) => failed(plain("TypeError", format!("the script's value is no JSON: {error}"))),
        }
    }

    /// Hands on every answer that has come.
    fn deliver(&mut self, ctx: &Ctx<'_>) -> Result<(), WorkerError> {
        while let Some(message) = self.frames.next_message().map_err(unreadable)? {
            match message {
                ToWorker::RpcResult(answer) => self.settle(ctx, &answer),
                ToWorker::Init(_) => return Err(WorkerError::Protocol("a second script".into())),
            }
        }
        Ok(())
    }

    fn settle(&self, ctx: &Ctx<'_>, answer: &RpcResult) {
        let Some((number, flight)) = self.engine.state.take_call(&answer.id) else { return };
        let (result, error) = (raw(&answer.result), raw(&answer.error));
        let (kind, payload) = match outcome::read(result) {
            _ if !answer.success => ("error", Cow::Borrowed(error)),
            Said::Failure(complaint) => ("failed", complaint.into()),
            Said::Value(Worth::Json(json)) => ("json", json.into()),
            Said::Value(Worth::Inner(text)) => ("json", text.into()),
            Said::Value(Worth::Text(text)) => ("text", text.into()),
        };
        let whole = (kind == "failed" || (answer.success && flight.wants_whole)).then_some(result);
        let arguments = (number as f64, kind, &*payload, whole);
        // A failure here is the script's: out of memory, or a promise that it broke. It shows in what it awaits.
        let _ = self.call::<()>(ctx, &self.engine.harness.settle, arguments);
    }

    /// Runs what is due, each with all that follows from it.
    fn fire_due(&self, ctx: &Ctx<'_>) -> Result<(), Box<ScriptError>> {
        let (now, mark) = (Instant::now(), self.engine.state.timers.borrow().mark());
        loop {
            let due = self.engine.state.timers.borrow_mut().take_due(now, mark);
            let Some(id) = due else { return Ok(()) };
            self.call::<()>(ctx, &self.engine.harness.fire, (id,))?;
            while !self.engine.clock.strikes() && ctx.execute_pending_job() {}
        }
    }

    /// A script that succeeded may still want to know what failed behind its back. What else it left is cancelled, and fails
    /// only by that.
    fn tell_unheard(&self, ctx: &Ctx<'_>, succeeded: bool) {
        for reason in self.engine.state.take_unheard() {
            let Ok(reason) = reason.restore(ctx) else { continue };
            if succeeded {
                let ScriptError { name, message, .. } = self.describe(ctx, reason);
                let text = format!("nobody awaited what failed with {name}: {message}");
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

    /// What a script threw, with its place in the author's text.
    fn describe<'js>(&self, ctx: &Ctx<'js>, thrown: Value<'js>) -> ScriptError {
        if self.engine.clock.strikes() {
            return out_of_time();
        }
        let describe = self.engine.harness.describe.clone().restore(ctx);
        let text: Result<String, _> = describe.and_then(|describe| describe.call((thrown,)));
        let described = text.ok().and_then(|text| serde_json::from_str::<ScriptError>(&text).ok());
        let Some(mut error) = described else {
            return plain("Error", "the script threw something that cannot be described".into());
        };
        if error.name == "InternalError" && error.message.contains("out of memory") {
            return out_of_memory();
        }
        let name = self.engine.state.name.get().map_or("script.ts", String::as_str);
        (error.line, error.column) = error.stack.as_deref().and_then(|stack| place_in(stack, name)).unzip();
        error
    }
}

/// The first place of a stack that is in the script.
fn place_in(stack: &str, name: &str) -> Option<(u32, u32)> {
    let place = stack.lines().find_map(|line| {
        let line = line.trim_start().strip_prefix("at ")?;
        let (_, place) = line.rsplit_once(&format!("{name}:"))?;
        Some(place.trim_end_matches(')'))
    })?;
    let (line, column) = place.split_once(':')?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

fn raw(part: &Option<Box<RawValue>>) -> &str {
    part.as_deref().map_or("null", RawValue::get)
}

fn unreadable(error: impl std::error::Error) -> WorkerError {
    WorkerError::Protocol(error.to_string())
}

fn failed(error: ScriptError) -> Completed {
    Completed { success: false, result: None, error: Some(error) }
}

fn plain(name: &str, message: String) -> ScriptError {
    ScriptError { name: name.into(), message, ..ScriptError::default() }
}

fn coded(name: &str, code: &str, message: &str) -> ScriptError {
    ScriptError { code: Some(code.into()), ..plain(name, message.into()) }
}

fn wrong_syntax(name: &str, error: SyntaxError) -> Box<ScriptError> {
    let (line, column) = error.place.map(|place| (place.line, place.column)).unzip();
    let at = line.zip(column).map(|(line, column)| format!("\n    at {name}:{line}:{column}"));
    let stack = Some(format!("SyntaxError: {}{}", error.message, at.unwrap_or_default()));
    Box::new(ScriptError { line, column, stack, ..coded("SyntaxError", SYNTAX_ERROR, &error.message) })
}

fn out_of_time() -> ScriptError {
    coded("TimeLimitError", "TIME_LIMIT", "the script ran longer than it may")
}

fn out_of_memory() -> ScriptError {
    coded("MemoryLimitError", "MEMORY_LIMIT", "the script used more memory than it may")
}

fn too_much_output(length: usize, limit: usize) -> ScriptError {
    let said = format!("the script's value is {length} bytes of JSON; it may be {limit}");
    coded("OutputLimitError", "OUTPUT_LIMIT", &said)
}

fn deadlock() -> ScriptError {
    let said = "the script waits for a promise that nothing can settle: no call and no timer is under way";
    coded("DeadlockError", "DEADLOCK", said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rehearsal_comes_to_its_end_and_leaves_nothing_behind() {
        let worker = Worker::new().unwrap();
        let names = || -> String {
            let names = "Reflect.ownKeys(globalThis).map(String).join()";
            worker.engine.context.with(|ctx| ctx.eval(names)).unwrap()
        };
        let before = names();
        let value = worker.play(REHEARSAL).unwrap().result.unwrap();
        assert_eq!(value.get(), r#"{"found":[{"name":"a","n":1}],"text":"c, d"}"#);
        assert_eq!(names(), before);
        assert!(worker.engine.state.is_idle() && worker.engine.state.take_unheard().is_empty());
    }
}
