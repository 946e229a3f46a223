//! Reads a consumer, and acknowledges what was read in batches.
//!
//! The broker closes a channel whose oldest delivery is not acknowledged for too long (30 minutes, or less by configuration),
//! so a batch that is not full is acknowledged too, a moment after its first message.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::BasicAckOptions;
use lapin::{Acker, Consumer, Result};
use tokio::time::{Instant, sleep_until};

/// The messages that the broker sends ahead.
pub(super) const PREFETCH: u16 = 256;
/// The messages that are acknowledged together.
const BATCH: u16 = PREFETCH / 4;
/// The longest wait of a batch that is not full.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// The messages of a consumer whose channel has [`PREFETCH`].
pub(super) struct BatchedConsumer {
    consumer: Consumer,
    batch: Option<OpenBatch>,
}

struct OpenBatch {
    /// The last message. Its acknowledgement is that of all before it.
    last: Acker,
    count: u16,
    ends_at: Instant,
}

impl BatchedConsumer {
    pub(super) fn new(consumer: Consumer) -> Self {
        Self { consumer, batch: None }
    }

    /// Waits for the next message. The caller has handled the earlier ones: they may be acknowledged. Returns `None` once the
    /// consumer has ended.
    pub(super) async fn next(&mut self) -> Option<Result<Delivery>> {
        if self.batch.as_ref().is_some_and(|batch| batch.count >= BATCH)
            && let Err(error) = self.acknowledge().await
        {
            return Some(Err(error));
        }
        if let Some(batch) = &self.batch {
            let ends_at = batch.ends_at;
            tokio::select! {
                biased;
                delivery = self.consumer.next() => return self.note(delivery?),
                () = sleep_until(ends_at) => if let Err(error) = self.acknowledge().await {
                    return Some(Err(error));
                },
            }
        }
        let delivery = self.consumer.next().await?;
        self.note(delivery)
    }

    fn note(&mut self, delivery: Result<Delivery>) -> Option<Result<Delivery>> {
        if let Ok(delivery) = &delivery {
            let last = delivery.acker.clone();
            let (count, ends_at) = match &self.batch {
                Some(batch) => (batch.count + 1, batch.ends_at),
                None => (1, Instant::now() + LONGEST_WAIT),
            };
            self.batch = Some(OpenBatch { last, count, ends_at });
        }
        Some(delivery)
    }

    /// Waits until the acknowledgement is sent: the client may send a later one first, and the broker would find this one's
    /// messages acknowledged already.
    async fn acknowledge(&mut self) -> Result<()> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        batch.last.ack(BasicAckOptions { multiple: true }).await.map(|_| ())
    }
}
