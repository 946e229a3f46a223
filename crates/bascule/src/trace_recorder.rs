//! Writes the records of calls and scripts into the store, and the log lines of servers. The store's graph observes the calls.
//! The spans go to a collector too, if there is one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_graph::{CallSession, FingerprintKey};
use bascule_model::{Delivery, SpanContext};
use bascule_store::{
    CapturableContent, Isolation, LogLine, LogSource, ObservedCall, Outcome, Span, SpanKind, Store,
    StoreStatus,
};
use serde_json::value::RawValue;
use tracing::warn;

use crate::blocking::run_blocking;
use crate::call_record::{CallContent, CallEnd, CallRecord, Caller, RecordedResult};
use crate::capture::{CaptureRules, CapturedCall, ScriptMessage};
use crate::client::ClientContext;
use crate::config::{self, Settings, TraceSettings};
use crate::control::config_hash;
use crate::otlp::{ExportCounts, OtlpSettings, SpanExporter};

/// The longest wait for the disk when a bridge ends. The store tries three times for five seconds to write a file that another
/// bridge is using.
const FLUSH: Duration = Duration::from_secs(20);

/// Owns the store of a bridge, and the exporter to a collector.
pub(crate) struct TraceRecorder {
    store: Store,
    exporter: Option<SpanExporter>,
    rules: Arc<CaptureRules>,
}

/// A script, in progress or ended.
pub(crate) struct ScriptRecord {
    pub(crate) caller: Caller,
    pub(crate) context: SpanContext,
    pub(crate) correlation_id: bascule_model::CorrelationId,
    pub(crate) name: String,
    pub(crate) code_bytes: usize,
    pub(crate) started_at: SystemTime,
    pub(crate) duration: Duration,
    /// The time until the script could start.
    pub(crate) waited: Duration,
    pub(crate) result_bytes: Option<usize>,
    /// The code and the message of a failure.
    pub(crate) failure: Option<(String, String)>,
    /// The settings of the servers whose secrets the message may have.
    pub(crate) settings: Option<Arc<Settings>>,
}

/// Returns the file of a configuration: in the configured folder, else in the user's state folder.
pub(crate) fn store_path(settings: &TraceSettings, config: &Path) -> io::Result<PathBuf> {
    let config = config.canonicalize().or_else(|_| config::canonical_entry(config))?;
    let folder = settings.path.clone().or_else(default_folder);
    let folder = folder.ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor a home is set"))?;
    Ok(folder.join(format!("{:016x}.db", config_hash(&config))))
}

/// No sandbox grants access to it.
fn default_folder() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(bascule_sandbox::own_home()?.join(".local/state")))?;
    Some(state.join("bascule/traces"))
}

impl TraceRecorder {
    pub(crate) fn new(
        path: PathBuf,
        settings: &TraceSettings,
        otlp: Option<&OtlpSettings>,
    ) -> io::Result<Self> {
        let mut key = [0; 16];
        // Without a random source nobody may have fingerprints.
        let store = match getrandom::fill(&mut key) {
            Ok(()) => Store::with_graph(path, settings.retention, FingerprintKey::new(key))?,
            Err(_) => Store::new(path, settings.retention)?,
        };
        Ok(Self {
            store,
            exporter: otlp.and_then(SpanExporter::start),
            rules: Arc::new(CaptureRules::new(settings)),
        })
    }

    /// Returns the rules for secrets.
    pub(crate) fn rules(&self) -> &CaptureRules {
        &self.rules
    }

