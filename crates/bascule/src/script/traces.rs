//! The traces of a script's calls: derived from their call records.

use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use bascule_model::{CorrelationId, ErrorCode, clip};
use serde::{Deserialize, Serialize};

use super::outcome::millis;
use crate::call_record::{CallContent, CallEnd, CallObserver, CallRecord, RecordedResult};

/// The longest error message in a trace, in bytes.
const MAX_REASON: usize = 1024;

/// The most calls that are examined for those in flight.
const MAX_IN_FLIGHT: usize = 100;

/// The start or the end of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScriptTrace {
    /// `tool_start` or `tool_end`.
    #[serde(rename = "type")]
    pub kind: TraceKind,
    /// The tool, as `server:tool`.
    pub tool: String,
    /// Correlation id of the call.
    pub trace_id: String,
    /// Correlation id of the script.
    pub parent_trace_id: String,
    /// Milliseconds since 1970.
    pub ts: f64,
    /// Duration of the call (`tool_end` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// True if the tool returned a result without `isError` (`tool_end` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The kind of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceKind {
    /// The call started.
    ToolStart,
    /// The call ended.
    ToolEnd,
}

/// Collects the traces while a script runs.
pub(super) struct ScriptTraces {
    script: CorrelationId,
    started: Instant,
    started_at: SystemTime,
    traces: Mutex<Vec<ScriptTrace>>,
}

impl ScriptTraces {
    pub(super) fn new(script: CorrelationId) -> Self {
        let (started, started_at) = (Instant::now(), SystemTime::now());
        Self { script, started, started_at, traces: Mutex::default() }
    }

    pub(super) fn take(&self) -> Vec<ScriptTrace> {
        std::mem::take(&mut self.traces.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the tools of the calls that have not ended.
    pub(super) fn tools_in_flight(&self) -> Vec<String> {
        let traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = |start: &ScriptTrace| {
            traces.iter().any(|end| end.kind == TraceKind::ToolEnd && end.trace_id == start.trace_id)
        };
        let starts = traces.iter().rev().filter(|trace| trace.kind == TraceKind::ToolStart);
        starts.take(MAX_IN_FLIGHT).filter(|start| !has_ended(start)).map(|start| start.tool.clone()).collect()
    }

    fn push(&self, kind: TraceKind, record: &CallRecord) {
        let since_1970 = self.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let end = record.end.as_ref();
        let error = end.and_then(failure_reason);
        let trace = ScriptTrace {
            kind,
            tool: record.tool.to_string(),
            trace_id: record.correlation_id.to_string(),
            parent_trace_id: self.script.to_string(),
            ts: millis(since_1970 + self.started.elapsed()),
            duration_ms: end.map(|end| millis(end.duration)),
            success: end.map(|_| error.is_none()),
            error,
        };
        self.traces.lock().unwrap_or_else(PoisonError::into_inner).push(trace);
    }
}

impl CallObserver for ScriptTraces {
    fn on_start(&self, record: &CallRecord) {
        self.push(TraceKind::ToolStart, record);
    }

    fn on_end(&self, record: &CallRecord, _: CallContent<'_>) {
        self.push(TraceKind::ToolEnd, record);
    }
}

/// Returns the error text of a trace. A result with `isError` counts as a failure.
fn failure_reason(end: &CallEnd) -> Option<String> {
    match &end.result {
        RecordedResult::Completed { is_error: false, .. } => None,
        RecordedResult::Completed { .. } => Some("TOOL_ERROR: the tool reported failure".into()),
        RecordedResult::Failed { code: ErrorCode::Cancelled, .. } => {
            Some("CANCELLED: the script ended first".into())
        }
        RecordedResult::Failed { code, message, .. } => {
            let code = serde_json::to_value(code).unwrap_or_default();
            Some(format!("{}: {}", code.as_str().unwrap_or_default(), clipped(message)))
        }
    }
}

pub(super) fn clipped(text: &str) -> &str {
    clip(text, MAX_REASON)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bascule_model::ToolId;

    use super::*;

    // req: TR-01
    #[test]
    fn trace_has_the_time_of_its_own_event() {
        let id = || CorrelationId::parse("c").unwrap();
        let started = Instant::now().checked_sub(Duration::from_millis(50)).unwrap();
        let started_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let traces = ScriptTraces { script: id(), started, started_at, traces: Mutex::default() };
        let record = CallRecord::testing(ToolId::parse("s:x").unwrap(), id());
        traces.on_start(&record);
        assert!(traces.take()[0].ts >= 1050.0);
    }
}
