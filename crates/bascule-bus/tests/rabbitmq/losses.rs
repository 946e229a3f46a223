//! A broker that is killed and restarted, and connections that are cut.

use std::time::Duration;

use bascule_bus::{Bus, Claim, ReceivedItem};
use bascule_testkit::{RabbitMqServer, RabbitMqSetting, TcpProxy};
use futures_util::{FutureExt, StreamExt};
use lapin::Consumer;
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;

use crate::support::{
    agent, claim, connect, id_of, message, next, next_message, persistently, request, subscribe, topic,
    vhost, win, within,
};

// req: BU-09
#[tokio::test]
async fn stopped_or_killed_broker_loses_no_request_and_is_reconnected() {
    let mut broker = RabbitMqServer::start();
    let bus = connect(&broker.url()).await;
    let (mut reconnections, mut others) = (bus.reconnections(), bus.reconnections());
    let mut messages = subscribe(&bus, "tool.result.#").await;
    let mut queue = bus.requests(&agent(), 100).await.unwrap();
    // RabbitMQ 3.10 does not find its first stream again if it is killed within seconds of making it.
    broker.stop();
    broker.restart();
    within(reconnections.next()).await;
    // Nobody takes a reconnection away from another task.
    assert!(others.next().now_or_never().is_some());
    assert!(others.next().now_or_never().is_none());
    for number in 0..20 {
        persistently(async || bus.publish(&agent().request_topic(), &message(&format!("m-{number}"))).await)
            .await;
    }
    let in_progress = next(&mut queue).await;
    let ticket = win(&in_progress).await;
    broker.kill();
    broker.restart();
    within(reconnections.next()).await;
    assert!(bus.is_connected());
    // The same replica goes on with the request that it had begun. A broker that has just started drops the first entries of a
    // stream; one operation is enough nevertheless.
    assert!(in_progress.record_answer(&ticket, &message("r-0")).await.unwrap());
    in_progress.acknowledge().await.unwrap();
    let mut ids = Vec::new();
    while ids.len() < 19 {
        let delivery = next(&mut queue).await;
        // A delivery of the lost connection comes again.
        let (id, claim) = (id_of(&delivery.message), claim(&delivery).await);
        delivery.acknowledge().await.unwrap();
        if let Claim::Won(_) = claim {
            assert!(!ids.contains(&id), "`{id}` was claimed twice");
            ids.push(id);
        }
    }
    assert!(!ids.contains(&"m-0".to_owned()), "it was answered before");
    // The subscription is there again, and a duplicate is still known.
    request(&bus, "m-0").await;
    let duplicate = next(&mut queue).await;
    assert!(
        matches!(claim(&duplicate).await, Claim::Answered(answer) if answer.message_id.as_str() == "r-0")
    );
    persistently(async || bus.publish(&topic("tool.result.a"), &message("r-1")).await).await;
    let mut losses = 0;
    let received = loop {
        match within(messages.next()).await.unwrap() {
            ReceivedItem::Lost(count) => losses += count,
            ReceivedItem::Message(received) => break received,
        }
    };
    assert_eq!(id_of(&received), "r-1");
    assert!(losses > 0, "nobody knows what came while the broker was away");
}

// req: BU-09
#[tokio::test]
async fn quiet_subscription_is_not_closed_by_the_broker() {
    let broker = RabbitMqServer::start_with([RabbitMqSetting::ShortAcknowledgementTimeout]);
    let bus = connect(&broker.url()).await;
    let mut messages = subscribe(&bus, "tool.result.a").await;
    let publish = async |id: &str| bus.publish(&topic("tool.result.a"), &message(id)).await.unwrap();
    publish("m-1").await;
    assert_eq!(id_of(&next_message(&mut messages).await), "m-1");
    // A later subscription that acknowledges nothing shows that the time is over.
    let mut forgetful = forgetful_consumer(&broker.url(), "tool.result.a").await;
    publish("m-2").await;
    assert_eq!(id_of(&next_message(&mut messages).await), "m-2");
    within(async { while let Some(Ok(_)) = forgetful.next().await {} }).await;
    publish("m-3").await;
    assert_eq!(id_of(&next_message(&mut messages).await), "m-3");
}

