//! The backend of a server that is up: one connection for all calls, or a process for each call.

use std::sync::Arc;
use std::time::Duration;

use bascule_client::ServerInfo;
use bascule_mcp::TransportError;
use bascule_model::{BridgeError, BridgeResult};
use bascule_sandbox::Policy;
use serde_json::value::RawValue;

use super::pool::Pool;
use super::request::UpstreamRequest;
use super::upstream::{StartContext, ToolListing, Upstream};
use crate::config::{Isolation, ServerSettings};
use crate::deadline::Deadline;
use crate::in_flight::InFlight;

pub(crate) enum Backend {
    /// All calls share one connection.
    Shared(Upstream),
    /// Each call has a process of its own.
    PerCall(Pool),
}

impl Backend {
    /// Starts the server and lists its tools. A failed start leaves no process behind.
    pub(crate) async fn start(
        settings: Arc<ServerSettings>,
        context: &StartContext,
    ) -> BridgeResult<(Self, ToolListing)> {
        match settings.isolation {
            Isolation::Shared => {
                let (upstream, listing) = Upstream::start(settings, context).await?;
                Ok((Self::Shared(upstream), listing))
            }
            Isolation::PerCall => {
                let (pool, listing) = Pool::start(settings, context).await?;
                Ok((Self::PerCall(pool), listing))
            }
        }
    }

    /// Sends a request and waits for its response. Dropping the future cancels the request.
    pub(crate) async fn run(
        &self,
        request: &UpstreamRequest<'_>,
        in_flight: &InFlight,
        deadline: Deadline,
    ) -> BridgeResult<Box<RawValue>> {
        match self {
            Self::Shared(upstream) => upstream.run(request, in_flight, deadline).await,
            // Boxed: it may start a process, which takes far more room than a request.
            Self::PerCall(pool) => Box::pin(pool.run(request, in_flight, deadline)).await,
        }
    }

    /// Sends a frame that has no response. A backend with a process for each call has no process to send it to.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        if let Self::Shared(upstream) = self {
            upstream.send(frame);
        }
    }

    pub(crate) async fn list_tools(&self) -> BridgeResult<ToolListing> {
        match self {
            Self::Shared(upstream) => upstream.list_tools().await,
            Self::PerCall(pool) => pool.list_tools().await,
        }
    }

    /// Pings the server. A process that waits for its one call is not pinged.
    pub(crate) async fn ping(&self, within: Duration) -> Result<(), String> {
        match self {
            Self::Shared(upstream) => upstream.ping(within).await,
            Self::PerCall(_) => Ok(()),
        }
    }

    /// Returns the size of all messages that the server sent without a request, as the time to read them.
    pub(crate) fn unsolicited_load(&self) -> Duration {
        match self {
            Self::Shared(upstream) => upstream.unsolicited_load(),
            Self::PerCall(_) => Duration::ZERO,
        }
    }

    /// Returns when the connection has ended: never for a process per call.
    pub(crate) async fn closed(&self) {
        match self {
            Self::Shared(upstream) => upstream.closed().await,
            Self::PerCall(_) => std::future::pending().await,
        }
    }

    /// Returns when the server has announced that its tools have changed.
    pub(crate) async fn tools_changed(&self) {
        match self {
            Self::Shared(upstream) => upstream.tools_changed().await,
            Self::PerCall(_) => std::future::pending().await,
        }
    }

    /// Returns the error that closed the connection, or `None` if it is open.
    pub(crate) fn close_reason(&self) -> Option<Arc<TransportError>> {
        match self {
            Self::Shared(upstream) => upstream.close_reason(),
            Self::PerCall(_) => None,
        }
    }

    /// Returns the error of a new call after the connection has ended.
    pub(crate) fn unavailable(
        &self,
        reason: &dyn std::fmt::Display,
        settings: &ServerSettings,
    ) -> Box<BridgeError> {
        match self {
            Self::Shared(upstream) => upstream.unavailable(reason),
            Self::PerCall(_) => crate::normalise::unavailable_error(&settings.name, reason),
        }
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        match self {
            Self::Shared(upstream) => upstream.info(),
            Self::PerCall(pool) => pool.info(),
        }
    }

    /// Returns the policy of the server's processes, if they are in jails.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        match self {
            Self::Shared(upstream) => upstream.policy(),
            Self::PerCall(pool) => pool.policy(),
        }
    }

    /// Returns the place in the stderr of the server's process; `None` if each call has a process.
    pub(crate) fn stderr_position(&self) -> Option<u64> {
        match self {
            Self::Shared(upstream) => Some(upstream.stderr_position()),
            Self::PerCall(_) => None,
        }
    }

    /// Returns what the server's process has written to stderr after a position, as far as it is kept.
    pub(crate) fn stderr_after(&self, position: u64) -> String {
        match self {
            Self::Shared(upstream) => upstream.stderr_after(position),
            Self::PerCall(_) => String::new(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Shared(upstream) => upstream.pid(),
            Self::PerCall(pool) => pool.pid(),
        }
    }

    /// Closes the connection and ends every process of it.
    pub(crate) async fn stop(&self) {
        match self {
            Self::Shared(upstream) => upstream.stop().await,
            Self::PerCall(pool) => pool.stop().await,
        }
    }
}
