//! Claims between replicas on different connections.

use std::collections::BTreeSet;

use bascule_bus::{Bus, BusError, Claim, ContentTrust, Envelope, RequestQueue};
use bascule_testkit::NatsServer;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedSender;

use crate::support::{
    agent, connect, id, id_of, jetstream, message, next, next_message, options, publish, raw_client,
    subscribe, topic, win,
};

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
    let mut answers = subscribe(&bus, "tool.result.a").await;
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
    let published = next_message(&mut answers).await.content.unwrap();
    assert_eq!(published.source, if late { "slow" } else { "new" });
    assert!(matches!(again.claim(&id("m-1")).await.unwrap(), Claim::Published));
    // Releasing a claim that was answered changes nothing.
    slow.release(slow_ticket).await.unwrap();
    let claim = again.claim(&id("m-1")).await.unwrap();
    assert!(matches!(&claim, Claim::Answered(answer) if answer.source == published.source), "{claim:?}");
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
async fn too_long_answer_is_refused_and_a_shorter_one_recorded() {
    let server = NatsServer::start();
    let mut limited = options(&server);
    limited.max_message_bytes = Some(10_000);
    let bus = Bus::connect(&limited).await.unwrap();
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let delivery = next(&mut queue).await;
    let ticket = win(&delivery, "m-1").await;
    let mut answer = message("r-1", "bridge");
    answer.body = RawValue::from_string(format!("\"{}\"", "x".repeat(10_000))).unwrap();
    let error = delivery.record_answer(&ticket, &answer).await.unwrap_err();
    assert!(matches!(error, BusError::TooLarge { .. }), "{error}");
    assert!(delivery.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
}

// req: BU-06, BU-09
#[tokio::test]
async fn server_publishes_the_recorded_answer_and_no_other() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut answers = subscribe(&bus, "tool.result.a.#").await;
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    for reply in [None, Some("tool.result.a.7")] {
        let name = format!("m-{reply:?}");
        let request = Envelope { reply_to: reply.map(topic), ..message(&name, "a") };
        bus.publish(&topic("tool.invoke.mcp.a"), &request).await.unwrap();
        let delivery = next(&mut queue).await;
        let ticket = win(&delivery, &name).await;
        assert!(delivery.publishes_recorded_answer());
        let headers = ContentTrust::ToolOutput.to_headers();
        let answer = Envelope { headers, ..message("r-1", "bridge") };
        assert!(delivery.record_answer(&ticket, &answer).await.unwrap());
        assert!(!delivery.record_answer(&ticket, &message("r-2", "bridge")).await.unwrap());
        let received = next_message(&mut answers).await;
        assert_eq!(received.topic.as_str(), reply.unwrap_or("tool.result.a"));
        assert_eq!(received.content.unwrap().to_bytes(), answer.to_bytes());
        delivery.acknowledge().await.unwrap();
    }
    // The refused answers would have come before this one.
    publish(&bus, "tool.result.a", "last", "bridge").await;
    assert_eq!(id_of(&next_message(&mut answers).await), "last");
}

// req: BU-06
#[tokio::test]
async fn answer_to_an_inbox_is_recorded_and_published_by_the_bridge() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    let request = Envelope { reply_to: Some(topic("_INBOX.x.1")), ..message("m-1", "a") };
    bus.publish(&topic("tool.invoke.mcp.a"), &request).await.unwrap();
    let delivery = next(&mut queue).await;
    let ticket = win(&delivery, "m-1").await;
    assert!(!delivery.publishes_recorded_answer());
    assert!(delivery.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    assert!(!delivery.record_answer(&ticket, &message("r-2", "bridge")).await.unwrap());
}

// req: BU-09
#[tokio::test]
async fn answer_without_a_claim_is_the_only_one() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let early = next(&mut queue).await;
    let ticket = early.early_ticket(&id("m-1")).expect("the id is new");
    // Another replica gets the request, because this one says nothing, and finds no claim.
    let mut two = connect(&server).await.requests(&agent("a"), 1).await.unwrap();
    let again = next(&mut two).await;
    assert!(again.early_ticket(&id("m-1")).is_none(), "it was delivered before");
    let second = win(&again, "m-1").await;
    assert!(early.record_answer(&ticket, &message("r", "early")).await.unwrap());
    assert!(!again.record_answer(&second, &message("r", "late")).await.unwrap());
    assert!(matches!(again.claim(&id("m-1")).await.unwrap(), Claim::Published));
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let repeated = next(&mut queue).await;
    let Claim::Answered(answer) = repeated.claim(&id("m-1")).await.unwrap() else { panic!("it is answered") };
    assert_eq!(answer.source, "early");
}

