//! The error of a call that has no result, in one shape wherever it was made.

use std::fmt;

use bascule_bus::{BusError, ToolError};
use bascule_model::CorrelationId;

use crate::ToolResultBlock;

/// A call without a result.
///
/// The message may quote a server, so `Display` prints only the tool and the code: untrusted text reaches a model by
/// [`into_block`](Self::into_block) alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallError {
    error: Box<ToolError>,
    origin: ErrorOrigin,
}

/// The maker of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The bridge answered with it.
    Bridge,
    /// The proxy made it: no readable answer came.
    Proxy,
}

impl ToolCallError {
    pub(crate) fn from_bridge(error: ToolError) -> Self {
        Self { error: Box::new(error), origin: ErrorOrigin::Bridge }
    }

    /// `timeout`, or one of the bridge's codes in lower case.
    pub fn code(&self) -> &str {
        &self.error.code
    }

    /// Returns true if repeating the same call may succeed.
    pub fn is_retryable(&self) -> bool {
        self.error.is_retryable
    }

    pub fn origin(&self) -> ErrorOrigin {
        self.origin
    }

    pub fn correlation_id(&self) -> Option<&CorrelationId> {
        self.error.correlation_id.as_ref()
    }

    /// The error as it is on the bus, for logs and relays. Its message is untrusted.
    pub fn as_tool_error(&self) -> &ToolError {
        &self.error
    }

    /// Makes the block that tells a model of the failure. `tool_use_id` is the model's own id of the call.
    pub fn into_block(self, tool_use_id: impl Into<String>) -> ToolResultBlock {
        let ToolError { code, message, .. } = *self.error;
        ToolResultBlock::from_error(tool_use_id.into(), format!("{code}: {message}"))
    }
}

impl fmt::Display for ToolCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the call of `{}` failed with `{}`", self.error.tool_name.escape_debug(), self.code())?;
        match self.origin {
            ErrorOrigin::Bridge => Ok(()),
            ErrorOrigin::Proxy => write!(f, ": {}", self.error.message),
        }
    }
}

impl std::error::Error for ToolCallError {}

/// The call that an error is about.
#[derive(Debug, Clone)]
pub(crate) struct CallIdentity {
    pub(crate) tool_call_id: String,
    pub(crate) tool_name: String,
    pub(crate) correlation_id: CorrelationId,
}

impl CallIdentity {
    pub(crate) fn error(&self, code: &str, is_retryable: bool, message: String) -> ToolCallError {
        let error = ToolError {
            tool_call_id: self.tool_call_id.clone(),
            tool_name: self.tool_name.clone(),
            code: code.to_owned(),
            message,
            is_retryable,
            correlation_id: Some(self.correlation_id.clone()),
            retry_after_ms: None,
            details: None,
        };
        ToolCallError { error: Box::new(error), origin: ErrorOrigin::Proxy }
    }

    /// The error of a request that did not reach the bus.
    pub(crate) fn not_published(&self, error: &BusError) -> ToolCallError {
        let code = match error {
            BusError::TooLarge { .. } => "invalid_input",
            BusError::Full => "rate_limited",
            _ => "provider_unavailable",
        };
        self.error(code, error.is_retryable(), format!("could not send the request: {error}"))
    }
}
