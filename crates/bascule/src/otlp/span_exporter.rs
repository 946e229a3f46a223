//! Sends spans to a collector in batches.
//!
//! A bounded queue feeds one task. A call never waits for it: spans without room, and those of a batch that the collector does not
//! accept, are dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_store::Span;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::sender::OtlpSender;
use super::settings::{OtlpResource, OtlpSettings, Signal};
use super::spans::spans_message;

/// The most spans that wait; further ones are dropped.
const MAX_QUEUED: usize = 8_192;
const MAX_BATCH: usize = 1_024;
/// The longest part of an error message that is sent.
const MAX_MESSAGE: usize = 1_024;
/// The wait for a batch after its first span.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// The longest wait for the collector when a bridge ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Returns `None` if no spans are to be sent.
    pub(crate) fn start(settings: &OtlpSettings) -> Option<Self> {
        let sender = OtlpSender::new(Signal::Traces, settings.traces.clone()?);
        let (queue, spans) = mpsc::channel(MAX_QUEUED);
        let (counts, stop) = (Arc::<ExportCounts>::default(), CancellationToken::new());
        let resource = settings.resource.clone();
        let task = SpanTask { spans, sender, resource, counts: counts.clone(), stop: stop.clone() };
        let task = Mutex::new(Some(tokio::spawn(task.run())));
        Some(Self { queue, counts, stop, task })
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

/// The task that sends spans.
struct SpanTask {
    spans: mpsc::Receiver<Span>,
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
        let rest = std::iter::from_fn(|| self.spans.try_recv().ok());
        Some(std::iter::once(first).chain(rest).take(MAX_BATCH).collect())
    }
}
