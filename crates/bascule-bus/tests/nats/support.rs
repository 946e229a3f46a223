//! Servers, connections and messages for the tests.

use bascule_bus::{
    AgentName, Bus, BusOptions, BusSubscription, BusUrl, Claim, ClaimTicket, Envelope, Headers, MessageId,
    ReceivedItem, ReceivedMessage, RequestDelivery, RequestQueue, Timestamp, Topic, TopicPattern,
};
use bascule_testkit::NatsServer;
use serde_json::value::RawValue;

pub(crate) fn options(server: &NatsServer) -> BusOptions {
    BusOptions::new(BusUrl::parse(&server.url()).unwrap())
}

pub(crate) async fn connect(server: &NatsServer) -> Bus {
    Bus::connect(&options(server)).await.unwrap()
}

/// A client that is not ours.
pub(crate) async fn raw_client(server: &NatsServer) -> async_nats::Client {
    async_nats::connect(server.url()).await.unwrap()
}

pub(crate) fn jetstream(client: &async_nats::Client) -> async_nats::jetstream::Context {
    async_nats::jetstream::new(client.clone())
}

pub(crate) fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

pub(crate) fn topic(text: &str) -> Topic {
    Topic::parse(text).unwrap()
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

pub(crate) fn message(id: &str, source: &str) -> Envelope {
    Envelope {
        message_id: self::id(id),
        kind: "ToolInvokeRequest".into(),
        correlation_id: None,
        reply_to: None,
        source: source.to_owned().into(),
        destination: None,
        timestamp: Timestamp::from_unix_millis(0),
        headers: Headers::new(),
        body: RawValue::from_string("{}".into()).unwrap(),
        unknown: Default::default(),
    }
}

pub(crate) async fn publish(bus: &Bus, topic: &str, id: &str, source: &str) {
    bus.publish(&self::topic(topic), &message(id, source)).await.unwrap();
}

pub(crate) async fn subscribe(bus: &Bus, pattern: &str) -> BusSubscription {
    bus.subscribe(&TopicPattern::parse(pattern).unwrap()).await.unwrap()
}

pub(crate) async fn next(queue: &mut RequestQueue) -> RequestDelivery {
    queue.next().await.expect("the bus is open")
}

pub(crate) async fn next_message(subscription: &mut BusSubscription) -> ReceivedMessage {
    match subscription.next().await.expect("the bus is open") {
        ReceivedItem::Message(message) => message,
        ReceivedItem::Lost(count) => panic!("{count} messages were lost"),
    }
}

pub(crate) fn id_of(message: &ReceivedMessage) -> String {
    message.content.as_ref().unwrap().message_id.to_string()
}

pub(crate) async fn win(delivery: &RequestDelivery, id: &str) -> ClaimTicket {
    match delivery.claim(&self::id(id)).await.unwrap() {
        Claim::Won(ticket) => ticket,
        other => panic!("nobody else has begun it: {other:?}"),
    }
}
