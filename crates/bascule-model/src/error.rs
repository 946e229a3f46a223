//! The normalised error of a call, the same for every interface.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{CorrelationId, ServerName, ToolId};

/// The result of a call or of a server's start. The error is boxed because it is large and rare.
pub type BridgeResult<T> = Result<T, Box<BridgeError>>;

/// The kind of failure. The JSON spelling is a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    ProviderInitFailed,
    ProviderTimeout,
    ProviderCrashed,
    ProviderUnavailable,
    ProviderError,
    ToolNotFound,
    InvalidInput,
    InvalidOutput,
    PolicyDenied,
    RateLimited,
    Cancelled,
    OutcomeUnknown,
}

impl ErrorCode {
    /// Returns true if repeating the same call may succeed.
    pub fn is_retryable(self) -> bool {
        use ErrorCode::*;
        matches!(self, ProviderTimeout | ProviderCrashed | ProviderUnavailable | RateLimited)
    }
}

/// Prints the spelling in JSON.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProviderInitFailed => "PROVIDER_INIT_FAILED",
            Self::ProviderTimeout => "PROVIDER_TIMEOUT",
            Self::ProviderCrashed => "PROVIDER_CRASHED",
            Self::ProviderUnavailable => "PROVIDER_UNAVAILABLE",
            Self::ProviderError => "PROVIDER_ERROR",
            Self::ToolNotFound => "TOOL_NOT_FOUND",
            Self::InvalidInput => "INVALID_INPUT",
            Self::InvalidOutput => "INVALID_OUTPUT",
            Self::PolicyDenied => "POLICY_DENIED",
            Self::RateLimited => "RATE_LIMITED",
            Self::Cancelled => "CANCELLED",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
        })
    }
}

/// How far a request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The request certainly did not reach the server.
    NotSent,
    /// The request was sent, and no response arrived: it may or may not have run.
    Unknown,
    /// The server responded.
    Answered,
}

impl Delivery {
    /// Returns the spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
            Self::Answered => "answered",
        }
    }
}

/// One mismatch between a value and its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// A JSON pointer into the value; empty for the value itself.
    pub pointer: String,
    /// The mismatch in one sentence, for a person or a model.
    pub message: String,
}

/// The JSON-RPC error object that a server returned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProviderFault {
    pub code: i64,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// The whole object, byte for byte, for passing it on unchanged.
    #[serde(skip)]
    pub raw: Option<Box<RawValue>>,
}

/// The normalised error of a call or of a server's start.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct BridgeError {
    pub code: ErrorCode,
    /// One sentence that is complete without the other fields.
    pub message: String,
    /// True if repeating the same call may succeed.
    pub retryable: bool,
    /// Absent only if there was no call, such as for a server's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    pub delivery: Delivery,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolId>,
    /// The delay before the next attempt, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The number of times that the request was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The last output of the server's process on stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The end of the server's process, such as `exit code 3` or `signal 9 (SIGKILL)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// The limit that ended the server's process, and whether this was observed or inferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The likely refusal by the sandbox or a limit, and the setting that would allow it. The message ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All mismatches of the arguments or of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// The tool's call and the type of its arguments in TypeScript, if the arguments are wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Tools with names similar to the one that was not found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<ToolId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_error: Option<ProviderFault>,
    /// The result that does not match its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
}

impl BridgeError {
    /// Creates an error without the optional fields.
    pub fn new(code: ErrorCode, delivery: Delivery, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            message: message.into(),
            retryable: code.is_retryable(),
            correlation_id: None,
            delivery,
            server: None,
            tool: None,
            retry_after_ms: None,
            attempts: None,
            stderr: None,
            exit: None,
            limit: None,
            hint: None,
            violations: Vec::new(),
            signature: None,
            nearest: Vec::new(),
            provider_error: None,
            result: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-05
    #[test]
    fn serializes_error_as_specified() {
        let mut error = BridgeError::new(ErrorCode::ProviderTimeout, Delivery::Unknown, "took too long");
        error.correlation_id = Some(CorrelationId::parse("c1").unwrap());
        error.tool = Some(ToolId::parse("a:b").unwrap());
        error.attempts = Some(1);
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            r#"{"code":"PROVIDER_TIMEOUT","message":"took too long","retryable":true,"correlationId":"c1","delivery":"unknown","tool":"a:b","attempts":1}"#
        );
    }

    #[test]
    fn deserializes_what_it_serialized() {
        let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, "no");
        error.result = Some(RawValue::from_string(r#"{"a":1.0}"#.into()).unwrap());
        error.violations = vec![Violation { pointer: "/a".into(), message: "must be a text".into() }];
        error.nearest = vec![ToolId::parse("a:b").unwrap()];
        let text = serde_json::to_string(&error).unwrap();
        let read: BridgeError = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    // req: BR-05
    #[test]
    fn only_transient_codes_are_retryable() {
        use ErrorCode::*;
        for code in [ProviderTimeout, ProviderCrashed, ProviderUnavailable, RateLimited] {
            assert!(code.is_retryable(), "{code:?}");
            assert_eq!(serde_json::to_value(code).unwrap(), code.to_string());
        }
        for code in [
            ProviderInitFailed,
            ProviderError,
            ToolNotFound,
            InvalidInput,
            InvalidOutput,
            PolicyDenied,
            Cancelled,
            OutcomeUnknown,
        ] {
            assert!(!code.is_retryable(), "{code:?}");
            assert_eq!(serde_json::to_value(code).unwrap(), code.to_string());
        }
    }
}
