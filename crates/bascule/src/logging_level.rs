//! The log levels of MCP.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The severity of a log message, least severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LoggingLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LoggingLevel {
    /// The level of a server that no client has asked for another one.
    pub(crate) const DEFAULT: Self = Self::Info;

    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_value(Value::from(text)).ok()
    }

    /// Returns the parameters of `logging/setLevel`.
    pub(crate) fn to_params(self) -> String {
        json!({ "level": self }).to_string()
    }
}
