//! Proxy and registry over real brokers, which are killed and restarted in mid-call. The bridge is in the hands of the test.

#![cfg(all(feature = "nats", feature = "rabbitmq"))]
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod support;

use std::time::Duration;

use bascule_agent::{
    Bus, BusOptions, BusUrl, McpToolProxy, McpToolsAvailableHandler, PendingToolCall, ProxyOptions,
    ToolOutput, ToolRequest,
};
use bascule_bus::{
    Claim, ClaimTicket, Envelope, McpToolsAvailable, MessageBody, StoredLists, ToolProgress, publish_answer,
    publish_availability,
};
use bascule_testkit::{NatsServer, RabbitMqServer};
use serde_json::json;
use support::{ScriptedBridge, TakenRequest, agent, envelope, raw, response, text_result};

/// A broker that can be killed.
enum Broker {
    Nats(NatsServer),
    RabbitMq(RabbitMqServer),
}

impl Broker {
    fn url(&self) -> String {
        match self {
            Self::Nats(server) => server.url(),
            Self::RabbitMq(server) => server.url(),
        }
    }

    /// Kills the broker (`kill -9`) and starts it again.
    async fn restart(mut self) -> Self {
        let restart = move || {
            match &mut self {
                Self::Nats(server) => server.restart(),
                Self::RabbitMq(server) => server.restart(),
            }
            self
        };
        tokio::task::spawn_blocking(restart).await.unwrap()
    }

    /// Starts RabbitMQ with the agent's streams. RabbitMQ 3.10 loses a stream if it is killed within a second of making it, so it
    /// is stopped in order once.
    async fn rabbitmq() -> Self {
        let mut server = tokio::task::spawn_blocking(RabbitMqServer::start).await.unwrap();
        let bus = connect(&server.url()).await;
        drop(ScriptedBridge::start(&bus).await);
        bus.close().await;
        server.stop();
        Self::RabbitMq(server).restart().await
    }
}

async fn connect(url: &str) -> Bus {
    // Small messages, so that results become long.
    let options =
        BusOptions { max_message_bytes: Some(64 << 10), ..BusOptions::new(BusUrl::parse(url).unwrap()) };
    Bus::connect(&options).await.unwrap()
}

/// Starts a proxy and a bridge with connections of their own.
async fn set_up(url: &str) -> (McpToolProxy, ScriptedBridge, Bus) {
    let (agents, bridges) = (connect(url).await, connect(url).await);
    let bridge = ScriptedBridge::start(&bridges).await;
    (McpToolProxy::connect(&agents, &agent(), ProxyOptions::default()).await.unwrap(), bridge, bridges)
}

async fn started(proxy: &McpToolProxy, bridge: &mut ScriptedBridge) -> (PendingToolCall, TakenRequest) {
    let call = proxy.start(ToolRequest::new("notes:search", &json!({})).with_progress()).await.unwrap();
    (call, bridge.next_request().await)
}

