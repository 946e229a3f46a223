//! The end of a script: when it has ended, with which value, and what it left unfinished.
//!
//! A script ends as a Node program does: when it has returned and nothing is left to run. Calls and timers that it did not
//! await are finished, and a rejection that nothing handled fails it.

use std::time::{Duration, Instant};

use rquickjs::promise::PromiseState;
use rquickjs::{Ctx, Promise, Value};
use serde_json::value::RawValue;

use crate::script_error::{
    TIME_TO_DESCRIBE, add_remark, deadlock, failed, notes, out_of_memory, out_of_time, plain, too_much_output,
};
use crate::tool_result::replace_lone_surrogates;
use crate::typescript::{Mistake, position_of};
use crate::unawaited::named_tools;
use crate::wire::{Completed, ScriptError};
use crate::worker::ScriptWorker;

/// An answer that waits for so long for timers says so.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Number of calls or loops to name.
const MAX_NAMED: usize = 10;

/// The progress of a script towards its end.
#[derive(Default)]
pub(crate) struct ScriptEnding {
    /// The script has returned, and the promises in its value have settled.
    has_returned: bool,
    /// The time since when only what the script left running can delay its answer.
    done_at: Option<Instant>,
}

/// The value that a script returned.
struct ReturnedValue<'js> {
    value: Value<'js>,
    /// The value is that of the last call of a script without a `return`: it never fails the script.
    is_unreturned: bool,
    /// The promise of that call: the script does not wait for it.
    last_call: Option<Promise<'js>>,
}

impl<'js> ReturnedValue<'js> {
    /// `is_in_list`: see [`return_last_call`](crate::unreturned::return_last_call).
    fn new(value: Value<'js>, is_in_list: bool) -> Self {
        let listed = value.as_array().filter(|_| is_in_list).and_then(|list| list.get::<Value>(0).ok());
        let last_call = listed.as_ref().and_then(|listed| listed.as_promise()).cloned();
        Self { is_unreturned: listed.is_some(), value: listed.unwrap_or(value), last_call }
    }

    fn has_rejected(&self) -> bool {
        self.last_call.as_ref().is_some_and(|call| call.state() == PromiseState::Rejected)
    }

    fn is_settled(&self) -> bool {
        self.last_call.as_ref().is_none_or(|call| call.state() != PromiseState::Pending)
    }

    fn is_undefined(&self) -> bool {
        match &self.last_call {
            Some(call) if call.state() != PromiseState::Resolved => false,
            Some(call) => matches!(call.result::<Value>(), Some(Ok(value)) if value.is_undefined()),
            None => self.value.is_undefined(),
        }
    }
}

/// A value as JSON text, or the reason why it is not one yet.
enum ConvertedValue {
    /// Promises in the value have not settled.
    Waiting,
    Text(String),
    Failed(Box<ScriptError>),
}

