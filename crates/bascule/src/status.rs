//! How a bridge's servers are, in the one shape that every face shows.

use bascule_model::{ProviderAdapter, ServerHealth};
use bascule_sandbox::Confinement;
use serde::{Deserialize, Serialize};

use crate::McpBridgeAdapter;

/// All servers, in the order of the configuration.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) servers: Vec<ServerStatus>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    #[serde(flatten)]
    pub(crate) health: ServerHealth,
    /// What confines its process; null where it has none of ours.
    pub(crate) confinement: Option<Confinement>,
}

/// How they are now.
pub(crate) fn of(bridge: &McpBridgeAdapter) -> Status {
    let servers = bridge.health().into_iter().map(|health| {
        let confinement = bridge.confinement(health.name.as_str());
        ServerStatus { health, confinement }
    });
    Status { servers: servers.collect() }
}
