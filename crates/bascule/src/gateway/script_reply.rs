//! Builds the result of `execute_code`: the script's value, console output and error, cut to a budget of bytes, and in `_meta`
//! a summary of its calls.

use bascule_model::clip;
use bascule_script::wire::{ConsoleLine, ScriptError};
use serde_json::{Value, json};

use super::correlation;
use super::kept_results::{KeptResults, uri_of};
use crate::ScriptOutcome;
use crate::script::TraceKind;

/// The most failed calls to name.
const MAX_FAILED_CALLS: usize = 10;
/// The longest message of an error in the structured content, in bytes. The text has the whole, or its handle.
const MAX_MESSAGE: usize = 4_000;
/// The longest name and code of an error, which a script may set.
const MAX_NAME: usize = 200;

/// The settings of one result.
pub(super) struct AnswerFormat<'a> {
    pub(super) results: &'a KeptResults,
    /// The session that may read the texts that were cut.
    pub(super) session: u64,
    /// The most bytes of text for the client's model.
    pub(super) budget: usize,
    /// The client has asked for all traces and tools.
    pub(super) is_detailed: bool,
}

impl AnswerFormat<'_> {
    pub(super) fn build(&self, outcome: &ScriptOutcome) -> String {
        let value = outcome.result.as_deref().map_or("null", |result| result.get());
        let (main, title) = match &outcome.error {
            Some(error) => (error_text(error), "error"),
            None => (value.to_owned(), "value"),
        };
        let lines = outcome.logs.iter().map(|line| format!("{}: {}", line.level, line.text));
        let console = lines.collect::<Vec<_>>().join("\n");
        // The console gets what the value leaves, at least a quarter.
        let for_console = self.budget.saturating_sub(main.len()).max(self.budget / 4);
        let console = self.fit(console, for_console, "console output", dropped_lines(outcome));
        let for_main = self.budget.saturating_sub(console.text.len()).max(self.budget / 2);
        let main = self.fit(main, for_main, title, 0);
        let mut text = main.text;
        if !console.text.is_empty() {
            text.push_str(&format!("\n\nconsole:\n{}", console.text));
        }
        let content = json!([{ "type": "text", "text": text }]);
        let structured = structured(outcome, value, &main.kept, &console.kept);
        let mut meta = json!({ "bascule/script": self.summary(outcome) });
        let failed = !outcome.success;
        if failed {
            meta[correlation::MEMBER] = json!(outcome.correlation_id);
        }
        // Formatted by hand: the script's value stays byte for byte.
        format!(
            r#"{{"content":{content},"structuredContent":{structured},"isError":{failed},"_meta":{meta}}}"#
        )
    }

    /// Cuts a text that exceeds its share of the budget, and keeps the whole. `dropped` lines were above a limit before.
    fn fit(&self, text: String, limit: usize, title: &str, dropped: u64) -> FittedText {
        if text.len() <= limit {
            return FittedText { text, kept: None };
        }
        let id = self.results.keep(self.session, &text);
        let shown = clip(&text, limit);
        let (uri, total) = (uri_of(&id), text.len());
        let whole = match dropped {
            0 => "The whole".to_owned(),
            _ => format!("{dropped} more lines are lost: the console limit was reached. What was kept"),
        };
        let text = format!(
            "{shown}\n… cut: these are {} of {total} bytes of the {title}. {whole} is the resource {uri}, in pages; in a script, \
             `await bascule.result('{id}')`. Better: return only what you need.",
            shown.len()
        );
        FittedText { text, kept: Some(json!({ "id": id, "uri": uri, "bytes": total })) }
    }

    /// Counts the calls and names the failed ones; with details, all traces and tools.
    fn summary(&self, outcome: &ScriptOutcome) -> Value {
        let ends = || outcome.traces.iter().filter(|trace| trace.kind == TraceKind::ToolEnd);
        let failed = || ends().filter(|trace| trace.success == Some(false));
        let named: Vec<Value> = failed()
            .take(MAX_FAILED_CALLS)
            .map(|trace| json!({ "tool": trace.tool, "error": trace.error }))
            .collect();
        let mut summary = json!({
            "correlationId": outcome.correlation_id,
            "durationMs": outcome.duration_ms,
            "calls": ends().count(),
            "failedCalls": failed().count(),
            "failures": named,
            "tools": outcome.injected.len(),
        });
        if self.is_detailed {
            summary["traces"] = json!(outcome.traces);
            summary["injected"] = json!(outcome.injected);
        }
        summary
    }
}

struct FittedText {
    text: String,
    /// The handle of the whole text, if it was cut.
    kept: Option<Value>,
}

/// Returns the number of lines of console output that were above a limit: the worker's, or the bridge's own.
fn dropped_lines(outcome: &ScriptOutcome) -> u64 {
    outcome.logs.iter().rev().map_while(ConsoleLine::dropped_lines).fold(0, u64::saturating_add)
}

/// Returns the stack of an error, which begins with its message.
fn error_text(error: &ScriptError) -> String {
    let heading = || format!("{}: {}", error.name, error.message);
    match &error.stack {
        Some(stack) if error.message.len() > MAX_MESSAGE && !stack.contains(&error.message) => {
            format!("{}\n{stack}", heading())
        }
        Some(stack) => stack.clone(),
        None => heading(),
    }
}

