//! Messages for the cases.

use bascule_bus::{
    AgentName, Bus, BusSubscription, Envelope, Headers, MessageId, ReceivedItem, ReceivedMessage,
    RequestDelivery, RequestQueue, Timestamp, Topic,
};
use serde_json::value::RawValue;

pub(crate) fn agent() -> AgentName {
    AgentName::parse("a").unwrap()
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
    bus.publish(&Topic::parse(topic).unwrap(), &message(id, source)).await.unwrap();
}

pub(crate) fn id_of(delivery: &RequestDelivery) -> String {
    delivery.message.content.as_ref().unwrap().message_id.to_string()
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
