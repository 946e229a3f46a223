//! A JSON tree that keeps the order of members, in which a schema's author wrote them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest schema that is read. The parser itself stops soon after.
const MAX_DEPTH: usize = 120;

/// A JSON value. An object may have several members with the same key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// The number as it was written.
    Number(String),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
    /// A part that cannot be read: too deep, or text that Rust cannot represent.
    Unreadable,
}

impl Json {
    /// Parses text. What cannot be read is `Unreadable`.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str::<&RawValue>(text).map_or(Self::Unreadable, |raw| Self::from_raw(raw, 0))
    }

    /// Parses level by level: a part that is too deep or unreadable does not spoil the rest.
    fn from_raw(raw: &RawValue, depth: usize) -> Self {
        if depth > MAX_DEPTH {
            return Self::Unreadable;
        }
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str::<Members<'_>>(text).map_or(Self::Unreadable, |members| {
                Self::Object(
                    members.0.into_iter().map(|(key, raw)| (key, Self::from_raw(raw, depth + 1))).collect(),
                )
            }),
            Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(text).map_or(Self::Unreadable, |items| {
                Self::Array(items.into_iter().map(|raw| Self::from_raw(raw, depth + 1)).collect())
            }),
            Some(b'"') => serde_json::from_str(text).map_or(Self::Unreadable, Self::String),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') => Self::Null,
            _ => Self::Number(text.to_owned()),
        }
    }

    /// Returns a member of an object. The last of several with the same key counts, as in most parsers.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the members of an object; none for other values.
    pub(super) fn members(&self) -> &[(String, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    /// Returns the items of an array; none for other values.
    pub(super) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns a whole number that is not negative.
    pub(super) fn as_usize(&self) -> Option<usize> {
        if let Self::Number(text) = self { text.parse().ok() } else { None }
    }

    /// Returns the value at a JSON pointer, which is given without its leading `/`.
    pub(super) fn find_pointer(&self, pointer: &str) -> Option<&Self> {
        pointer.split('/').try_fold(self, |value, part| {
            let key = part.replace("~1", "/").replace("~0", "~");
            match value {
                Self::Array(items) => items.get(key.parse::<usize>().ok()?),
                _ => value.get(&key),
            }
        })
    }
}

/// The members of an object in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    members.push(entry);
                }
                Ok(Members(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
                Err(serde::de::Error::custom("an array is not an object"))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Writes JSON on one line, with a space behind each comma and colon.
impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |formatter: &mut fmt::Formatter<'_>, index| {
            if index > 0 { formatter.write_str(", ") } else { Ok(()) }
        };
        match self {
            Self::Null | Self::Unreadable => formatter.write_str("null"),
            Self::Bool(value) => write!(formatter, "{value}"),
            Self::Number(text) => formatter.write_str(text),
            Self::String(text) => formatter.write_str(&super::names::quote(text)),
            Self::Array(items) => {
                formatter.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    list(formatter, index)?;
                    write!(formatter, "{item}")?;
                }
                formatter.write_str("]")
            }
            Self::Object(members) => {
                formatter.write_str("{")?;
                for (index, (key, value)) in members.iter().enumerate() {
                    list(formatter, index)?;
                    write!(formatter, "{}: {value}", super::names::quote(key))?;
                }
                formatter.write_str("}")
            }
        }
    }
}
