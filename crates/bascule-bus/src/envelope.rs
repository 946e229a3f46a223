//! The envelope in which every message travels, on every bus (BU-03).
//!
//! Only the envelope: what the bodies say is their makers' business.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bascule_model::CorrelationId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{Headers, Timestamp, Topic};

/// A message with everything that is known about it. As JSON its fields are in camel case; fields that we do not
/// know are ignored, the body is kept to the byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// What tells this message from all others.
    pub message_id: MessageId,
    /// What the body is, such as `ToolInvokeRequest` or an event's name; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The call it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// Where an answer is awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Topic>,
    /// Who made it.
    pub source: Cow<'static, str>,
    /// For whom it is, if for one only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// When it was made.
    pub timestamp: Timestamp,
    /// What else it says about itself.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// What it says, byte for byte.
    pub body: Box<RawValue>,
}

impl Envelope {
    /// About how much memory it holds, in bytes.
    pub fn weight(&self) -> usize {
        // An entry of the map costs what it says and about as much again as its two texts' own frames.
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

/// Why a piece of text is not a message's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a message id has 1 to 128 printable ASCII characters and no spaces")]
pub struct MessageIdError;

/// What tells a message from all others.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// Takes an id that cannot break a log line.
    pub fn parse(text: &str) -> Result<Self, MessageIdError> {
        let legal = (1..=128).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic());
        if legal { Ok(Self(text.into())) } else { Err(MessageIdError) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Gives out ids: chance once, supplied by the caller, and then a count.
#[derive(Debug)]
pub struct MessageIds {
    chance: u64,
    next: AtomicU64,
}

impl MessageIds {
    /// Ids that begin with these 64 bits, which no other publisher should have.
    pub fn new(chance: u64) -> Self {
        Self { chance, next: AtomicU64::new(0) }
    }

    /// An id that was not given out before.
    pub fn next(&self) -> MessageId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        MessageId(format!("{:032x}", u128::from(self.chance) << 64 | u128::from(count)).into())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

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
    fn an_envelope_is_written_as_it_was_read_and_its_body_to_the_byte() {
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
    fn what_is_missing_unknown_or_null_does_no_harm() {
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
    fn what_could_do_harm_is_refused() {
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
    fn ids_are_never_given_out_twice() {
        let ids = MessageIds::new(0xfeed);
        assert_eq!(ids.next().as_str(), "000000000000feed0000000000000000");
        assert_eq!(format!("{0} {0:?}", MessageId::parse("x").unwrap()), "x `x`");
        assert_ne!(ids.next(), ids.next());
        assert!(MessageId::parse(&"x".repeat(129)).is_err());
    }

    #[test]
    fn a_heavier_message_weighs_more() {
        let bare = read(
            r#"{"messageId":"m","type":"t","source":"s","timestamp":"2026-03-01T12:00:00Z","body":null}"#,
        );
        let bare = bare.unwrap();
        let headed = Envelope { headers: ContentTrust::ToolOutput.headers(), ..bare.clone() };
        assert!(headed.weight() > bare.weight() + 20 && bare.weight() > size_of::<Envelope>());
    }
}
