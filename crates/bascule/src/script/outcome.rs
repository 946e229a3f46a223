//! The outcome of a script: its value or error, its console output, and the traces of its calls (TR-01).

use std::time::{Duration, Instant, SystemTime};

use bascule_model::CorrelationId;
use bascule_script::wire::{LOG_LINE_OVERHEAD, LogLine, ScriptError};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::selection::InjectedTools;

/// The outcome of a script.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptOutcome {
    /// True if the script returned.
    pub success: bool,
    /// The returned value.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// The error, if the script failed.
    #[serde(default)]
    pub error: Option<ScriptError>,
    /// Console output.
    pub logs: Vec<LogLine>,
    /// Starts and ends of calls, in order.
    pub traces: Vec<ScriptTrace>,
    /// Ids of the tools that the script could call.
    pub injected: Vec<String>,
    /// Time from the request to the end.
    pub duration_ms: f64,
    /// Prefix of the correlation ids of its calls.
    pub correlation_id: CorrelationId,
}

impl Serialize for ScriptOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("ScriptOutcome", 8)?;
        out.serialize_field("success", &self.success)?;
        match &self.error {
            Some(error) => out.serialize_field("error", error)?,
            None => out.serialize_field("result", &self.result)?,
        }
        out.serialize_field("logs", &self.logs)?;
        out.serialize_field("traces", &self.traces)?;
        out.serialize_field("injected", &self.injected)?;
        out.serialize_field("durationMs", &self.duration_ms)?;
        out.serialize_field("correlationId", &self.correlation_id)?;
        out.end()
    }
}

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

const LEVELS: [&str; 5] = ["log", "info", "warn", "error", "debug"];

/// Collects the outcome while a script runs.
pub(super) struct ScriptRecorder {
    pub(super) id: CorrelationId,
    started: Instant,
    started_at: SystemTime,
    logs: Vec<LogLine>,
    log_bytes: usize,
    dropped_lines: u64,
    pub(super) refused_calls: u64,
    traces: Vec<ScriptTrace>,
    injected: Vec<String>,
}

impl ScriptRecorder {
    pub(super) fn new(id: CorrelationId, tools: &InjectedTools) -> Self {
        Self {
            id,
            started: Instant::now(),
            started_at: SystemTime::now(),
            logs: tools.warnings(),
            log_bytes: 0,
            dropped_lines: 0,
            refused_calls: 0,
            traces: Vec::new(),
            injected: tools.ids(),
        }
    }

    /// Keeps a line of console output, up to `max_bytes` in total.
    pub(super) fn log(&mut self, mut line: LogLine, max_bytes: usize) {
        if !LEVELS.contains(&line.level.as_str()) {
            line.level = "log".into();
        }
        self.log_bytes = self.log_bytes.saturating_add(line.text.len() + LOG_LINE_OVERHEAD);
        // The extra bytes are for the worker's own line about dropped lines.
        if self.log_bytes <= max_bytes.saturating_add(256) {
            self.logs.push(line);
        } else {
            self.dropped_lines += 1;
        }
    }

    pub(super) fn call_started(&mut self, id: &str, tool: String) {
        let trace = self.trace(TraceKind::ToolStart, id, tool);
        self.traces.push(trace);
    }

    pub(super) fn call_ended(&mut self, id: &str, tool: String, duration: Duration, error: Option<String>) {
        let trace = self.trace(TraceKind::ToolEnd, id, tool);
        let (duration_ms, success) = (Some(millis(duration)), Some(error.is_none()));
        self.traces.push(ScriptTrace { duration_ms, success, error, ..trace });
    }

    fn trace(&self, kind: TraceKind, id: &str, tool: String) -> ScriptTrace {
        let since_1970 = self.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        ScriptTrace {
            kind,
            tool,
            trace_id: id.to_owned(),
            parent_trace_id: self.id.to_string(),
            ts: millis(since_1970 + self.started.elapsed()),
            duration_ms: None,
            success: None,
            error: None,
        }
    }

    pub(super) fn finish(mut self, result: Result<Option<Box<RawValue>>, Box<ScriptError>>) -> ScriptOutcome {
        if self.dropped_lines > 0 {
            let text = format!("{} more lines dropped: the console limit was reached", self.dropped_lines);
            self.logs.push(LogLine { level: "warn".into(), text });
        }
        if self.refused_calls > 0 {
            let text = format!("{} calls were refused and have no traces", self.refused_calls);
            self.logs.push(LogLine { level: "warn".into(), text });
        }
        let (result, error) = match result {
            Ok(result) => (result, None),
            Err(error) => (None, Some(*error)),
        };
        ScriptOutcome {
            success: error.is_none(),
            result,
            error,
            logs: self.logs,
            traces: self.traces,
            injected: self.injected,
            duration_ms: millis(self.started.elapsed()),
            correlation_id: self.id,
        }
    }
}

/// Milliseconds, rounded down to microseconds.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
