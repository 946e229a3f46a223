//! The queue of requests: one replica for each request, claims, returns.

use std::time::Duration;

use bascule_bus::{AgentName, Claim, Envelope, SharedTopics, Topic, TopicPattern};
use serde_json::value::RawValue;

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
    // A request on the shared topic may be passed by one on the agent's own.
    let mut ids = [id_of(&third), id_of(&fourth)];
    ids.sort();
    assert_eq!(ids, ["m-3", "m-4"]);
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
    let mut check_repetition = async || {
        publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
        let repetition = next(&mut queue).await;
        let claim = repetition.claim(&id("m-1")).await.unwrap();
        assert!(matches!(claim, Claim::Answered(answer) if answer.message_id.as_str() == "r-1"));
        repetition.acknowledge().await.unwrap();
    };
    // The answer may be out already, so a repetition is no duplicate of a request in progress.
    check_repetition().await;
    first.acknowledge().await.unwrap();
    check_repetition().await;
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
pub(crate) async fn repetition_that_comes_during_the_claim_is_recognised(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    let request = message("m-1", "a");
    let body = RawValue::from_string("[1]".into()).unwrap();
    let reply_to = Some(Topic::parse("tool.result.a.new").unwrap());
    for (name, other) in [
        ("Duplicate", request.clone()),
        ("Reused", Envelope { body, ..request.clone() }),
        ("InProgress", Envelope { reply_to, ..request.clone() }),
    ] {
        let id = id(name);
        for envelope in [request.clone(), other] {
            let envelope = Envelope { message_id: id.clone(), ..envelope };
            bus.publish(&Topic::parse("tool.invoke.mcp.a").unwrap(), &envelope).await.unwrap();
        }
        let (first, second) = (next(&mut queue).await, next(&mut queue).await);
        let claims = tokio::join!(first.claim(&id), second.claim(&id));
        let claims = [claims.0.unwrap(), claims.1.unwrap()];
        // The broker decides which of them is the first.
        assert_eq!(claims.iter().filter(|claim| matches!(claim, Claim::Won(_))).count(), 1, "{claims:?}");
        assert!(claims.iter().any(|claim| format!("{claim:?}") == name), "{name}: {claims:?}");
        first.acknowledge().await.unwrap();
        second.acknowledge().await.unwrap();
    }
}

// req: BU-09
pub(crate) async fn reused_id_with_another_body_is_recognised(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let first = next(&mut queue).await;
    let Claim::Won(ticket) = first.claim(&id("m-1")).await.unwrap() else { panic!("nobody has begun it") };
    let other = Envelope { body: RawValue::from_string("[1]".into()).unwrap(), ..message("m-1", "a") };
    let send = async || bus.publish(&Topic::parse("tool.invoke.mcp.a").unwrap(), &other).await.unwrap();
    send().await;
    let second = next(&mut queue).await;
    assert!(matches!(second.claim(&id("m-1")).await.unwrap(), Claim::Reused));
    second.acknowledge().await.unwrap();
    // Its answer is not for the other one either.
    assert!(first.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    first.acknowledge().await.unwrap();
    send().await;
    assert!(matches!(next(&mut queue).await.claim(&id("m-1")).await.unwrap(), Claim::Reused));
}

// req: BU-09
pub(crate) async fn duplicate_with_another_topic_waits_for_the_answer(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let first = next(&mut queue).await;
    let Claim::Won(ticket) = first.claim(&id("m-1")).await.unwrap() else { panic!("nobody has begun it") };
    let reply_to = Some(Topic::parse("tool.result.a.new").unwrap());
    let repeated = Envelope { reply_to, ..message("m-1", "a") };
    bus.publish(&Topic::parse("tool.invoke.mcp.a").unwrap(), &repeated).await.unwrap();
    let second = next(&mut queue).await;
    assert!(matches!(second.claim(&id("m-1")).await.unwrap(), Claim::InProgress));
    second.return_after(Duration::from_millis(1)).await.unwrap();
    let second = next(&mut queue).await;
    assert!(matches!(second.claim(&id("m-1")).await.unwrap(), Claim::InProgress), "also when it comes again");
    assert!(first.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    let claim = second.claim(&id("m-1")).await.unwrap();
    assert!(matches!(claim, Claim::Answered(answer) if answer.message_id.as_str() == "r-1"));
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

// req: BU-02, BU-09
pub(crate) async fn request_that_names_no_agent_is_reported_by_one_bridge(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut a = bus.requests(&agent(), 4).await.unwrap();
    let mut b = broker.connect().await.requests(&AgentName::parse("b").unwrap(), 4).await.unwrap();
    publish(&bus, SharedTopics::REQUESTS, "m-1", "no agent").await;
    let delivery = tokio::select! {
        delivery = next(&mut a) => delivery,
        delivery = next(&mut b) => delivery,
    };
    let unreadable = delivery.message.content.as_ref().unwrap_err();
    assert!(unreadable.reason.starts_with("`source` names no agent"), "{}", unreadable.reason);
    assert_eq!(&unreadable.payload[..], message("m-1", "no agent").to_bytes());
    delivery.acknowledge().await.unwrap();
    // Neither has another copy.
    publish(&bus, SharedTopics::REQUESTS, "m-2", "a").await;
    publish(&bus, SharedTopics::REQUESTS, "m-3", "b").await;
    assert_eq!([id_of(&next(&mut a).await), id_of(&next(&mut b).await)], ["m-2", "m-3"]);
}

// req: BU-02, BU-03
pub(crate) async fn request_on_the_shared_topic_with_a_wrong_field_reaches_its_agent(broker: &impl Broker) {
    let bus = broker.connect().await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    let mut request: serde_json::Value = serde_json::from_slice(&message("m-1", "a").to_bytes()).unwrap();
    request["replyTo"] = "no topic".into();
    let topic = Topic::parse(SharedTopics::REQUESTS).unwrap();
    bus.publish_bytes(&topic, request.to_string().as_bytes()).await.unwrap();
    let delivery = next(&mut queue).await;
    // The agent can be answered, so the request has a claim like any other.
    let payload = &delivery.message.content.as_ref().unwrap_err().payload;
    let (envelope, mistake) = Envelope::parse_leniently(payload).unwrap();
    assert!(mistake.unwrap().contains("replyTo"));
    assert!(matches!(delivery.claim(&envelope.message_id).await.unwrap(), Claim::Won(_)));
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