async fn forgetful_consumer(url: &str, key: &str) -> Consumer {
    let connection = lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let table = FieldTable::default();
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare("".into(), options, table.clone()).await.unwrap().name().clone();
    let (exchange, options) = ("bascule".into(), QueueBindOptions::default());
    channel.queue_bind(queue.clone(), exchange, key.into(), options, table.clone()).await.unwrap();
    channel.basic_consume(queue, "".into(), BasicConsumeOptions::default(), table).await.unwrap()
}

// req: BU-09
#[tokio::test]
async fn interrupted_subscription_tells_of_a_loss() {
    let (bus, proxy) = replica(&vhost()).await;
    let mut messages = subscribe(&bus, "tool.result.a").await;
    proxy.cut();
    let Some(ReceivedItem::Lost(_)) = within(messages.next()).await else { panic!("it was interrupted") };
    // From here on nothing is missed.
    bus.publish(&topic("tool.result.a"), &message("m-1")).await.unwrap();
    assert_eq!(id_of(&next_message(&mut messages).await), "m-1");
}

// req: BU-09
#[tokio::test]
async fn repetition_is_answered_though_an_acknowledgement_was_lost() {
    let url = vhost();
    let ((one, proxy), two) = (replica(&url).await, connect(&url).await);
    let mut first = one.requests(&agent(), 1).await.unwrap();
    request(&two, "m-1").await;
    let delivery = next(&mut first).await;
    let ticket = win(&delivery).await;
    assert!(delivery.record_answer(&ticket, &message("r-1")).await.unwrap());
    let mut second = two.requests(&agent(), 1).await.unwrap();
    let mut reconnections = one.reconnections();
    proxy.block();
    // Another replica gets the request, and settles it.
    let taken = next(&mut second).await;
    assert!(matches!(claim(&taken).await, Claim::Answered(_)));
    taken.acknowledge().await.unwrap();
    drop(second);
    within(async {
        while one.is_connected() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    delivery.acknowledge().await.unwrap();
    proxy.unblock();
    within(reconnections.next()).await;
    request(&two, "m-1").await;
    let repeated = next(&mut first).await;
    assert_eq!(repeated.attempt, 1);
    let claim = claim(&repeated).await;
    assert!(matches!(&claim, Claim::Answered(answer) if answer.message_id.as_str() == "r-1"), "{claim:?}");
}

// req: BU-09
#[tokio::test]
async fn request_whose_acknowledgement_was_lost_is_answered_again_by_its_replica() {
    let url = vhost();
    let (bus, proxy) = replica(&url).await;
    let mut queue = bus.requests(&agent(), 1).await.unwrap();
    request(&bus, "m-1").await;
    let delivery = next(&mut queue).await;
    let ticket = win(&delivery).await;
    assert!(delivery.record_answer(&ticket, &message("r-1")).await.unwrap());
    proxy.cut();
    delivery.acknowledge().await.unwrap();
    let again = next(&mut queue).await;
    assert_eq!((id_of(&again.message).as_str(), again.attempt), ("m-1", 2));
    let claim = claim(&again).await;
    assert!(matches!(&claim, Claim::Answered(answer) if answer.message_id.as_str() == "r-1"), "{claim:?}");
}

// req: BU-09
#[tokio::test]
async fn request_that_is_returned_after_its_connection_was_lost_has_one_copy() {
    let url = vhost();
    let (bus, proxy) = replica(&url).await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    request(&bus, "m-1").await;
    let first = next(&mut queue).await;
    proxy.cut();
    // The broker has given the request back to the queue.
    let again = next(&mut queue).await;
    assert_eq!((id_of(&again.message).as_str(), again.attempt), ("m-1", 2));
    first.return_after(Duration::from_millis(1)).await.unwrap();
    // This one comes after a copy of the other.
    request(&bus, "last").await;
    let last = next(&mut queue).await;
    assert_eq!(id_of(&last.message), "last");
    last.return_after(Duration::from_millis(1)).await.unwrap();
    let last = next(&mut queue).await;
    assert_eq!((id_of(&last.message).as_str(), last.attempt), ("last", 2));
}

async fn delete_queue(url: &str, name: &str) {
    let connection = lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.queue_delete(name.into(), lapin::options::QueueDeleteOptions::default()).await.unwrap();
}

// req: BU-09
#[tokio::test]
async fn claims_go_on_in_a_stream_that_was_made_again() {
    let url = vhost();
    let bus = connect(&url).await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    for number in 0..5 {
        request(&bus, &format!("m-{number}")).await;
        let delivery = next(&mut queue).await;
        win(&delivery).await;
        delivery.acknowledge().await.unwrap();
    }
    delete_queue(&url, "bascule.claims.a").await;
    request(&bus, "later").await;
    let later = next(&mut queue).await;
    let ticket = win(&later).await;
    assert!(persistently(async || later.record_answer(&ticket, &message("r")).await).await);
    later.acknowledge().await.unwrap();
}

/// A replica whose connection can be cut.
async fn replica(url: &str) -> (Bus, TcpProxy) {
    let port = RabbitMqServer::shared().port();
    let proxy = TcpProxy::start(port);
    let bus = connect(&url.replace(&format!(":{port}"), &format!(":{}", proxy.port()))).await;
    (bus, proxy)
}

// req: BU-06, BU-09
#[tokio::test]
async fn other_replica_takes_over_from_one_that_lost_the_broker() {
    let url = vhost();
    let ((one, proxy), two) = (replica(&url).await, connect(&url).await);
    let mut first = one.requests(&agent(), 2).await.unwrap();
    request(&two, "begun").await;
    request(&two, "waiting").await;
    let begun = next(&mut first).await;
    let ticket = win(&begun).await;
    let mut second = two.requests(&agent(), 2).await.unwrap();
    let mut reconnections = one.reconnections();
    proxy.block();
    let mut deliveries = [next(&mut second).await, next(&mut second).await];
    deliveries.sort_by_key(|delivery| id_of(&delivery.message));
    let [taken, fresh] = deliveries;
    assert_eq!((id_of(&taken.message).as_str(), taken.attempt), ("begun", 2));
    let Claim::Abandoned(second_ticket) = claim(&taken).await else { panic!("the other one has begun it") };
    win(&fresh).await;
    assert!(taken.record_answer(&second_ticket, &message("r-2")).await.unwrap());
    taken.acknowledge().await.unwrap();
    fresh.acknowledge().await.unwrap();
    // The first one comes back with its own answer, too late.
    proxy.unblock();
    within(reconnections.next()).await;
    assert!(!persistently(async || begun.record_answer(&ticket, &message("r-1")).await).await);
    begun.acknowledge().await.unwrap();
}

// req: BU-09
#[tokio::test]
async fn replica_keeps_a_request_over_a_lost_connection() {
    let url = vhost();
    let (bus, proxy) = replica(&url).await;
    let mut queue = bus.requests(&agent(), 4).await.unwrap();
    request(&bus, "m-1").await;
    let delivery = next(&mut queue).await;
    let ticket = win(&delivery).await;
    let mut reconnections = bus.reconnections();
    proxy.cut();
    within(reconnections.next()).await;
    request(&bus, "m-2").await;
    // It was delivered again before this one, and given to the handler that has it.
    let other = next(&mut queue).await;
    assert_eq!(id_of(&other.message), "m-2");
    assert!(delivery.record_answer(&ticket, &message("r-1")).await.unwrap());
    delivery.acknowledge().await.unwrap();
    other.acknowledge().await.unwrap();
    bus.close().await;
    let mut rest = connect(&url).await.requests(&agent(), 4).await.unwrap();
    request(&connect(&url).await, "m-3").await;
    assert_eq!(id_of(&next(&mut rest).await.message), "m-3");
}

// req: BU-09
#[tokio::test]
async fn operations_wait_for_a_broker_that_comes_back() {
    let (bus, proxy) = replica(&vhost()).await;
    let mut messages = subscribe(&bus, "tool.#").await;
    proxy.cut();
    persistently(async || bus.publish(&topic("tool.meta.mcp.a"), &message("m-1")).await).await;
    let _queue = bus.requests(&agent(), 1).await.unwrap();
    proxy.cut();
    request(&bus, "m-2").await;
    let mut later = subscribe(&bus, "tool.result.a").await;
    bus.publish(&topic("tool.result.a"), &message("m-3")).await.unwrap();
    assert_eq!(id_of(&next_message(&mut later).await), "m-3");
    // The first subscription may have missed messages, and goes on.
    within(async {
        loop {
            bus.publish(&topic("tool.result.b"), &message("m-4")).await.unwrap();
            let received = tokio::time::timeout(Duration::from_millis(100), messages.next()).await;
            if let Ok(Some(ReceivedItem::Message(received))) = received
                && id_of(&received) == "m-4"
            {
                return;
            }
        }
    })
    .await;
}
