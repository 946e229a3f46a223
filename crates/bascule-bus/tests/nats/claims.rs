//! Claims between replicas on different connections.

use std::collections::BTreeSet;

use bascule_bus::{Bus, Claim, RequestQueue};
use bascule_testkit::NatsServer;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedSender;

use crate::support::{agent, connect, id, id_of, message, next, options, publish, win};

// req: BU-09
#[tokio::test]
async fn one_of_two_racing_replicas_wins() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut one = bus.requests(&agent("a"), 1).await.unwrap();
    let mut two = connect(&server).await.requests(&agent("a"), 1).await.unwrap();
    for round in 0..50 {
        let name = format!("m/{round}");
        publish(&bus, "tool.invoke.mcp.a", &name, "a").await;
        publish(&bus, "tool.invoke.mcp.a", &name, "a").await;
        let (first, second) = tokio::join!(next(&mut one), next(&mut two));
        let id = id(&name);
        let (first_claim, second_claim) = tokio::join!(first.claim(&id), second.claim(&id));
        match (first_claim.unwrap(), second_claim.unwrap()) {
            (Claim::Won(_), Claim::Duplicate) | (Claim::Duplicate, Claim::Won(_)) => {}
            claims => panic!("{claims:?}"),
        }
        tokio::try_join!(first.acknowledge(), second.acknowledge()).unwrap();
    }
}

// req: BU-09
#[tokio::test]
async fn slow_and_new_replica_record_one_answer() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut one = bus.requests(&agent("a"), 1).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let slow = next(&mut one).await;
    let slow_ticket = win(&slow, "m-1").await;
    // The slow replica says nothing: the server gives the request to another one.
    let mut two = connect(&server).await.requests(&agent("a"), 1).await.unwrap();
    let again = next(&mut two).await;
    assert_eq!((id_of(&again.message).as_str(), again.attempt), ("m-1", 2));
    let Claim::Abandoned(ticket) = again.claim(&id("m-1")).await.unwrap() else { panic!("it has begun") };
    // All replicas give the answer to a request the same id.
    let (slow_answer, answer) = (message("r", "slow"), message("r", "new"));
    let (late, new) =
        tokio::join!(slow.record_answer(&slow_ticket, &slow_answer), again.record_answer(&ticket, &answer));
    let (late, new) = (late.unwrap(), new.unwrap());
    assert!(late != new, "{late} {new}");
    let Claim::Answered(recorded) = again.claim(&id("m-1")).await.unwrap() else { panic!("it is answered") };
    assert_eq!(recorded.source, if late { "slow" } else { "new" });
    // Releasing a claim that was answered changes nothing.
    slow.release(slow_ticket).await.unwrap();
    assert!(matches!(again.claim(&id("m-1")).await.unwrap(), Claim::Answered(_)));
}

// req: BU-09
#[tokio::test]
async fn agents_may_use_the_same_message_id() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    for name in ["a", "b"] {
        let mut queue = bus.requests(&agent(name), 1).await.unwrap();
        publish(&bus, &format!("tool.invoke.mcp.{name}"), "m-1", name).await;
        win(&next(&mut queue).await, "m-1").await;
    }
}

// req: BU-09
#[tokio::test]
async fn long_answer_is_recorded_as_an_object() {
    let server = NatsServer::start();
    let mut limited = options(&server);
    limited.max_message_bytes = Some(10_000);
    let bus = Bus::connect(&limited).await.unwrap();
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let delivery = next(&mut queue).await;
    let ticket = win(&delivery, "m-1").await;
    let mut answer = message("r-1", "bridge");
    answer.body = RawValue::from_string(format!("\"{}\"", "x".repeat(3_000_000))).unwrap();
    assert!(delivery.record_answer(&ticket, &answer).await.unwrap());
    let Claim::Answered(recorded) = delivery.claim(&id("m-1")).await.unwrap() else {
        panic!("it is answered")
    };
    assert_eq!(recorded.to_bytes(), answer.to_bytes());
}

// req: BU-06, BU-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_under_load_win_each_request_once() {
    const REQUESTS: usize = 500;
    const DUPLICATES: usize = REQUESTS / 10;
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let (handled, mut handlings) = tokio::sync::mpsc::unbounded_channel();
    let mut replicas = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let queue = connect(&server).await.requests(&agent("a"), 16).await.unwrap();
        replicas.spawn(handle_all(queue, handled.clone()));
    }
    for number in 0..REQUESTS {
        let name = format!("m-{number}");
        publish(&bus, "tool.invoke.mcp.a", &name, "a").await;
        if number < DUPLICATES {
            publish(&bus, "tool.invoke.mcp.a", &name, "a").await;
        }
    }
    let mut won = BTreeSet::new();
    for _ in 0..REQUESTS + DUPLICATES {
        let (name, is_won) = handlings.recv().await.unwrap();
        assert!(!is_won || won.insert(name), "won twice");
    }
    assert_eq!(won.len(), REQUESTS);
}

/// Handles requests one after the other, and reports them and whether they were won.
async fn handle_all(mut queue: RequestQueue, handled: UnboundedSender<(String, bool)>) {
    while let Some(delivery) = queue.next().await {
        let name = id_of(&delivery.message);
        let claim = delivery.claim(&id(&name)).await.unwrap();
        if let Claim::Won(ticket) = &claim {
            assert!(delivery.record_answer(ticket, &message("r", "bridge")).await.unwrap());
        }
        delivery.acknowledge().await.unwrap();
        handled.send((name, matches!(claim, Claim::Won(_)))).unwrap();
    }
}
