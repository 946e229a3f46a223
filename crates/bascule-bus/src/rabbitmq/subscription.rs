//! A subscription: a queue at the broker that lives as long as the connection, and one in this process.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use lapin::Consumer;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use tokio::task::AbortHandle;

use super::batched_consumer::{BatchedConsumer, PREFETCH};
use super::link::{BrokerConnection, BrokerHandle};
use super::topology;
use crate::subscriber_queue::{QueueItem, SubscriberQueue};
use crate::{BusError, ReceivedItem, ReceivedMessage, Topic, TopicPattern};

/// The messages that wait for a slow reader. The oldest make room, and are counted.
const MAX_MESSAGES: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The messages of matching topics. Dropping it unsubscribes.
pub(crate) struct RabbitMqSubscription {
    waiting: Arc<SubscriberQueue<ReceivedMessage>>,
    reader: AbortHandle,
}

impl RabbitMqSubscription {
    /// Subscribes. Messages that are published after it returns are received.
    pub(super) async fn open(link: BrokerHandle, pattern: &TopicPattern) -> Result<Self, BusError> {
        let consume = |connection: Arc<BrokerConnection>| async move { consume(&connection, pattern).await };
        let consumer = link.run("subscribe", consume).await?;
        let waiting = Arc::new(SubscriberQueue::new(MAX_MESSAGES, MAX_BYTES));
        let reader = tokio::spawn(read_until_closed(link, pattern.clone(), consumer, waiting.clone()));
        Ok(Self { waiting, reader: reader.abort_handle() })
    }

    pub(crate) async fn next(&mut self) -> Option<ReceivedItem> {
        match poll_fn(|context| self.waiting.poll_next(context)).await? {
            QueueItem::Message(message) => Some(ReceivedItem::Message(message)),
            QueueItem::Lost(count) => Some(ReceivedItem::Lost(count)),
        }
    }
}

impl Drop for RabbitMqSubscription {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn consume(connection: &BrokerConnection, pattern: &TopicPattern) -> lapin::Result<Consumer> {
    let channel = connection.channel().await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let queue = topology::declare_subscriber(&channel, pattern.as_str()).await?;
    channel.basic_consume(queue, "".into(), BasicConsumeOptions::default(), FieldTable::default()).await
}

async fn read_until_closed(
    link: BrokerHandle,
    pattern: TopicPattern,
    first: Consumer,
    waiting: Arc<SubscriberQueue<ReceivedMessage>>,
) {
    let mut consumer = Ok(first);
    loop {
        match consumer {
            Ok(messages) => read(messages, &waiting).await,
            Err(error) => tracing::debug!(%pattern, %error, "subscribing again"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
        let Ok(connection) = link.connection().await else { break };
        consumer = consume(&connection, &pattern).await;
        if consumer.is_ok() {
            // The queue of before is gone, and nobody knows what came since.
            wake(waiting.note_loss());
        }
    }
    wake(waiting.close());
}

/// Reads until the consumer ends.
async fn read(messages: Consumer, waiting: &SubscriberQueue<ReceivedMessage>) {
    let mut messages = BatchedConsumer::new(messages);
    while let Some(Ok(delivery)) = messages.next().await {
        push(delivery, waiting);
    }
}

fn push(delivery: Delivery, waiting: &SubscriberQueue<ReceivedMessage>) {
    // No bridge or agent publishes to a routing key that is no topic.
    let Ok(topic) = Topic::parse(delivery.routing_key.as_str()) else { return };
    let bytes = delivery.data.len();
    wake(waiting.push(ReceivedMessage::read(topic, Bytes::from(delivery.data)), bytes));
}

fn wake(reader: Option<Waker>) {
    if let Some(reader) = reader {
        reader.wake();
    }
}