impl ScriptWorker {
    /// Returns the end of the script, if it has ended.
    pub(crate) fn check_completed<'js>(
        &self,
        ctx: &Ctx<'js>,
        promise: &Promise<'js>,
        ending: &mut ScriptEnding,
    ) -> Option<Completed> {
        if self.engine.deadline.has_passed() {
            return Some(self.end_at_time_limit(ctx, promise, ending));
        }
        match promise.state() {
            PromiseState::Pending if self.engine.state.is_idle() => {
                Some(failed(self.unhandled_rejection(ctx).unwrap_or_else(deadlock)))
            }
            PromiseState::Pending => None,
            PromiseState::Resolved => match promise.result::<Value>() {
                Some(Ok(value)) => self.check_returned(ctx, &self.returned_value(value), ending),
                _ => Some(failed(out_of_memory(self.engine.state.limits()))),
            },
            PromiseState::Rejected => {
                self.log_cancelled_calls();
                Some(self.failed_with_notes(self.describe_rejected(ctx, promise)))
            }
        }
    }

    /// A script that has returned and waits for its timers alone has done its work, though the worker woke too late to say so.
    fn end_at_time_limit<'js>(
        &self,
        ctx: &Ctx<'js>,
        promise: &Promise<'js>,
        ending: &ScriptEnding,
    ) -> Completed {
        let state = &self.engine.state;
        let waits_for_timers = ending.has_returned
            && !state.has_calls()
            && state.timers.borrow_mut().next_due().is_some()
            && !self.engine.deadline.has_interrupted();
        match promise.result::<Value>() {
            Some(Ok(value)) if waits_for_timers => {
                self.engine.deadline.extend(TIME_TO_DESCRIBE);
                self.finish(ctx, &self.returned_value(value), None)
            }
            _ => failed(self.describe_timeout(ctx, promise)),
        }
    }

    /// Adds the mistakes that the script might have got past.
    fn failed_with_notes(&self, mut error: ScriptError) -> Completed {
        let mistakes = self.engine.state.transpiled.get().map_or(&[][..], |script| &script.mistakes);
        let is_told = |mistake: &&Mistake| {
            let message = &mistake.finding.message;
            error.message.contains(message.split_once(": ").map_or(message.as_str(), |(_, rest)| rest))
        };
        let untold = notes(mistakes.iter().filter(|mistake| !is_told(mistake)));
        add_remark(&mut error, &untold);
        failed(error)
    }

    fn describe_rejected<'js>(&self, ctx: &Ctx<'js>, promise: &Promise<'js>) -> ScriptError {
        let _ = promise.result::<Value>();
        self.describe(ctx, ctx.catch())
    }

    fn returned_value<'js>(&self, value: Value<'js>) -> ReturnedValue<'js> {
        let script = self.engine.state.transpiled.get();
        ReturnedValue::new(value, script.is_some_and(|script| script.unreturned.has_result()))
    }

    /// Returns the end of a script that has returned, if nothing is left to run.
    fn check_returned<'js>(
        &self,
        ctx: &Ctx<'js>,
        returned: &ReturnedValue<'js>,
        ending: &mut ScriptEnding,
    ) -> Option<Completed> {
        let mut converted = None;
        if !ending.has_returned {
            if !returned.is_unreturned {
                match self.convert(ctx, &returned.value) {
                    ConvertedValue::Waiting => return None,
                    done => converted = Some(done),
                }
            }
            ending.has_returned = true;
            self.engine.state.note_unawaited_calls();
        }
        if ending.done_at.is_none() && returned.is_settled() {
            ending.done_at = Some(Instant::now());
        }
        if self.engine.state.has_work() && !self.has_only_late_timers() {
            return None;
        }
        self.log_wait_for_timers(ending);
        Some(self.finish(ctx, returned, converted))
    }

    /// `converted` is the value, if it was converted just now: calls that ended meanwhile may have changed it.
    fn finish<'js>(
        &self,
        ctx: &Ctx<'js>,
        returned: &ReturnedValue<'js>,
        converted: Option<ConvertedValue>,
    ) -> Completed {
        if self.engine.state.has_work() {
            self.warn(
                "timers that were still running when the script had returned were stopped at its time limit",
            );
        }
        let is_undefined = returned.is_undefined();
        // The conversion of a promise handles its rejection, which must fail the script first.
        let convert = || self.convert(ctx, &returned.value);
        let converted = converted.or_else(|| (!returned.is_unreturned).then(convert));
        let is_null = matches!(&converted, Some(ConvertedValue::Text(text)) if text == "null");
        self.log_unawaited_calls(is_null || is_undefined);
        if let Some(error) = self.unhandled_rejection(ctx) {
            return self.failed_with_notes(error);
        }
        match converted.unwrap_or_else(convert) {
            ConvertedValue::Text(text) => match self.too_long(&text) {
                Some(error) if returned.is_unreturned => self.without_value(ctx, &error),
                Some(error) => failed(error),
                None => {
                    self.log_missing_members();
                    if is_undefined {
                        self.log_unreturned();
                    }
                    self.returned(ctx, text)
                }
            },
            ConvertedValue::Failed(error) if returned.is_unreturned && !returned.has_rejected() => {
                self.without_value(ctx, &error)
            }
            ConvertedValue::Failed(error) => failed(*error),
            // The last call waits for something that the script does not wait for.
            ConvertedValue::Waiting if returned.is_unreturned => {
                self.log_lost_value(returned);
                self.returned(ctx, "null".into())
            }
            ConvertedValue::Waiting => failed(deadlock()),
        }
    }

    /// Converts the value to JSON. Promises in it are awaited; those that nothing can settle any more become `null`.
    fn convert<'js>(&self, ctx: &Ctx<'js>, value: &Value<'js>) -> ConvertedValue {
        let convert = |is_last: bool| {
            let text = self.call(ctx, &self.engine.prelude.value_to_json, (value.clone(), is_last));
            match text {
                Ok(None) => ConvertedValue::Waiting,
                Ok(Some(text)) => ConvertedValue::Text(text),
                Err(error) => ConvertedValue::Failed(error),
            }
        };
        let mut converted = convert(false);
        // Promises that have settled tell it in their next job, and their values may contain more of them.
        while matches!(converted, ConvertedValue::Waiting) && self.execute_pending_jobs(ctx) {
            converted = convert(false);
        }
        match converted {
            ConvertedValue::Waiting if self.engine.state.is_idle() => convert(true),
            converted => converted,
        }
    }

    fn too_long(&self, text: &str) -> Option<ScriptError> {
        let limit = self.engine.state.limits().output_bytes;
        (text.len() > limit).then(|| too_much_output(text.len(), limit))
    }

    /// Ends a script whose last call has a value that it cannot have: its author did not return that value.
    fn without_value(&self, ctx: &Ctx<'_>, error: &ScriptError) -> Completed {
        let ScriptError { name, message, .. } = error;
        self.warn(&format!("the value of the last call was left out: {name}: {message}"));
        self.returned(ctx, "null".into())
    }

    fn returned(&self, ctx: &Ctx<'_>, text: String) -> Completed {
        let _ = self.call::<()>(ctx, &self.engine.prelude.report_losses, ());
        // A member's name may contain half of a character.
        let text = if text.contains(r"\ud") { replace_lone_surrogates(&text) } else { text };
        match RawValue::from_string(text) {
            Ok(result) => Completed { success: true, result: Some(result), error: None },
            Err(error) => {
                failed(plain("TypeError", format!("the returned value cannot be converted to JSON: {error}")))
            }
        }
    }

    /// Only timers are left, and none of them can fire before the time limit.
    fn has_only_late_timers(&self) -> bool {
        let state = &self.engine.state;
        let Some(deadline) = self.engine.deadline.get() else { return false };
        let margin = (Duration::from_millis(state.limits().time_ms) / 20).min(Duration::from_millis(250));
        let next = state.timers.borrow_mut().next_due();
        !state.has_calls() && next.is_some_and(|due| due.max(Instant::now()) + margin >= deadline)
    }

    /// Removes the unhandled rejections. Returns the first as the error of the script, and logs the others.
    fn unhandled_rejection(&self, ctx: &Ctx<'_>) -> Option<ScriptError> {
        let reasons = self.engine.state.take_unhandled_rejections().into_iter();
        let mut errors = reasons.filter_map(|reason| Some(self.describe(ctx, reason.restore(ctx).ok()?)));
        let mut first = errors.next()?;
        add_remark(&mut first, " (in a promise that was not awaited and has no `catch`)");
        for ScriptError { name, message, .. } in errors {
            self.warn(&format!("unhandled promise rejection: {name}: {message}"));
        }
        Some(first)
    }

    /// Describes a script at its time limit: the line that it was in, and the calls that it was waiting for.
    fn describe_timeout<'js>(&self, ctx: &Ctx<'js>, promise: &Promise<'js>) -> ScriptError {
        let mut error = match promise.state() {
            PromiseState::Rejected => return self.describe_rejected(ctx, promise),
            _ => out_of_time(self.engine.state.limits()),
        };
        self.engine.deadline.extend(TIME_TO_DESCRIBE);
        let calls: String = self.call(ctx, &self.engine.prelude.pending_calls, ()).unwrap_or_default();
        let calls: Vec<(String, Option<u32>)> = serde_json::from_str(&calls).unwrap_or_default();
        if calls.is_empty() && self.engine.state.is_idle() {
            self.add_loops(&mut error);
            return error;
        }
        if calls.is_empty() {
            add_remark(&mut error, "; no call was under way: it waited for a timer");
            return error;
        }
        error.line = error.line.or(calls[0].1);
        add_remark(&mut error, &format!("; {}", calls_under_way(&calls)));
        error
    }

    /// The engine does not tell in which loop a script was: names all of them.
    pub(crate) fn add_loops(&self, error: &mut ScriptError) {
        let lines = self.engine.state.transpiled.get().map_or(&[][..], |script| &script.loop_lines);
        match lines {
            [] => {}
            [line] => {
                error.line = error.line.or(Some(*line));
                add_remark(error, &format!("; it has a loop in line {line}"));
            }
            lines => {
                let lines: Vec<String> = lines.iter().take(MAX_NAMED).map(u32::to_string).collect();
                add_remark(error, &format!("; it has loops in the lines {}", lines.join(", ")));
            }
        }
    }

    /// Names members that the script read from results which do not have them: its value may be wrong.
    fn log_missing_members(&self) {
        let state = &self.engine.state;
        let (Some(script), Some(source)) = (state.transpiled.get(), state.source.get()) else { return };
        let mut told = Vec::new();
        for Mistake { position, finding } in &script.mistakes {
            let (Some(tool), Some(member)) = (&finding.tool, &finding.missing_member) else { continue };
            if state.last_results.borrow().lack(tool, member) {
                self.warn(&format!("line {}: {}", position.line, finding.message));
                told.push(finding.offset);
            }
        }
        let read_members = state.read_members.borrow();
        let untold = read_members.warnings(&script.reads).filter(|(read, _)| !told.contains(&read.offset));
        for (read, warning) in untold.take(MAX_NAMED) {
            let line = position_of(source, read.offset as usize).line;
            self.warn(&format!("line {line}: {warning}"));
        }
    }

    /// Names the value or function that a script without a value has.
    fn log_unreturned(&self) {
        let state = &self.engine.state;
        let (Some(script), Some(source)) = (state.transpiled.get(), state.source.get()) else { return };
        let dropped = || {
            let call = script.unreturned.call.as_ref().filter(|call| call.is_result && call.is_lost())?;
            let is_told = state.unawaited_warning().is_some();
            (!is_told)
                .then(|| (call.offset, format!("the value of the call is not returned: {}", call.advice)))
        };
        if let Some((offset, advice)) = script.unreturned.value.clone().or_else(dropped) {
            let line = position_of(source, offset as usize).line;
            self.warn(&format!("line {line}: {advice}"));
        }
    }

    /// Names the last call of a script that ends before the call does.
    fn log_lost_value(&self, returned: &ReturnedValue<'_>) {
        let what = match returned.is_settled() {
            true => "promises in the value of the last call had not settled when the script ended",
            false => "the last call had not ended when the script ended",
        };
        let call = self.engine.state.transpiled.get().and_then(|script| script.unreturned.call.as_ref());
        let advice = call.map(|call| format!(": {}", call.advice)).unwrap_or_default();
        self.warn(&format!("{what}, and its value is lost{advice}"));
    }

    /// Tells the time that the answer has waited for timers alone.
    fn log_wait_for_timers(&self, ending: &ScriptEnding) {
        let Some(done_at) = ending.done_at else { return };
        let waited = done_at.elapsed().saturating_sub(self.engine.state.waited_for_calls());
        if waited >= LONG_WAIT {
            self.warn(&format!(
                "the answer waited {:.1} s for timers after the script had returned: stop them with `clearTimeout` when they are \
                 no longer needed, for example after a `Promise.race`, or create them with `setTimeout(…).unref()`",
                waited.as_secs_f64()
            ));
        }
    }

    /// Names the calls that the end of a failed script cancels.
    fn log_cancelled_calls(&self) {
        let tools = self.engine.state.tools_started();
        if !tools.is_empty() {
            self.warn(&format!(
                "the script failed while calls were under way; they were cancelled, and may have run: {}",
                named_tools(&tools)
            ));
        }
    }

    fn log_unawaited_calls(&self, is_null: bool) {
        let Some(warning) = self.engine.state.unawaited_warning() else { return };
        let call = self.engine.state.transpiled.get().and_then(|script| script.unreturned.call.as_ref());
        let value = match call {
            _ if !is_null => String::new(),
            Some(call) if !call.is_lost() => String::new(),
            Some(call) => format!("; the script returned no value: {}", call.advice),
            None => "; the script returned no value".into(),
        };
        self.warn(&format!("{warning}{value}"));
    }

    fn warn(&self, text: &str) {
        self.engine.state.log("warn".into(), text.into());
    }
}

