//! The one record of a call: made when the call starts, finished exactly once, whatever happens to the caller (BR-07).
//!
//! The event, the log line and a script's traces are views of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CorrelationId, Delivery, ErrorCode, Event, EventSink, ToolId,
};
use tracing::info;

use crate::client::ClientContext;

/// The longest beginning of a result that an event shows, in bytes.
const SUMMARY: usize = 256;

/// The way by which a call reached the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Face {
    /// The command line, directly or over the control socket.
    Cli,
    /// An MCP client.
    Mcp,
    /// A program that embeds the bridge.
    #[default]
    Library,
}

/// The originator of a call.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    pub(crate) face: Face,
    pub(crate) client: Option<Arc<ClientContext>>,
    /// The correlation id of the script that makes the call.
    pub(crate) script: Option<CorrelationId>,
}

impl Caller {
    pub(crate) fn of_client(face: Face, client: &Arc<ClientContext>) -> Self {
        Self { face, client: Some(client.clone()), script: None }
    }
}

/// A call, in progress or ended.
pub(crate) struct CallRecord {
    pub(crate) caller: Caller,
    pub(crate) tool: ToolId,
    pub(crate) correlation_id: CorrelationId,
    pub(crate) argument_bytes: usize,
    pub(crate) started: Instant,
    pub(crate) end: Option<CallEnd>,
}

/// The end of a call.
pub(crate) struct CallEnd {
    pub(crate) duration: Duration,
    pub(crate) result: RecordedResult,
}

pub(crate) enum RecordedResult {
    Completed { is_error: bool, bytes: usize, summary: String },
    Failed { code: ErrorCode, retryable: bool, message: String },
}

/// Hears of a call's record when the call starts and when it ends. Must return at once.
pub(crate) trait CallObserver: Send + Sync {
    fn on_start(&self, record: &CallRecord);
    fn on_end(&self, record: &CallRecord);
}

/// Records one call. Dropped before [`finish`](CallRecorder::finish), it records that the caller left.
pub(crate) struct CallRecorder<'a> {
    /// `None` once the call has ended.
    record: Option<CallRecord>,
    events: &'a dyn EventSink,
    observer: Option<&'a dyn CallObserver>,
}

impl CallRecord {
    /// Writes the log line, for the operator who has asked for it. Arguments and results may hold secrets.
    fn log(&self) {
        let Self { caller, tool, correlation_id, argument_bytes, end, .. } = self;
        let Some(CallEnd { duration, result }) = end else { return };
        let (face, session) = (caller.face, caller.client.as_ref().map(|client| client.id.as_str()));
        let script = caller.script.as_ref().map(tracing::field::display);
        match result {
            RecordedResult::Completed { is_error, bytes, .. } => {
                info!(%correlation_id, %tool, ?face, session, script, ?duration, argument_bytes, bytes, is_error, "call completed");
            }
            RecordedResult::Failed { code, message, .. } => {
                info!(%correlation_id, %tool, ?face, session, script, ?duration, argument_bytes, ?code, error = %message, "call failed");
            }
        }
    }

    fn into_event(self) -> Option<Event> {
        let Self { tool, correlation_id, end, .. } = self;
        let CallEnd { duration, result } = end?;
        Some(match result {
            RecordedResult::Completed { is_error, summary, .. } => {
                let duration = Duration::from_micros(duration.as_micros() as u64);
                Event::ToolCompleted { correlation_id, tool, is_error, summary, duration }
            }
            RecordedResult::Failed { code, retryable, message } => {
                Event::ToolFailed { correlation_id, tool, code, retryable, message }
            }
        })
    }
}

impl RecordedResult {
    fn completed(outcome: &CallOutcome) -> Self {
        let raw = outcome.result.raw.get();
        Self::Completed { is_error: outcome.result.is_error, bytes: raw.len(), summary: summary(raw) }
    }

    fn failed(error: &BridgeError) -> Self {
        Self::Failed { code: error.code, retryable: error.retryable, message: error.message.clone() }
    }
}

impl<'a> CallRecorder<'a> {
    pub(crate) fn start(
        record: CallRecord,
        events: &'a dyn EventSink,
        observer: Option<&'a dyn CallObserver>,
    ) -> Self {
        observer.into_iter().for_each(|observer| observer.on_start(&record));
        Self { record: Some(record), events, observer }
    }

    pub(crate) fn finish(mut self, result: &BridgeResult<CallOutcome>) {
        self.end(match result {
            Ok(outcome) => RecordedResult::completed(outcome),
            Err(error) => RecordedResult::failed(error),
        });
    }

    fn end(&mut self, result: RecordedResult) {
        let Some(mut record) = self.record.take() else { return };
        record.end = Some(CallEnd { duration: record.started.elapsed(), result });
        record.log();
        self.observer.into_iter().for_each(|observer| observer.on_end(&record));
        record.into_event().into_iter().for_each(|event| self.events.offer(event));
    }
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        if self.record.is_some() {
            let error = BridgeError::new(ErrorCode::Cancelled, Delivery::Unknown, "the caller left");
            self.end(RecordedResult::failed(&error));
        }
    }
}

fn summary(result: &str) -> String {
    match result.len() > SUMMARY {
        true => format!("{}…", &result[..result.floor_char_boundary(SUMMARY)]),
        false => result.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bascule_model::ToolResult;

    use super::*;

    #[test]
    fn cuts_a_summary_between_characters() {
        assert_eq!(summary("{}"), "{}");
        let long = "é".repeat(400);
        let cut = summary(&format!("x{long}"));
        assert!(cut.ends_with("é…") && cut.len() < SUMMARY + 4);
    }

    struct Events(Mutex<Vec<Event>>);

    impl EventSink for Events {
        fn offer(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    // req: BR-07
    #[test]
    fn event_has_the_duration_since_the_start() {
        let (tool, correlation_id) = (ToolId::parse("s:x").unwrap(), CorrelationId::parse("c").unwrap());
        let begun = Instant::now().checked_sub(Duration::from_millis(50)).unwrap();
        let record = CallRecord {
            caller: Caller::default(),
            tool: tool.clone(),
            correlation_id: correlation_id.clone(),
            argument_bytes: 2,
            started: begun,
            end: None,
        };
        let events = Events(Mutex::default());
        let raw = serde_json::value::RawValue::from_string("{}".into()).unwrap();
        let result = ToolResult { is_error: false, raw };
        let outcome = CallOutcome { tool, result, duration: Duration::ZERO, correlation_id };
        CallRecorder::start(record, &events, None).finish(&Ok(outcome));
        let events = events.0.into_inner().unwrap();
        let [Event::ToolCompleted { duration, .. }] = &events[..] else { panic!("{events:?}") };
        assert!((Duration::from_millis(50)..Duration::from_secs(50)).contains(duration), "{duration:?}");
    }
}
