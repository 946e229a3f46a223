//! Validated names: servers, tools and correlation ids.

use std::sync::Arc;

use crate::TraceId;

/// The reason why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Server names appear in tool ids, URLs and scripts, so few characters are allowed.
    #[error("server name `{0}` may only contain letters, digits, `_` and `-`, and must not be empty")]
    Server(String),
    /// A tool id needs both the server and the tool.
    #[error("invalid tool id `{0}`: expected `server:tool`")]
    Tool(String),
    /// Correlation ids appear in log lines, so control characters could forge a line.
    #[error("invalid correlation id: expected 1 to 128 printable ASCII characters without spaces")]
    Correlation,
}

/// The name of a server in the configuration: letters, digits, `_` and `-`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

impl ServerName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        match !text.is_empty() && text.bytes().all(legal) {
            true => Ok(Self(text.into())),
            false => Err(NameError::Server(text.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The full name of a tool, `server:tool`. The part after the colon is the server's own name for the tool.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    text: Arc<str>,
    colon: usize,
}

impl ToolId {
    pub fn new(server: &ServerName, tool: &str) -> Self {
        Self { text: [server.as_str(), ":", tool].concat().into(), colon: server.as_str().len() }
    }

    /// Parses `server:tool`. The tool's part may contain further colons.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (server, tool) = text.split_once(':').ok_or_else(|| NameError::Tool(text.into()))?;
        if tool.is_empty() {
            return Err(NameError::Tool(text.into()));
        }
        Ok(Self::new(&ServerName::parse(server)?, tool))
    }

    pub fn server(&self) -> &str {
        &self.text[..self.colon]
    }

    pub fn tool(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text without copying it.
    pub fn to_shared(&self) -> Arc<str> {
        self.text.clone()
    }
}

/// The id that all events, log lines and errors of one call share.
#[derive(Clone)]
pub struct CorrelationId(IdText);

#[derive(Clone)]
enum IdText {
    Given(Arc<str>),
    Generated(Arc<GeneratedId>),
}

/// A number and its hexadecimal digits. Every call needs both: the number is also its trace id.
struct GeneratedId {
    bits: u128,
    digits: [u8; 32],
}

impl CorrelationId {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let legal = (1..=128).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic());
        if legal { Ok(Self(IdText::Given(text.into()))) } else { Err(NameError::Correlation) }
    }

    /// Formats 128 random bits, which the caller supplies, as 32 hexadecimal digits.
    pub fn from_random(bits: u128) -> Self {
        let mut digits = [0; 32];
        for (quarter, eight) in digits.chunks_exact_mut(8).enumerate() {
            eight.copy_from_slice(&hex_digits((bits >> (96 - 32 * quarter)) as u32));
        }
        Self(IdText::Generated(Arc::new(GeneratedId { bits, digits })))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            IdText::Given(text) => text,
            IdText::Generated(id) => str::from_utf8(&id.digits).expect("hexadecimal digits are ASCII"),
        }
    }

    /// Returns the trace that the id names, if it has the form of one.
    pub fn as_trace_id(&self) -> Option<TraceId> {
        match &self.0 {
            IdText::Given(text) => TraceId::parse(text),
            IdText::Generated(id) => (id.bits != 0).then_some(TraceId(id.bits)),
        }
    }
}

/// Formats a number as eight hexadecimal digits, all of them at once: every call makes an id.
fn hex_digits(bits: u32) -> [u8; 8] {
    const ONES: u64 = u64::MAX / 255;
    // Each step moves half of the digits, until there is one in each byte.
    let spread = [(16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, ONES * 0x0f)];
    let values = spread.iter().fold(u64::from(bits), |bits, (shift, mask)| (bits | bits << shift) & mask);
    // 1 in each byte above 9.
    let letters = (values + ONES * 6) >> 4 & ONES;
    (values + ONES * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

impl PartialEq for CorrelationId {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for CorrelationId {}

impl std::hash::Hash for CorrelationId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// Implements the traits of a checked text by its methods `as_str` and `parse`.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_string_traits {
    ($($name:ident),*) => {$(
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "`{}`", self.as_str())
            }
        }
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                Self::parse(&text).map_err(::serde::de::Error::custom)
            }
        }
    )*};
}
impl_string_traits!(ServerName, ToolId, CorrelationId);

impl std::borrow::Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-04
    #[test]
    fn splits_tool_id_at_first_colon() {
        let id = ToolId::parse("files:read.text/file:v2").unwrap();
        assert_eq!((id.server(), id.tool()), ("files", "read.text/file:v2"));
        assert_eq!(id.to_string(), "files:read.text/file:v2");
    }

    #[test]
    fn refuses_incomplete_tool_id() {
        for text in ["", "files", ":x", "files:", "fi les:x", "../x:y"] {
            assert!(ToolId::parse(text).is_err(), "{text:?}");
        }
    }

    // req: BR-06
    #[test]
    fn refuses_correlation_id_that_could_forge_a_log_line() {
        assert!(CorrelationId::parse("order-17/3").is_ok());
        for text in ["", "a b", "a\nb", "\u{1b}[31m", &"x".repeat(129)] {
            assert_eq!(CorrelationId::parse(text), Err(NameError::Correlation), "{text:?}");
        }
        let generated = CorrelationId::from_random(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(generated.as_str(), "4bf92f3577b34da6a3ce929d0e0e4736");
        for bits in [0, 0x0123_4567_89ab_cdef, u128::MAX, u128::MAX / 17] {
            assert_eq!(CorrelationId::from_random(bits).as_str(), format!("{bits:032x}"));
        }
        assert_eq!(generated, CorrelationId::parse(generated.as_str()).unwrap());
        assert_eq!(generated.as_trace_id(), TraceId::parse(generated.as_str()));
        assert!(serde_json::from_str::<CorrelationId>(r#""order-17/3""#).is_ok());
        assert!(serde_json::from_str::<CorrelationId>(r#""a\nb""#).is_err());
    }
}
