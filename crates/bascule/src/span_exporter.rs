//! Sends spans to an OpenTelemetry collector: OTLP over HTTP, in JSON, in batches.
//!
//! A bounded queue feeds one task. A call never waits for it: spans without room, and those of a batch that the collector does not
//! accept, are dropped and counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_mcp::{HttpEndpoint, InvalidEndpoint, JsonClient};
use bascule_store::Span;
use percent_encoding::percent_decode_str;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::normalise::error_chain;
use crate::otlp;

/// The most spans that wait; further ones are dropped.
const MAX_QUEUED: usize = 8_192;
const MAX_BATCH: usize = 1_024;
/// The wait for a batch after its first span.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// The longest time for one batch.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for the collector when a bridge ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The size limit of a response.
const MAX_RESPONSE: usize = 64 << 10;

/// The address of a collector, and the headers of each request to it.
#[derive(Debug, Clone)]
pub struct OtlpEndpoint(HttpEndpoint);

impl OtlpEndpoint {
    /// Reads the environment variables that OpenTelemetry defines. Returns `None` if they name no endpoint.
    pub fn from_environment(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, InvalidEndpoint> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let base = || variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| traces_url(base.trim()));
        let Some(url) = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(base) else { return Ok(None) };
        let headers = variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS");
        let headers = headers.or_else(|| variable("OTEL_EXPORTER_OTLP_HEADERS")).unwrap_or_default();
        let headers = parse_headers(&headers);
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        HttpEndpoint::new(url.trim(), headers).map(|endpoint| Some(Self(endpoint)))
    }
}

fn traces_url(base: &str) -> String {
    format!("{}/v1/traces", base.trim_end_matches('/'))
}

/// Parses `name=value,name=value` with percent-encoded values.
fn parse_headers(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decode = |value: &str| percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
    pairs.map(|(name, value)| (name.trim().to_owned(), decode(value))).collect()
}

/// Accepts spans, and owns the task that sends them.
pub(crate) struct SpanExporter {
    queue: mpsc::Sender<Span>,
    counts: Arc<ExportCounts>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
pub(crate) struct ExportCounts {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl SpanExporter {
    pub(crate) fn start(OtlpEndpoint(endpoint): OtlpEndpoint) -> Self {
        let (queue, spans) = mpsc::channel(MAX_QUEUED);
        let (counts, stop) = (Arc::<ExportCounts>::default(), CancellationToken::new());
        let client = JsonClient::new(endpoint.clone(), MAX_RESPONSE);
        let is_failing = AtomicBool::new(false);
        let sender =
            SpanSender { spans, client, endpoint, counts: counts.clone(), stop: stop.clone(), is_failing };
        let task = Mutex::new(Some(tokio::spawn(sender.run())));
        Self { queue, counts, stop, task }
    }

    /// Accepts a span, or drops and counts it.
    pub(crate) fn offer(&self, span: &Span) {
        if self.queue.try_send(exported(span)).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> &ExportCounts {
        &self.counts
    }

    /// Sends the queued spans, but not for long, and ends the task.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        let task = self.task.lock().expect("no code panics while it holds the lock").take();
        let Some(mut task) = task else { return };
        if timeout(CLOSE_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Drop for SpanExporter {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns the part of a span that may leave this machine: no content, and no secrets in the message.
pub(crate) fn exported(span: &Span) -> Span {
    let message = span.message.as_deref().map(|message| match &span.content {
        Some(content) => content.redact_message(message),
        None => message.to_owned(),
    });
    Span { content: None, message, ..span.clone() }
}

/// The task that sends spans.
struct SpanSender {
    spans: mpsc::Receiver<Span>,
    client: JsonClient,
    endpoint: HttpEndpoint,
    counts: Arc<ExportCounts>,
    stop: CancellationToken,
    /// The last batch was lost.
    is_failing: AtomicBool,
}

impl SpanSender {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            let count = batch.len() as u64;
            match self.send(&batch).await {
                Ok(()) => self.on_sent(count),
                Err(reason) => self.on_lost(count, &reason),
            }
        }
    }

    /// Waits for spans. Returns `None` once the exporter is closed and the queue is empty.
    async fn next_batch(&mut self) -> Option<Vec<Span>> {
        let first = match self.stop.run_until_cancelled(self.spans.recv()).await {
            Some(span) => span?,
            None => self.spans.try_recv().ok()?,
        };
        if self.spans.len() + 1 < MAX_BATCH {
            self.stop.run_until_cancelled(sleep(BATCH_DELAY)).await;
        }
        let rest = std::iter::from_fn(|| self.spans.try_recv().ok());
        Some(std::iter::once(first).chain(rest).take(MAX_BATCH).collect())
    }

    async fn send(&self, batch: &[Span]) -> Result<(), String> {
        let body = otlp::export(batch).to_string().into_bytes();
        match timeout(POST_TIMEOUT, self.client.post(body)).await {
            Ok(response) => response.map(drop).map_err(|error| error_chain(&error)),
            Err(_) => Err(format!("no response within {POST_TIMEOUT:?}")),
        }
    }

    fn on_sent(&self, count: u64) {
        self.counts.sent.fetch_add(count, Ordering::Relaxed);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            info!("spans are sent to {:?} again", self.endpoint);
        }
    }

    fn on_lost(&self, count: u64, reason: &str) {
        self.counts.dropped.fetch_add(count, Ordering::Relaxed);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            warn!("could not send spans to {:?}, and dropped them: {reason}", self.endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: Option<&str>) {
        let find = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let endpoint = OtlpEndpoint::from_environment(&find).unwrap();
        let shown = endpoint.map(|OtlpEndpoint(endpoint)| format!("{endpoint:?}"));
        assert_eq!(shown.as_deref(), expected);
    }

    // req: TR-01
    #[test]
    fn endpoint_is_that_of_the_environment() {
        const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        check(&[], None);
        check(&[(BASE, " ")], None);
        check(&[(BASE, "http://h:4318")], Some("HttpEndpoint(http://h:4318/v1/traces)"));
        check(&[(BASE, "http://h:4318/p/")], Some("HttpEndpoint(http://h:4318/p/v1/traces)"));
        check(&[(BASE, "http://h"), (TRACES, "https://t/x")], Some("HttpEndpoint(https://t/x)"));
        assert!(OtlpEndpoint::from_environment(&|_| Some("h:4317".into())).is_err());
    }

    // req: TR-01
    #[test]
    fn headers_are_percent_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parse_headers("authorization=Bearer%20x=y, tenant = a"),
            [pair("authorization", "Bearer x=y"), pair("tenant", "a")]
        );
        assert!(parse_headers("").is_empty());
    }
}