fn text(output: ToolOutput) -> String {
    let block = serde_json::to_value(output.into_block("t").to_anthropic()).unwrap();
    block["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

/// Bounds a test that fails.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it takes too long")
}

async fn check_calls(url: &str) {
    let (proxy, mut bridge, bridges) = set_up(url).await;
    let (mut call, request) = started(&proxy, &mut bridge).await;
    let progress =
        ToolProgress { tool_call_id: request.body.tool_call_id.clone(), progress: raw(r#"{"progress":1}"#) };
    bridge.send(&request, &progress).await;
    assert_eq!(call.next_progress().await.unwrap().progress, 1.0);
    bridge.answer(request, "found").await;
    assert_eq!(text(call.finish().await.unwrap()), "found");

    // Long results, as the bridge publishes them: an object on NATS, parts on RabbitMQ.
    let long = "é\"\\😀".repeat(100_000);
    let (call, request) = started(&proxy, &mut bridge).await;
    let body = serde_json::to_string(&response(&request, Some(&text_result(&long)))).unwrap();
    let answer = envelope("ToolInvokeResponse", &body);
    publish_answer(&bridges, request.envelope.reply_to.as_ref().unwrap(), &answer).await.unwrap();
    assert_eq!(text(call.finish().await.unwrap()), long);

    let (call, request) = started(&proxy, &mut bridge).await;
    drop(call);
    let cancellation = bridge.next_cancellation().await;
    assert!(cancellation.body.get().contains(&request.body.tool_call_id));
}

async fn check_availability(url: &str) {
    let (agents, bridges) = (connect(url).await, connect(url).await);
    let handler = McpToolsAvailableHandler::connect(&agents, &agent()).await.unwrap();
    let tool = |n: usize| raw(&json!({"id": format!("s:{n}"), "description": "x".repeat(1_000)}).to_string());
    let mut changes = handler.registry().watch();
    for count in [2, 1_000] {
        let tools = McpToolsAvailable {
            agent: agent(),
            tools: (0..count).map(tool).collect(),
            servers: vec![],
            tools_object: None,
            tools_parts: None,
        };
        let envelope = envelope(McpToolsAvailable::KIND, "null");
        let topic = agent().availability_topic();
        publish_availability(&bridges, &topic, envelope, tools, &mut StoredLists::default()).await.unwrap();
        changes.next().await.unwrap();
        assert_eq!(handler.registry().snapshot().len(), count);
    }
}

/// A broker dies after a bridge has begun a call, and before it has answered.
async fn check_restart_in_mid_call(broker: Broker) {
    let (proxy, mut bridge, bridges) = set_up(&broker.url()).await;
    let (call, request) = started(&proxy, &mut bridge).await;
    let Claim::Won(ticket) = claim(&request).await else { panic!("nobody has begun it") };
    let _broker = broker.restart().await;
    // The bridge was not harmed: it answers the delivery that it had.
    let answer = answer_to(&request, "done");
    while !recorded(&request, &ticket, &answer).await {}
    // The agent may not listen again yet. It sends its request again then, which finds the recorded answer.
    let _ = publish_answer(&bridges, request.envelope.reply_to.as_ref().unwrap(), &answer).await;
    let _ = request.delivery.acknowledge().await;
    tokio::select! {
        output = call.finish() => assert_eq!(text(output.unwrap()), "done"),
        () = answer_from_records(&mut bridge, &bridges) => {}
    }
}

/// An answer is recorded and lost with its broker. The request is sent again, and is answered from the records.
async fn check_lost_answer(broker: Broker) {
    let (proxy, mut bridge, bridges) = set_up(&broker.url()).await;
    let (call, request) = started(&proxy, &mut bridge).await;
    let Claim::Won(ticket) = claim(&request).await else { panic!("nobody has begun it") };
    assert!(request.delivery.record_answer(&ticket, &answer_to(&request, "recorded")).await.unwrap());
    // NATS publishes what it records.
    let is_lost = !request.delivery.publishes_recorded_answer();
    request.delivery.acknowledge().await.unwrap();
    let _broker = broker.restart().await;
    tokio::select! {
        output = call.finish() => assert_eq!(text(output.unwrap()), "recorded"),
        () = answer_from_records(&mut bridge, &bridges) => {}
    }
    assert!(proxy.counts().resent >= 1 || !is_lost);
}

/// Returns false if the broker is not back yet.
async fn recorded(request: &TakenRequest, ticket: &ClaimTicket, answer: &Envelope) -> bool {
    match request.delivery.record_answer(ticket, answer).await {
        Ok(is_first) => {
            assert!(is_first, "nobody else has answered it");
            true
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    }
}

fn answer_to(request: &TakenRequest, text: &str) -> Envelope {
    envelope(
        "ToolInvokeResponse",
        &serde_json::to_string(&response(request, Some(&text_result(text)))).unwrap(),
    )
}

async fn claim(request: &TakenRequest) -> Claim {
    request.delivery.claim(&request.envelope.message_id).await.unwrap()
}

/// Answers requests that come again as a bridge does. None of them may run.
async fn answer_from_records(bridge: &mut ScriptedBridge, bridges: &Bus) {
    loop {
        let again = bridge.next_request().await;
        match again.delivery.claim(&again.envelope.message_id).await {
            Ok(Claim::Answered(recorded)) => {
                let _ = publish_answer(bridges, again.envelope.reply_to.as_ref().unwrap(), &recorded).await;
            }
            Ok(Claim::Published) => {}
            Ok(Claim::Won(_) | Claim::Reused) => panic!("a request would run twice"),
            Ok(Claim::Duplicate | Claim::InProgress | Claim::Abandoned(_)) | Err(_) => continue,
        }
        let _ = again.delivery.acknowledge().await;
    }
}

// req: BU-01
// req: BU-07
#[tokio::test(flavor = "multi_thread")]
async fn calls_tools_over_nats() {
    let server = NatsServer::start();
    within(check_calls(&server.url())).await;
    within(check_availability(&server.url())).await;
}

// req: BU-01
// req: BU-07
#[tokio::test(flavor = "multi_thread")]
async fn calls_tools_over_rabbitmq() {
    let server = RabbitMqServer::shared();
    within(check_calls(&server.vhost_url())).await;
    within(check_availability(&server.vhost_url())).await;
}

// req: BU-09
#[tokio::test(flavor = "multi_thread")]
async fn call_survives_a_restart_of_nats() {
    within(check_restart_in_mid_call(Broker::Nats(NatsServer::start()))).await;
    within(check_lost_answer(Broker::Nats(NatsServer::start()))).await;
}

// req: BU-09
#[tokio::test(flavor = "multi_thread")]
async fn call_survives_a_restart_of_rabbitmq() {
    within(check_restart_in_mid_call(Broker::rabbitmq().await)).await;
    within(check_lost_answer(Broker::rabbitmq().await)).await;
}
