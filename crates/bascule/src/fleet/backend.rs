//! The way to a server that is up: one connection for all calls, or a process for each.

use std::sync::Arc;
use std::time::Duration;

use bascule_client::ServerInfo;
use bascule_mcp::TransportError;
use bascule_model::{BridgeError, BridgeResult};
use serde_json::value::RawValue;

use super::pool::Pool;
use super::request::UpstreamRequest;
use super::upstream::{StartContext, ToolListing, Upstream};
use crate::config::{Isolation, ServerSettings};
use crate::deadline::Deadline;

/// Either.
pub(crate) enum Backend {
    /// All calls share it.
    Shared(Upstream),
    /// Each call has its own.
    PerCall(Pool),
}

impl Backend {
    /// Starts the server and lists its tools. When it fails nothing is left of it.
    pub(crate) async fn start(
        settings: Arc<ServerSettings>,
        frame: &StartContext,
    ) -> BridgeResult<(Self, ToolListing)> {
        match settings.isolation {
            Isolation::Shared => {
                Upstream::start(settings, frame).await.map(|(one, listed)| (Self::Shared(one), listed))
            }
            Isolation::PerCall => {
                Pool::start(settings, frame).await.map(|(pool, listed)| (Self::PerCall(pool), listed))
            }
        }
    }

    /// Runs one request. Dropped, it is cancelled.
    pub(crate) async fn run(
        &self,
        request: &UpstreamRequest<'_>,
        deadline: Deadline,
    ) -> BridgeResult<Box<RawValue>> {
        match self {
            Self::Shared(upstream) => upstream.run(request, deadline).await,
            Self::PerCall(pool) => pool.run(request, deadline).await,
        }
    }

    /// Answers a request of the server's, or tells it something; where each call has its own process there is nobody
    /// to tell it to.
    pub(crate) fn answer(&self, frame: Vec<u8>) {
        if let Self::Shared(upstream) = self {
            upstream.answer(frame);
        }
    }

    /// Its tools, as they are now.
    pub(crate) async fn list(&self) -> BridgeResult<ToolListing> {
        match self {
            Self::Shared(upstream) => upstream.list().await,
            Self::PerCall(pool) => pool.list().await,
        }
    }

    /// Whether it answers. A process that only waits for its call is not asked.
    pub(crate) async fn answers(&self, within: Duration) -> Result<(), String> {
        match self {
            Self::Shared(upstream) => upstream.answers(within).await,
            Self::PerCall(_) => Ok(()),
        }
    }

    /// Returns when the connection is over; never where each call has its own.
    pub(crate) async fn over(&self) {
        match self {
            Self::Shared(upstream) => upstream.over().await,
            Self::PerCall(_) => std::future::pending().await,
        }
    }

    /// Returns when the server has said that its tools have changed.
    pub(crate) async fn changed(&self) {
        match self {
            Self::Shared(upstream) => upstream.changed().await,
            Self::PerCall(_) => std::future::pending().await,
        }
    }

    /// Why it is over, if it is.
    pub(crate) fn ended(&self) -> Option<Arc<TransportError>> {
        match self {
            Self::Shared(upstream) => upstream.ended(),
            Self::PerCall(_) => None,
        }
    }

    /// What to say to a new call when the server is gone.
    pub(crate) fn unavailable(
        &self,
        why: &dyn std::fmt::Display,
        settings: &ServerSettings,
    ) -> Box<BridgeError> {
        match self {
            Self::Shared(upstream) => upstream.unavailable(why),
            Self::PerCall(_) => crate::normalise::down(&settings.name, why),
        }
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        match self {
            Self::Shared(upstream) => upstream.info(),
            Self::PerCall(pool) => pool.info(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Shared(upstream) => upstream.pid(),
            Self::PerCall(pool) => pool.pid(),
        }
    }

    /// Ends the connection and every process of it.
    pub(crate) async fn stop(&self) {
        match self {
            Self::Shared(upstream) => upstream.stop().await,
            Self::PerCall(pool) => pool.stop().await,
        }
    }
}
