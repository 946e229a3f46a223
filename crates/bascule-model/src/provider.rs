//! The interface between a program and a tool provider that it embeds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BridgeResult, CorrelationId, ServerName};

/// A provider with a life cycle: start, health, work, termination.
pub trait ProviderAdapter: Sized + Send + Sync {
    type Config;
    type Input;
    type Output;

    /// Starts the provider. A server that fails to start is reported by `health`; the others still start.
    fn init(config: Self::Config) -> impl Future<Output = BridgeResult<Self>> + Send;

    /// Returns the state of every server.
    fn health(&self) -> Vec<ServerHealth>;

    /// Runs one request. Creates a correlation id if none is given. Dropping the future cancels the request.
    fn execute(
        &self,
        input: Self::Input,
        correlation_id: Option<CorrelationId>,
    ) -> impl Future<Output = BridgeResult<Self::Output>> + Send;

    /// Stops everything that `init` started. Later requests fail.
    fn terminate(&self) -> impl Future<Output = ()> + Send;
}

/// The health report of one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerHealth {
    pub name: ServerName,
    pub health: Health,
    /// The reason for the state, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The last output on stderr of a server that is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// True if the server is down and has never been up since the bridge knows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_started: bool,
    /// The number of the next attempt to start a server that is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The time until that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The installation of a package that is part of the current start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installing: Option<String>,
    /// The process id of a stdio server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The number of restarts since the bridge started the server.
    pub restarts: u32,
    /// The number of tools that the filter allows.
    pub tools: usize,
    /// The tools come from an earlier run: the server has not listed them in this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_last_listing: bool,
}

/// The state of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Connecting for the first time.
    Starting,
    /// Connected, tools listed.
    Healthy,
    /// Connection lost, reconnecting.
    Degraded,
    /// All attempts to reconnect failed.
    Unavailable,
    /// Stopped on request, or not running until its next call.
    Stopped,
}

/// Prints the spelling in JSON.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
            Self::Stopped => "stopped",
        })
    }
}
