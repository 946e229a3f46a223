//! The interface between a program and a tool provider that it embeds (BR-16).

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
    /// The process id of a stdio server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The number of restarts since the bridge started the server.
    pub restarts: u32,
    /// The number of tools that the filter allows.
    pub tools: usize,
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
    /// Stopped on request.
    Stopped,
}
