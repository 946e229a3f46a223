//! An agent that writes its messages by hand, as a foreign program would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bascule::{BusService, BusServiceOptions, McpBridgeAdapter};
use bascule_bus::{AgentName, Bus, BusSubscription, Envelope, ReceivedItem, Timestamp, Topic, TopicPattern};
use serde_json::{Value, json};

use crate::embedded::within_timeout;

/// An agent with a subscription to all messages about tools.
pub struct TestAgent {
    pub bus: Bus,
    pub name: AgentName,
    messages: BusSubscription,
}

/// A message, as JSON.
#[derive(Debug)]
pub struct TestMessage {
    pub topic: String,
    pub envelope: Value,
}

impl TestMessage {
    pub fn body(&self) -> &Value {
        &self.envelope["body"]
    }
}

impl TestAgent {
    /// Subscribes to the messages of a bus.
    pub async fn subscribe(bus: &Bus, name: &str) -> Self {
        let messages = bus.subscribe(&TopicPattern::parse("tool.#").unwrap()).await.unwrap();
        let name = AgentName::parse(name).unwrap();
        Self { bus: bus.clone(), name, messages }
    }

    pub async fn embedded() -> Self {
        Self::subscribe(&Bus::embedded(Arc::default()), "a").await
    }

    /// Starts a bridge of this agent.
    pub async fn serve(&self, bridge: &Arc<McpBridgeAdapter>) -> BusService {
        self.serve_with(bridge, |_| {}).await
    }

    pub async fn serve_with(
        &self,
        bridge: &Arc<McpBridgeAdapter>,
        change: impl FnOnce(&mut BusServiceOptions),
    ) -> BusService {
        let mut options = BusServiceOptions::new(self.name.clone());
        change(&mut options);
        BusService::start(bridge.clone(), self.bus.clone(), options).await.unwrap()
    }

    /// Returns the envelope of a request with a new id.
    pub fn request(&self, body: Value) -> Value {
        let id = format!("m-{}-{}", std::process::id(), next_number());
        json!({ "version": 1, "messageId": id, "type": "ToolInvokeRequest", "source": self.name.as_str(),
            "correlationId": format!("c-{id}"), "timestamp": now(), "body": body,
            "headers": { "rb-content-trust": "tool-request" } })
    }

    pub fn call_body(&self, tool: &str, arguments: Value) -> Value {
        let id = format!("t-{}", next_number());
        json!({ "toolCallId": id, "toolName": tool, "arguments": arguments })
    }

    /// Publishes an envelope to the agent's own topic of requests.
    pub async fn send(&self, envelope: &Value) {
        self.publish(self.name.request_topic().as_str(), envelope).await;
    }

    pub async fn publish(&self, topic: &str, envelope: &Value) {
        let envelope = Envelope::parse(envelope.to_string().as_bytes()).unwrap();
        self.bus.publish(&Topic::parse(topic).unwrap(), &envelope).await.unwrap();
    }

    /// Publishes a message of another type.
    pub async fn tell(&self, topic: &str, kind: &str, body: Value) {
        let mut envelope = self.request(body);
        envelope["type"] = kind.into();
        self.publish(topic, &envelope).await;
    }

    /// Calls a tool and waits for the answer.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> TestMessage {
        let body = self.call_body(tool, arguments);
        self.call_with(body).await
    }

    pub async fn call_with(&mut self, body: Value) -> TestMessage {
        self.send(&self.request(body)).await;
        self.answer().await
    }

    /// Waits for the next answer.
    pub async fn answer(&mut self) -> TestMessage {
        self.next(&["ToolInvokeResponse", "ToolError"]).await
    }

    /// Waits for the next message of one of these types.
    pub async fn next(&mut self, kinds: &[&str]) -> TestMessage {
        within_timeout(async {
            loop {
                let Some(ReceivedItem::Message(message)) = self.messages.next().await else {
                    panic!("the bus was closed, or messages were lost")
                };
                let Ok(envelope) = message.content else { continue };
                if kinds.contains(&&*envelope.kind) {
                    let envelope = serde_json::from_slice(&envelope.to_bytes()).unwrap();
                    return TestMessage { topic: message.topic.to_string(), envelope };
                }
            }
        })
        .await
    }

    /// Returns the messages of a type that come within a moment.
    pub async fn rest(&mut self, kind: &str) -> Vec<TestMessage> {
        let mut rest = Vec::new();
        while let Ok(message) = tokio::time::timeout(Duration::from_millis(500), self.next(&[kind])).await {
            rest.push(message);
        }
        rest
    }
}

/// Different for all agents of a test: two with the same ids would reuse each other's.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

pub fn now() -> String {
    Timestamp::from(SystemTime::now()).to_string()
}

/// Returns a time relative to now.
pub fn in_seconds(seconds: i64) -> String {
    let now = SystemTime::now();
    let offset = Duration::from_secs(seconds.unsigned_abs());
    Timestamp::from(if seconds < 0 { now - offset } else { now + offset }).to_string()
}