/// Returns an error without its stack, which is in the text, and with a short message.
fn short_error(error: &ScriptError) -> ScriptError {
    let cut = |text: &str, limit: usize| match text.len() <= limit {
        true => text.to_owned(),
        false => format!("{}…", clip(text, limit)),
    };
    ScriptError {
        name: cut(&error.name, MAX_NAME),
        code: error.code.as_deref().map(|code| cut(code, MAX_NAME)),
        message: cut(&error.message, MAX_MESSAGE),
        tool_name: error.tool_name.as_deref().map(|name| cut(name, MAX_NAME)),
        stack: None,
        ..*error
    }
}

/// Returns the structured content as JSON text. A value or console that was cut is replaced by its handle; the error is short.
fn structured(outcome: &ScriptOutcome, value: &str, main: &Option<Value>, console: &Option<Value>) -> String {
    let result = match (&outcome.error, main) {
        (Some(error), Some(kept)) => format!(r#""error":{},"errorHandle":{kept}"#, json!(short_error(error))),
        (Some(error), None) => format!(r#""error":{}"#, json!(short_error(error))),
        (None, Some(kept)) => format!(r#""resultHandle":{kept}"#),
        (None, None) => format!(r#""result":{value}"#),
    };
    let logs = match console {
        Some(kept) => format!(r#""logsHandle":{kept}"#),
        None => format!(r#""logs":{}"#, json!(outcome.logs)),
    };
    format!(r#"{{"success":{},{result},{logs}}}"#, outcome.success)
}

#[cfg(test)]
mod tests {
    use bascule_model::CorrelationId;

    use super::*;

    fn failed(error: ScriptError) -> ScriptOutcome {
        ScriptOutcome {
            success: false,
            result: None,
            error: Some(error),
            logs: Vec::new(),
            traces: Vec::new(),
            injected: Vec::new(),
            duration_ms: 1.0,
            correlation_id: CorrelationId::parse("c").unwrap(),
        }
    }

    // req: CM-15
    #[test]
    fn long_error_is_cut_and_kept_whole() {
        let results = KeptResults::default();
        let format = AnswerFormat { results: &results, session: 1, budget: 50_000, is_detailed: false };
        let long = "é".repeat(100_000);
        let (message, name) = (long.clone(), long.clone());
        let stack = Some(format!("Error: {long}\n    at main (script.ts:1:7)"));
        for stack in [stack, Some("    at main (script.ts:1:7)".into()), None] {
            let error =
                ScriptError { message: message.clone(), name: name.clone(), stack, ..ScriptError::default() };
            let answer = format.build(&failed(error));
            assert!(answer.len() < 60_000, "{}", answer.len());
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let structured = &answer["structuredContent"];
            assert!(structured["error"]["message"].as_str().unwrap().len() <= MAX_MESSAGE + '…'.len_utf8());
            assert!(structured["error"].get("stack").is_none());
            let id = structured["errorHandle"]["id"].as_str().unwrap();
            assert!(results.get(1, id).unwrap().contains(&long));
        }
    }

    // req: CM-15
    #[test]
    fn cut_console_tells_how_many_lines_are_lost() {
        let results = KeptResults::default();
        let format = AnswerFormat { results: &results, session: 1, budget: 1_000, is_detailed: false };
        let line = || ConsoleLine { level: "log".into(), text: "x".repeat(100) };
        let mut outcome = failed(ScriptError::default());
        outcome.logs = std::iter::repeat_with(line).take(100).collect();
        let text = |outcome: &ScriptOutcome| -> String {
            let answer: Value = serde_json::from_str(&format.build(outcome)).unwrap();
            answer["content"][0]["text"].as_str().unwrap().to_owned()
        };
        let whole = text(&outcome);
        assert!(whole.contains("The whole is the resource") && !whole.contains("lost"), "{whole}");
        outcome.logs.push(ConsoleLine::dropped(193_580));
        outcome.logs.push(ConsoleLine::dropped(2));
        let cut = text(&outcome);
        let lost = "console output. 193582 more lines are lost: the console limit was reached. What was kept is the resource";
        assert!(cut.contains(lost) && !cut.contains("The whole"), "{cut}");
    }

    // req: CM-15
    #[test]
    fn short_error_is_whole() {
        let results = KeptResults::default();
        let format = AnswerFormat { results: &results, session: 1, budget: 50_000, is_detailed: false };
        let stack = Some("TypeError: no\n    at main (script.ts:1:7)".to_owned());
        let error = ScriptError {
            name: "TypeError".into(),
            message: "no".into(),
            line: Some(1),
            stack,
            ..ScriptError::default()
        };
        let answer: Value = serde_json::from_str(&format.build(&failed(error))).unwrap();
        assert_eq!(
            answer["structuredContent"]["error"],
            json!({ "name": "TypeError", "message": "no", "line": 1 })
        );
        assert_eq!(answer["content"][0]["text"], "TypeError: no\n    at main (script.ts:1:7)");
    }
}
