//! Connections and messages for the cases.

use std::time::Duration;

use bascule_bus::{
    AgentName, Bus, BusOptions, BusSubscription, BusUrl, Claim, ClaimTicket, Envelope, Headers, MessageId,
    ReceivedItem, ReceivedMessage, RequestDelivery, RequestQueue, Timestamp, Topic, TopicPattern,
};
use bascule_testkit::RabbitMqServer;
use serde_json::value::RawValue;

/// A wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn agent() -> AgentName {
    AgentName::parse("a").unwrap()
}

pub(crate) fn options(url: &str) -> BusOptions {
    BusOptions::new(BusUrl::parse(url).unwrap())
}

pub(crate) async fn connect(url: &str) -> Bus {
    Bus::connect(&options(url)).await.unwrap()
}

/// A virtual host of the shared broker that no other case uses.
pub(crate) fn vhost() -> String {
    RabbitMqServer::shared().vhost_url()
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

pub(crate) fn message(id: &str) -> Envelope {
    Envelope {
        message_id: self::id(id),
        kind: "ToolInvokeRequest".into(),
        correlation_id: None,
        reply_to: None,
        source: "a".into(),
        destination: None,
        timestamp: Timestamp::from_unix_millis(0),
        headers: Headers::new(),
        body: RawValue::from_string("{}".into()).unwrap(),
        unknown: Default::default(),
    }
}

pub(crate) fn topic(text: &str) -> Topic {
    Topic::parse(text).unwrap()
}

pub(crate) async fn subscribe(bus: &Bus, pattern: &str) -> BusSubscription {
    bus.subscribe(&TopicPattern::parse(pattern).unwrap()).await.unwrap()
}

pub(crate) async fn request(bus: &Bus, id: &str) {
    bus.publish(&agent().request_topic(), &message(id)).await.unwrap();
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it happens in time")
}

/// Repeats a call while the broker is away.
pub(crate) async fn persistently<T>(work: impl AsyncFn() -> Result<T, bascule_bus::BusError>) -> T {
    within(async {
        loop {
            match work().await {
                Ok(value) => return value,
                Err(error) if error.is_retryable() => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

pub(crate) async fn next(queue: &mut RequestQueue) -> RequestDelivery {
    within(queue.next()).await.expect("the bus is open")
}

pub(crate) async fn next_message(subscription: &mut BusSubscription) -> ReceivedMessage {
    match within(subscription.next()).await.expect("the bus is open") {
        ReceivedItem::Message(message) => message,
        ReceivedItem::Lost(count) => panic!("{count} messages were lost"),
    }
}

pub(crate) fn id_of(message: &ReceivedMessage) -> String {
    message.content.as_ref().unwrap().message_id.to_string()
}

pub(crate) async fn claim(delivery: &RequestDelivery) -> Claim {
    let id = delivery.message.content.as_ref().unwrap().message_id.clone();
    persistently(async || delivery.claim(&id).await).await
}

pub(crate) async fn win(delivery: &RequestDelivery) -> ClaimTicket {
    match claim(delivery).await {
        Claim::Won(ticket) => ticket,
        other => panic!("expected to win: {other:?}"),
    }
}