fn calls_under_way(calls: &[(String, Option<u32>)]) -> String {
    let shown = calls.iter().take(MAX_NAMED).map(|(tool, line)| match line {
        Some(line) => format!("`{tool}` (line {line})"),
        None => format!("`{tool}`"),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match calls.len() {
        1 => format!("1 call was under way: {shown}"),
        count if count > MAX_NAMED => format!("{count} calls were under way: {shown} …"),
        count => format!("{count} calls were under way: {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::tool_lookup::ToolLookup;
    use crate::typescript::TranspiledScript;
    use crate::wire::Init;

    /// Runs a script whose worker wakes after its time limit. `interrupts`: code was running then.
    fn end_of_late_worker(code: &str, interrupts: bool) -> Completed {
        let (worker, (socket, _bridge)) = (ScriptWorker::new().unwrap(), UnixStream::pair().unwrap());
        worker.engine.state.set_socket(socket);
        worker.engine.state.set_limits(Init::default().limits);
        let script = TranspiledScript::from_source(code, &ToolLookup::default(), &|_| true).unwrap();
        worker.engine.context.with(|ctx| {
            let (promise, mut ending) =
                (ctx.eval::<Promise, _>(script.code).unwrap(), ScriptEnding::default());
            worker.execute_pending_jobs(&ctx);
            assert!(worker.check_completed(&ctx, &promise, &mut ending).is_none(), "it waits for its timer");
            worker.engine.deadline.set(Instant::now());
            assert!(!interrupts || worker.engine.deadline.interrupts());
            worker.check_completed(&ctx, &promise, &mut ending).unwrap()
        })
    }

    // req: CM-13
    #[test]
    fn returned_script_with_timers_succeeds_also_if_its_worker_wakes_too_late() {
        let returned = end_of_late_worker("setTimeout(() => {}, 60_000); return 1", false);
        assert_eq!((returned.success, returned.result.unwrap().get()), (true, "1"));
        let error = |code, interrupts| end_of_late_worker(code, interrupts).error.unwrap().name;
        assert_eq!(error("setTimeout(() => {}, 60_000); return 1", true), "TimeLimitError");
        assert_eq!(error("await new Promise((done) => setTimeout(done, 60_000))", false), "TimeLimitError");
    }
}
