//! Measures requests through a broker beside the broker's own request and reply, in one run:
//! `cargo bench -p bascule-bus --features nats --bench brokers`. It starts a real `nats-server` (see `scripts/test-env`).

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::sync::Arc;
use std::time::{Duration, Instant};

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
    steps(&server).await;
    let queued = queued_request(&server).await;
    println!("{:<56} {:>10.2}", "ratio of the medians", queued.as_secs_f64() / bare.as_secs_f64());
    throughput(&server).await;
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
    measure("NATS: request and reply", async || {
        client.request("echo", payload.clone()).await.expect("the echo runs");
    })
    .await
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

/// A request through the queue: stored, claimed, its answer recorded and published, acknowledged.
async fn queued_request(server: &NatsServer) -> Duration {
    let agent = connect(server).await;
    let _bridge = start_bridge(server).await;
    let mut answers =
        agent.subscribe(&TopicPattern::parse("tool.result.a").expect("a pattern")).await.expect("open");
    let (ids, topic) = (MessageIdGenerator::new(1), topic("tool.invoke.mcp.a"));
    measure("NATS: request through queue, claim and recorded answer", async || {
        let request = Envelope { message_id: ids.generate(), ..message("m") };
        agent.publish(&topic, &request).await.expect("stored");
        answers.next().await.expect("open");
    })
    .await
}

/// Many requests at a time through two replicas.
async fn throughput(server: &NatsServer) {
    let agent = connect(server).await;
    let _bridges = [start_bridge(server).await, start_bridge(server).await];
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
async fn start_bridge(server: &NatsServer) -> JoinSet<()> {
    let bus = connect(server).await;
    let agent = AgentName::parse("a").expect("a name");
    let mut queue = bus.requests(&agent, 256).await.expect("a queue");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut calls = JoinSet::new();
        while let Some(delivery) = queue.next().await {
            calls.spawn(answer(bus.clone(), delivery));
            while calls.try_join_next().is_some() {}
        }
    });
    tasks
}

async fn answer(bus: Bus, delivery: RequestDelivery) {
    let request = delivery.message.content.as_ref().expect("an envelope").clone();
    if let Claim::Won(ticket) = delivery.claim(&request.message_id).await.expect("claimed") {
        let answer = message("r");
        assert!(delivery.record_answer(&ticket, &answer).await.expect("recorded"));
        bus.publish(&topic("tool.result.a"), &answer).await.expect("published");
    }
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
