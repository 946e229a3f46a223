//! The one shape every failure of a call has, whichever face it leaves through (BR-05).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{CorrelationId, ServerName, ToolId};

/// What a call, or a server's start, comes to when it fails. Boxed: failures are rare, results are not.
pub type BridgeResult<T> = Result<T, Box<BridgeError>>;

/// What kind of failure it was. The spelling is a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "BR-05 explains each name; they explain themselves")]
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
    /// Whether trying the same call again may help.
    pub fn is_retryable(self) -> bool {
        use ErrorCode::*;
        matches!(self, ProviderTimeout | ProviderCrashed | ProviderUnavailable | RateLimited)
    }
}

/// What is known about the request's way to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The server surely never saw it.
    NotSent,
    /// It left; nobody knows whether it ran.
    Unknown,
    /// The server answered it.
    Answered,
}

/// One way in which a value breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Where, as a JSON pointer into the value; empty for the value itself.
    pub pointer: String,
    /// What is wrong there, for a person or a model to read.
    pub message: String,
}

/// The JSON-RPC error a server answered with, as it sent it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProviderFault {
    /// JSON-RPC's number.
    pub code: i64,
    /// The server's words.
    pub message: String,
    /// Whatever else it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// All of it, for those who hand it on as it was spelled.
    #[serde(skip)]
    pub raw: Option<Box<RawValue>>,
}

/// A normalised error.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct BridgeError {
    /// The kind.
    pub code: ErrorCode,
    /// One sentence, complete without the rest.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Which call; absent only where no call was made (a server's start).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// How far the request got.
    pub delivery: Delivery,
    /// Whose failure it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerName>,
    /// Which tool was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolId>,
    /// When it may be tried again, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// How often the request was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The end of what the server's process wrote to stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// How the server's process ended, in words: `exit code 3`, `signal 9 (SIGKILL)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// Which limit ended the server's process, and whether that was seen or inferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Every way in which arguments or result break their schema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// Tools whose names are close to the one that was not found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<ToolId>,
    /// The server's own JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_error: Option<ProviderFault>,
    /// The result that broke its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
}

impl BridgeError {
    /// An error that knows its kind and its sentence; the rest is filled in by those who know it.
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
            violations: Vec::new(),
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
    fn errors_are_spelled_as_the_contract_has_them() {
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
    fn an_error_survives_being_passed_on() {
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
    fn only_passing_troubles_are_retryable() {
        use ErrorCode::*;
        for code in [ProviderTimeout, ProviderCrashed, ProviderUnavailable, RateLimited] {
            assert!(code.is_retryable(), "{code:?}");
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
        }
    }
}
