//! The exchanges and queues at the broker, and their bounds.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind, Result};

use crate::requests::CLAIM_WINDOW;
use crate::{AgentName, SharedTopics};

/// The exchange of all topics.
pub(super) const EXCHANGE: &str = "bascule";
/// The exchange of all queues, by their names.
pub(super) const DEFAULT_EXCHANGE: &str = "";
pub(super) const DEAD_QUEUE: &str = "bascule.dead";
/// The requests on the topic without an agent's name, until a bridge has given them to their agents' queues.
pub(super) const SHARED_QUEUE: &str = "bascule.shared";
const EVENTS_STREAM: &str = "bascule.events";

/// The requests that wait in one queue. More are refused.
const MAX_REQUESTS: i64 = 100_000;
const MAX_REQUEST_BYTES: i64 = 1 << 30;
/// RabbitMQ 4 would drop a request after 20 deliveries.
const MAX_DELIVERIES: i64 = 10_000;
/// The oldest dead letters make room.
const MAX_DEAD_LETTERS: i64 = 10_000;
const MAX_DEAD_BYTES: i64 = 256 << 20;
/// The oldest messages of a slow subscriber make room.
const MAX_SUBSCRIBER_MESSAGES: i64 = 10_000;
const MAX_SUBSCRIBER_BYTES: i64 = 64 << 20;
/// Streams forget whole segments, so they keep more than this.
const MAX_CLAIM_BYTES: i64 = 1 << 30;
const MAX_EVENT_BYTES: i64 = 1 << 30;
const MAX_EVENT_AGE: &str = "7D";
const SEGMENT_BYTES: i64 = 16 << 20;

/// The delays that a returned request can have. A queue of messages with equal delays is in the order of their times.
pub(super) const DELAYS: [Duration; 8] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

pub(super) fn requests_queue(agent: &AgentName) -> String {
    format!("bascule.requests.{agent}")
}

pub(super) fn claims_stream(agent: &AgentName) -> String {
    format!("bascule.claims.{agent}")
}

/// Returns the exchange of the shortest delay that is not below `delay`, or of the longest.
pub(super) fn delay_exchange(delay: Duration) -> String {
    let longest = DELAYS[DELAYS.len() - 1];
    delay_name(*DELAYS.iter().find(|known| **known >= delay).unwrap_or(&longest))
}

fn delay_name(delay: Duration) -> String {
    format!("bascule.delay.{}", delay.as_millis())
}

pub(super) async fn declare_exchange(channel: &Channel) -> Result<()> {
    declare_durable_exchange(channel, EXCHANGE, ExchangeKind::Topic).await
}

/// Declares all that the bridge of an agent needs.
pub(super) async fn declare_agent(channel: &Channel, agent: &AgentName) -> Result<()> {
    declare_requests(channel, agent).await?;
    declare_shared(channel).await?;
    declare_claims(channel, agent).await?;
    declare_dead_letters(channel).await?;
    declare_events(channel).await?;
    for delay in DELAYS {
        declare_delay(channel, delay).await?;
    }
    Ok(())
}

async fn declare_requests(channel: &Channel, agent: &AgentName) -> Result<()> {
    let queue = requests_queue(agent);
    declare_durable_queue(channel, &queue, requests_arguments()).await?;
    bind(channel, &queue, EXCHANGE, agent.request_topic().as_str()).await?;
    // Earlier builds bound it to the shared topic too.
    let (exchange, key) = (EXCHANGE.into(), SharedTopics::REQUESTS.into());
    channel.queue_unbind(queue.into(), exchange, key, FieldTable::default()).await
}

pub(super) async fn declare_shared(channel: &Channel) -> Result<()> {
    declare_durable_queue(channel, SHARED_QUEUE, requests_arguments()).await?;
    bind(channel, SHARED_QUEUE, EXCHANGE, SharedTopics::REQUESTS).await
}

