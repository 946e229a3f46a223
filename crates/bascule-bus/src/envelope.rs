//! The envelope of every message on every bus. The content of bodies is defined by the publishers.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bascule_model::CorrelationId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Headers, Timestamp, Topic};

/// A message with its metadata. The JSON form has camelCase fields; unknown fields are ignored, and the body is
/// kept byte for byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// Unique among all messages.
    pub message_id: MessageId,
    /// The kind of body, such as `ToolInvokeRequest` or an event's name; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// The topic for the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Topic>,
    /// The publisher.
    pub source: Cow<'static, str>,
    /// The only recipient, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    pub timestamp: Timestamp,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    pub body: Box<RawValue>,
}

impl Envelope {
    /// Returns the approximate memory use in bytes.
    pub fn memory_size(&self) -> usize {
        // 96 bytes approximate the overhead of a map entry with two strings.
        let header = |(name, value): (&Cow<'_, str>, &Cow<'_, str>)| 96 + name.len() + value.len();
        size_of::<Self>()
            + self.message_id.0.len()
            + self.kind.len()
            + self.correlation_id.as_ref().map_or(0, |id| id.as_str().len())
            + self.reply_to.as_ref().map_or(0, |topic| topic.as_str().len())
            + self.source.len()
            + self.destination.as_ref().map_or(0, String::len)
            + self.headers.iter().map(header).sum::<usize>()
            + self.body.get().len()
    }
}

/// The text is not a valid message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid message id: expected 1 to 128 printable ASCII characters without spaces")]
pub struct MessageIdError;

/// The unique id of a message. Printable ASCII only, so it cannot forge a log line.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MessageId(Arc<str>);

impl MessageId {
    pub fn parse(text: &str) -> Result<Self, MessageIdError> {
        let legal = (1..=128).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic());
        if legal { Ok(Self(text.into())) } else { Err(MessageIdError) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Generates message ids from a random prefix, which the caller supplies, and a counter.
#[derive(Debug)]
pub struct MessageIdGenerator {
    prefix: u64,
    next: AtomicU64,
}

impl MessageIdGenerator {
    /// No two publishers should use the same prefix.
    pub fn new(prefix: u64) -> Self {
        Self { prefix, next: AtomicU64::new(0) }
    }

    pub fn generate(&self) -> MessageId {
        self.reserve().into()
    }

    /// Reserves the next id without formatting it.
    pub(crate) fn reserve(&self) -> ReservedId {
        ReservedId { prefix: self.prefix, count: self.next.fetch_add(1, Ordering::Relaxed) }
    }
}

/// A message id that is not formatted yet.
pub(crate) struct ReservedId {
    prefix: u64,
    count: u64,
}

impl From<ReservedId> for MessageId {
    fn from(ReservedId { prefix, count }: ReservedId) -> Self {
        Self(format!("{prefix:016x}{count:016x}").into())
    }
}

bascule_model::impl_string_traits!(MessageId);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentTrust;

    fn read(json: &str) -> Result<Envelope, serde_json::Error> {
        serde_json::from_str(json)
    }

    fn check(json: &str) {
        assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
    }

    // req: BU-03
    #[test]
    fn round_trips_envelope_byte_for_byte() {
        check(concat!(
            r#"{"messageId":"m-1","type":"ToolInvokeRequest","correlationId":"c-1","#,
            r#""replyTo":"tool.result.agent-1","source":"agent-1","destination":"bridge","#,
            r#""timestamp":"2026-03-01T12:00:00.250Z","headers":{"rb-content-trust":"tool-request"},"#,
            r#""body":{ "n":1.00, "big":123456789012345678901234567890, "n":"\u00e9" }}"#,
        ));
        check(
            r#"{"messageId":"m","type":"t","source":"s","timestamp":"2026-03-01T12:00:00.250Z","body":null}"#,
        );
    }

    // req: BU-03
    #[test]
    fn accepts_missing_unknown_and_null_fields() {
        let envelope = read(concat!(
            r#"{"future":[1],"body":7,"timestamp":"2026-03-01T13:00:00+01:00","source":"s","type":"t","#,
            r#""replyTo":null,"messageId":"m"}"#,
        ));
        let envelope = envelope.unwrap();
        assert_eq!(
            (envelope.body.get(), envelope.timestamp.to_string()),
            ("7", "2026-03-01T12:00:00.000Z".into())
        );
        assert!(envelope.reply_to.is_none() && envelope.headers.is_empty());
    }

    #[test]
    fn refuses_invalid_fields() {
        let good = concat!(
            r#"{"messageId":"m","type":"t","correlationId":"c","replyTo":"a.b","source":"s","#,
            r#""timestamp":"2026-03-01T12:00:00Z","body":null}"#,
        );
        assert!(read(good).is_ok());
        for (from, to) in [
            ("\"m\"", "\"a b\""),
            ("\"c\"", "\"\\n\""),
            ("a.b", "a.*"),
            ("2026", "x"),
            (r#","body":null"#, ""),
        ] {
            assert!(read(&good.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn generates_unique_ids() {
        let ids = MessageIdGenerator::new(0xfeed);
        assert_eq!(ids.generate().as_str(), "000000000000feed0000000000000000");
        assert_eq!(format!("{0} {0:?}", MessageId::parse("x").unwrap()), "x `x`");
        assert_ne!(ids.generate(), ids.generate());
        assert!(MessageId::parse(&"x".repeat(129)).is_err());
    }

    #[test]
    fn memory_size_counts_headers() {
        let bare = read(
            r#"{"messageId":"m","type":"t","source":"s","timestamp":"2026-03-01T12:00:00Z","body":null}"#,
        );
        let bare = bare.unwrap();
        let headed = Envelope { headers: ContentTrust::ToolOutput.to_headers(), ..bare.clone() };
        assert!(headed.memory_size() > bare.memory_size() + 20 && bare.memory_size() > size_of::<Envelope>());
    }
}
