//! Messages that every listener gets.

use bascule_bus::{ContentTrust, Envelope, ReceivedMessage, Topic, TopicPattern};

use crate::broker::Broker;
use crate::support::{message, next_message, publish};

fn topic_and_id(message: &ReceivedMessage) -> (String, String) {
    (message.topic.to_string(), message.content.as_ref().unwrap().message_id.to_string())
}

// req: BU-01, BU-02
pub(crate) async fn every_subscriber_gets_every_matching_message(broker: &impl Broker) {
    let (listener, publisher) = (broker.connect().await, broker.connect().await);
    let subscribe = async |pattern: &str| {
        let pattern = TopicPattern::parse(pattern).unwrap();
        listener.subscribe(&pattern).await.unwrap()
    };
    let mut one = subscribe("tool.result.a").await;
    let mut two = subscribe("tool.result.a").await;
    let mut star = subscribe("tool.*.a").await;
    let mut hash = subscribe("tool.result.#").await;
    let mut middle = subscribe("tool.#.a").await;
    publish(&publisher, "tool.meta.mcp.b", "m-0", "bridge").await;
    publish(&publisher, "tool.result", "m-1", "bridge").await;
    publish(&publisher, "tool.result.a", "m-2", "bridge").await;
    publish(&publisher, "tool.cancel.mcp.a", "m-3", "bridge").await;
    let expected = ("tool.result.a".to_owned(), "m-2".to_owned());
    assert_eq!(topic_and_id(&next_message(&mut one).await), expected);
    assert_eq!(topic_and_id(&next_message(&mut two).await), expected);
    assert_eq!(topic_and_id(&next_message(&mut star).await), expected);
    assert_eq!(topic_and_id(&next_message(&mut middle).await), expected);
    assert_eq!(topic_and_id(&next_message(&mut middle).await).1, "m-3");
    let mut both = [next_message(&mut hash).await, next_message(&mut hash).await].map(|m| topic_and_id(&m).1);
    both.sort();
    assert_eq!(both, ["m-1", "m-2"], "`#` also matches no segment");
}

// req: BU-03, BU-04
pub(crate) async fn envelope_arrives_unchanged(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut subscription = bus.subscribe(&TopicPattern::parse("tool.result.a").unwrap()).await.unwrap();
    let mut sent = Envelope {
        headers: ContentTrust::ToolOutput.to_headers(),
        reply_to: Some(Topic::parse("tool.result.a.7").unwrap()),
        destination: Some("a".into()),
        ..message("!~m/1", "bridge")
    };
    // Headers that a broker cannot carry travel in the envelope.
    sent.headers.insert("with space: and ü".into(), "two\r\nlines".into());
    sent.headers.insert("empty".into(), "".into());
    sent.unknown.insert("later".into(), serde_json::value::to_raw_value(&[1, 2]).unwrap());
    bus.publish(&Topic::parse("tool.result.a").unwrap(), &sent).await.unwrap();
    let received = next_message(&mut subscription).await.content.unwrap();
    assert_eq!(received.to_bytes(), sent.to_bytes());
}
