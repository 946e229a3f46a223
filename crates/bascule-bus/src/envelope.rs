//! The envelope of every message on every bus. The content of bodies is defined by the publishers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bascule_model::{CorrelationId, clip};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::{Headers, Timestamp, Topic};

/// The version of the envelope that this crate writes and reads. An envelope without `version` has this one.
pub const ENVELOPE_VERSION: u64 = 1;
/// The longest part of a publisher's version that an error shows, in bytes.
const MAX_SHOWN_VERSION: usize = 64;

/// A message with its metadata. The JSON form has camelCase fields. The body and the unknown fields are kept byte for
/// byte.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Unique among all messages.
    pub message_id: MessageId,
    /// The kind of body, such as `ToolInvokeRequest` or an event's name; `type` in JSON.
    pub kind: Cow<'static, str>,
    pub correlation_id: Option<CorrelationId>,
    /// The topic for the response.
    pub reply_to: Option<Topic>,
    /// The publisher.
    pub source: Cow<'static, str>,
    /// The only recipient, if there is one.
    pub destination: Option<String>,
    pub timestamp: Timestamp,
    pub headers: Headers,
    pub body: Box<RawValue>,
    /// Fields that this version does not know.
    pub unknown: BTreeMap<String, Box<RawValue>>,
}

/// The reason why bytes are not a readable envelope.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    #[error("the message is not an envelope: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the message has envelope version {0}; this program reads version {ENVELOPE_VERSION}")]
    Version(String),
}

impl Envelope {
    /// Reads the JSON form.
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        // The version decides how the rest is read.
        let Fields { version, .. } = serde_json::from_slice(bytes)?;
        match version {
            Some(version) if version.get() != "1" => {
                Err(EnvelopeError::Version(clip(version.get(), MAX_SHOWN_VERSION).to_owned()))
            }
            _ => Ok(serde_json::from_slice(bytes)?),
        }
    }

    /// Reads the JSON form of a message whose optional fields need not be right: a wrong one is left out. Returns the first
    /// mistake too.
    pub fn parse_leniently(bytes: &[u8]) -> Result<(Self, Option<String>), EnvelopeError> {
        let mut fields: UnreadFields = serde_json::from_slice(bytes)?;
        let mut mistake = None;
        for (name, check) in OPTIONAL_FIELDS {
            if let Err(error) = check(&fields) {
                fields.remove(*name);
                mistake.get_or_insert(error.to_string());
            }
        }
        let bytes = serde_json::to_vec(&fields)?;
        Ok((Self::parse(&bytes)?, mistake))
    }

    /// Writes the JSON form.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys of an envelope are strings")
    }

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
            + self.unknown.iter().map(|(name, value)| 96 + name.len() + value.get().len()).sum::<usize>()
    }
}

/// The version, without a look at the other fields.
#[derive(serde::Deserialize)]
struct Fields {
    #[serde(default)]
    version: Option<Box<RawValue>>,
}

/// The known fields by their names in JSON, as the reader collects them. `serde(flatten)` cannot keep raw values.
impl<'de> Deserialize<'de> for Envelope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
        fields.remove("version");
        let envelope = Self {
            message_id: required(&mut fields, "messageId")?,
            kind: required(&mut fields, "type")?,
            correlation_id: optional(&mut fields, "correlationId")?,
            reply_to: optional(&mut fields, "replyTo")?,
            source: required(&mut fields, "source")?,
            destination: optional(&mut fields, "destination")?,
            timestamp: required(&mut fields, "timestamp")?,
            headers: optional(&mut fields, "headers")?.unwrap_or_default(),
            body: fields.remove("body").ok_or_else(|| serde::de::Error::missing_field("body"))?,
            unknown: BTreeMap::new(),
        };
        Ok(Self { unknown: fields, ..envelope })
    }
}

type UnreadFields = BTreeMap<String, Box<RawValue>>;
type FieldCheck = fn(&UnreadFields) -> Result<(), serde_json::Error>;

/// The fields without which a message can be read, and their checks.
const OPTIONAL_FIELDS: &[(&str, FieldCheck)] = &[
    ("replyTo", |fields| read::<Option<Topic>, _>(fields, "replyTo").map(drop)),
    ("correlationId", |fields| read::<Option<CorrelationId>, _>(fields, "correlationId").map(drop)),
    ("destination", |fields| read::<Option<String>, _>(fields, "destination").map(drop)),
    ("headers", |fields| read::<Option<Headers>, _>(fields, "headers").map(drop)),
];

