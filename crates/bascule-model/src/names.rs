//! Names that were checked once, at the door: servers, tools, correlations.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a piece of text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A server's name is used in ids, URLs and scripts, so its alphabet is small.
    #[error("server name `{0}` may only contain letters, digits, `_` and `-`, and must not be empty")]
    Server(String),
    /// A tool is always named together with its server.
    #[error("`{0}` does not name a tool: write `server:tool`")]
    Tool(String),
    /// A correlation id goes into every log line, so it must not be able to forge one.
    #[error("a correlation id has 1 to 128 printable ASCII characters and no spaces")]
    Correlation,
}

/// A server's name as the configuration has it: letters, digits, `_` and `-`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

impl ServerName {
    /// Checks and keeps a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        match !text.is_empty() && text.bytes().all(legal) {
            true => Ok(Self(text.into())),
            false => Err(NameError::Server(text.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tool's full name, `server:tool`. What stands after the colon is the server's own spelling.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    text: Arc<str>,
    colon: usize,
}

impl ToolId {
    /// Joins a server's name and the name that server gave its tool.
    pub fn new(server: &ServerName, tool: &str) -> Self {
        Self { text: format!("{server}:{tool}").into(), colon: server.as_str().len() }
    }

    /// Reads `server:tool`; the tool's part may hold further colons.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (server, tool) = text.split_once(':').ok_or_else(|| NameError::Tool(text.into()))?;
        if tool.is_empty() {
            return Err(NameError::Tool(text.into()));
        }
        Ok(Self::new(&ServerName::parse(server)?, tool))
    }

    /// The part before the colon.
    pub fn server(&self) -> &str {
        &self.text[..self.colon]
    }

    /// The part after the colon.
    pub fn tool(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    /// The whole, `server:tool`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// What ties every event, log line and error of one call together.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CorrelationId(Arc<str>);

impl CorrelationId {
    /// Takes a caller's id if it cannot break a log line.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let legal = (1..=128).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic());
        if legal { Ok(Self(text.into())) } else { Err(NameError::Correlation) }
    }

    /// Spells 128 bits of chance, which the caller supplies, as 32 hexadecimal digits.
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}").into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! reads_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.as_str())
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
reads_as_text!(ServerName, ToolId, CorrelationId);

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
    fn a_tool_is_named_by_server_and_tool() {
        let id = ToolId::parse("files:read.text/file:v2").unwrap();
        assert_eq!((id.server(), id.tool()), ("files", "read.text/file:v2"));
        assert_eq!(id.to_string(), "files:read.text/file:v2");
    }

    #[test]
    fn half_a_name_is_refused() {
        for text in ["", "files", ":x", "files:", "fi les:x", "../x:y"] {
            assert!(ToolId::parse(text).is_err(), "{text:?}");
        }
    }

    // req: BR-06
    #[test]
    fn a_correlation_id_cannot_forge_a_log_line() {
        assert!(CorrelationId::parse("order-17/3").is_ok());
        for text in ["", "a b", "a\nb", "\u{1b}[31m", &"x".repeat(129)] {
            assert_eq!(CorrelationId::parse(text), Err(NameError::Correlation), "{text:?}");
        }
        assert_eq!(CorrelationId::from_random(255).as_str().len(), 32);
        assert!(serde_json::from_str::<CorrelationId>(r#""order-17/3""#).is_ok());
        assert!(serde_json::from_str::<CorrelationId>(r#""a\nb""#).is_err());
    }
}
