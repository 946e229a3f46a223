//! The one record of a call: made when the call starts, finished exactly once, whatever happens to the caller.
//!
//! The event, the log line, the counters, the span in the store and a script's traces are derived from it. A refused call has a record too.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bascule_catalog::CatalogTool;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CorrelationId, Delivery, ErrorCode, Event, EventSink,
    SpanContext, ToolId, TraceId, TraceParent, clip,
};
pub(crate) use bascule_store::Face;
use serde_json::value::RawValue;
use tracing::{info, warn};

use crate::audit::{AuditLog, AuditTicket, PendingLine};
use crate::capture::redact_for_log;
use crate::client::ClientContext;
use crate::client_trace::ClientTrace;
use crate::config::{Isolation, ServerSettings};
use crate::metrics::CallMetrics;
use crate::trace_recorder::TraceRecorder;
use crate::unique_number::{next_span_id, next_unique_number};

/// The longest beginning of a result that an event shows.
const MAX_SUMMARY_BYTES: usize = 256;

/// The originator of a call or a script.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) face: Face,
    /// The MCP client; `None` for other faces.
    pub(crate) client: Option<Arc<ClientContext>>,
    /// The agent on the bus; `None` for other faces.
    pub(crate) agent: Option<Arc<str>>,
    /// The caller's own trace and baggage, if the caller has named them.
    pub(crate) trace: Option<Arc<ClientTrace>>,
    /// The script that makes the call.
    pub(crate) script: Option<ScriptParent>,
}

/// A script, as its calls know it.
#[derive(Clone)]
pub(crate) struct ScriptParent {
    pub(crate) id: CorrelationId,
    pub(crate) span: TraceParent,
}

impl Default for Caller {
    fn default() -> Self {
        Self::of_face(Face::Library)
    }
}

impl Caller {
    pub(crate) fn of_face(face: Face) -> Self {
        Self { face, client: None, agent: None, trace: None, script: None }
    }

    pub(crate) fn of_client(client: &Arc<ClientContext>, trace: Option<Arc<ClientTrace>>) -> Self {
        Self { client: Some(client.clone()), trace, ..Self::of_face(Face::Mcp) }
    }

    /// The face that a record names. A script is a face of its own, whoever runs it.
    pub(crate) fn recorded_face(&self) -> Face {
        if self.script.is_some() { Face::Script } else { self.face }
    }

    /// Returns a new span: below the script or the caller's own span, else in a trace of its own.
    pub(crate) fn new_span(&self, correlation_id: &CorrelationId) -> SpanContext {
        let span_id = next_span_id();
        let of_client = || self.trace.as_ref().and_then(|trace| trace.parent());
        match self.script.as_ref().map(|script| script.span).or_else(of_client) {
            Some(parent) => SpanContext { trace_id: parent.trace_id, span_id, parent: Some(parent.span_id) },
            None => SpanContext { trace_id: trace_id_of(correlation_id), span_id, parent: None },
        }
    }
}

/// Returns the trace of a call without a parent. The ids that the bridge generates serve as both.
fn trace_id_of(correlation_id: &CorrelationId) -> TraceId {
    correlation_id.as_trace_id().unwrap_or_else(|| TraceId(next_unique_number().max(1)))
}

/// A call, in progress or ended.
pub(crate) struct CallRecord {
    pub(crate) caller: Caller,
    pub(crate) context: SpanContext,
    pub(crate) tool: ToolId,
    pub(crate) correlation_id: CorrelationId,
    pub(crate) argument_bytes: usize,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    pub(crate) meter: CallMeter,
    pub(crate) end: Option<CallEnd>,
}

/// Measures of a call that its way through the pipeline fills in. They hold also if the caller leaves.
#[derive(Default)]
pub(crate) struct CallMeter {
    attempts: AtomicU32,
    /// In microseconds.
    waited: AtomicU64,
    resolved: OnceLock<(Arc<CatalogTool>, Arc<ServerSettings>)>,
}

impl CallMeter {
    /// Records the tool that the call has found, and the settings of its server.
    pub(crate) fn set_resolved(&self, tool: &Arc<CatalogTool>, settings: &Arc<ServerSettings>) {
        let _ = self.resolved.set((tool.clone(), settings.clone()));
    }

    /// Records the time at the gate.
    pub(crate) fn add_wait(&self, waited: Duration) {
        self.waited.fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
    }

