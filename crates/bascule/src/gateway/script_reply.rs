//! Builds the result of `execute_code`: the script's value, console output and error, cut to a budget of bytes, and in `_meta`
//! a summary of its calls.

use serde_json::{Value, json};

use super::correlation;
use super::kept_results::{KeptResults, uri_of};
use crate::ScriptOutcome;
use crate::script::TraceKind;

/// The most failed calls to name.
const MAX_FAILED_CALLS: usize = 10;

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
        let main = match &outcome.error {
            Some(error) => {
                error.stack.clone().unwrap_or_else(|| format!("{}: {}", error.name, error.message))
            }
            None => value.to_owned(),
        };
        let lines = outcome.logs.iter().map(|line| format!("{}: {}", line.level, line.text));
        let console = lines.collect::<Vec<_>>().join("\n");
        // The console gets what the value leaves, at least a quarter.
        let for_console = self.budget.saturating_sub(main.len()).max(self.budget / 4);
        let console = self.fit(console, for_console, "console output");
        let main =
            self.fit(main, self.budget.saturating_sub(console.text.len()).max(self.budget / 2), "value");
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

    /// Cuts a text that exceeds its share of the budget, and keeps the whole.
    fn fit(&self, text: String, limit: usize, title: &str) -> FittedText {
        if text.len() <= limit {
            return FittedText { text, kept: None };
        }
        let id = self.results.keep(self.session, &text);
        let shown = &text[..text.floor_char_boundary(limit)];
        let (uri, total) = (uri_of(&id), text.len());
        let text = format!(
            "{shown}\n… cut: these are {} of {total} bytes of the {title}. The whole is the resource {uri}, in pages; in a script, \
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

/// Returns the structured content as JSON text. A value or console that was cut is replaced by its handle.
fn structured(outcome: &ScriptOutcome, value: &str, main: &Option<Value>, console: &Option<Value>) -> String {
    let result = match (&outcome.error, main) {
        (Some(error), _) => format!(r#""error":{}"#, json!(error)),
        (None, Some(kept)) => format!(r#""resultHandle":{kept}"#),
        (None, None) => format!(r#""result":{value}"#),
    };
    let logs = match console {
        Some(kept) => format!(r#""logsHandle":{kept}"#),
        None => format!(r#""logs":{}"#, json!(outcome.logs)),
    };
    format!(r#"{{"success":{},{result},{logs}}}"#, outcome.success)
}
