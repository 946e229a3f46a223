//! What a provider of tools is to a program that embeds one (BR-16).

use serde::{Deserialize, Serialize};

use crate::{BridgeResult, CorrelationId, ServerName};

/// Something that can be started, asked how it is, given work, and ended.
pub trait ProviderAdapter: Sized + Send + Sync {
    /// What it needs to start.
    type Config;
    /// One piece of work.
    type Input;
    /// What comes of it.
    type Output;

    /// Starts the provider. A part that cannot be started shows in `health`; it does not stop the rest.
    fn init(config: Self::Config) -> impl Future<Output = BridgeResult<Self>> + Send;

    /// How each part is.
    fn health(&self) -> Vec<ServerHealth>;

    /// Does one piece of work. Without a correlation id one is made. Dropping the future cancels the work.
    fn execute(
        &self,
        input: Self::Input,
        correlation_id: Option<CorrelationId>,
    ) -> impl Future<Output = BridgeResult<Self::Output>> + Send;

    /// Ends everything that `init` started. Work asked for afterwards fails.
    fn terminate(&self) -> impl Future<Output = ()> + Send;
}

/// How one server is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerHealth {
    /// Which server.
    pub name: ServerName,
    /// Its state in a word.
    pub health: Health,
    /// What led there, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Its process, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was brought back since the bridge started it.
    pub restarts: u32,
    /// How many of its tools may be used.
    pub tools: usize,
}

/// A server's state in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Connecting for the first time.
    Starting,
    /// Connected, tools listed.
    Healthy,
    /// Lost, reconnecting.
    Degraded,
    /// Given up.
    Unavailable,
    /// Ended on purpose.
    Stopped,
}
