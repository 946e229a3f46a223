//! The span of a script: the parent of the spans of its calls. It is recorded once, also if the caller leaves.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bascule_model::{BridgeResult, CorrelationId, SpanContext};

use super::{ScriptOutcome, ScriptRequest};
use crate::call_record::{Caller, ScriptParent};
use crate::config::Settings;
use crate::trace_recorder::{ScriptRecord, TraceRecorder};
use crate::unique_number::next_correlation_id;

/// The longest code of a script that is recorded.
const MAX_CODE: usize = 64;

/// A script in progress. Dropped before [`finish`](ScriptSpan::finish), it records that the caller cancelled or disconnected.
pub(super) struct ScriptSpan {
    traces: Option<Arc<TraceRecorder>>,
    settings: Arc<Settings>,
    caller: Caller,
    context: SpanContext,
    id: CorrelationId,
    name: String,
    code_bytes: usize,
    started: Instant,
    started_at: SystemTime,
    waited: Duration,
    is_finished: bool,
}

impl ScriptSpan {
    /// `settings` name the servers that the script may call.
    pub(super) fn start(
        traces: Option<Arc<TraceRecorder>>,
        settings: Arc<Settings>,
        caller: Caller,
        request: &ScriptRequest,
    ) -> Self {
        let id = request.correlation_id.clone().unwrap_or_else(next_correlation_id);
        Self {
            traces,
            settings,
            context: caller.new_span(&id),
            caller,
            id,
            name: request.name.clone(),
            code_bytes: request.code.len(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            waited: Duration::ZERO,
            is_finished: false,
        }
    }

    /// The correlation id of the script.
    pub(super) fn id(&self) -> CorrelationId {
        self.id.clone()
    }

    /// The originator of the script's calls.
    pub(super) fn caller(&self) -> Caller {
        let script = ScriptParent { id: self.id.clone(), span: self.context.as_parent() };
        Caller { script: Some(script), ..self.caller.clone() }
    }

    /// Ends the wait for servers and for a slot.
    pub(super) fn mark_started(&mut self) {
        self.waited = self.started.elapsed();
    }

    pub(super) fn finish(mut self, result: &BridgeResult<ScriptOutcome>) {
        let failure = match result {
            Ok(outcome) => outcome.error.as_ref().map(|error| {
                (recorded_code(error.code.as_deref()), format!("{}: {}", error.name, error.message))
            }),
            Err(error) => Some((error.code.to_string(), error.message.clone())),
        };
        let value = result.as_ref().ok().and_then(|outcome| outcome.result.as_ref());
        self.record(value.map(|value| value.get().len()), failure);
    }

    fn record(&mut self, result_bytes: Option<usize>, failure: Option<(String, String)>) {
        self.is_finished = true;
        let Some(traces) = &self.traces else { return };
        traces.on_script_end(ScriptRecord {
            caller: self.caller.clone(),
            context: self.context,
            correlation_id: self.id.clone(),
            name: std::mem::take(&mut self.name),
            code_bytes: self.code_bytes,
            started_at: self.started_at,
            duration: self.started.elapsed(),
            waited: self.waited,
            result_bytes,
            failure,
            settings: Some(self.settings.clone()),
        });
    }
}

impl Drop for ScriptSpan {
    fn drop(&mut self) {
        if !self.is_finished {
            let failure = ("CANCELLED".to_owned(), "the caller cancelled or disconnected".to_owned());
            self.record(None, Some(failure));
        }
    }
}

/// Returns the code of a script's error. Its author may choose any text, but the store keeps codes for good and people read them.
fn recorded_code(code: Option<&str>) -> String {
    let is_code_byte = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    match code.unwrap_or_default() {
        code if code.len() <= MAX_CODE && code.bytes().all(is_code_byte) => code.to_owned(),
        _ => "SCRIPT_ERROR".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn records_a_fixed_code_for_one_that_is_none() {
        assert_eq!(recorded_code(None), "");
        assert_eq!(recorded_code(Some("TIMEOUT_2")), "TIMEOUT_2");
        for code in ["\u{1b}[2J", "not found", "É", &"X".repeat(MAX_CODE + 1)] {
            assert_eq!(recorded_code(Some(code)), "SCRIPT_ERROR");
        }
    }
}
