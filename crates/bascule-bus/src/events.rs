//! Publishes the bridge's events on the bus, each on the topic of its own name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bascule_model::{Event, EventSink};

use crate::{
    ContentTrust, EmbeddedBus, Envelope, Headers, MessageId, MessageIdGenerator, Timestamp, Topic,
    WellKnownHeaders,
};

/// An event sink that publishes on a bus.
pub struct BusEventSink {
    bus: Arc<EmbeddedBus>,
    source: Arc<str>,
    ids: MessageIdGenerator,
    clock: fn() -> SystemTime,
}

impl BusEventSink {
    /// Publishes as `source`. Message ids come from `ids`, timestamps from `clock`.
    pub fn new(
        bus: Arc<EmbeddedBus>,
        source: &str,
        ids: MessageIdGenerator,
        clock: fn() -> SystemTime,
    ) -> Self {
        Self { bus, source: source.into(), ids, clock }
    }
}

impl EventSink for BusEventSink {
    fn offer(&self, event: Event) {
        let topic = event_topic(&event);
        if !self.bus.has_receiver(&topic) {
            return;
        }
        let (id, source, timestamp) = (self.ids.reserve(), self.source.clone(), (self.clock)());
        let call_text = call_text(&event).map(str::len);
        let build = move || event_envelope(&event, id.into(), &source, timestamp.into());
        match call_text {
            // There is one for every call, and most are never read.
            Some(length) => self.bus.publish_lazily(&topic, CALL_EVENT + 2 * length, Box::new(build)),
            None => self.bus.publish(&topic, Arc::new(build())),
        };
    }
}

/// The approximate memory of a call's event without its text.
const CALL_EVENT: usize = 1024;

/// Returns the text that a call's event quotes: the beginning of the result, or the error message.
fn call_text(event: &Event) -> Option<&str> {
    match event {
        Event::ToolCompleted { summary: text, .. } | Event::ToolFailed { message: text, .. } => Some(text),
        _ => None,
    }
}

/// Returns the topic of an event, which is its name.
pub fn event_topic(event: &Event) -> Topic {
    Topic::from_static(event.name())
}

/// Wraps an event. The body is the event's usual JSON form.
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
        body: serde_json::value::to_raw_value(event).expect("all keys of an event are strings"),
        unknown: BTreeMap::new(),
    }
}

/// The events at the end of a call quote the tool's output, or names in it, so they are marked as such. They name the call's
/// span.
fn headers(event: &Event) -> Headers {
    let mut headers = match call_text(event).is_some() || matches!(event, Event::ResultDrifted { .. }) {
        true => ContentTrust::ToolOutput.to_headers(),
        false => Headers::new(),
    };
    if let Some(span) = event.span() {
        let parent = format!("00-{}-{}-01", span.trace_id, span.span_id);
        headers.insert(WellKnownHeaders::TRACE_PARENT.into(), parent.into());
    }
    headers
}

