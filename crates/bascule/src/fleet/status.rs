//! The status of a server: written by its actor, read by everyone else.

use std::sync::Arc;

use bascule_catalog::ServerTools;
use bascule_model::{BridgeError, Health};
use tokio::time::Instant;

use super::backend::Backend;

#[derive(Clone, Default)]
pub(crate) struct Status {
    pub(crate) state: ServerState,
    /// The last listing, kept while the server is down.
    pub(crate) tools: Option<Arc<ServerTools>>,
    pub(crate) restarts: u32,
}

/// The states of BR-08.
#[derive(Clone, Default)]
pub(crate) enum ServerState {
    /// Connecting for the first time, or again on request.
    #[default]
    Starting,
    /// Connected, with its tools listed.
    Healthy(Arc<Backend>),
    /// Lost. The reconnect attempt of this number is due at `next`, or in progress.
    Degraded { attempt: u32, next: Instant, cause: Arc<BridgeError> },
    /// Given up.
    Unavailable { cause: Arc<BridgeError> },
    /// Stopped on purpose.
    Stopped,
}

impl ServerState {
    pub(crate) fn health(&self) -> Health {
        match self {
            Self::Starting => Health::Starting,
            Self::Healthy(_) => Health::Healthy,
            Self::Degraded { .. } => Health::Degraded,
            Self::Unavailable { .. } => Health::Unavailable,
            Self::Stopped => Health::Stopped,
        }
    }

    /// Returns the error that led to this state.
    pub(crate) fn cause(&self) -> Option<&Arc<BridgeError>> {
        match self {
            Self::Degraded { cause, .. } | Self::Unavailable { cause } => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn backend(&self) -> Option<&Arc<Backend>> {
        match self {
            Self::Healthy(backend) => Some(backend),
            _ => None,
        }
    }

    /// Returns true if the server can become healthy without a command.
    pub(crate) fn may_recover(&self) -> bool {
        matches!(self, Self::Starting | Self::Healthy(_) | Self::Degraded { .. })
    }
}