    /// Records an ended call.
    pub(crate) fn on_end(&self, record: &CallRecord, content: CallContent<'_>) {
        let Some(CallEnd { duration, result }) = &record.end else { return };
        let end = SpanEnd::of_call(result);
        let span = Span {
            context: record.context,
            kind: SpanKind::Call,
            face: record.caller.recorded_face(),
            client: record.caller.client.as_ref().map(|client| client.label.clone()),
            agent: record.caller.agent.clone(),
            correlation_id: record.correlation_id.clone(),
            name: record.tool.to_shared(),
            started_at: micros(record.started_at),
            duration: duration.as_micros() as u64,
            waited: record.meter.waited().as_micros() as u64,
            attempts: record.meter.attempts(),
            isolation: record.meter.isolation().map(stored_isolation),
            argument_bytes: record.argument_bytes as u64,
            result_bytes: end.result_bytes,
            outcome: end.outcome,
            code: end.code,
            delivery: end.delivery,
            content: self.content(record, content, end.message.is_some()),
            message: end.message,
        };
        self.export(&span);
        match observed_call(record, content) {
            Some(call) => self.store.offer_call(span, call),
            None => self.store.offer_span(span),
        }
    }

    /// Reports that a client has ended its session.
    pub(crate) fn on_session_end(&self, client: &ClientContext) {
        self.store.end_session(CallSession::Client(client.serial));
    }

    fn export(&self, span: &Span) {
        if let Some(exporter) = &self.exporter {
            exporter.offer(span);
        }
    }

    fn content(
        &self,
        record: &CallRecord,
        content: CallContent<'_>,
        has_message: bool,
    ) -> Option<Arc<dyn CapturableContent>> {
        let call = CapturedCall::new(&self.rules, &record.meter, content, has_message)?;
        Some(Arc::new(call))
    }

    /// Records an ended script.
    pub(crate) fn on_script_end(&self, script: ScriptRecord) {
        let outcome = match &script.failure {
            None => Outcome::Ok,
            Some((code, _)) if matches!(code.as_str(), "" | "TOOL_ERROR") => Outcome::ToolError,
            Some(_) => Outcome::Error,
        };
        let (code, message) = script.failure.unzip();
        let span_id = script.context.span_id.0;
        if session_of(&script.caller, Some(span_id)) == CallSession::Script(span_id) {
            self.store.end_session(CallSession::Script(span_id));
        }
        let span = Span {
            context: script.context,
            kind: SpanKind::Script,
            face: script.caller.recorded_face(),
            client: script.caller.client.as_ref().map(|client| client.label.clone()),
            agent: script.caller.agent.clone(),
            correlation_id: script.correlation_id,
            name: script.name.into(),
            started_at: micros(script.started_at),
            duration: script.duration.as_micros() as u64,
            waited: script.waited.as_micros() as u64,
            attempts: 1,
            isolation: None,
            argument_bytes: script.code_bytes as u64,
            result_bytes: script.result_bytes.map(|bytes| bytes as u64),
            outcome,
            code: code.filter(|code| !code.is_empty()).map(Into::into),
            delivery: None,
            message,
            content: Some(Arc::new(ScriptMessage { rules: self.rules.clone(), settings: script.settings })),
        };
        self.export(&span);
        self.store.offer_span(span);
    }

    /// Records a line of a server.
    pub(crate) fn on_log(&self, server: &Arc<str>, source: LogSource, level: Option<String>, text: String) {
        let at = micros(SystemTime::now());
        self.store.offer_log(LogLine { server: server.clone(), at, source, level, text });
    }

    pub(crate) fn status(&self) -> StoreStatus {
        self.store.status()
    }

    /// Returns the counts of spans that went to a collector; `None` without one.
    pub(crate) fn exports(&self) -> Option<&ExportCounts> {
        self.exporter.as_ref().map(SpanExporter::counts)
    }

    /// Waits for the disk and the collector, but not for long. No further span is sent.
    pub(crate) async fn close(self: &Arc<Self>) {
        if let Some(exporter) = &self.exporter {
            exporter.close().await;
        }
        self.flush(FLUSH).await;
    }

    /// Returns false, and says so, if the last entries could not be written in time: they are lost if the process ends now.
    async fn flush(self: &Arc<Self>, at_most: Duration) -> bool {
        let own = self.clone();
        let is_written = run_blocking(move || own.store.flush(at_most)).await;
        if !is_written {
            let path = self.store.path().display();
            warn!("the last traces may be missing in `{path}`: they were not written within {at_most:?}");
        }
        is_written
    }
}