impl fmt::Debug for BusEventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusEventSink").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, UNIX_EPOCH};

    use bascule_model::{CorrelationId, ErrorCode, ExpectedResult, Health, ServerName, ToolId};

    use super::*;
    use crate::{ReplayLimits, SubscribeOptions, SubscriptionItem, TopicPattern};

    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_709_208_000_250)
    }

    fn sample_events() -> Vec<Event> {
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
                hint: None,
                span: None,
            },
            Event::ToolFailed {
                correlation_id,
                tool,
                code: ErrorCode::Cancelled,
                retryable: false,
                message: "the caller cancelled or disconnected".into(),
                span: None,
            },
            Event::ResultDrifted {
                correlation_id: CorrelationId::parse("c-2").unwrap(),
                tool: ToolId::parse("files:read").unwrap(),
                expected: ExpectedResult::Declared,
                pointers: vec!["/id".into()],
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

    /// Offers one event of each kind and returns the envelopes that a subscriber to `pattern` receives.
    async fn received(pattern: &str) -> Vec<Envelope> {
        let bus = Arc::new(EmbeddedBus::new(ReplayLimits::NONE));
        let sink = BusEventSink::new(bus.clone(), "bridge-1", MessageIdGenerator::new(7), noon);
        let mut subscription =
            bus.subscribe(TopicPattern::parse(pattern).unwrap(), SubscribeOptions::default());
        sample_events().into_iter().for_each(|event| sink.offer(event));
        bus.close();
        let mut received = Vec::new();
        while let Some(SubscriptionItem::Message(message)) = subscription.next().await {
            assert_eq!(message.topic.as_str(), message.envelope.kind);
            received.push(Envelope::clone(&message.envelope));
        }
        received
    }

    // req: BR-07
    // req: BU-03
    #[tokio::test]
    async fn publishes_call_event_with_correlation_id_and_trust() {
        let received = received("provider.mcp.tool.completed").await;
        assert_eq!(received.len(), 1);
        assert_eq!(
            serde_json::to_string(&received[0]).unwrap(),
            concat!(
                r#"{"version":1,"messageId":"00000000000000070000000000000000","type":"provider.mcp.tool.completed","#,
                r#""correlationId":"c-1","source":"bridge-1","timestamp":"2024-02-29T12:00:00.250Z","#,
                r#""headers":{"rb-content-trust":"tool-output"},"#,
                r#""body":{"type":"provider.mcp.tool.completed","correlationId":"c-1","tool":"files:read","#,
                r#""isError":false,"summary":"{}","durationMs":2.0}}"#,
            )
        );
    }

    // req: BR-07
    #[tokio::test]
    async fn publishes_each_event_on_its_own_topic() {
        let (all, names) = (received("#").await, sample_events());
        assert_eq!(
            all.iter().map(|envelope| &*envelope.kind).collect::<Vec<_>>(),
            names.iter().map(Event::name).collect::<Vec<_>>()
        );
        assert_eq!(received("provider.mcp.tool.*").await.len(), 2);
        assert_eq!(received("provider.mcp.reconnect.#").await.len(), 1);
    }

    // req: BU-03
    #[tokio::test]
    async fn timestamp_is_the_time_of_the_event_not_of_reading_it() {
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let bus = Arc::new(EmbeddedBus::new(ReplayLimits::default()));
        let sink = BusEventSink::new(bus.clone(), "bridge-1", MessageIdGenerator::new(0), || {
            UNIX_EPOCH + Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed))
        });
        sample_events().into_iter().for_each(|event| sink.offer(event));
        let options = SubscribeOptions { replay: usize::MAX, ..SubscribeOptions::default() };
        let mut subscription = bus.subscribe(TopicPattern::parse("#").unwrap(), options);
        bus.close();
        let mut times = Vec::new();
        while let Some(SubscriptionItem::Message(message)) = subscription.next().await {
            times.push(message.envelope.timestamp.to_string());
        }
        let expected = (0..sample_events().len()).map(|second| format!("1970-01-01T00:00:0{second}.000Z"));
        assert_eq!(times, expected.collect::<Vec<_>>());
    }

    // req: BU-01
    #[tokio::test]
    async fn unread_call_events_count_for_the_replay_limit() {
        let limits = ReplayLimits { messages: usize::MAX, bytes: 64 << 10 };
        let bus = Arc::new(EmbeddedBus::new(limits));
        let sink = BusEventSink::new(bus.clone(), "bridge-1", MessageIdGenerator::new(0), noon);
        for _ in 0..1000 {
            sink.offer(Event::ToolFailed {
                correlation_id: CorrelationId::parse("c-1").unwrap(),
                tool: ToolId::parse("files:read").unwrap(),
                code: ErrorCode::Cancelled,
                retryable: false,
                message: "\n".repeat(500),
                span: None,
            });
        }
        let options =
            SubscribeOptions { replay: usize::MAX, bytes: usize::MAX, ..SubscribeOptions::default() };
        let mut subscription = bus.subscribe(TopicPattern::parse("#").unwrap(), options);
        bus.close();
        let mut kept = Vec::new();
        while let Some(SubscriptionItem::Message(message)) = subscription.next().await {
            kept.push(message.envelope.memory_size());
        }
        assert!(!kept.is_empty() && kept.iter().sum::<usize>() <= limits.bytes, "{kept:?}");
    }

    #[tokio::test]
    async fn skips_events_without_receiver() {
        let bus = Arc::new(EmbeddedBus::new(ReplayLimits::NONE));
        let sink = BusEventSink::new(bus, "bridge-1", MessageIdGenerator::new(0), || {
            panic!("the clock must not be read")
        });
        sample_events().into_iter().for_each(|event| sink.offer(event));
        assert_eq!(format!("{sink:?}"), r#"BusEventSink { source: "bridge-1", .. }"#);
    }
}
