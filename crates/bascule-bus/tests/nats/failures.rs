//! Lost servers and lost replicas.

use std::collections::BTreeSet;
use std::time::Duration;

use bascule_bus::{Bus, BusOptions, BusUrl, Claim, ReceivedItem, publish_answer};
use bascule_testkit::{NatsServer, TcpProxy};
use futures_util::FutureExt;

use crate::support::{
    agent, connect, id, id_of, jetstream, message, next, next_message, publish, raw_client, subscribe, topic,
    win,
};

// req: BU-09
#[tokio::test]
async fn killed_server_loses_no_request() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 8).await.unwrap();
    for number in 0..50 {
        publish(&bus, "tool.invoke.mcp.a", &format!("m-{number}"), "a").await;
    }
    let mut done = BTreeSet::new();
    let mut open = Vec::new();
    for number in 0..10 {
        let delivery = next(&mut queue).await;
        let name = id_of(&delivery.message);
        let ticket = win(&delivery, &name).await;
        match number % 2 {
            0 => open.push((delivery, ticket)),
            _ => {
                assert!(delivery.record_answer(&ticket, &message("r", "bridge")).await.unwrap());
                delivery.acknowledge().await.unwrap();
                done.insert(name);
            }
        }
    }
    server.kill();
    server.restart();
    // What had begun goes on: the claims have survived as well.
    for (delivery, ticket) in open {
        assert!(delivery.record_answer(&ticket, &message("r", "bridge")).await.unwrap());
        done.insert(id_of(&delivery.message));
        delivery.acknowledge().await.unwrap();
    }
    while done.len() < 50 {
        let delivery = next(&mut queue).await;
        let name = id_of(&delivery.message);
        match delivery.claim(&id(&name)).await.unwrap() {
            Claim::Won(ticket) => {
                assert!(delivery.record_answer(&ticket, &message("r", "bridge")).await.unwrap());
                assert!(done.insert(name));
            }
            // The server had not written the delivery or the acknowledgement to the disk.
            Claim::Answered(_) | Claim::Published => assert!(done.contains(&name)),
            other => panic!("{name}: {other:?}"),
        }
        delivery.acknowledge().await.unwrap();
    }
}

// req: BU-09
#[tokio::test]
async fn lost_server_is_reconnected_and_subscriptions_survive() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    let mut subscription = subscribe(&bus, "tool.result.#").await;
    let mut queue = bus.requests(&agent("a"), 4).await.unwrap();
    let (mut reconnections, mut others) = (bus.reconnections(), bus.reconnections());
    for round in 0..3 {
        assert!(reconnections.next().now_or_never().is_none());
        server.restart();
        reconnections.next().await;
        assert!(bus.is_connected());
        // Nobody takes a reconnection away from another task, or from one that comes later.
        assert!(others.next().now_or_never().is_some());
        assert!(others.next().now_or_never().is_none());
        let name = format!("m-{round}");
        publish(&bus, "tool.result.a", &name, "bridge").await;
        assert_eq!(id_of(&next_message(&mut subscription).await), name);
        publish(&bus, "tool.invoke.mcp.a", &name, "a").await;
        let delivery = next(&mut queue).await;
        assert_eq!(id_of(&delivery.message), name);
        win(&delivery, &name).await;
        delivery.acknowledge().await.unwrap();
    }
}

// req: BU-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_waits_for_a_lost_server() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 4).await.unwrap();
    server.kill();
    let lost = bus.clone();
    let publishing = tokio::spawn(async move { publish(&lost, "tool.invoke.mcp.a", "m-1", "a").await });
    server.restart();
    publishing.await.unwrap();
    assert_eq!(id_of(&next(&mut queue).await.message), "m-1");
}

// req: BU-09
#[tokio::test]
async fn publish_to_a_server_that_stays_away_fails() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    server.kill();
    let fail = async |topic: &str, operation: &str| {
        // The first message may still go into the connection that is already lost.
        let error = loop {
            if let Err(error) = bus.publish(&self::topic(topic), &message("m-1", "a")).await {
                break error;
            }
        };
        assert!(error.is_retryable());
        let expected = format!("could not {operation}: the broker did not respond within 10 s");
        assert_eq!(error.to_string(), expected);
    };
    tokio::join!(fail("tool.invoke.mcp.a", "publish a request"), fail("tool.result.a", "publish"));
}

/// A replica on a runtime of its own, which ends without a word.
fn replica_that_dies(url: String, request: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = bascule_bus::BusOptions::new(bascule_bus::BusUrl::parse(&url).unwrap());
        let bus = bascule_bus::Bus::connect(&options).await.unwrap();
        let mut queue = bus.requests(&agent("a"), 1).await.unwrap();
        let delivery = next(&mut queue).await;
        win(&delivery, request).await;
        std::mem::forget((delivery, queue, bus));
    });
    // The connection ends with its tasks; nothing is sent.
    runtime.shutdown_background();
}

// req: BU-06, BU-09
#[tokio::test]
async fn request_of_a_dead_replica_goes_to_another() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let url = server.url();
    std::thread::spawn(|| replica_that_dies(url, "m-1")).join().unwrap();
    let mut queue = bus.requests(&agent("a"), 1).await.unwrap();
    let delivery = next(&mut queue).await;
    assert_eq!((id_of(&delivery.message).as_str(), delivery.attempt), ("m-1", 2));
    assert!(matches!(delivery.claim(&id("m-1")).await.unwrap(), Claim::Abandoned(_)));
}