    /// Records the number of times that the call was sent.
    pub(crate) fn set_attempts(&self, attempts: u32) {
        self.attempts.store(attempts, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited.load(Ordering::Relaxed))
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Returns the tool; `None` if the call was refused before it was found.
    pub(crate) fn tool(&self) -> Option<&Arc<CatalogTool>> {
        self.resolved.get().map(|(tool, _)| tool)
    }

    pub(crate) fn settings(&self) -> Option<&Arc<ServerSettings>> {
        self.resolved.get().map(|(_, settings)| settings)
    }

    pub(crate) fn isolation(&self) -> Option<Isolation> {
        self.settings().map(|settings| settings.isolation)
    }
}

/// The content of an ended call, for observers that need more than its record. It may hold secrets.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallContent<'a> {
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) result: Option<&'a RawValue>,
}

/// The end of a call.
pub(crate) struct CallEnd {
    pub(crate) duration: Duration,
    pub(crate) result: RecordedResult,
}

/// The result of a call, without content that may be large.
pub(crate) enum RecordedResult {
    /// The tool returned a result. With `is_error` the tool itself reported failure in it.
    Completed { is_error: bool, result_bytes: usize, summary: String, hint: Option<String> },
    /// The call has no result: it was refused, timed out, or lost its server.
    Failed { code: ErrorCode, retryable: bool, delivery: Delivery, message: String },
}

/// Is notified when a call starts and ends. Must not block.
pub(crate) trait CallObserver: Send + Sync {
    fn on_start(&self, record: &CallRecord);
    fn on_end(&self, record: &CallRecord, content: CallContent<'_>);
}

/// The receivers of all calls of a bridge.
#[derive(Clone, Copy)]
pub(crate) struct RecordSinks<'a> {
    pub(crate) events: &'a dyn EventSink,
    pub(crate) metrics: &'a CallMetrics,
    pub(crate) traces: Option<&'a TraceRecorder>,
    pub(crate) audit: Option<&'a AuditLog>,
    /// The observer of this call alone.
    pub(crate) observer: Option<&'a dyn CallObserver>,
}

/// Records one call. Dropped before [`finish`](CallRecorder::finish), it records that the caller cancelled or disconnected.
pub(crate) struct CallRecorder<'a> {
    /// `None` once the call has ended.
    record: Option<CallRecord>,
    arguments: &'a RawValue,
    sinks: RecordSinks<'a>,
    /// The call is in the audit log. A call that is not was not sent.
    audited: OnceLock<AuditTicket>,
}

impl CallRecord {
    /// Writes the log line of the call. Arguments and results are not logged, because they may hold secrets: only their sizes
    /// are. Messages may repeat parts of them, and are redacted where a line is written.
    fn log(&self, traces: Option<&TraceRecorder>) {
        let Self { caller, tool, correlation_id, argument_bytes, end, .. } = self;
        let Some(CallEnd { duration, result }) = end else { return };
        let (face, session) =
            (caller.recorded_face(), caller.client.as_ref().map(|client| client.id.as_str()));
        let script = caller.script.as_ref().map(|script| tracing::field::display(&script.id));
        let redacted = |text: &str| redact_for_log(text, &self.meter, traces.map(TraceRecorder::rules));
        match result {
            RecordedResult::Completed { is_error, result_bytes, hint, .. } => {
                // The command line shows it itself.
                if let Some(hint) = hint.as_ref().filter(|_| caller.face != Face::Cli) {
                    warn!(%correlation_id, %tool, hint = %redacted(hint), "a tool reported failure");
                }
                info!(%correlation_id, %tool, %face, session, script, ?duration, argument_bytes, result_bytes, is_error, "call completed");
            }
            RecordedResult::Failed { code, message, .. } => {
                info!(%correlation_id, %tool, %face, session, script, ?duration, argument_bytes, %code, error = %redacted(message), "call failed");
            }
        }
    }

    fn into_event(self) -> Option<Event> {
        let Self { tool, correlation_id, end, context, .. } = self;
        let span = Some(context);
        let CallEnd { duration, result } = end?;
        Some(match result {
            RecordedResult::Completed { is_error, summary, hint, .. } => {
                Event::ToolCompleted { correlation_id, tool, is_error, summary, duration, hint, span }
            }
            RecordedResult::Failed { code, retryable, message, .. } => {
                Event::ToolFailed { correlation_id, tool, code, retryable, message, span }
            }
        })
    }
}

impl RecordedResult {
    fn completed(outcome: &CallOutcome) -> Self {
        let raw = outcome.result.raw.get();
        Self::Completed {
            is_error: outcome.result.is_error,
            result_bytes: raw.len(),
            summary: summary(raw),
            hint: outcome.hint.clone(),
        }
    }

