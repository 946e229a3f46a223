//! Messages as other programs see them, and dead letters.

use bascule_bus::{BusError, ContentTrust, DeadLetter, DeadLetterId, Envelope};
use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use serde_json::value::to_raw_value;

use crate::support::{agent, connect, message, next_message, options, subscribe, topic, vhost, within};

// req: BU-02, BU-04
#[tokio::test]
async fn other_programs_see_topic_headers_and_persistence() {
    let url = vhost();
    let bus = connect(&url).await;
    let channel = Connection::connect(&url, ConnectionProperties::default())
        .await
        .unwrap()
        .create_channel()
        .await
        .unwrap();
    let queue =
        channel.queue_declare("plain".into(), QueueDeclareOptions::default(), FieldTable::default()).await;
    let queue = queue.unwrap().name().clone();
    let (key, table) = ("tool.result.a".into(), FieldTable::default());
    channel
        .queue_bind(queue.clone(), "bascule".into(), key, QueueBindOptions::default(), table.clone())
        .await
        .unwrap();
    let mut consumer =
        channel.basic_consume(queue, "".into(), BasicConsumeOptions::default(), table).await.unwrap();
    let sent = Envelope { headers: ContentTrust::ToolOutput.to_headers(), ..message("m-1") };
    bus.publish(&topic("tool.result.a"), &sent).await.unwrap();
    let delivery = within(consumer.next()).await.unwrap().unwrap();
    assert_eq!(delivery.data, sent.to_bytes());
    let properties = &delivery.properties;
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(
        (properties.delivery_mode(), properties.message_id().as_ref().unwrap().as_str()),
        (&Some(2), "m-1")
    );
    let trust = properties.headers().as_ref().unwrap().inner().get("rb-content-trust").cloned();
    assert_eq!(trust, Some(AMQPValue::LongString("tool-output".into())));
}

// req: BU-03
#[tokio::test]
async fn message_over_the_limit_is_refused() {
    let mut options = options(&vhost());
    options.max_message_bytes = Some(200);
    let bus = bascule_bus::Bus::connect(&options).await.unwrap();
    let long = Envelope { body: to_raw_value(&"x".repeat(200)).unwrap(), ..message("m-1") };
    let error = bus.publish(&topic("tool.result.a"), &long).await.unwrap_err();
    assert!(matches!(error, BusError::TooLarge { limit: 200, .. }), "{error}");
    assert_eq!(bus.max_message_bytes(), 200);
}

// req: BU-01
#[tokio::test]
async fn message_of_several_megabytes_arrives_whole() {
    let bus = connect(&vhost()).await;
    let mut messages = subscribe(&bus, "tool.#").await;
    let long = Envelope { body: to_raw_value(&"ä".repeat(2_000_000)).unwrap(), ..message("m-1") };
    bus.publish(&topic("tool.result.a"), &long).await.unwrap();
    assert_eq!(next_message(&mut messages).await.content.unwrap().to_bytes(), long.to_bytes());
}

fn dead_letter(id: &str) -> Envelope {
    let letter = DeadLetter {
        reason: "no envelope".into(),
        topic: "tool.invoke.mcp.a".into(),
        message: id.into(),
        base64: false,
        original_bytes: None,
    };
    Envelope { kind: "DeadLetter".into(), body: to_raw_value(&letter).unwrap(), ..message(id) }
}

// req: BU-09
#[tokio::test]
async fn dead_letters_are_listed_without_being_taken_and_removed_by_id() {
    let url = vhost();
    let bus = connect(&url).await;
    let _bridge = bus.requests(&agent(), 1).await.unwrap();
    let dead = topic("tool.dead.mcp");
    for id in ["d-1", "d-2", "d-3"] {
        bus.publish(&dead, &dead_letter(id)).await.unwrap();
    }
    bus.publish_bytes(&dead, b"\xff").await.unwrap();
    let list = async |limit| {
        let letters = bus.dead_letters(limit).await.unwrap();
        letters.into_iter().map(|letter| letter.letter.message).collect::<Vec<_>>()
    };
    assert_eq!(list(10).await, ["d-1", "d-2", "d-3", "/w=="]);
    assert_eq!(list(2).await, ["d-1", "d-2"]);
    assert!(bus.remove_dead_letter(&DeadLetterId("d-2".into())).await.unwrap());
    assert!(!bus.remove_dead_letter(&DeadLetterId("d-2".into())).await.unwrap());
    // Another program finds them too, those that are no dead letters included.
    let letters = connect(&url).await.dead_letters(10).await.unwrap();
    assert_eq!(
        letters.iter().map(|letter| &*letter.letter.message).collect::<Vec<_>>(),
        ["d-1", "d-3", "/w=="]
    );
    assert!(letters[2].letter.base64 && letters[2].letter.reason.starts_with("this is no dead letter: "));
    assert!(bus.remove_dead_letter(&letters[2].id).await.unwrap());
    assert_eq!(list(10).await, ["d-1", "d-3"]);
}
