//! Measures requests through a broker beside the broker's own request and reply, in one run:
//! `cargo bench -p bascule-bus --features nats --bench brokers`. It starts a real `nats-server` (see `scripts/test-env`).

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{Config, Republish, RetentionPolicy};
use bascule_bus::{
    AgentName, Bus, BusOptions, BusUrl, Claim, ContentTrust, EmbeddedBus, Envelope, MessageId,
    MessageIdGenerator, ReceivedItem, RequestDelivery, Timestamp, Topic, TopicPattern,
};
use bascule_testkit::NatsServer;
use futures_util::StreamExt;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

const ROUNDS: usize = 3_000;
const REQUESTS: usize = 20_000;
const IN_FLIGHT: usize = 64;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run());
}

async fn run() {
    embedded().await;
    let server = NatsServer::start();
    let bare = bare_request(&server).await;
    let floor = work_queue(&server, QueueAnswer::Core).await;
    let stored = work_queue(&server, QueueAnswer::Stored).await;
    steps(&server).await;
    let claimed = queued_request(&server, "NATS: request, begun once it is claimed", Begin::Claimed).await;
    let early = queued_request(&server, "NATS: request, begun at once", Begin::AtOnce).await;
    for (title, median) in [
        ("bare work queue", floor),
        ("bare work queue with stored answers", stored),
        ("request, begun once it is claimed", claimed),
        ("request, begun at once (tools that are safe to repeat)", early),
    ] {
        print_ratio(title, median, bare);
    }
    throughput(&server).await;
}

/// Prints a median in bare requests and replies, with the target.
fn print_ratio(title: &str, median: Duration, bare: Duration) {
    const TARGET: f64 = 2.0;
    let ratio = median.as_secs_f64() / bare.as_secs_f64();
    let verdict = if ratio <= TARGET { "met" } else { "MISSED" };
    println!("{title:<56} {ratio:>9.2}x   target {TARGET}x: {verdict}");
}

/// From the call of `publish` in one task to the message in another.
async fn embedded() {
    let bus = Bus::embedded(Arc::new(EmbeddedBus::default()));
    let topic = topic("tool.result.a");
    let mut messages =
        bus.subscribe(&TopicPattern::parse("tool.result.*").expect("a pattern")).await.expect("open");
    let (received, mut times) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while messages.next().await.is_some() {
            let _ = received.send(Instant::now());
        }
    });
    let mut durations = Vec::new();
    for number in 0..ROUNDS {
        let envelope = message(&format!("m-{number}"));
        let published = Instant::now();
        bus.publish(&topic, &envelope).await.expect("open");
        durations.push(times.recv().await.expect("the reader runs") - published);
    }
    print("embedded: publish to delivery in another task", &mut durations);
    let mut messages =
        bus.subscribe(&TopicPattern::parse("tool.meta.*").expect("a pattern")).await.expect("open");
    let (topic, envelope) = (self::topic("tool.meta.a"), message("m"));
    let one = async || {
        bus.publish(&topic, &envelope).await.expect("open");
        messages.next().await.expect("open");
    };
    measure("embedded: publish and receive in one task", one).await;
}

/// A request to an echo over core NATS, on two connections.
async fn bare_request(server: &NatsServer) -> Duration {
    let connect = async || async_nats::connect(server.url()).await.expect("the server runs");
    let (client, echo) = (connect().await, connect().await);
    let mut requests = echo.subscribe("echo").await.expect("connected");
    echo.flush().await.expect("connected");
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let reply = request.reply.expect("a request");
            echo.publish(reply, request.payload).await.expect("connected");
        }
    });
    let payload: bytes::Bytes = message("m").to_bytes().into();
    // The server may handle the first request before the subscription.
    while client.request("echo", payload.clone()).await.is_err() {}
    measure("NATS: request and reply", async || {
        client.request("echo", payload.clone()).await.expect("the echo runs");
    })
    .await
}

/// The way of an answer to a request from a bare work queue.
#[derive(Clone, Copy)]
enum QueueAnswer {
    /// Published over core NATS.
    Core,
    /// Stored in a stream that publishes what it stores.
    Stored,
}

