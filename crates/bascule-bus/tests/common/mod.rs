//! Names and messages for the tests of every bus.

#![allow(dead_code, reason = "each test program uses a part of it")]

use bascule_bus::{
    AgentName, Bus, BusSubscription, Envelope, Headers, MessageId, ReceivedItem, ReceivedMessage,
    RequestDelivery, RequestQueue, Timestamp, Topic, TopicPattern,
};
use serde_json::value::RawValue;

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
