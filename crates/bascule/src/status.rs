//! The status of a bridge's servers, in the form that every face shows.

use bascule_model::{ProviderAdapter, ServerHealth};
use bascule_sandbox::Confinement;
use serde::{Deserialize, Serialize};

use crate::McpBridgeAdapter;

/// All servers, in the order of the configuration.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BridgeStatus {
    pub(crate) servers: Vec<ServerStatus>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    #[serde(flatten)]
    pub(crate) health: ServerHealth,
    /// The confinement of the server's process; null without a process of the bridge.
    pub(crate) confinement: Option<Confinement>,
}

pub(crate) fn of(bridge: &McpBridgeAdapter) -> BridgeStatus {
    let servers = bridge.health().into_iter().map(|health| {
        let confinement = bridge.confinement(health.name.as_str());
        ServerStatus { health, confinement }
    });
    BridgeStatus { servers: servers.collect() }
}
