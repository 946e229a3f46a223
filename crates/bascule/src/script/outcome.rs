//! The outcome of a script: its value or error, its console output, and the traces of its calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_model::CorrelationId;
use bascule_script::wire::{ConsoleLine, LOG_LINE_OVERHEAD, ScriptError};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::selection::InjectedTools;
use super::traces::{ScriptTrace, ScriptTraces};
use crate::call_record::Caller;

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
    pub logs: Vec<ConsoleLine>,
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

const LEVELS: [&str; 5] = ["log", "info", "warn", "error", "debug"];

/// Collects the outcome while a script runs.
pub(super) struct ScriptRecorder {
    pub(super) id: CorrelationId,
    /// The originator of the script's calls.
    pub(super) caller: Caller,
    started: Instant,
    logs: Vec<ConsoleLine>,
    log_bytes: usize,
    dropped_lines: u64,
    pub(super) refused_calls: u64,
    pub(super) traces: Arc<ScriptTraces>,
    injected: Vec<String>,
}

impl ScriptRecorder {
    pub(super) fn new(caller: Caller, id: CorrelationId, tools: &InjectedTools) -> Self {
        Self {
            caller,
            traces: Arc::new(ScriptTraces::new(id.clone())),
            id,
            started: Instant::now(),
            logs: tools.warnings(),
            log_bytes: 0,
            dropped_lines: 0,
            refused_calls: 0,
            injected: tools.ids(),
        }
    }

    /// Keeps a line of console output, up to `max_bytes` in total.
    pub(super) fn log(&mut self, mut line: ConsoleLine, max_bytes: usize) {
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

    pub(super) fn finish(mut self, result: Result<Option<Box<RawValue>>, Box<ScriptError>>) -> ScriptOutcome {
        if self.dropped_lines > 0 {
            self.logs.push(ConsoleLine::dropped(self.dropped_lines));
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
            traces: self.traces.take(),
            injected: self.injected,
            duration_ms: millis(self.started.elapsed()),
            correlation_id: self.id,
        }
    }
}

/// Milliseconds, rounded down to microseconds.
pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
