//! The queue of requests: one replica for each request, claims, returns.

use std::time::Duration;

use bascule_bus::{AgentName, Claim, TopicPattern};

use crate::broker::Broker;
use crate::support::{agent, id, id_of, message, next, publish};

// req: BU-02, BU-06
pub(crate) async fn each_request_goes_to_one_replica_of_its_agent(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut one = bus.requests(&agent(), 1).await.unwrap();
    let mut two = broker.connect().await.requests(&agent(), 1).await.unwrap();
    let mut other = bus.requests(&AgentName::parse("b").unwrap(), 2).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp", "m-2", "a").await;
    publish(&bus, "tool.invoke.mcp", "m-3", "b").await;
    publish(&bus, "tool.invoke.mcp.b", "m-4", "b").await;
    let (first, second) = (next(&mut one).await, next(&mut two).await);
    let mut ids = [id_of(&first), id_of(&second)];
    ids.sort();
    assert_eq!(ids, ["m-1", "m-2"]);
    let (third, fourth) = (next(&mut other).await, next(&mut other).await);
    assert_eq!([id_of(&third), id_of(&fourth)], ["m-3", "m-4"]);
    first.acknowledge().await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-5", "a").await;
    assert_eq!(id_of(&next(&mut one).await), "m-5");
}

// req: BU-09
pub(crate) async fn request_that_was_not_acknowledged_is_delivered_again(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let first = next(&mut queue).await;
    assert!(matches!(first.claim(&id("m-1")).await.unwrap(), Claim::Won(_)));
    drop(first);
    let again = next(&mut queue).await;
    assert_eq!((id_of(&again).as_str(), again.attempt), ("m-1", 2));
    let claim = again.claim(&id("m-1")).await.unwrap();
    assert!(matches!(claim, Claim::Abandoned(_)), "the first replica has begun it");
}

// req: BU-09
pub(crate) async fn only_one_of_two_answers_is_recorded(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let delivery = next(&mut queue).await;
    let Claim::Won(ticket) = delivery.claim(&id("m-1")).await.unwrap() else { panic!("nobody has begun it") };
    assert!(delivery.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    assert!(!delivery.record_answer(&ticket, &message("r-2", "bridge")).await.unwrap());
}

// req: BU-09
pub(crate) async fn duplicate_of_an_answered_request_gets_the_same_answer(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let first = next(&mut queue).await;
    let Claim::Won(ticket) = first.claim(&id("m-1")).await.unwrap() else { panic!("nobody has begun it") };
    assert!(first.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    first.acknowledge().await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let claim = next(&mut queue).await.claim(&id("m-1")).await.unwrap();
    assert!(matches!(claim, Claim::Answered(answer) if answer.message_id.as_str() == "r-1"));
}

// req: BU-09
pub(crate) async fn duplicate_of_a_request_in_progress_is_recognised(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let (first, second) = (next(&mut queue).await, next(&mut queue).await);
    assert!(matches!(first.claim(&id("m-1")).await.unwrap(), Claim::Won(_)));
    assert!(matches!(second.claim(&id("m-1")).await.unwrap(), Claim::Duplicate));
}

// req: BU-09
pub(crate) async fn returned_request_comes_later_and_can_be_claimed(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp.a", "m-2", "a").await;
    let first = next(&mut queue).await;
    let Claim::Won(ticket) = first.claim(&id("m-1")).await.unwrap() else { panic!("nobody has begun it") };
    first.release(ticket).await.unwrap();
    first.return_after(Duration::from_secs(3)).await.unwrap();
    let other = next(&mut queue).await;
    assert_eq!(id_of(&other), "m-2");
    other.acknowledge().await.unwrap();
    let again = next(&mut queue).await;
    assert_eq!((id_of(&again).as_str(), again.attempt), ("m-1", 2));
    assert!(matches!(again.claim(&id("m-1")).await.unwrap(), Claim::Won(_)));
}

// req: BU-09
pub(crate) async fn full_replica_leaves_requests_to_others(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut full = bus.requests(&agent(), 2).await.unwrap();
    for number in 1..=3 {
        publish(&bus, "tool.invoke.mcp.a", &format!("m-{number}"), "a").await;
    }
    let (first, second) = (next(&mut full).await, next(&mut full).await);
    assert_eq!([id_of(&first), id_of(&second)], ["m-1", "m-2"]);
    let mut other = broker.connect().await.requests(&agent(), 1).await.unwrap();
    let third = next(&mut other).await;
    assert_eq!((id_of(&third).as_str(), third.attempt), ("m-3", 1));
}

// req: BU-01
pub(crate) async fn closed_bus_ends_queues_and_subscriptions(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 1).await.unwrap();
    let mut subscription = bus.subscribe(&TopicPattern::parse("tool.#").unwrap()).await.unwrap();
    bus.close().await;
    assert!(queue.next().await.is_none());
    assert!(subscription.next().await.is_none());
}