/// The end of a call, as a span has it.
struct SpanEnd {
    outcome: Outcome,
    result_bytes: Option<u64>,
    code: Option<Arc<str>>,
    delivery: Option<Delivery>,
    message: Option<String>,
}

impl SpanEnd {
    fn of_call(result: &RecordedResult) -> Self {
        match result {
            RecordedResult::Completed { is_error, result_bytes, hint, .. } => Self {
                outcome: if *is_error { Outcome::ToolError } else { Outcome::Ok },
                result_bytes: Some(*result_bytes as u64),
                code: None,
                delivery: Some(Delivery::Answered),
                message: hint.clone(),
            },
            RecordedResult::Failed { code, delivery, message, .. } => Self {
                outcome: Outcome::Error,
                result_bytes: None,
                code: Some(code.to_string().into()),
                delivery: Some(*delivery),
                message: Some(message.clone()),
            },
        }
    }
}

/// Returns the call as the graph observes it. A call that was never sent, such as one of a denied tool, tells nothing about tools.
fn observed_call(record: &CallRecord, content: CallContent<'_>) -> Option<ObservedCall> {
    // The parent of the span may be a client's span, which is no script.
    let script = record.caller.script.as_ref().map(|script| script.span.span_id.0);
    let session = session_of(&record.caller, script);
    let [arguments, result] = [content.arguments, content.result].map(|raw| raw.map(RawValue::get));
    (record.meter.attempts() > 0).then(|| ObservedCall::new(session, script, arguments, result))
}

/// Returns the session of a call. `script` is the script that makes it.
fn session_of(caller: &Caller, script: Option<u64>) -> CallSession {
    match (&caller.client, &caller.agent, script) {
        (Some(client), _, _) => CallSession::Client(client.serial),
        (None, Some(agent), _) => CallSession::Agent(agent.clone()),
        (None, None, Some(script)) => CallSession::Script(script),
        (None, None, None) => CallSession::Single,
    }
}

fn stored_isolation(isolation: config::Isolation) -> Isolation {
    match isolation {
        config::Isolation::Shared => Isolation::Shared,
        config::Isolation::PerCall => Isolation::PerCall,
    }
}