fn required<T, E>(fields: &mut UnreadFields, name: &'static str) -> Result<T, E>
where
    T: serde::de::DeserializeOwned,
    E: serde::de::Error,
{
    let value = read(fields, name)?.ok_or_else(|| E::missing_field(name));
    fields.remove(name);
    value
}

fn optional<T, E>(fields: &mut UnreadFields, name: &'static str) -> Result<Option<T>, E>
where
    T: serde::de::DeserializeOwned,
    E: serde::de::Error,
{
    let value = read::<Option<T>, E>(fields, name)?.flatten();
    fields.remove(name);
    Ok(value)
}

/// Reads a field, if it is there.
fn read<T, E>(fields: &UnreadFields, name: &'static str) -> Result<Option<T>, E>
where
    T: serde::de::DeserializeOwned,
    E: serde::de::Error,
{
    let value = fields.get(name).map(|value| serde_json::from_str(value.get()));
    value.transpose().map_err(|error| E::custom(format!("field `{name}`: {error}")))
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", &ENVELOPE_VERSION)?;
        map.serialize_entry("messageId", &self.message_id)?;
        map.serialize_entry("type", &self.kind)?;
        let mut entry = |name, value: &Option<&str>| match value {
            Some(value) => map.serialize_entry(name, value),
            None => Ok(()),
        };
        entry("correlationId", &self.correlation_id.as_ref().map(CorrelationId::as_str))?;
        entry("replyTo", &self.reply_to.as_ref().map(Topic::as_str))?;
        entry("source", &Some(&self.source))?;
        entry("destination", &self.destination.as_deref())?;
        map.serialize_entry("timestamp", &self.timestamp)?;
        if !self.headers.is_empty() {
            map.serialize_entry("headers", &self.headers)?;
        }
        map.serialize_entry("body", &self.body)?;
        for (name, value) in &self.unknown {
            map.serialize_entry(name, value)?;
        }
        map.end()
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
            r#"{"version":1,"messageId":"m-1","type":"ToolInvokeRequest","correlationId":"c-1","#,
            r#""replyTo":"tool.result.agent-1","source":"agent-1","destination":"bridge","#,
            r#""timestamp":"2026-03-01T12:00:00.250Z","headers":{"rb-content-trust":"tool-request"},"#,
            r#""body":{ "n":1.00, "big":123456789012345678901234567890, "n":"\u00e9" },"#,
            r#""future":[ 1.0 ]}"#,
        ));
        check(concat!(
            r#"{"version":1,"messageId":"m","type":"t","source":"s","#,
            r#""timestamp":"2026-03-01T12:00:00.250Z","body":null}"#
        ));
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

    // req: BU-03
    #[test]
    fn reads_version_one_only() {
        let of_version = |version: &str| {
            let json = format!(
                r#"{{{version}"messageId":"m","type":"t","source":"s","timestamp":"2026-03-01T12:00:00Z","body":1}}"#
            );
            Envelope::parse(json.as_bytes()).map(|envelope| envelope.unknown.len()).map_err(|e| e.to_string())
        };
        assert_eq!([of_version(""), of_version(r#""version":1,"#)], [Ok(0), Ok(0)]);
        let other = "the message has envelope version 2; this program reads version 1";
        assert_eq!(of_version(r#""version":2,"#), Err(other.to_owned()));
        assert!(of_version(r#""version":"1","#).is_err());
        // The rest of another version need not be readable.
        assert!(matches!(Envelope::parse(br#"{"version":7}"#), Err(EnvelopeError::Version(_))));
        for bytes in [&b"{"[..], b"[1]", b"\xff\xfe", b"", b"{\"messageId\":1}"] {
            assert!(matches!(Envelope::parse(bytes), Err(EnvelopeError::Malformed(_))));
        }
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

    // req: BU-03
    #[test]
    fn lenient_reader_leaves_wrong_optional_fields_out() {
        let message = |fields: &str| {
            format!(
                r#"{{"messageId":"m","type":"t","source":"s","timestamp":"2026-03-01T12:00:00Z","body":1,"future":2{fields}}}"#
            )
        };
        let read = |fields: &str| Envelope::parse_leniently(message(fields).as_bytes());
        for (fields, name) in [
            (r#","replyTo":"a b""#, "`replyTo`"),
            (r#","replyTo":7"#, "`replyTo`"),
            (r#","correlationId":"""#, "`correlationId`"),
            (r#","headers":[1]"#, "`headers`"),
            (r#","destination":{}"#, "`destination`"),
        ] {
            let (envelope, mistake) = read(fields).unwrap();
            assert!(mistake.unwrap().contains(name) && envelope.unknown.len() == 1, "{fields}");
        }
        let (envelope, mistake) = read(r#","replyTo":"a.b","correlationId":null"#).unwrap();
        assert_eq!((envelope.reply_to.unwrap().as_str(), mistake), ("a.b", None));
        assert!(read(r#","version":2"#).is_err() && Envelope::parse_leniently(b"{}").is_err());
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