fn requests_arguments() -> FieldTable {
    arguments([
        // Replicated in a cluster, and it counts deliveries.
        ("x-queue-type", text("quorum")),
        ("x-max-length", number(MAX_REQUESTS)),
        ("x-max-length-bytes", number(MAX_REQUEST_BYTES)),
        ("x-overflow", text("reject-publish")),
        ("x-delivery-limit", number(MAX_DELIVERIES)),
    ])
}

pub(super) async fn declare_claims(channel: &Channel, agent: &AgentName) -> Result<()> {
    let age = format!("{}s", 2 * CLAIM_WINDOW.as_secs());
    declare_durable_queue(channel, &claims_stream(agent), stream_arguments(&age, MAX_CLAIM_BYTES)).await
}

pub(super) async fn declare_dead_letters(channel: &Channel) -> Result<()> {
    let arguments = arguments([
        ("x-max-length", number(MAX_DEAD_LETTERS)),
        ("x-max-length-bytes", number(MAX_DEAD_BYTES)),
    ]);
    declare_durable_queue(channel, DEAD_QUEUE, arguments).await?;
    bind(channel, DEAD_QUEUE, EXCHANGE, SharedTopics::DEAD_LETTERS).await
}

async fn declare_events(channel: &Channel) -> Result<()> {
    declare_durable_queue(channel, EVENTS_STREAM, stream_arguments(MAX_EVENT_AGE, MAX_EVENT_BYTES)).await?;
    bind(channel, EVENTS_STREAM, EXCHANGE, "provider.mcp.#").await
}

/// An exchange and its queue. Messages leave the queue after the delay and go to the queue that is their routing key.
async fn declare_delay(channel: &Channel, delay: Duration) -> Result<()> {
    let name = delay_name(delay);
    let arguments = arguments([
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", number(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))),
        ("x-dead-letter-exchange", text(DEFAULT_EXCHANGE)),
        // A message stays here until the other queue has taken it.
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
        ("x-max-length", number(MAX_REQUESTS)),
    ]);
    declare_durable_exchange(channel, &name, ExchangeKind::Fanout).await?;
    declare_durable_queue(channel, &name, arguments).await?;
    bind(channel, &name, &name, "").await
}

/// Declares a queue that ends with its connection, and returns its name.
pub(super) async fn declare_subscriber(channel: &Channel, pattern: &str) -> Result<ShortString> {
    let options =
        QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
    let arguments = arguments([
        ("x-max-length", number(MAX_SUBSCRIBER_MESSAGES)),
        ("x-max-length-bytes", number(MAX_SUBSCRIBER_BYTES)),
    ]);
    let queue = channel.queue_declare("".into(), options, arguments).await?;
    bind(channel, queue.name().as_str(), EXCHANGE, pattern).await?;
    Ok(queue.name().clone())
}

fn stream_arguments(age: &str, bytes: i64) -> FieldTable {
    arguments([
        ("x-queue-type", text("stream")),
        ("x-max-age", text(age)),
        ("x-max-length-bytes", number(bytes)),
        ("x-stream-max-segment-size-bytes", number(SEGMENT_BYTES)),
    ])
}

async fn declare_durable_exchange(channel: &Channel, name: &str, kind: ExchangeKind) -> Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await
}

async fn declare_durable_queue(channel: &Channel, name: &str, arguments: FieldTable) -> Result<()> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await.map(|_| ())
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str) -> Result<()> {
    let options = QueueBindOptions::default();
    channel.queue_bind(queue.into(), exchange.into(), key.into(), options, FieldTable::default()).await
}

pub(super) fn arguments<const N: usize>(pairs: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in pairs {
        table.insert(name.into(), value);
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

pub(super) fn number(value: i64) -> AMQPValue {
    AMQPValue::LongLongInt(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-09
    #[test]
    fn chooses_the_next_longer_delay() {
        let check = |millis, name: &str| assert_eq!(delay_exchange(Duration::from_millis(millis)), name);
        check(1, "bascule.delay.100");
        check(100, "bascule.delay.100");
        check(1001, "bascule.delay.2000");
        check(1_000_000, "bascule.delay.300000");
    }
}