/// The least that a queue of requests costs: a work queue with explicit acknowledgement, without claims.
async fn work_queue(server: &NatsServer, answer: QueueAnswer) -> Duration {
    let connect = async || async_nats::connect(server.url()).await.expect("the server runs");
    let (client, worker) = (connect().await, connect().await);
    let (name, class, title) = match answer {
        QueueAnswer::Core => ("floor-core", "answer", "NATS: bare work queue, answer over core"),
        QueueAnswer::Stored => {
            ("floor-stored", "store", "NATS: bare work queue, answer stored and republished")
        }
    };
    let mut requests = raw_requests(&worker, name).await;
    let mut answers = client.subscribe(format!("{name}.answer.*")).await.expect("connected");
    client.flush().await.expect("connected");
    let subject = format!("{name}.{class}.x");
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            worker.publish(subject.clone(), request.payload).await.expect("connected");
            let acknowledgement = request.reply.expect("a delivery");
            worker.publish(acknowledgement, "+ACK".into()).await.expect("connected");
        }
    });
    let context = async_nats::jetstream::new(client);
    let payload: bytes::Bytes = message("m").to_bytes().into();
    measure(title, async || {
        let stored = context.publish(format!("{name}.request"), payload.clone()).await.expect("connected");
        answers.next().await.expect("connected");
        stored.await.expect("stored");
    })
    .await
}

/// A work queue, and a stream whose messages the server publishes. One pull asks for all messages.
async fn raw_requests(worker: &async_nats::Client, name: &str) -> async_nats::Subscriber {
    let context = async_nats::jetstream::new(worker.clone());
    let answers = Config {
        name: format!("{name}-answers"),
        subjects: vec![format!("{name}.store.*")],
        republish: Some(Republish {
            source: format!("{name}.store.*"),
            destination: format!("{name}.answer.{{{{wildcard(1)}}}}"),
            headers_only: false,
        }),
        ..Config::default()
    };
    context.create_stream(answers).await.expect("created");
    let requests = Config {
        name: name.into(),
        subjects: vec![format!("{name}.request")],
        retention: RetentionPolicy::WorkQueue,
        ..Config::default()
    };
    let stream = context.create_stream(requests).await.expect("created");
    let config = pull::Config { durable_name: Some("worker".into()), ..pull::Config::default() };
    stream.create_consumer(config).await.expect("created");
    let inbox = worker.new_inbox();
    let messages = worker.subscribe(inbox.clone()).await.expect("connected");
    let body = format!(r#"{{"batch":{ROUNDS},"expires":600000000000}}"#);
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{name}.worker");
    worker.publish_with_reply(subject, inbox, body.into()).await.expect("connected");
    messages
}

/// The steps of a queued request that have a round trip of their own: a message is stored, and a message reaches a listener.
async fn steps(server: &NatsServer) {
    let (bus, other) = (connect(server).await, connect(server).await);
    let (ids, topic) = (MessageIdGenerator::new(3), self::topic("tool.invoke.mcp.nobody"));
    measure("NATS: store a request", async || {
        let request = Envelope { message_id: ids.generate(), ..message("m") };
        bus.publish(&topic, &request).await.expect("stored");
    })
    .await;
    let pattern = TopicPattern::parse("tool.result.b").expect("a pattern");
    let mut messages = bus.subscribe(&pattern).await.expect("open");
    let (topic, envelope) = (self::topic("tool.result.b"), message("m"));
    measure("NATS: publish to a subscriber", async || {
        other.publish(&topic, &envelope).await.expect("connected");
        messages.next().await.expect("open");
    })
    .await;
}

/// The beginning of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Once the claim is stored.
    Claimed,
    /// At once, as a call that may run twice.
    AtOnce,
}

/// A request through the queue: stored, claimed, its answer recorded and published, acknowledged.
async fn queued_request(server: &NatsServer, title: &str, begin: Begin) -> Duration {
    let agent = connect(server).await;
    let _bridge = start_bridge(server, begin).await;
    let mut answers =
        agent.subscribe(&TopicPattern::parse("tool.result.a").expect("a pattern")).await.expect("open");
    let (ids, topic) = (MessageIdGenerator::new(10 + begin as u64), topic("tool.invoke.mcp.a"));
    measure(title, async || {
        let request = Envelope { message_id: ids.generate(), ..message("m") };
        agent.publish(&topic, &request).await.expect("stored");
        answers.next().await.expect("open");
    })
    .await
}

