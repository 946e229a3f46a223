//! A bridge in the hands of a test: it takes requests from the embedded bus, and the test writes the answers.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bascule_agent::{AgentName, Bus, EmbeddedBus, ToolError};
use bascule_bus::{
    BusSubscription, ContentTrust, Envelope, MessageBody, MessageId, ReceivedItem, RequestDelivery,
    RequestQueue, Timestamp, ToolInvokeRequest, ToolInvokeResponse, Topic, TopicPattern,
};
use serde_json::value::RawValue;

pub(crate) fn agent() -> AgentName {
    AgentName::parse("research").unwrap()
}

pub(crate) fn bus() -> Bus {
    Bus::embedded(Arc::new(EmbeddedBus::default()))
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// The bridge's ends of the bus.
pub(crate) struct ScriptedBridge {
    bus: Bus,
    requests: RequestQueue,
    cancellations: BusSubscription,
}

/// A request that the bridge has taken.
pub(crate) struct TakenRequest {
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) body: ToolInvokeRequest,
    pub(crate) delivery: RequestDelivery,
}

impl ScriptedBridge {
    pub(crate) async fn start(bus: &Bus) -> Self {
        Self {
            bus: bus.clone(),
            requests: bus.requests(&agent(), 1_000).await.unwrap(),
            cancellations: subscribe(bus, "tool.cancel.mcp.research").await,
        }
    }

    pub(crate) async fn next_request(&mut self) -> TakenRequest {
        let delivery = self.requests.next().await.unwrap();
        let envelope = delivery.message.content.clone().unwrap();
        let body = serde_json::from_str(envelope.body.get()).unwrap();
        TakenRequest { envelope, body, delivery }
    }

    /// Waits for a cancellation and returns its envelope.
    pub(crate) async fn next_cancellation(&mut self) -> Arc<Envelope> {
        next_message(&mut self.cancellations).await
    }

    /// Publishes a message to the reply topic of a request.
    pub(crate) async fn send<B: MessageBody>(&self, request: &TakenRequest, body: &B) {
        self.send_json(request, B::KIND, &serde_json::to_string(body).unwrap()).await;
    }

    pub(crate) async fn send_json(&self, request: &TakenRequest, kind: &str, body: &str) {
        let topic = request.envelope.reply_to.clone().unwrap();
        let mut envelope = envelope(kind, body);
        envelope.correlation_id = request.envelope.correlation_id.clone();
        self.bus.publish(&topic, &envelope).await.unwrap();
    }

    /// Answers with a text and acknowledges.
    pub(crate) async fn answer(&self, request: TakenRequest, text: &str) {
        self.send(&request, &response(&request, Some(&text_result(text)))).await;
        request.delivery.acknowledge().await.unwrap();
    }

    pub(crate) async fn fail(&self, request: TakenRequest, code: &str, message: &str) {
        let error = ToolError {
            tool_call_id: request.body.tool_call_id.clone(),
            tool_name: request.body.tool_name.clone(),
            code: code.into(),
            message: message.into(),
            is_retryable: false,
            correlation_id: request.envelope.correlation_id.clone(),
            retry_after_ms: None,
            details: None,
        };
        self.send(&request, &error).await;
        request.delivery.acknowledge().await.unwrap();
    }
}

pub(crate) fn text_result(text: &str) -> String {
    serde_json::json!({"content": [{"type": "text", "text": text}]}).to_string()
}

pub(crate) fn response(request: &TakenRequest, result: Option<&str>) -> ToolInvokeResponse {
    ToolInvokeResponse {
        tool_call_id: request.body.tool_call_id.clone(),
        tool_name: request.body.tool_name.clone(),
        is_error: false,
        result: result.map(raw),
        result_object: None,
        result_parts: None,
    }
}

pub(crate) fn envelope(kind: &str, body: &str) -> Envelope {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let id = format!("bridge-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    Envelope {
        message_id: MessageId::parse(&id).unwrap(),
        kind: kind.to_owned().into(),
        correlation_id: None,
        reply_to: None,
        source: "bridge".into(),
        destination: None,
        timestamp: Timestamp::from(SystemTime::now()),
        headers: ContentTrust::ToolOutput.to_headers(),
        body: raw(body),
        unknown: Default::default(),
    }
}

pub(crate) async fn subscribe(bus: &Bus, topic: &str) -> BusSubscription {
    bus.subscribe(&TopicPattern::parse(topic).unwrap()).await.unwrap()
}

pub(crate) async fn next_message(subscription: &mut BusSubscription) -> Arc<Envelope> {
    // Generous: it only bounds a test that fails.
    let item = tokio::time::timeout(Duration::from_secs(3_600), subscription.next()).await;
    match item.expect("a message arrives").expect("the bus is open") {
        ReceivedItem::Message(message) => message.content.unwrap(),
        ReceivedItem::Lost(_) => panic!("nothing is lost"),
    }
}

pub(crate) async fn publish(bus: &Bus, topic: &str, envelope: &Envelope) {
    bus.publish(&Topic::parse(topic).unwrap(), envelope).await.unwrap();
}
