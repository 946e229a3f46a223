//! Requests: claims between replicas, refusals, returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bascule_bus::{AgentName, BusError, Claim, Envelope};
use bascule_testkit::RabbitMqServer;
use futures_util::FutureExt;
use futures_util::future::join_all;
use lapin::BasicProperties;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use serde_json::value::to_raw_value;

use crate::support::{
    agent, claim, connect, id_of, message, next, next_message, request, subscribe, topic, vhost, win, within,
};

// req: BU-02, BU-09
#[tokio::test]
async fn request_without_a_queue_is_an_error_for_its_publisher_alone() {
    let bus = connect(&vhost()).await;
    let error = bus.publish(&topic("tool.invoke.mcp.nobody"), &message("m-0")).await.unwrap_err();
    assert!(matches!(error, BusError::Refused { .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("no bridge has served `tool.invoke.mcp.nobody`"), "{error}");
    let mut queue = bus.requests(&agent(), 100).await.unwrap();
    // They are confirmed together, yet each gets its own result.
    let results = join_all((0..60).map(|number| {
        let to = if number % 3 == 0 { "tool.invoke.mcp.nobody" } else { "tool.invoke.mcp.a" };
        let (bus, message) = (&bus, message(&format!("m-{number}")));
        async move { bus.publish(&topic(to), &message).await.is_ok() }
    }));
    for (number, is_taken) in results.await.into_iter().enumerate() {
        assert_eq!(is_taken, number % 3 != 0, "{number}");
    }
    for _ in 0..40 {
        next(&mut queue).await.acknowledge().await.unwrap();
    }
}

// req: BU-06, BU-09
#[tokio::test]
async fn one_of_two_replicas_wins_each_race_for_a_claim() {
    let url = vhost();
    let (one, two) = (connect(&url).await, connect(&url).await);
    let mut first = one.requests(&agent(), 1).await.unwrap();
    let mut second = two.requests(&agent(), 1).await.unwrap();
    let mut winners = [0, 0];
    for number in 0..50 {
        // Two messages with one id: each replica gets one of them.
        let id = format!("m-{number}");
        request(&one, &id).await;
        request(&two, &id).await;
        let deliveries = [next(&mut first).await, next(&mut second).await];
        let claims = join_all(deliveries.iter().map(claim)).await;
        let is_won: Vec<bool> = claims.iter().map(|claim| matches!(claim, Claim::Won(_))).collect();
        assert!(is_won[0] != is_won[1], "{claims:?}");
        assert!(claims.iter().any(|claim| matches!(claim, Claim::Duplicate)), "{claims:?}");
        winners[usize::from(is_won[1])] += 1;
        for delivery in deliveries {
            delivery.acknowledge().await.unwrap();
        }
    }
    assert_eq!(winners.iter().sum::<i32>(), 50);
}

// req: BU-09
#[tokio::test]
async fn replica_that_starts_later_knows_claims_and_long_answers() {
    let url = vhost();
    let bus = connect(&url).await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    request(&bus, "m-1").await;
    request(&bus, "m-2").await;
    let (first, second) = (next(&mut queue).await, next(&mut queue).await);
    let ticket = win(&first).await;
    // It takes several entries of the stream.
    let answer = Envelope { body: to_raw_value(&"ü".repeat(150_000)).unwrap(), ..message("r-1") };
    assert!(first.record_answer(&ticket, &answer).await.unwrap());
    first.acknowledge().await.unwrap();
    win(&second).await;
    drop(queue);
    let later = connect(&url).await;
    let mut queue = later.requests(&agent(), 4).await.unwrap();
    request(&later, "m-1").await;
    request(&later, "m-2").await;
    let (one, two) = (next(&mut queue).await, next(&mut queue).await);
    let Claim::Answered(same) = claim(&one).await else { panic!("it was answered") };
    assert!(same.to_bytes() == answer.to_bytes());
    assert!(matches!(claim(&two).await, Claim::Duplicate));
    second.acknowledge().await.unwrap();
}

// req: BU-09
#[tokio::test]
async fn unreadable_request_is_delivered_as_it_came() {
    let bus = connect(&vhost()).await;
    let mut queue = bus.requests(&agent(), 1).await.unwrap();
    bus.publish_bytes(&topic("tool.invoke.mcp.a"), b"\x00garbage").await.unwrap();
    let garbage = next(&mut queue).await;
    let unreadable = garbage.message.content.as_ref().unwrap_err();
    assert_eq!(
        (garbage.message.topic.as_str(), &*unreadable.payload),
        ("tool.invoke.mcp.a", &b"\x00garbage"[..])
    );
    garbage.acknowledge().await.unwrap();
    bus.publish_bytes(&topic("tool.invoke.mcp"), br#"{"version":9}"#).await.unwrap();
    let newer = next(&mut queue).await;
    assert!(newer.message.content.as_ref().unwrap_err().reason.contains("version 9"));
}

// req: BU-09
#[tokio::test]
async fn returned_requests_come_in_the_order_of_their_times() {
    let bus = connect(&vhost()).await;
    let mut queue = bus.requests(&agent(), 10).await.unwrap();
    let delays = [("m-1", 1900), ("m-2", 90), ("m-3", 900), ("m-4", 0)];
    for (id, _) in delays {
        bus.publish(&topic("tool.invoke.mcp"), &message(id)).await.unwrap();
    }
    let mut deliveries = Vec::new();
    for _ in delays {
        deliveries.push(next(&mut queue).await);
    }
    for (delivery, (_, delay)) in deliveries.into_iter().zip(delays) {
        delivery.return_after(Duration::from_millis(delay)).await.unwrap();
    }
    for expected in ["m-4", "m-2", "m-3", "m-1"] {
        let again = next(&mut queue).await;
        assert_eq!((id_of(&again.message).as_str(), again.attempt), (expected, 2));
        assert_eq!(again.message.topic.as_str(), "tool.invoke.mcp.a");
        again.acknowledge().await.unwrap();
    }
}

// req: BU-09
#[tokio::test]
async fn attempts_are_counted_over_returns_and_losses() {
    let bus = connect(&vhost()).await;
    let mut queue = bus.requests(&agent(), 1).await.unwrap();
    request(&bus, "m-1").await;
    for attempt in 1..=4 {
        let delivery = next(&mut queue).await;
        assert_eq!(delivery.attempt, attempt);
        match attempt % 2 {
            0 => delivery.return_after(Duration::from_millis(1)).await.unwrap(),
            _ => drop(delivery),
        }
    }
    assert_eq!(next(&mut queue).await.attempt, 5);
}

// req: BU-06
#[tokio::test]
async fn dropped_queue_leaves_its_requests_to_others() {
    let url = vhost();
    let bus = connect(&url).await;
    let mut queue = bus.requests(&agent(), 8).await.unwrap();
    for number in 0..5 {
        request(&bus, &format!("m-{number}")).await;
    }
    let handled = next(&mut queue).await;
    drop(queue);
    let mut other = connect(&url).await.requests(&agent(), 8).await.unwrap();
    for _ in 1..5 {
        let delivery = next(&mut other).await;
        assert_ne!(id_of(&delivery.message), "m-0");
        delivery.acknowledge().await.unwrap();
    }
    // The one in progress can still be settled.
    handled.acknowledge().await.unwrap();
}

// req: BU-02, BU-09
#[tokio::test]
async fn request_for_an_agent_without_a_bridge_is_reported() {
    let bus = connect(&vhost()).await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    let shared = topic("tool.invoke.mcp");
    bus.publish(&shared, &Envelope { source: "never-run".into(), ..message("m-1") }).await.unwrap();
    let reported = next(&mut queue).await;
    let unreadable = reported.message.content.as_ref().unwrap_err();
    let expected = "no bridge has served `tool.invoke.mcp.never-run`";
    assert!(unreadable.reason.contains(expected), "{}", unreadable.reason);
    // It could not be reported, and comes back to this bridge as what it is: not its own.
    reported.return_after(Duration::from_millis(1)).await.unwrap();
    let again = next(&mut queue).await;
    assert_eq!(again.message.topic, shared);
    assert!(again.message.content.as_ref().unwrap_err().reason.contains("names another agent"));
    again.acknowledge().await.unwrap();
}

// req: BU-01, BU-09
#[tokio::test]
async fn refused_message_fails_alone() {
    let limited = RabbitMqServer::shared().limited_vhost_url();
    let bridge = connect(&limited.replace("limited:limited", "guest:guest")).await;
    let mut queue = bridge.requests(&agent(), 100).await.unwrap();
    let _closed = bridge.requests(&AgentName::parse("closed").unwrap(), 1).await.unwrap();
    let mut messages = subscribe(&bridge, "tool.result.#").await;
    let bus = connect(&limited).await;
    let mut reconnections = bus.reconnections();
    // Requests share a batch, other messages a channel.
    for kind in ["tool.invoke.mcp", "tool.result"] {
        let results = join_all((0..60).map(|number| {
            let to = if number % 7 == 3 { "closed" } else { "a" };
            let (bus, message) = (&bus, message(&format!("{kind}-{number}")));
            async move { bus.publish(&topic(&format!("{kind}.{to}")), &message).await }
        }));
        for (number, result) in results.await.into_iter().enumerate() {
            match result {
                Ok(()) => assert_ne!(number % 7, 3),
                Err(error) => {
                    assert_eq!(number % 7, 3, "{error}");
                    assert!(matches!(error, BusError::Refused { .. }), "{error}");
                    assert!(error.to_string().contains("ACCESS_REFUSED"), "{error}");
                }
            }
        }
    }
    assert!(bus.is_connected());
    let mut ids = std::collections::HashSet::new();
    while ids.len() < 51 {
        // What was taken before the refusal comes twice.
        let delivery = next(&mut queue).await;
        ids.insert(id_of(&delivery.message));
        delivery.acknowledge().await.unwrap();
    }
    ids.clear();
    while ids.len() < 51 {
        ids.insert(id_of(&next_message(&mut messages).await));
    }
    // The connection has stayed.
    assert!(reconnections.next().now_or_never().is_none());
}

// req: BU-09
#[tokio::test]
async fn returned_request_comes_once_though_other_messages_are_refused() {
    let bus = connect(&RabbitMqServer::shared().limited_vhost_url()).await;
    let mut queue = bus.requests(&agent(), 100).await.unwrap();
    let mut deliveries = Vec::new();
    for number in 0..100 {
        request(&bus, &format!("m-{number}")).await;
        deliveries.push(next(&mut queue).await);
    }
    let (returned, refused) = (AtomicBool::new(false), topic("tool.result.closed"));
    let refusals = async {
        while !returned.load(Ordering::Relaxed) {
            bus.publish(&refused, &message("r-1")).await.unwrap_err();
        }
    };
    let returns = async {
        while !deliveries.is_empty() {
            let batch = deliveries.drain(..10);
            let results =
                join_all(batch.map(|delivery| delivery.return_after(Duration::from_millis(1)))).await;
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        returned.store(true, Ordering::Relaxed);
    };
    tokio::join!(refusals, returns);
    // This one comes after all copies of the others.
    request(&bus, "last").await;
    let mut ids = std::collections::HashSet::new();
    while !ids.contains("last") {
        let delivery = next(&mut queue).await;
        let id = id_of(&delivery.message);
        if id == "last" && delivery.attempt == 1 {
            delivery.return_after(Duration::from_millis(1)).await.unwrap();
            continue;
        }
        assert!(ids.insert(id), "{:?} comes twice", delivery.message);
        delivery.acknowledge().await.unwrap();
    }
    assert_eq!(ids.len(), 101);
}

// req: BU-02, BU-09
#[tokio::test]
async fn request_for_a_full_queue_is_routed_when_there_is_room_and_reported_after_many_attempts() {
    let url = vhost();
    let bus = connect(&url).await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let full = full_queue(&channel).await;
    let to_full = |id: &str| Envelope { source: "full".into(), ..message(id) };
    while bus.publish(&topic("tool.invoke.mcp.full"), &to_full("m-0")).await.is_ok() {}
    bus.publish(&topic("tool.invoke.mcp"), &to_full("m-1")).await.unwrap();
    let mut attempts = FieldTable::default();
    attempts.insert("bascule-attempts".into(), AMQPValue::LongLongInt(299));
    let properties = BasicProperties::default().with_headers(attempts);
    let (shared, options) = ("bascule.shared".into(), BasicPublishOptions::default());
    let payload = to_full("m-2").to_bytes();
    channel.basic_publish("".into(), shared, options, &payload, properties).await.unwrap();
    let reported = next(&mut queue).await;
    let unreadable = reported.message.content.as_ref().unwrap_err();
    assert!(unreadable.reason.contains("is full"), "{}", unreadable.reason);
    assert_eq!(*unreadable.payload, *payload);
    reported.acknowledge().await.unwrap();
    channel.queue_purge(full.into(), QueuePurgeOptions::default()).await.unwrap();
    let routed = within(async {
        loop {
            let options = BasicGetOptions { no_ack: true };
            match channel.basic_get(full.into(), options).await.unwrap() {
                Some(message) => return message.delivery.data,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    assert_eq!(routed.await, to_full("m-1").to_bytes());
}

/// Declares a queue for the requests of the agent `full`, which has room for one. Returns its name.
async fn full_queue(channel: &lapin::Channel) -> &'static str {
    let name = "bascule.requests.full";
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    channel.queue_declare(name.into(), QueueDeclareOptions::default(), arguments).await.unwrap();
    let (exchange, key) = ("bascule".into(), "tool.invoke.mcp.full".into());
    let options = QueueBindOptions::default();
    channel.queue_bind(name.into(), exchange, key, options, FieldTable::default()).await.unwrap();
    name
}

// req: BU-02, BU-09
#[tokio::test]
async fn bridge_without_the_right_to_route_a_request_leaves_it_to_another_one() {
    let limited = RabbitMqServer::shared().limited_vhost_url();
    let (one, two) =
        (connect(&limited).await, connect(&limited.replace("limited:limited", "guest:guest")).await);
    let _limited = one.requests(&agent(), 4).await.unwrap();
    let mut queue = two.requests(&AgentName::parse("closed").unwrap(), 4).await.unwrap();
    let mut ids = std::collections::HashSet::new();
    for number in 0..4 {
        let message = Envelope { source: "closed".into(), ..message(&format!("m-{number}")) };
        two.publish(&topic("tool.invoke.mcp"), &message).await.unwrap();
    }
    while ids.len() < 4 {
        let delivery = next(&mut queue).await;
        ids.insert(id_of(&delivery.message));
        delivery.acknowledge().await.unwrap();
    }
}