// req: BU-09
#[tokio::test]
async fn repeated_request_does_not_begin_before_its_claim() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let (first, second) = (next(&mut queue).await, next(&mut queue).await);
    assert!(first.early_ticket(&id("m-1")).is_some() && second.early_ticket(&id("m-1")).is_none());
    // The stream has not checked the id of a plain publish.
    let client = raw_client(&server).await;
    client.publish("tool.invoke.mcp.a", message("m-2", "a").to_bytes().into()).await.unwrap();
    let plain = next(&mut queue).await;
    assert!(plain.early_ticket(&id("m-2")).is_none());
}

// req: BU-09
#[tokio::test]
async fn late_release_does_not_let_an_answered_request_run_again() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut one = bus.requests(&agent("a"), 2).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let slow = next(&mut one).await;
    let slow_ticket = win(&slow, "m-1").await;
    let mut two = connect(&server).await.requests(&agent("a"), 2).await.unwrap();
    let again = next(&mut two).await;
    let Claim::Abandoned(ticket) = again.claim(&id("m-1")).await.unwrap() else { panic!("it has begun") };
    assert!(again.record_answer(&ticket, &message("r", "new")).await.unwrap());
    slow.release(slow_ticket).await.unwrap();
    again.acknowledge().await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let repeated = next(&mut two).await;
    assert!(matches!(repeated.claim(&id("m-1")).await.unwrap(), Claim::Answered(_)));
}

// req: BU-09
#[tokio::test]
async fn full_bucket_refuses_claims_and_forgets_none() {
    let server = NatsServer::start();
    let claims = async_nats::jetstream::stream::Config {
        name: "KV_BASCULE_CLAIMS".into(),
        subjects: vec!["$KV.BASCULE_CLAIMS.>".into()],
        max_messages_per_subject: 1,
        max_messages: 1,
        discard: async_nats::jetstream::stream::DiscardPolicy::New,
        allow_direct: true,
        ..Default::default()
    };
    let context = jetstream(&raw_client(&server).await);
    context.create_stream(claims).await.unwrap();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 4).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp.a", "m-2", "a").await;
    let (first, second) = (next(&mut queue).await, next(&mut queue).await);
    let ticket = win(&first, "m-1").await;
    let error = second.claim(&id("m-2")).await.unwrap_err();
    assert!(matches!(error, BusError::Full), "{error}");
    // What has begun goes on.
    assert!(first.record_answer(&ticket, &message("r", "bridge")).await.unwrap());
    assert!(matches!(first.claim(&id("m-1")).await.unwrap(), Claim::Published));
}

// req: BU-09
#[tokio::test]
async fn answer_is_published_again_by_another_server_process_only() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 1).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let delivery = next(&mut queue).await;
    let ticket = win(&delivery, "m-1").await;
    assert!(delivery.record_answer(&ticket, &message("r", "bridge")).await.unwrap());
    assert!(matches!(delivery.claim(&id("m-1")).await.unwrap(), Claim::Published));
    let mut reconnections = bus.reconnections();
    server.restart();
    reconnections.next().await;
    // The server may have been killed between the record and the publication.
    assert!(matches!(delivery.claim(&id("m-1")).await.unwrap(), Claim::Answered(_)));
}

// req: BU-09
#[tokio::test]
async fn bucket_of_claims_never_forgets_by_itself() {
    let server = NatsServer::start();
    let _queue = connect(&server).await.requests(&agent("a"), 1).await.unwrap();
    let context = jetstream(&raw_client(&server).await);
    let config = context.get_stream("KV_BASCULE_CLAIMS").await.unwrap().cached_info().config.clone();
    assert_eq!(config.discard, async_nats::jetstream::stream::DiscardPolicy::New);
    assert!(config.max_age >= bascule_bus::CLAIM_WINDOW, "{config:?}");
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