    fn failed(error: &BridgeError) -> Self {
        let (code, retryable, delivery) = (error.code, error.retryable, error.delivery);
        Self::Failed { code, retryable, delivery, message: error.message.clone() }
    }
}

impl<'a> CallRecorder<'a> {
    pub(crate) fn start(record: CallRecord, arguments: &'a RawValue, sinks: RecordSinks<'a>) -> Self {
        if let Some(observer) = sinks.observer {
            observer.on_start(&record);
        }
        Self { record: Some(record), arguments, sinks, audited: OnceLock::new() }
    }

    /// Returns the measures of the call in progress.
    pub(crate) fn meter(&self) -> &CallMeter {
        &self.record().meter
    }

    /// Returns the span of the call in progress.
    pub(crate) fn span(&self) -> SpanContext {
        self.record().context
    }

    /// Writes the call into the audit log, if there is one. Fails if that is not possible: the call must not be sent then.
    pub(crate) async fn audit(&self) -> BridgeResult<()> {
        match self.sinks.audit {
            // A call that goes to the replacement of its server has its line already.
            Some(audit) if self.audited.get().is_none() => Box::pin(self.write_begin(audit)).await,
            _ => Ok(()),
        }
    }

    async fn write_begin(&self, audit: &AuditLog) -> BridgeResult<()> {
        let (ticket, line) = audit.begin(self.record(), self.arguments).await?;
        // Before the wait: a caller that leaves now has a line at the end too.
        let _ = self.audited.set(ticket);
        audit.require(line).await
    }

    fn record(&self) -> &CallRecord {
        self.record.as_ref().expect("the record is taken at the end")
    }

    /// Returns the last line of the call in the audit log, which the caller may wait for.
    pub(crate) fn finish(mut self, result: &BridgeResult<CallOutcome>) -> Option<PendingLine> {
        match result {
            Ok(outcome) => self.end(RecordedResult::completed(outcome), Some(&outcome.result.raw)),
            Err(error) => self.end(RecordedResult::failed(error), error.result.as_deref()),
        }
    }

    /// Ends a call that is made again later, and recorded then. If it is in the audit log, it has its end there now.
    pub(crate) fn postpone(mut self, error: &BridgeError) -> Option<PendingLine> {
        let (mut record, ticket) = (self.record.take()?, self.audited.take()?);
        record.end =
            Some(CallEnd { duration: record.started.elapsed(), result: RecordedResult::failed(error) });
        self.sinks.audit?.end(&record, self.arguments, Some(ticket))
    }

    /// Ends a call that was refused. Nobody waits for its line in the audit log: it was not sent.
    pub(crate) fn refuse(mut self, error: &BridgeError) {
        let _ = self.end(RecordedResult::failed(error), None);
    }

    fn end(&mut self, result: RecordedResult, raw: Option<&RawValue>) -> Option<PendingLine> {
        let mut record = self.record.take()?;
        record.end = Some(CallEnd { duration: record.started.elapsed(), result });
        record.log(self.sinks.traces);
        self.sinks.metrics.on_end(&record);
        let content = CallContent { arguments: Some(self.arguments), result: raw };
        if let Some(observer) = self.sinks.observer {
            observer.on_end(&record, content);
        }
        if let Some(traces) = self.sinks.traces {
            traces.on_end(&record, content);
        }
        let ticket = self.audited.take();
        let line = self.sinks.audit.and_then(|audit| audit.end(&record, self.arguments, ticket));
        if let Some(event) = record.into_event() {
            self.sinks.events.offer(event);
        }
        line
    }
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            let reason = "the caller cancelled or disconnected";
            let delivery = if record.meter.attempts() == 0 { Delivery::NotSent } else { Delivery::Unknown };
            let error = BridgeError::new(ErrorCode::Cancelled, delivery, reason);
            let _ = self.end(RecordedResult::failed(&error), None);
        }
    }
}

fn summary(result: &str) -> String {
    if result.len() <= MAX_SUMMARY_BYTES {
        return result.to_owned();
    }
    format!("{}…", clip(result, MAX_SUMMARY_BYTES))
}

