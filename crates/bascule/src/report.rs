//! Tells how a call ended: exactly once, whatever happens to the caller.

use std::sync::Arc;
use std::time::Duration;

use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CorrelationId, Delivery, ErrorCode, Event, EventSink, ToolId,
};
use tracing::info;

/// How much of a result an event shows.
const SUMMARY: usize = 256;

/// An open report. Dropped before it was closed, it says that the call was cancelled.
pub(crate) struct Report {
    sink: Arc<dyn EventSink>,
    tool: ToolId,
    correlation_id: CorrelationId,
    open: bool,
}

impl Report {
    pub(crate) fn open(sink: Arc<dyn EventSink>, tool: ToolId, correlation_id: CorrelationId) -> Self {
        Self { sink, tool, correlation_id, open: true }
    }

    /// The call is over.
    pub(crate) fn close(mut self, ended: &BridgeResult<CallOutcome>) {
        self.open = false;
        match ended {
            Ok(outcome) => self.completed(outcome),
            Err(error) => self.failed(error),
        }
    }

    fn completed(&self, outcome: &CallOutcome) {
        let (correlation_id, tool, duration) = (&self.correlation_id, &self.tool, outcome.duration);
        let bytes = outcome.result.raw.get().len();
        info!(%correlation_id, %tool, ?duration, bytes, is_error = outcome.result.is_error, "call completed");
        self.sink.offer(Event::ToolCompleted {
            correlation_id: correlation_id.clone(),
            tool: tool.clone(),
            is_error: outcome.result.is_error,
            summary: summary(outcome.result.raw.get()),
            duration: Duration::from_micros(duration.as_micros() as u64),
        });
    }

    fn failed(&self, error: &BridgeError) {
        let (correlation_id, tool) = (&self.correlation_id, &self.tool);
        // For the operator who asked for more: the caller gets the error itself.
        info!(%correlation_id, %tool, code = ?error.code, %error, "call failed");
        self.sink.offer(Event::ToolFailed {
            correlation_id: correlation_id.clone(),
            tool: tool.clone(),
            code: error.code,
            retryable: error.retryable,
            message: error.message.clone(),
        });
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.open {
            self.failed(&BridgeError::new(ErrorCode::Cancelled, Delivery::Unknown, "the caller left"));
        }
    }
}

fn summary(result: &str) -> String {
    let mut end = result.len().min(SUMMARY);
    while !result.is_char_boundary(end) {
        end -= 1;
    }
    match end < result.len() {
        true => format!("{}…", &result[..end]),
        false => result.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_cut_between_characters() {
        assert_eq!(summary("{}"), "{}");
        let long = "é".repeat(400);
        let cut = summary(&format!("x{long}"));
        assert!(cut.ends_with("é…") && cut.len() < SUMMARY + 4);
    }
}
