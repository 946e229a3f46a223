//! The errors of scripts: thrown values with their position in the source, and exceeded limits.

use std::time::Duration;

use rquickjs::{CatchResultExt, CaughtError, Ctx, Value};

use crate::explain::{CallHistory, explain};
use crate::typescript::{Mistake, SourcePosition, SyntaxError};
use crate::wire::{Completed, ScriptError, ScriptLimits};
use crate::worker::ScriptWorker;

pub(crate) const SYNTAX_ERROR: &str = "SYNTAX_ERROR";
/// Time to describe a script that has reached its time limit. The bridge kills it a little later.
pub(crate) const TIME_TO_DESCRIBE: Duration = Duration::from_millis(100);

impl ScriptWorker {
    pub(crate) fn describe_caught<'js>(&self, ctx: &Ctx<'js>, thrown: CaughtError<'js>) -> ScriptError {
        match thrown {
            CaughtError::Exception(exception) => self.describe(ctx, exception.into_object().into_value()),
            CaughtError::Value(value) => self.describe(ctx, value),
            CaughtError::Error(error) => plain("InternalError", error.to_string()),
        }
    }

    /// Converts a thrown value to an error with its position in the source. The error that the engine throws at a limit
    /// becomes the error of that limit.
    pub(crate) fn describe<'js>(&self, ctx: &Ctx<'js>, thrown: Value<'js>) -> ScriptError {
        let limits = self.engine.state.limits();
        let is_out_of_time = self.engine.deadline.has_passed();
        if is_out_of_time {
            self.engine.deadline.extend(TIME_TO_DESCRIBE);
        }
        // The engine throws `null` where it has no memory left for an error.
        let has_no_error = thrown.is_null() && !self.may_throw_values();
        let describe = self.engine.prelude.describe_error.clone().restore(ctx);
        let text: Result<String, _> = describe.and_then(|describe| describe.call((thrown,)));
        let described = text.ok().and_then(|text| serde_json::from_str::<ScriptError>(&text).ok());
        let unclear = || plain("Error", "the script threw a value that cannot be described".into());
        let mut error = described.unwrap_or_else(unclear);
        let name = self.engine.state.name.get().map_or("script.ts", String::as_str);
        (error.line, error.column) =
            error.stack.as_deref().and_then(|stack| position_in(stack, name)).unzip();
        self.explain(ctx, &mut error);
        match error.name.as_str() {
            _ if is_out_of_time => {
                let mut error = at_position_of(error, out_of_time(limits));
                self.add_loops(&mut error);
                error
            }
            name if has_no_error || is_out_of_memory(name, &error.message) => {
                let mut error = at_position_of(error, out_of_memory(limits));
                if error.line.is_none() {
                    self.add_loops(&mut error);
                }
                error
            }
            _ => error,
        }
    }
}

/// Returns true for the error of an engine without memory. It may have none left for the message.
fn is_out_of_memory(name: &str, message: &str) -> bool {
    name == "InternalError" && (message.is_empty() || message.contains("out of memory"))
}

impl ScriptWorker {
    /// Returns true if the script itself may throw a value that is no error.
    fn may_throw_values(&self) -> bool {
        let source = self.engine.state.source.get();
        source.is_none_or(|source| {
            ["throw", "reject", "abort", "(null)"].iter().any(|word| source.contains(word))
        })
    }

    /// Replaces a short message of the engine by a clear one.
    fn explain(&self, ctx: &Ctx<'_>, error: &mut ScriptError) {
        let state = &self.engine.state;
        let (Some(source), Some(tools)) = (state.source.get(), state.tools.get()) else { return };
        if !["TypeError", "ReferenceError", "SyntaxError", "RangeError"].contains(&error.name.as_str()) {
            return;
        }
        let results = state.last_results.borrow();
        let calls =
            CallHistory { results: &results, in_flight: state.tools_in_flight().into_keys().collect() };
        let position = error.line.zip(error.column).map(|(line, column)| SourcePosition { line, column });
        let is_function = |name: &str, member: Option<&str>| is_function(ctx, name, member);
        let explanation = explain(source, tools, &error.message, position, &calls, &is_function);
        let Some(explanation) = explanation else { return };
        let heading = format!("{}: {}", error.name, error.message);
        let sites = error.stack.as_deref().and_then(|stack| stack.strip_prefix(&heading)).map(str::to_owned);
        error.message = explanation.message;
        let sites = match explanation.position {
            Some(right) => {
                (error.line, error.column) = (Some(right.line), Some(right.column));
                let name = state.name.get().map_or("script.ts", String::as_str);
                sites.map(|sites| moved(&sites, name, position, right))
            }
            None => sites,
        };
        error.stack = sites.map(|sites| format!("{}: {}{sites}", error.name, error.message));
    }
}

/// Returns true if a global, or a member of it, is a function.
fn is_function(ctx: &Ctx<'_>, name: &str, member: Option<&str>) -> bool {
    let value = ctx.globals().get::<_, Value>(name).and_then(|value| match (member, value.as_object()) {
        (Some(member), Some(object)) => object.get(member),
        _ => Ok(value),
    });
    // A getter of the script may throw.
    value.catch(ctx).is_ok_and(|value| value.is_function())
}

