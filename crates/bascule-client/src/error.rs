//! The error of `connect_to_server` and `call_tool`.

use std::time::Duration;

use bascule_mcp::{Failure, RpcError};

use crate::{ConnectError, InvalidTimeout};

/// A failure with its cause and the number of attempts.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause}")]
pub struct McpBridgeError {
    /// The cause of the last failure.
    pub cause: ErrorCause,
    pub attempts: u32,
    /// True if the failure may be transient.
    pub retryable: bool,
}

/// The cause of a failure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ErrorCause {
    /// The request or the connection failed.
    #[error("{0}")]
    Failed(Failure),
    /// The request timed out and was cancelled at the server.
    #[error("no response within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("the response is not a valid tool result: {0}")]
    InvalidResult(String),
    /// `close()` was called.
    #[error("the bridge is closed")]
    Closed,
    #[error("{0}")]
    Connect(ConnectError),
    /// The URL is invalid, or the transport factory failed.
    #[error("{0}")]
    InvalidUrl(String),
    #[error("the arguments must be a JSON object: {0}")]
    InvalidArguments(String),
    #[error("{0}")]
    InvalidTimeout(InvalidTimeout),
}

impl ErrorCause {
    /// Returns true if another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            ErrorCause::TimedOut(_) | ErrorCause::Connect(ConnectError::TimedOut { .. }) => true,
            ErrorCause::Failed(failure) | ErrorCause::Connect(ConnectError::Failed { failure, .. }) => {
                is_transient(failure)
            }
            _ => false,
        }
    }
}

fn is_transient(failure: &Failure) -> bool {
    match failure {
        Failure::ErrorResponse(error) => matches!(
            error.code,
            RpcError::INTERNAL_ERROR | RpcError::REQUEST_TIMEOUT | RpcError::CONNECTION_CLOSED
        ),
        Failure::Transport { cause, .. } => cause.is_transient(),
        Failure::TooLong { .. } | Failure::InvalidResponse => false,
    }
}

impl McpBridgeError {
    pub(crate) fn new(cause: ErrorCause, attempts: u32) -> Self {
        Self { retryable: cause.is_retryable(), cause, attempts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CL-05
    #[test]
    fn only_three_codes_are_retryable() {
        let with = |code| {
            ErrorCause::Failed(Failure::ErrorResponse(RpcError {
                code,
                message: "".into(),
                data: None,
                raw: None,
            }))
        };
        for code in [-32603, -32001, -32000] {
            assert!(with(code).is_retryable(), "{code}");
        }
        for code in [-32600, -32601, -32602, -32700, -32002, -31999, 0, 1] {
            assert!(!with(code).is_retryable(), "{code}");
        }
        assert!(ErrorCause::TimedOut(Duration::from_secs(1)).is_retryable());
        assert!(!ErrorCause::Closed.is_retryable());
        assert!(!ErrorCause::Failed(Failure::InvalidResponse).is_retryable());
    }
}
