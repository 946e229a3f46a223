//! Sends spans to a collector in batches.
//!
//! A bounded queue feeds one task. A call never waits for it: spans without room, and those of a batch that the collector does not
//! accept, are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bascule_store::Span;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::export_task::ExportTask;
use super::sender::OtlpSender;
use super::settings::{OtlpResource, OtlpSettings, Signal};
use super::spans::spans_message;

/// The most spans that wait; further ones are dropped.
const MAX_QUEUED: usize = 8_192;
const MAX_BATCH: usize = 1_024;
/// The most bytes of spans that wait; further ones are dropped.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// A batch is closed at this size: collectors refuse requests above 4 MiB.
const MAX_BATCH_BYTES: usize = 2 << 20;
/// The size of a span beside its texts, about.
const SPAN_BYTES: usize = 512;
/// The longest part of an error message that is sent.
const MAX_MESSAGE: usize = 1_024;
/// The wait for a batch after its first span.
const BATCH_DELAY: Duration = Duration::from_millis(500);

/// Accepts spans, and owns the task that sends them.
pub(crate) struct SpanExporter {
    queue: mpsc::Sender<Span>,
    queued_bytes: Arc<AtomicUsize>,
    counts: Arc<ExportCounts>,
    task: ExportTask,
}

#[derive(Default)]
pub(crate) struct ExportCounts {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl SpanExporter {
    /// Returns `None` if no spans are to be sent.
    pub(crate) fn start(settings: &OtlpSettings) -> Option<Self> {
        let sender = OtlpSender::new(Signal::Traces, settings.traces.clone()?);
        let (queue, spans) = mpsc::channel(MAX_QUEUED);
        let (counts, stop) = (Arc::<ExportCounts>::default(), CancellationToken::new());
        let (resource, queued_bytes) = (settings.resource.clone(), Arc::<AtomicUsize>::default());
        let task = SpanTask {
            spans,
            queued_bytes: queued_bytes.clone(),
            sender,
            resource,
            counts: counts.clone(),
            stop: stop.clone(),
        };
        Some(Self { queue, queued_bytes, counts, task: ExportTask::spawn(stop, task.run()) })
    }

    /// Accepts a span, or drops and counts it.
    pub(crate) fn offer(&self, span: &Span) {
        let span = exported(span);
        let bytes = size_of_span(&span);
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if queued > MAX_QUEUED_BYTES || self.queue.try_send(span).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> &ExportCounts {
        &self.counts
    }

    /// Sends the queued spans, but not for long, and ends the task.
    pub(crate) async fn close(&self) {
        self.task.close().await;
    }
}

/// Returns the part of a span that may leave this machine: no content, and no secrets in the message. Collectors refuse requests
/// above 4 MiB, so the message is cut.
pub(crate) fn exported(span: &Span) -> Span {
    let message = span.message.as_deref().map(|message| {
        let mut message = match &span.content {
            Some(content) => content.redact_message(message),
            None => message.to_owned(),
        };
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message
    });
    Span { content: None, message, ..span.clone() }
}

/// Returns the size of a span in memory and in a request, about. Texts that spans share count for each.
fn size_of_span(span: &Span) -> usize {
    let client = span.client.as_ref().map_or(0, |client| client.name.len() + client.version.len());
    let texts = [span.agent.as_deref(), span.code.as_deref(), span.message.as_deref()];
    SPAN_BYTES + client + span.name.len() + texts.into_iter().flatten().map(str::len).sum::<usize>()
}

/// The task that sends spans.
struct SpanTask {
    spans: mpsc::Receiver<Span>,
    queued_bytes: Arc<AtomicUsize>,
    sender: OtlpSender,
    resource: OtlpResource,
    counts: Arc<ExportCounts>,
    stop: CancellationToken,
}

impl SpanTask {
    async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            let (count, resource) = (batch.len() as u64, self.resource.clone());
            let is_sent = self.sender.send(move || spans_message(&batch, &resource), &self.stop).await;
            let counter = if is_sent { &self.counts.sent } else { &self.counts.dropped };
            counter.fetch_add(count, Ordering::Relaxed);
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
        let (mut bytes, mut batch) = (size_of_span(&first), vec![first]);
        while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let Ok(span) = self.spans.try_recv() else { break };
            bytes += size_of_span(&span);
            batch.push(span);
        }
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use bascule_model::{CorrelationId, SpanContext, SpanId, TraceId};
    use bascule_store::{Face, Outcome, SpanKind};

    use super::*;

    fn span(bytes: usize) -> Span {
        Span {
            context: SpanContext { trace_id: TraceId(1), span_id: SpanId(1), parent: None },
            kind: SpanKind::Call,
            face: Face::Mcp,
            client: None,
            agent: None,
            correlation_id: CorrelationId::from_random(1),
            name: "x".repeat(bytes).into(),
            started_at: 0,
            duration: 0,
            waited: 0,
            attempts: 0,
            isolation: None,
            argument_bytes: 0,
            result_bytes: None,
            outcome: Outcome::Error,
            code: None,
            delivery: None,
            message: None,
            content: None,
        }
    }

    // req: TR-01
    #[tokio::test]
    async fn queue_is_bounded_in_bytes() {
        let variable =
            |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://127.0.0.1:9".to_owned());
        let settings = OtlpSettings::from_environment(&variable).unwrap().unwrap();
        let exporter = SpanExporter::start(&settings).unwrap();
        (0..400).for_each(|_| exporter.offer(&span(1 << 20)));
        let dropped = exporter.counts().dropped.load(Ordering::Relaxed);
        assert!(dropped > 380, "{dropped}");
        exporter.close().await;
    }
}
