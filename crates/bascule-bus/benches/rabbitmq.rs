//! Measures calls over a real RabbitMQ broker: `cargo bench -p bascule-bus --features rabbitmq --bench rabbitmq`.
//!
//! A call is a confirmed request, its delivery, claim and recorded answer, the confirmed answer and the acknowledgement. The
//! broker and all clients share the machine. `BASCULE_BENCH_QUICK` makes it short.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "the program prints its measurements, or fails")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bascule_bus::{
    AgentName, Bus, BusOptions, BusSubscription, BusUrl, Claim, Envelope, Headers, MessageIdGenerator,
    ReceivedItem, RequestDelivery, Timestamp, TopicPattern,
};
use bascule_testkit::RabbitMqServer;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, oneshot};

type Answers = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

#[tokio::main]
async fn main() {
    let broker = RabbitMqServer::start();
    let connect =
        async || Bus::connect(&BusOptions::new(BusUrl::parse(&broker.url()).unwrap())).await.unwrap();
    let calls = if std::env::var_os("BASCULE_BENCH_QUICK").is_some() { 500 } else { 20_000 };
    for (name, replicas, concurrency) in
        [("one call at a time", 1, 1), ("one replica", 1, 256), ("two replicas", 2, 512)]
    {
        let agent = AgentName::parse(&format!("bench-{replicas}-{concurrency}")).unwrap();
        let bridges: Vec<Bus> = futures_util::future::join_all((0..replicas).map(|_| connect())).await;
        for bridge in &bridges {
            serve(bridge.clone(), &agent).await;
        }
        let calls = if concurrency == 1 { calls / 40 } else { calls };
        measure(name, connect().await, &agent, calls, concurrency).await;
        for bridge in bridges {
            bridge.close().await;
        }
    }
}

async fn serve(bus: Bus, agent: &AgentName) {
    let mut queue = bus.requests(agent, 256).await.unwrap();
    let ids = Arc::new(MessageIdGenerator::new(rand()));
    tokio::spawn(async move {
        while let Some(delivery) = queue.next().await {
            tokio::spawn(answer(bus.clone(), delivery, ids.clone()));
        }
    });
}

async fn answer(bus: Bus, delivery: RequestDelivery, ids: Arc<MessageIdGenerator>) {
    let request = delivery.message.content.clone().unwrap();
    let ticket = match delivery.claim(&request.message_id).await.unwrap() {
        Claim::Won(ticket) => ticket,
        other => panic!("attempt {} was not the first: {other:?}", delivery.attempt),
    };
    let body = format!(r#"{{"toolCallId":"{}","result":{{"content":[]}}}}"#, request.message_id);
    let answer = envelope(&ids, "ToolInvokeResponse", "bridge", body);
    assert!(delivery.record_answer(&ticket, &answer).await.unwrap());
    bus.publish(request.reply_to.as_ref().unwrap(), &answer).await.unwrap();
    delivery.acknowledge().await.unwrap();
}

async fn measure(name: &str, bus: Bus, agent: &AgentName, calls: usize, concurrency: usize) {
    let answers = Answers::default();
    let reply_to = agent.result_topic();
    let results = bus.subscribe(&TopicPattern::parse(reply_to.as_str()).unwrap()).await.unwrap();
    let listener = tokio::spawn(listen(results, answers.clone()));
    let (ids, slots) = (MessageIdGenerator::new(rand()), Arc::new(Semaphore::new(concurrency)));
    let times = Arc::new(Mutex::new(Vec::with_capacity(calls)));
    let started = Instant::now();
    for _ in 0..calls {
        let slot = slots.clone().acquire_owned().await.unwrap();
        let request = envelope(&ids, "ToolInvokeRequest", agent.as_str(), r#"{"toolCallId":"x"}"#.into());
        let request = Envelope { reply_to: Some(reply_to.clone()), ..request };
        let (bus, topic, answers, times) =
            (bus.clone(), agent.request_topic(), answers.clone(), times.clone());
        tokio::spawn(async move {
            let (sender, answer) = oneshot::channel();
            answers.lock().unwrap().insert(request.message_id.to_string(), sender);
            let started = Instant::now();
            bus.publish(&topic, &request).await.unwrap();
            answer.await.unwrap();
            times.lock().unwrap().push(started.elapsed());
            drop(slot);
        });
    }
    let _all = slots.acquire_many(u32::try_from(concurrency).unwrap()).await.unwrap();
    report(name, started.elapsed(), &mut times.lock().unwrap());
    listener.abort();
}

fn report(name: &str, total: Duration, times: &mut [Duration]) {
    times.sort();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
    let rate = times.len() as f64 / total.as_secs_f64();
    println!("{name}: {rate:.0} calls/s; p50 {:.2} ms, p99 {:.2} ms ({} calls)", at(50), at(99), times.len());
}

async fn listen(mut results: BusSubscription, answers: Answers) {
    while let Some(ReceivedItem::Message(message)) = results.next().await {
        let body: HashMap<String, Box<RawValue>> =
            serde_json::from_str(message.content.unwrap().body.get()).unwrap();
        let id = body["toolCallId"].get().trim_matches('"').to_owned();
        let _ = answers.lock().unwrap().remove(&id).expect("each call has one answer").send(());
    }
}

fn envelope(ids: &MessageIdGenerator, kind: &'static str, source: &str, body: String) -> Envelope {
    Envelope {
        message_id: ids.generate(),
        kind: kind.into(),
        correlation_id: None,
        reply_to: None,
        source: source.to_owned().into(),
        destination: None,
        timestamp: Timestamp::from_unix_millis(0),
        headers: Headers::new(),
        body: RawValue::from_string(body).unwrap(),
        unknown: Default::default(),
    }
}

fn rand() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}