#[cfg(test)]
impl CallRecord {
    /// A call that starts now.
    pub(crate) fn testing(tool: ToolId, correlation_id: CorrelationId) -> Self {
        let caller = Caller::default();
        Self {
            context: caller.new_span(&correlation_id),
            caller,
            tool,
            correlation_id,
            argument_bytes: 2,
            started: Instant::now(),
            started_at: SystemTime::now(),
            meter: CallMeter::default(),
            end: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bascule_model::ToolResult;

    use super::*;
    use crate::config::AuditSettings;

    #[test]
    fn cuts_a_summary_between_characters() {
        assert_eq!(summary("{}"), "{}");
        let long = "é".repeat(400);
        let cut = summary(&format!("x{long}"));
        assert!(cut.ends_with("é…") && cut.len() < MAX_SUMMARY_BYTES + 4);
    }

    struct Events(Mutex<Vec<Event>>);

    impl EventSink for Events {
        fn offer(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    /// Keeps the delivery of failed calls.
    struct Deliveries(Mutex<Vec<Delivery>>);

    impl CallObserver for Deliveries {
        fn on_start(&self, _: &CallRecord) {}

        fn on_end(&self, record: &CallRecord, _: CallContent<'_>) {
            if let Some(CallEnd { result: RecordedResult::Failed { delivery, .. }, .. }) = &record.end {
                self.0.lock().unwrap().push(*delivery);
            }
        }
    }

    // req: BR-05, TR-01
    #[test]
    fn call_that_is_dropped_before_it_was_sent_is_not_sent() {
        let (events, observer) = (Events(Mutex::default()), Deliveries(Mutex::default()));
        let arguments = serde_json::value::RawValue::from_string("{}".into()).unwrap();
        for attempts in [0, 1] {
            let record =
                CallRecord::testing(ToolId::parse("s:x").unwrap(), CorrelationId::parse("c").unwrap());
            record.meter.set_attempts(attempts);
            let sinks = RecordSinks {
                events: &events,
                metrics: &CallMetrics::default(),
                traces: None,
                audit: None,
                observer: Some(&observer),
            };
            drop(CallRecorder::start(record, &arguments, sinks));
        }
        assert_eq!(observer.0.into_inner().unwrap(), [Delivery::NotSent, Delivery::Unknown]);
    }

    // req: TR-01, BR-07
    #[tokio::test]
    async fn call_that_is_made_again_later_is_in_the_audit_log_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::open(&AuditSettings { path: path.clone(), fsync: false }, None);
        let (events, observer, metrics) =
            (Events(Mutex::default()), Deliveries(Mutex::default()), CallMetrics::default());
        let arguments = serde_json::value::RawValue::from_string("{}".into()).unwrap();
        let error = BridgeError::new(ErrorCode::RateLimited, Delivery::NotSent, "wait");
        for is_sent in [false, true] {
            let record =
                CallRecord::testing(ToolId::parse("s:x").unwrap(), CorrelationId::parse("c").unwrap());
            let sinks = RecordSinks {
                events: &events,
                metrics: &metrics,
                traces: None,
                audit: Some(&log),
                observer: Some(&observer),
            };
            let recorder = CallRecorder::start(record, &arguments, sinks);
            if is_sent {
                recorder.audit().await.unwrap();
            }
            let line = recorder.postpone(&error);
            assert_eq!(line.is_some(), is_sent);
        }
        log.flush().await;
        assert!(events.0.into_inner().unwrap().is_empty() && observer.0.into_inner().unwrap().is_empty());
        assert!(metrics.tool_counts().is_empty());
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let lines: Vec<_> = lines.map(|line| (line["kind"].clone(), line["code"].clone())).collect();
        let expected = [("chain", None), ("begin", None), ("end", Some("RATE_LIMITED"))];
        assert_eq!(lines, expected.map(|(kind, code)| (kind.into(), code.into())));
    }

    // req: BR-07
    #[test]
    fn event_has_the_duration_since_the_start() {
        let (tool, correlation_id) = (ToolId::parse("s:x").unwrap(), CorrelationId::parse("c").unwrap());
        let begun = Instant::now().checked_sub(Duration::from_millis(50)).unwrap();
        let mut record = CallRecord::testing(tool.clone(), correlation_id.clone());
        record.started = begun;
        let events = Events(Mutex::default());
        let raw = serde_json::value::RawValue::from_string("{}".into()).unwrap();
        let result = ToolResult { is_error: false, raw };
        let outcome = CallOutcome { tool, result, duration: Duration::ZERO, correlation_id, hint: None };
        let sinks = RecordSinks {
            events: &events,
            metrics: &CallMetrics::default(),
            traces: None,
            audit: None,
            observer: None,
        };
        let arguments = serde_json::value::RawValue::from_string("{}".into()).unwrap();
        CallRecorder::start(record, &arguments, sinks).finish(&Ok(outcome));
        let events = events.0.into_inner().unwrap();
        let [Event::ToolCompleted { duration, .. }] = &events[..] else { panic!("{events:?}") };
        assert!((Duration::from_millis(50)..Duration::from_secs(50)).contains(duration), "{duration:?}");
    }
}