/// Many requests at a time through two replicas.
async fn throughput(server: &NatsServer) {
    let agent = connect(server).await;
    let _bridges = [start_bridge(server, Begin::Claimed).await, start_bridge(server, Begin::Claimed).await];
    let mut answers =
        agent.subscribe(&TopicPattern::parse("tool.result.a").expect("a pattern")).await.expect("open");
    let ids = Arc::new(MessageIdGenerator::new(2));
    let started = Instant::now();
    let mut publishers = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (agent, ids, topic) = (agent.clone(), ids.clone(), topic("tool.invoke.mcp.a"));
        publishers.spawn(async move {
            for _ in 0..REQUESTS / IN_FLIGHT {
                let request = Envelope { message_id: ids.generate(), ..message("m") };
                agent.publish(&topic, &request).await.expect("stored");
            }
        });
    }
    let mut count = 0;
    while count < REQUESTS / IN_FLIGHT * IN_FLIGHT {
        match answers.next().await.expect("open") {
            ReceivedItem::Message(_) => count += 1,
            ReceivedItem::Lost(lost) => count += usize::try_from(lost).expect("a small number"),
        }
    }
    let rate = count as f64 / started.elapsed().as_secs_f64();
    println!(
        "{:<56} {rate:>10.0}/s",
        format!("NATS: {count} requests, two replicas, {IN_FLIGHT} publishers")
    );
}

/// A replica that answers each request at once.
async fn start_bridge(server: &NatsServer, begin: Begin) -> JoinSet<()> {
    let bus = connect(server).await;
    let agent = AgentName::parse("a").expect("a name");
    let mut queue = bus.requests(&agent, 256).await.expect("a queue");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut calls = JoinSet::new();
        while let Some(delivery) = queue.next().await {
            calls.spawn(answer(delivery, begin));
            while calls.try_join_next().is_some() {}
        }
    });
    tasks
}

/// Does what a bridge does for a call that takes no time.
async fn answer(delivery: RequestDelivery, begin: Begin) {
    let request = delivery.message.content.as_ref().expect("an envelope").clone();
    let (id, answer) = (&request.message_id, message("r"));
    let claim = delivery.claim(id);
    match delivery.early_ticket(id).filter(|_| begin == Begin::AtOnce) {
        Some(ticket) => {
            let (claim, recorded) = tokio::join!(claim, delivery.record_answer(&ticket, &answer));
            assert!(matches!(claim.expect("claimed"), Claim::Won(_)) && recorded.expect("recorded"));
        }
        None => {
            let Claim::Won(ticket) = claim.await.expect("claimed") else { panic!("each request has an id") };
            assert!(delivery.record_answer(&ticket, &answer).await.expect("recorded"));
        }
    }
    assert!(delivery.publishes_recorded_answer());
    delivery.acknowledge().await.expect("acknowledged");
}

async fn connect(server: &NatsServer) -> Bus {
    let url = BusUrl::parse(&server.url()).expect("an address");
    Bus::connect(&BusOptions::new(url)).await.expect("the server runs")
}

fn topic(text: &str) -> Topic {
    Topic::parse(text).expect("a topic")
}

/// A message of typical size.
fn message(id: &str) -> Envelope {
    let body =
        format!(r#"{{"toolCallId":"t-1","toolName":"a:b","arguments":{{"text":"{}"}}}}"#, "x".repeat(200));
    Envelope {
        message_id: MessageId::parse(id).expect("an id"),
        kind: "ToolInvokeRequest".into(),
        correlation_id: None,
        reply_to: None,
        source: "a".into(),
        destination: None,
        timestamp: Timestamp::from_unix_millis(0),
        headers: ContentTrust::ToolRequest.to_headers(),
        body: RawValue::from_string(body).expect("JSON"),
        unknown: Default::default(),
    }
}

/// Prints the median and the 99th percentile, and returns the median.
async fn measure(name: &str, mut work: impl AsyncFnMut()) -> Duration {
    let mut durations = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        work().await;
        durations.push(started.elapsed());
    }
    print(name, &mut durations)
}

fn print(name: &str, durations: &mut [Duration]) -> Duration {
    durations.sort();
    let (median, late) = (durations[durations.len() / 2], durations[durations.len() * 99 / 100]);
    println!("{name:<56} {median:>10.1?} {late:>10.1?}");
    median
}
