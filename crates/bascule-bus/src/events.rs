//! Tells the bridge's events on the bus, each under its own name.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bascule_model::{Event, EventSink};

use crate::{ContentTrust, EmbeddedBus, Envelope, Headers, MessageId, MessageIds, Timestamp, Topic};

/// Takes events and publishes them.
pub struct BusEvents {
    bus: Arc<EmbeddedBus>,
    source: String,
    ids: MessageIds,
    clock: fn() -> SystemTime,
}

impl BusEvents {
    /// Events of `source`, which get their ids and their times from here.
    pub fn new(bus: Arc<EmbeddedBus>, source: &str, ids: MessageIds, clock: fn() -> SystemTime) -> Self {
        Self { bus, source: source.into(), ids, clock }
    }
}

impl EventSink for BusEvents {
    fn offer(&self, event: Event) {
        let topic = event_topic(&event);
        // Writing an event is most of what it costs, so it is written only if someone may read it.
        if self.bus.wants(&topic) {
            let envelope = event_envelope(&event, self.ids.next(), &self.source, (self.clock)().into());
            self.bus.publish(&topic, Arc::new(envelope));
        }
    }
}

/// Where an event is published: under its own name (BU-02).
pub fn event_topic(event: &Event) -> Topic {
    Topic::parse(event.name()).expect("the names of events are topics")
}

/// An event as a message; its body is the event as it is written everywhere.
pub fn event_envelope(event: &Event, message_id: MessageId, source: &str, timestamp: Timestamp) -> Envelope {
    Envelope {
        message_id,
        kind: event.name().into(),
        correlation_id: event.correlation_id().cloned(),
        reply_to: None,
        source: source.to_owned().into(),
        destination: None,
        timestamp,
        headers: headers(event),
        body: serde_json::value::to_raw_value(event).expect("an event has no keys but texts"),
    }
}

/// The end of a call quotes the tool, be it the result's beginning or the failure's message (BU-04).
fn headers(event: &Event) -> Headers {
    match event {
        Event::ToolCompleted { .. } | Event::ToolFailed { .. } => ContentTrust::ToolOutput.headers(),
        _ => Headers::new(),
    }
}

impl fmt::Debug for BusEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusEvents").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use bascule_model::{CorrelationId, ErrorCode, Health, ServerName, ToolId};

    use super::*;
    use crate::{Delivery, Recall, SubscribeOptions, TopicPattern};

    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_709_208_000_250)
    }

    /// One of each kind.
    fn events() -> Vec<Event> {
        let server = || ServerName::parse("files").unwrap();
        let tool = ToolId::parse("files:read").unwrap();
        let correlation_id = CorrelationId::parse("c-1").unwrap();
        vec![
            Event::ToolsDiscovered { server: server(), count: 0, names: vec![] },
            Event::ToolCompleted {
                correlation_id: correlation_id.clone(),
                tool: tool.clone(),
                is_error: false,
                summary: "{}".into(),
                duration: Duration::from_millis(2),
            },
            Event::ToolFailed {
                correlation_id,
                tool,
                code: ErrorCode::Cancelled,
                retryable: false,
                message: "the caller left".into(),
            },
            Event::ToolsRefreshed { server: server(), added: vec![], removed: vec![], unchanged: 1 },
            Event::Disconnected { server: server(), cause: "it exited".into() },
            Event::Reconnected { server: server(), attempts: 1 },
            Event::ReconnectExhausted { server: server(), attempts: 9, cause: "refused".into() },
            Event::HealthChanged {
                server: server(),
                from: Health::Starting,
                to: Health::Healthy,
                cause: None,
            },
        ]
    }

    /// What a subscriber to `pattern` reads when one event of each kind is offered.
    async fn told(pattern: &str) -> Vec<Arc<Envelope>> {
        let bus = Arc::new(EmbeddedBus::new(Recall::NOTHING));
        let sink = BusEvents::new(bus.clone(), "bridge-1", MessageIds::new(7), noon);
        let mut heard = bus.subscribe(TopicPattern::parse(pattern).unwrap(), SubscribeOptions::default());
        events().into_iter().for_each(|event| sink.offer(event));
        bus.close();
        let mut told = Vec::new();
        while let Some(Delivery::Message(message)) = heard.next().await {
            assert_eq!(message.topic.as_str(), message.envelope.kind);
            told.push(message.envelope);
        }
        told
    }

    // req: BR-07
    // req: BU-03
    #[tokio::test]
    async fn a_calls_end_is_told_under_its_name_with_its_call_and_its_trust() {
        let told = told("provider.mcp.tool.completed").await;
        assert_eq!(told.len(), 1);
        assert_eq!(
            serde_json::to_string(&*told[0]).unwrap(),
            concat!(
                r#"{"messageId":"00000000000000070000000000000000","type":"provider.mcp.tool.completed","#,
                r#""correlationId":"c-1","source":"bridge-1","timestamp":"2024-02-29T12:00:00.250Z","#,
                r#""headers":{"rb-content-trust":"tool-output"},"#,
                r#""body":{"type":"provider.mcp.tool.completed","correlationId":"c-1","tool":"files:read","#,
                r#""isError":false,"summary":"{}","durationMs":2.0}}"#,
            )
        );
    }

    // req: BR-07
    #[tokio::test]
    async fn every_event_is_told_under_its_own_name() {
        let (all, names) = (told("#").await, events());
        assert_eq!(
            all.iter().map(|envelope| &*envelope.kind).collect::<Vec<_>>(),
            names.iter().map(Event::name).collect::<Vec<_>>()
        );
        assert_eq!(told("provider.mcp.tool.*").await.len(), 2);
        assert_eq!(told("provider.mcp.reconnect.#").await.len(), 1);
    }

    #[tokio::test]
    async fn what_nobody_may_read_is_not_written() {
        let bus = Arc::new(EmbeddedBus::new(Recall::NOTHING));
        let sink =
            BusEvents::new(bus, "bridge-1", MessageIds::new(0), || panic!("nobody asked for the time"));
        events().into_iter().for_each(|event| sink.offer(event));
        assert_eq!(format!("{sink:?}"), r#"BusEvents { source: "bridge-1", .. }"#);
    }
}
