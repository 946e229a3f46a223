//! The queue of requests on every bus: one replica for each request, claims, returns.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;
use std::time::Duration;

use bascule_bus::{
    AgentName, Bus, Claim, EmbeddedBus, Envelope, Headers, MessageId, RequestDelivery, Timestamp, Topic,
};
use serde_json::value::RawValue;

fn agent() -> AgentName {
    AgentName::parse("a").unwrap()
}

fn message(id: &str, source: &str) -> Envelope {
    Envelope {
        message_id: MessageId::parse(id).unwrap(),
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

fn id_of(delivery: &RequestDelivery) -> String {
    delivery.message.content.as_ref().unwrap().message_id.to_string()
}

async fn publish(bus: &Bus, topic: &str, id: &str, source: &str) {
    bus.publish(&Topic::parse(topic).unwrap(), &message(id, source)).await.unwrap();
}

fn bus() -> Bus {
    Bus::embedded(Arc::new(EmbeddedBus::default()))
}

// req: BU-06
#[tokio::test]
async fn each_request_goes_to_one_replica_of_its_agent() {
    let bus = bus();
    let (mut one, mut two) =
        (bus.requests(&agent(), 1).await.unwrap(), bus.requests(&agent(), 1).await.unwrap());
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp", "m-2", "a").await;
    publish(&bus, "tool.invoke.mcp", "m-3", "b").await;
    publish(&bus, "tool.invoke.mcp.b", "m-4", "b").await;
    let (first, second) = (one.next().await.unwrap(), two.next().await.unwrap());
    let mut ids = [id_of(&first), id_of(&second)];
    ids.sort();
    assert_eq!(ids, ["m-1", "m-2"]);
    first.acknowledge().await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-5", "a").await;
    assert_eq!(id_of(&one.next().await.unwrap()), "m-5");
}

// req: BU-09
#[tokio::test]
async fn request_that_was_not_acknowledged_is_delivered_again() {
    let bus = bus();
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let first = queue.next().await.unwrap();
    let claim = first.claim(&MessageId::parse("m-1").unwrap()).await.unwrap();
    assert!(matches!(claim, Claim::Won(_)));
    drop(first);
    let again = queue.next().await.unwrap();
    assert_eq!((id_of(&again).as_str(), again.attempt), ("m-1", 2));
    let Claim::Abandoned(ticket) = again.claim(&MessageId::parse("m-1").unwrap()).await.unwrap() else {
        panic!("the first replica has begun it");
    };
    assert!(again.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    assert!(!again.record_answer(&ticket, &message("r-2", "bridge")).await.unwrap());
    again.acknowledge().await.unwrap();
    // A duplicate gets the same answer.
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let duplicate = queue.next().await.unwrap();
    let claim = duplicate.claim(&MessageId::parse("m-1").unwrap()).await.unwrap();
    assert!(matches!(claim, Claim::Answered(answer) if answer.message_id.as_str() == "r-1"));
}

// req: BU-09
#[tokio::test]
async fn duplicate_of_a_request_in_progress_is_recognised() {
    let bus = bus();
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let (first, second) = (queue.next().await.unwrap(), queue.next().await.unwrap());
    let id = MessageId::parse("m-1").unwrap();
    assert!(matches!(first.claim(&id).await.unwrap(), Claim::Won(_)));
    assert!(matches!(second.claim(&id).await.unwrap(), Claim::Duplicate));
}

// req: BU-09
#[tokio::test(start_paused = true)]
async fn returned_request_comes_later_and_can_be_claimed() {
    let bus = bus();
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let first = queue.next().await.unwrap();
    let id = MessageId::parse("m-1").unwrap();
    let Claim::Won(ticket) = first.claim(&id).await.unwrap() else { panic!("nobody has begun it") };
    first.release(ticket).await.unwrap();
    first.return_after(Duration::from_secs(3)).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-2", "a").await;
    let other = queue.next().await.unwrap();
    assert_eq!(id_of(&other), "m-2");
    other.acknowledge().await.unwrap();
    let again = queue.next().await.unwrap();
    assert_eq!((id_of(&again).as_str(), again.attempt), ("m-1", 2));
    assert!(matches!(again.claim(&id).await.unwrap(), Claim::Won(_)));
    bus.close().await;
    assert!(queue.next().await.is_none());
}
