//! What a script came to: its value or its error, its console, and what it called (TR-01).

use std::time::{Duration, Instant, SystemTime};

use bascule_model::CorrelationId;
use bascule_script::wire::{LogLine, ScriptError};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::selection::Injected;

/// A script that has ended.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptOutcome {
    /// Whether it came to its end.
    pub success: bool,
    /// Its value; `null` for one that has none.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// Why it has none.
    #[serde(default)]
    pub error: Option<ScriptError>,
    /// What it wrote to its console.
    pub logs: Vec<LogLine>,
    /// Its calls, in the order in which they began and ended.
    pub traces: Vec<Trace>,
    /// The tools that it was given.
    pub injected: Vec<String>,
    /// From the request to its end.
    pub duration_ms: f64,
    /// The id before those of its calls.
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

/// A call began, or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// `tool_start` or `tool_end`.
    #[serde(rename = "type")]
    pub kind: TraceKind,
    /// The tool, as `server:tool`.
    pub tool: String,
    /// The call's own id, which is also its correlation id.
    pub trace_id: String,
    /// That of the script.
    pub parent_trace_id: String,
    /// When, in milliseconds since 1970.
    pub ts: f64,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// Whether the tool answered and did not report failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Which end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceKind {
    /// It was made.
    ToolStart,
    /// It came to something.
    ToolEnd,
}

const LEVELS: [&str; 5] = ["log", "info", "warn", "error", "debug"];

/// What is written down while a script runs.
pub(super) struct Record {
    pub(super) id: CorrelationId,
    since: Instant,
    at: SystemTime,
    logs: Vec<LogLine>,
    log_bytes: usize,
    dropped: u64,
    traces: Vec<Trace>,
    injected: Vec<String>,
}

impl Record {
    pub(super) fn open(id: CorrelationId, injected: &Injected) -> Self {
        let (since, at) = (Instant::now(), SystemTime::now());
        let (logs, injected) = (injected.remarks(), injected.ids());
        Self { id, since, at, logs, log_bytes: 0, dropped: 0, traces: Vec::new(), injected }
    }

    /// A line of the console, if there is still room for it.
    pub(super) fn log(&mut self, mut line: LogLine, most: usize) {
        if !LEVELS.contains(&line.level.as_str()) {
            line.level = "log".into();
        }
        self.log_bytes = self.log_bytes.saturating_add(line.text.len() + 1);
        // The worker says itself that it had to leave lines out; that one fits.
        if self.log_bytes <= most.saturating_add(256) {
            self.logs.push(line);
        } else {
            self.dropped += 1;
        }
    }

    pub(super) fn call_began(&mut self, id: &str, tool: String) {
        let trace = self.trace(TraceKind::ToolStart, id, tool);
        self.traces.push(trace);
    }

    pub(super) fn call_ended(&mut self, id: &str, tool: String, took: Duration, error: Option<String>) {
        let trace = self.trace(TraceKind::ToolEnd, id, tool);
        let (duration_ms, success) = (Some(millis(took)), Some(error.is_none()));
        self.traces.push(Trace { duration_ms, success, error, ..trace });
    }

    fn trace(&self, kind: TraceKind, id: &str, tool: String) -> Trace {
        let since_1970 = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Trace {
            kind,
            tool,
            trace_id: id.to_owned(),
            parent_trace_id: self.id.to_string(),
            ts: millis(since_1970 + self.since.elapsed()),
            duration_ms: None,
            success: None,
            error: None,
        }
    }

    pub(super) fn close(mut self, ended: Result<Option<Box<RawValue>>, ScriptError>) -> ScriptOutcome {
        if self.dropped > 0 {
            let text = format!("{} more lines: the script wrote more than it may", self.dropped);
            self.logs.push(LogLine { level: "warn".into(), text });
        }
        let (result, error) = match ended {
            Ok(result) => (result, None),
            Err(error) => (None, Some(error)),
        };
        ScriptOutcome {
            success: error.is_none(),
            result,
            error,
            logs: self.logs,
            traces: self.traces,
            injected: self.injected,
            duration_ms: millis(self.since.elapsed()),
            correlation_id: self.id,
        }
    }

    /// A script that was not even begun.
    pub(super) fn refuse(self, error: ScriptError) -> ScriptOutcome {
        self.close(Err(error))
    }
}

/// To the microsecond.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