fn micros(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bascule_catalog::CatalogTool;
    use bascule_model::{CorrelationId, ErrorCode, ServerName, ToolDefinition, ToolId};
    use bascule_store::{Reader, SpanFilter};

    use super::*;
    use crate::config::Capture;
    use crate::otlp::exported;

    fn tool() -> Arc<CatalogTool> {
        let definition = r#"{"name":"x","inputSchema":{"type":"object"}}"#;
        let definition = RawValue::from_string(definition.into()).unwrap();
        let definition = ToolDefinition::parse(definition).unwrap();
        Arc::new(CatalogTool::new(&ServerName::parse("s").unwrap(), definition))
    }

    fn failed_call(message: &str) -> CallRecord {
        let (caller, correlation_id) = (Caller::default(), CorrelationId::from_random(1));
        let result = RecordedResult::Failed {
            code: ErrorCode::ProviderTimeout,
            retryable: false,
            delivery: Delivery::Answered,
            message: message.into(),
        };
        CallRecord {
            context: caller.new_span(&correlation_id),
            caller,
            tool: ToolId::parse("s:x").unwrap(),
            correlation_id,
            argument_bytes: 2,
            started: Instant::now(),
            started_at: SystemTime::now(),
            meter: Default::default(),
            end: Some(CallEnd { duration: Duration::ZERO, result }),
        }
    }

    fn failed_script(message: &str) -> ScriptRecord {
        let (caller, correlation_id) = (Caller::default(), CorrelationId::from_random(2));
        ScriptRecord {
            context: caller.new_span(&correlation_id),
            caller,
            correlation_id,
            name: "a.ts".into(),
            code_bytes: 1,
            started_at: SystemTime::now(),
            duration: Duration::ZERO,
            waited: Duration::ZERO,
            result_bytes: None,
            failure: Some(("X".into(), message.into())),
            settings: None,
        }
    }

    // req: TR-01
    #[tokio::test]
    async fn end_of_a_bridge_waits_for_a_file_that_another_one_uses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let other = std::fs::File::create(folder.path().join("traces.db.lock")).unwrap();
        other.lock().unwrap();
        traces.on_end(&failed_call("x"), CallContent::default());
        assert!(!traces.flush(Duration::from_millis(10)).await, "the other one opens the file");
        let closing = tokio::spawn({
            let traces = traces.clone();
            async move { traces.flush(FLUSH).await }
        });
        tokio::task::yield_now().await;
        drop(other);
        assert!(closing.await.unwrap());
        assert_eq!(Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap().len(), 1);
    }

    // req: TR-01
    #[tokio::test]
    async fn hides_secrets_in_error_messages_without_capture() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let message = "refused: Authorization: Bearer hunter2";
        traces.on_end(&failed_call(message), CallContent::default());
        traces.on_script_end(failed_script(message));
        traces.close().await;
        let spans = Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap();
        let messages: Vec<_> = spans.iter().map(|(_, span)| span.message.as_deref()).collect();
        assert_eq!(messages, [Some("refused: Authorization: Bearer ***"); 2]);
        // A collector receives no more than the store.
        let content = Some(traces.rules.clone() as Arc<dyn CapturableContent>);
        let span = Span { message: Some(message.into()), content, ..spans[0].1.clone() };
        assert_eq!(exported(&span).message.as_deref(), messages[0]);
    }

    // req: TR-01
    #[tokio::test]
    async fn hides_configured_secrets_in_the_message_of_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let server = crate::config::testing::server(
            r#"{ "command": "x", "env": { "KEY": "correct-horse;&battery" } }"#,
        );
        let settings = Some(Arc::new(Settings { servers: vec![server], ..Settings::default() }));
        let message = "it said correct-horse;&battery, password=correct-horse;&battery";
        traces.on_script_end(ScriptRecord { settings, ..failed_script(message) });
        traces.close().await;
        let spans = Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap();
        assert_eq!(spans[0].1.message.as_deref(), Some("it said ***, password=***"));
    }

    // req: TR-01
    #[tokio::test]
    async fn configured_secret_is_hidden_as_a_whole_in_a_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let settings = TraceSettings { capture: Capture::All, ..TraceSettings::default() };
        let traces = Arc::new(TraceRecorder::new(path.clone(), &settings, None).unwrap());
        let server =
            crate::config::testing::server(r#"{ "command": "x", "env": { "PW": "aB3;xY9&longtail" } }"#);
        let message = "login failed: password=aB3;xY9&longtail";
        let record = failed_call(message);
        record.meter.set_resolved(&tool(), &Arc::new(server));
        assert_eq!(
            crate::capture::redact_for_log(message, &record.meter, None),
            "login failed: password=***"
        );
        let raw = RawValue::from_string(serde_json::json!({ "text": message }).to_string()).unwrap();
        traces.on_end(&record, CallContent { arguments: Some(&raw), result: Some(&raw) });
        traces.close().await;
        let spans = Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap();
        assert_eq!(spans[0].1.message.as_deref(), Some("login failed: password=***"));
        let captured = spans[0].1.content.as_ref().unwrap().capture();
        let hidden = Some(r#"{"text":"login failed: password=***"}"#.to_owned());
        assert_eq!((captured.arguments, captured.result), (hidden.clone(), hidden));
    }

    // req: TR-01
    #[tokio::test]
    async fn arguments_of_a_call_whose_tool_was_not_found_are_not_captured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let settings = TraceSettings { capture: Capture::All, ..TraceSettings::default() };
        let traces = Arc::new(TraceRecorder::new(path.clone(), &settings, None).unwrap());
        let arguments = RawValue::from_string(r#"{"code":"hunter2"}"#.into()).unwrap();
        traces.on_end(&failed_call("x"), CallContent { arguments: Some(&arguments), result: None });
        traces.close().await;
        let spans = Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap();
        assert!(spans[0].1.content.is_none());
    }
}