/// Corrects the first position of a stack trace.
fn moved(sites: &str, name: &str, wrong: Option<SourcePosition>, right: SourcePosition) -> String {
    let place = |position: SourcePosition| format!("{name}:{}:{}", position.line, position.column);
    sites.replacen(&wrong.map_or_else(|| name.to_owned(), place), &place(right), 1)
}

/// Returns the error of a limit with the position and stack of the engine's error.
fn at_position_of(thrown: ScriptError, limit: ScriptError) -> ScriptError {
    let ScriptError { line, column, stack, .. } = thrown;
    let sites = stack.as_deref().and_then(|stack| stack.split_once("\n    at "));
    let stack = sites.map(|(_, sites)| format!("{}: {}\n    at {sites}", limit.name, limit.message));
    ScriptError { line, column, stack, ..limit }
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

pub(crate) fn failed(error: ScriptError) -> Completed {
    Completed { success: false, result: None, error: Some(error) }
}

pub(crate) fn plain(name: &str, message: String) -> ScriptError {
    ScriptError { name: name.into(), message, ..ScriptError::default() }
}

fn with_code(name: &str, code: &str, message: &str) -> ScriptError {
    ScriptError { code: Some(code.into()), ..plain(name, message.into()) }
}

/// Appends a remark to the message of an error, also where its stack repeats the message.
pub(crate) fn add_remark(error: &mut ScriptError, remark: &str) {
    let heading = match error.message.as_str() {
        "" => error.name.clone(),
        message => format!("{}: {message}", error.name),
    };
    if let Some(rest) = error.stack.as_deref().and_then(|stack| stack.strip_prefix(&heading)) {
        error.stack = Some(format!("{heading}{remark}{rest}"));
    }
    error.message.push_str(remark);
}

/// Returns the error of a script that has mistakes which it cannot get past: the first, with all others below it.
pub(crate) fn certain_mistake(name: &str, mistakes: &[Mistake]) -> Option<Box<ScriptError>> {
    let first = mistakes.iter().find(|mistake| mistake.finding.is_certain)?;
    let SourcePosition { line, column } = first.position;
    let (class, code) = first.finding.kind.error();
    let mut error =
        ScriptError { code: code.map(str::to_owned), ..plain(class, first.finding.message.clone()) };
    (error.line, error.column) = (Some(line), Some(column));
    error.tool_name = first.finding.tool.clone();
    error.stack = Some(format!("{}: {}\n    at {name}:{line}:{column}", error.name, error.message));
    let others = mistakes.iter().filter(|other| !std::ptr::eq(*other, first));
    let remark = format!("{}{}\n  (found before any call was made)", notes(others), signatures(mistakes));
    add_remark(&mut error, &remark);
    Some(Box::new(error))
}

/// Lists the calls of the tools whose arguments are wrong.
fn signatures(mistakes: &[Mistake]) -> String {
    const MAX_SHOWN: usize = 3;
    let mut signatures: Vec<&str> =
        mistakes.iter().filter_map(|mistake| mistake.finding.signature.as_deref()).collect();
    signatures.dedup();
    signatures.iter().take(MAX_SHOWN).map(|signature| format!("\n  {signature}")).collect()
}

/// Lists mistakes that a failed script may have failed by.
pub(crate) fn notes<'m>(mistakes: impl Iterator<Item = &'m Mistake>) -> String {
    mistakes
        .map(|mistake| format!("\n  line {}: {}", mistake.position.line, mistake.finding.message))
        .collect()
}

pub(crate) fn syntax_error(name: &str, error: SyntaxError) -> Box<ScriptError> {
    let (line, column) = error.position.map(|position| (position.line, position.column)).unzip();
    let at = line.zip(column).map(|(line, column)| format!("\n    at {name}:{line}:{column}"));
    let stack = Some(format!("SyntaxError: {}{}", error.message, at.unwrap_or_default()));
    Box::new(ScriptError { line, column, stack, ..with_code("SyntaxError", SYNTAX_ERROR, &error.message) })
}

pub(crate) fn out_of_time(limits: ScriptLimits) -> ScriptError {
    let message = format!("the script exceeded its time limit of {} ms", limits.time_ms);
    with_code("TimeLimitError", "TIME_LIMIT", &message)
}

pub(crate) fn out_of_memory(limits: ScriptLimits) -> ScriptError {
    let message = format!("the script exceeded its memory limit of {} MB", limits.memory_bytes >> 20);
    with_code("MemoryLimitError", "MEMORY_LIMIT", &message)
}

pub(crate) fn too_much_output(length: usize, limit: usize) -> ScriptError {
    let message = format!(
        "the returned value is {length} bytes of JSON; the limit is {limit} bytes: return only the data that you need"
    );
    with_code("OutputLimitError", "OUTPUT_LIMIT", &message)
}

pub(crate) fn deadlock() -> ScriptError {
    let message = "the script awaits a promise that nothing can settle: no call and no timer is pending";
    with_code("DeadlockError", "DEADLOCK", message)
}