// req: BU-09
#[tokio::test]
async fn request_that_is_kept_stays_with_its_replica() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 1).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let delivery = next(&mut queue).await;
    // A later request is not kept. Once it is delivered again, the first would have been, too.
    publish(&bus, "tool.invoke.mcp.a", "m-2", "a").await;
    let url = server.url();
    std::thread::spawn(|| replica_that_dies(url, "m-2")).join().unwrap();
    let mut other = connect(&server).await.requests(&agent("a"), 1).await.unwrap();
    let keep = async {
        loop {
            tokio::time::sleep(bascule_bus::KEEP_INTERVAL).await;
            delivery.keep().await.unwrap();
        }
    };
    let again = tokio::select! {
        () = keep => unreachable!("the loop is endless"),
        again = next(&mut other) => again,
    };
    assert_eq!((id_of(&again.message).as_str(), again.attempt), ("m-2", 2));
}

// req: BU-09
#[tokio::test]
async fn request_that_is_open_here_is_not_delivered_a_second_time() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let slow = next(&mut queue).await;
    let context = jetstream(&raw_client(&server).await);
    let stream = context.get_stream("BASCULE_REQUESTS").await.unwrap();
    let redelivered = async {
        while stream.consumer_info("agent-a").await.unwrap().num_redelivered == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = redelivered => {}
        again = next(&mut queue) => panic!("delivered again: {}", again.attempt),
    }
    publish(&bus, "tool.invoke.mcp.a", "m-2", "a").await;
    let other = next(&mut queue).await;
    assert_eq!(id_of(&other.message), "m-2");
    slow.acknowledge().await.unwrap();
    other.acknowledge().await.unwrap();
    while stream.consumer_info("agent-a").await.unwrap().num_ack_pending > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// req: BU-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_a_connection_that_is_cut_arrives() {
    const ANSWERS: usize = 100;
    let server = NatsServer::start();
    let direct = connect(&server).await;
    let mut listener = subscribe(&direct, "tool.result.a").await;
    let proxy = TcpProxy::start(server.port());
    let url = BusUrl::parse(&format!("nats://127.0.0.1:{}", proxy.port())).unwrap();
    let bus = Bus::connect(&BusOptions::new(url)).await.unwrap();
    let publishing = tokio::spawn(async move {
        for number in 0..ANSWERS {
            let answer = message(&format!("r-{number}"), "bridge");
            // The client does not know it yet, and writes to the connection that is gone.
            if number % 3 == 0 {
                proxy.cut();
            }
            while publish_answer(&bus, &topic("tool.result.a"), &answer).await.is_err() {}
        }
        publish(&direct, "tool.result.a", "end", "bridge").await;
    });
    let mut missing: BTreeSet<String> = (0..ANSWERS).map(|number| format!("r-{number}")).collect();
    loop {
        let id = id_of(&next_message(&mut listener).await);
        if id == "end" {
            break;
        }
        missing.remove(&id);
    }
    assert!(missing.is_empty(), "lost: {missing:?}");
    publishing.await.unwrap();
}

// req: BU-09
#[tokio::test]
async fn removed_stream_is_created_again() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    jetstream(&raw_client(&server).await).delete_stream("BASCULE_REQUESTS").await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    assert_eq!(id_of(&next(&mut queue).await.message), "m-1");
}

// req: BU-09
#[tokio::test]
async fn removed_claims_are_created_again() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    let context = jetstream(&raw_client(&server).await);
    let remove = async || context.delete_stream("KV_BASCULE_CLAIMS").await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    let delivery = next(&mut queue).await;
    remove().await;
    let ticket = win(&delivery, "m-1").await;
    remove().await;
    context.delete_stream("BASCULE_ANSWERS").await.unwrap();
    assert!(delivery.record_answer(&ticket, &message("r-1", "bridge")).await.unwrap());
    remove_if_there(&context).await;
    drop(delivery);
    let again = next(&mut queue).await;
    assert!(matches!(again.claim(&id("m-1")).await.unwrap(), Claim::Answered(_)), "the answer is enough");
}

async fn remove_if_there(context: &async_nats::jetstream::Context) {
    let _ = context.delete_stream("KV_BASCULE_CLAIMS").await;
}

// req: BU-09
#[tokio::test]
async fn slow_subscriber_learns_how_many_messages_it_lost() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut slow = subscribe(&bus, "tool.result.a").await;
    let mut fast = subscribe(&bus, "tool.result.a").await;
    let publisher = connect(&server).await;
    for number in 0..3000 {
        publish(&publisher, "tool.result.a", &format!("m-{number}"), "bridge").await;
        next_message(&mut fast).await;
    }
    // The other subscription comes first at the server, so its messages have come too.
    let Some(ReceivedItem::Lost(lost)) = slow.next().await else { panic!("the queue is bounded") };
    assert_eq!(id_of(&next_message(&mut slow).await), format!("m-{lost}"));
    let mut count = lost + 1;
    while count < 3000 {
        assert_eq!(id_of(&next_message(&mut slow).await), format!("m-{count}"));
        count += 1;
    }
}

// req: BU-09
#[tokio::test]
async fn queue_rests_while_the_server_is_away() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 4).await.unwrap();
    // The queue has asked for more, and a server that is stopped in order ends that with a message.
    publish(&bus, "tool.invoke.mcp.a", "m-0", "a").await;
    next(&mut queue).await.acknowledge().await.unwrap();
    server.stop();
    let mut polls = 0;
    {
        let mut next = std::pin::pin!(queue.next());
        let mut counted = std::future::poll_fn(|context| {
            polls += 1;
            next.as_mut().poll(context).map(|_| ())
        });
        let back = async {
            while bus.is_connected() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Longer than the pause before a look for the consumer.
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        tokio::select! {
            biased;
            () = back => {}
            () = &mut counted => panic!("there is no request"),
        }
    }
    assert!(polls < 100, "it was polled {polls} times");
    server.restart();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    assert_eq!(id_of(&next(&mut queue).await.message), "m-1");
}
