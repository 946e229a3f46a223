//! Requests: claims between replicas, refusals, returns.

use std::time::Duration;

use bascule_bus::{BusError, Claim, Envelope};
use futures_util::future::join_all;
use serde_json::value::to_raw_value;

use crate::support::{agent, claim, connect, id_of, message, next, request, topic, vhost, win};

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
    bus.publish_bytes(&topic("tool.invoke.mcp"), br#"{"version":9}"#).await.unwrap();
    let garbage = next(&mut queue).await;
    let unreadable = garbage.message.content.as_ref().unwrap_err();
    assert_eq!(
        (garbage.message.topic.as_str(), &*unreadable.payload),
        ("tool.invoke.mcp.a", &b"\x00garbage"[..])
    );
    garbage.acknowledge().await.unwrap();
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
        assert_eq!(again.message.topic.as_str(), "tool.invoke.mcp");
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
