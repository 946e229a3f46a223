//! How a server is at one moment: written by its actor, read by everybody else.

use std::sync::Arc;

use bascule_catalog::ServerTools;
use bascule_model::{BridgeError, Health};
use tokio::time::Instant;

use super::backend::Backend;

/// One moment.
#[derive(Clone, Default)]
pub(crate) struct Status {
    pub(crate) state: State,
    /// What it listed last, whether it is up or not.
    pub(crate) tools: Option<Arc<ServerTools>>,
    /// How often it was brought back.
    pub(crate) restarts: u32,
}

/// The states of BR-08.
#[derive(Clone, Default)]
pub(crate) enum State {
    /// Connecting for the first time, or again at somebody's wish.
    #[default]
    Starting,
    /// Connected, and its tools are listed.
    Healthy(Arc<Backend>),
    /// Lost. The attempt of this number is due at `next`, or under way.
    Degraded { attempt: u32, next: Instant, why: Arc<BridgeError> },
    /// Given up.
    Unavailable { why: Arc<BridgeError> },
    /// Ended on purpose.
    Stopped,
}

impl State {
    pub(crate) fn health(&self) -> Health {
        match self {
            Self::Starting => Health::Starting,
            Self::Healthy(_) => Health::Healthy,
            Self::Degraded { .. } => Health::Degraded,
            Self::Unavailable { .. } => Health::Unavailable,
            Self::Stopped => Health::Stopped,
        }
    }

    /// What led here.
    pub(crate) fn why(&self) -> Option<&Arc<BridgeError>> {
        match self {
            Self::Degraded { why, .. } | Self::Unavailable { why } => Some(why),
            _ => None,
        }
    }

    pub(crate) fn backend(&self) -> Option<&Arc<Backend>> {
        match self {
            Self::Healthy(backend) => Some(backend),
            _ => None,
        }
    }

    /// Whether it may yet become healthy without anybody's doing.
    pub(crate) fn may_recover(&self) -> bool {
        matches!(self, Self::Starting | Self::Healthy(_) | Self::Degraded { .. })
    }
}
