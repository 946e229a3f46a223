//! Validated names: servers, tools and correlation ids.

use std::sync::Arc;

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
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CorrelationId(Arc<str>);

impl CorrelationId {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let legal = (1..=128).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic());
        if legal { Ok(Self(text.into())) } else { Err(NameError::Correlation) }
    }

    /// Formats 128 random bits, which the caller supplies, as 32 hexadecimal digits.
    pub fn from_random(bits: u128) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits: [u8; 32] = std::array::from_fn(|at| DIGITS[(bits >> (124 - 4 * at)) as usize & 15]);
        Self(str::from_utf8(&digits).expect("hexadecimal digits are ASCII").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
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
        assert_eq!(CorrelationId::from_random(255).as_str().len(), 32);
        assert!(serde_json::from_str::<CorrelationId>(r#""order-17/3""#).is_ok());
        assert!(serde_json::from_str::<CorrelationId>(r#""a\nb""#).is_err());
    }
}
