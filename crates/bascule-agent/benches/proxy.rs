//! Measures calls through the proxy on the embedded bus: `cargo bench -p bascule-agent`. The bridge is a task that answers at once.

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bascule_agent::{AgentName, Bus, EmbeddedBus, McpToolProxy, ProxyOptions};
use bascule_bus::{
    Claim, ContentTrust, Envelope, MessageBody, MessageIdGenerator, RequestDelivery, Timestamp,
    ToolInvokeRequest, ToolInvokeResponse,
};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::task::JoinSet;

const CALLS: u32 = 20_000;
const CONCURRENT: u32 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let agent = AgentName::parse("bench").expect("a name");
    let bus = Bus::embedded(Arc::new(EmbeddedBus::default()));
    let mut requests = bus.requests(&agent, CONCURRENT as usize).await.expect("the bus is open");
    let bridge = bus.clone();
    tokio::spawn(async move {
        let ids = MessageIdGenerator::new(1);
        while let Some(delivery) = requests.next().await {
            answer(&bridge, &ids, delivery).await;
        }
    });
    let proxy = McpToolProxy::connect(&bus, &agent, ProxyOptions::default()).await.expect("the bus is open");
    one_by_one(&proxy).await;
    at_once(&proxy).await;
}

/// Does what a bridge does for the bus: claims, records, publishes, acknowledges.
async fn answer(bus: &Bus, ids: &MessageIdGenerator, delivery: RequestDelivery) {
    let envelope = delivery.message.content.clone().expect("the proxy writes envelopes");
    let request: ToolInvokeRequest =
        serde_json::from_str(envelope.body.get()).expect("the proxy writes requests");
    let Ok(Claim::Won(ticket)) = delivery.claim(&envelope.message_id).await else { return };
    let response = ToolInvokeResponse {
        tool_call_id: request.tool_call_id,
        tool_name: request.tool_name,
        is_error: false,
        result: request.arguments,
        result_object: None,
        result_parts: None,
    };
    let answer = Envelope {
        message_id: ids.generate(),
        kind: ToolInvokeResponse::KIND.into(),
        correlation_id: envelope.correlation_id.clone(),
        reply_to: None,
        source: "bridge".into(),
        destination: None,
        timestamp: Timestamp::from(SystemTime::now()),
        headers: ContentTrust::ToolOutput.to_headers(),
        body: to_raw_value(&response).expect("all keys are strings"),
        unknown: Default::default(),
    };
    let _ = delivery.record_answer(&ticket, &answer).await;
    let _ = bus.publish(envelope.reply_to.as_ref().expect("the proxy names a topic"), &answer).await;
    let _ = delivery.acknowledge().await;
}

async fn one_by_one(proxy: &McpToolProxy) {
    let mut times = Vec::new();
    for n in 0..CALLS {
        let started = Instant::now();
        proxy.call("echo:echo", &json!({"n": n})).await.expect("the bridge answers");
        times.push(started.elapsed());
    }
    times.sort();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    println!("{:<40} p50 {:>8.1?}  p99 {:>8.1?}", "proxy call, embedded bus", at(0.5), at(0.99));
}

async fn at_once(proxy: &McpToolProxy) {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..CONCURRENT {
        let proxy = proxy.clone();
        tasks.spawn(async move {
            for n in 0..CALLS / CONCURRENT {
                proxy.call("echo:echo", &json!({"n": n})).await.expect("the bridge answers");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let calls = CALLS / CONCURRENT * CONCURRENT;
    let rate = f64::from(calls) / started.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
    println!("{:<40} {rate:>10.0} calls/s", "64 callers, embedded bus, one thread");
}
