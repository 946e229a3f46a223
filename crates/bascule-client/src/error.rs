//! What reaches the caller when a call, or connecting, fails.

use std::time::Duration;

use bascule_mcp::{Failure, RpcError};

use crate::{ConnectError, InvalidTimeout};

/// A failure, what caused it, and what was done about it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause}")]
pub struct McpBridgeError {
    /// The last thing that went wrong.
    pub cause: Cause,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it is of a kind that may pass.
    pub retryable: bool,
}

/// What went wrong.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// The request or the connection failed.
    #[error("{0}")]
    Failed(Failure),
    /// No answer in time; the request was cancelled.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The answer is no tool result.
    #[error("the answer is no tool result: {0}")]
    Malformed(String),
    /// `close()` was called before.
    #[error("the bridge is closed")]
    Closed,
    /// There is no connection.
    #[error("{0}")]
    Connect(ConnectError),
    /// The address, or what the factory made of it.
    #[error("{0}")]
    Address(String),
    /// The arguments are not the JSON text of an object.
    #[error("arguments must be a JSON object: {0}")]
    Arguments(String),
    /// The environment asks for an impossible time-out.
    #[error("{0}")]
    Settings(InvalidTimeout),
}

impl Cause {
    /// Whether another attempt may fare better (CL-05). Everything not named here may not.
    pub fn is_retryable(&self) -> bool {
        match self {
            Cause::TimedOut(_) | Cause::Connect(ConnectError::TimedOut { .. }) => true,
            Cause::Failed(failure) | Cause::Connect(ConnectError::Failed { failure, .. }) => passes(failure),
            _ => false,
        }
    }
}

fn passes(failure: &Failure) -> bool {
    match failure {
        Failure::Answered(error) => matches!(
            error.code,
            RpcError::INTERNAL_ERROR | RpcError::REQUEST_TIMEOUT | RpcError::CONNECTION_CLOSED
        ),
        Failure::Broken { why, .. } => why.is_network(),
        Failure::TooLong { .. } | Failure::Garbled => false,
    }
}

impl McpBridgeError {
    pub(crate) fn new(cause: Cause, attempts: u32) -> Self {
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
            Cause::Failed(Failure::Answered(RpcError { code, message: "".into(), data: None, raw: None }))
        };
        for code in [-32603, -32001, -32000] {
            assert!(with(code).is_retryable(), "{code}");
        }
        for code in [-32600, -32601, -32602, -32700, -32002, -31999, 0, 1] {
            assert!(!with(code).is_retryable(), "{code}");
        }
        assert!(Cause::TimedOut(Duration::from_secs(1)).is_retryable());
        assert!(!Cause::Closed.is_retryable());
        assert!(!Cause::Failed(Failure::Garbled).is_retryable());
    }
}
