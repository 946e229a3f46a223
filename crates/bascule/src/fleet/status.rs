//! The status of a server: written by its actor, read by everyone else.

use std::sync::Arc;

use bascule_catalog::ServerTools;
use bascule_model::{BridgeError, Health};
use tokio::time::Instant;

use super::backend::Backend;
use super::on_demand::OnDemandReason;
use super::start_clock::InstallProgress;

#[derive(Clone, Default)]
pub(crate) struct Status {
    pub(crate) state: ServerPhase,
    /// The last listing, kept while the server is down. Until the first one it may be that of an earlier run.
    pub(crate) tools: Option<Arc<ServerTools>>,
    /// The `initialize` result that belongs to the listing.
    pub(crate) info: Option<Arc<str>>,
    pub(crate) restarts: u32,
    /// Failed starts since the server was last up.
    pub(crate) failed_starts: u32,
    /// The installation that is part of the current start.
    pub(crate) installing: Option<InstallProgress>,
    /// The server has been up.
    pub(crate) was_up: bool,
}

/// The states of a server.
#[derive(Clone, Default)]
pub(crate) enum ServerPhase {
    /// Connecting for the first time, or again for a call.
    #[default]
    Starting,
    /// Connected, with its tools listed.
    Healthy(Arc<Backend>),
    /// Lost. The reconnect attempt of this number is due at `next`, or in progress.
    Degraded { attempt: u32, next: Instant, cause: Arc<BridgeError> },
    /// Given up.
    Unavailable { cause: Arc<BridgeError> },
    /// Not running. The next call starts it.
    OnDemand(OnDemandReason),
    /// Stopped on purpose.
    Stopped,
}

impl ServerPhase {
    pub(crate) fn health(&self) -> Health {
        match self {
            Self::Starting => Health::Starting,
            Self::Healthy(_) => Health::Healthy,
            Self::Degraded { .. } => Health::Degraded,
            Self::Unavailable { .. } => Health::Unavailable,
            Self::OnDemand(_) | Self::Stopped => Health::Stopped,
        }
    }

    /// Returns the error that led to this state.
    pub(crate) fn cause(&self) -> Option<&Arc<BridgeError>> {
        match self {
            Self::Degraded { cause, .. } | Self::Unavailable { cause } => Some(cause),
            _ => None,
        }
    }

    /// Returns the reason for this state, for people.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::OnDemand(reason) => Some(reason.to_string()),
            _ => self.cause().map(|error| error.message.clone()),
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
