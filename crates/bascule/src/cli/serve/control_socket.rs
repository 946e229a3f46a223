//! The control socket of a bridge: its own from the start, or taken over from a replica that has ended.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bascule_bus::EmbeddedBus;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::McpBridgeAdapter;
use crate::control::{ControlServer, SocketClaim, SocketPath};
use crate::fleet::server_log::OPERATIONS;

/// The pause between two attempts to claim the socket. The kernel releases it at the end of its process, and tells nobody.
const CLAIM_INTERVAL: Duration = Duration::from_millis(500);

/// The control socket, if this bridge has it.
pub(super) struct ControlSocket {
    server: Arc<OnceLock<ControlServer>>,
    waiting: Option<JoinHandle<()>>,
}

/// The right of a bridge to the control socket.
pub(super) enum SocketRight {
    Claimed(SocketClaim),
    /// Another replica has it. This one takes it over after its end.
    Next,
    /// The bridge does without.
    None,
}

/// The parts of a control server.
#[derive(Clone)]
pub(super) struct ControlParts {
    pub(super) path: SocketPath,
    pub(super) bridge: Arc<McpBridgeAdapter>,
    pub(super) bus: Arc<EmbeddedBus>,
}

impl ControlSocket {
    pub(super) fn open(parts: ControlParts, right: SocketRight) -> io::Result<Self> {
        let server = Arc::<OnceLock<ControlServer>>::default();
        let waiting = match right {
            SocketRight::Claimed(claim) => {
                let _ = server.set(parts.start(claim)?);
                None
            }
            SocketRight::Next => Some(tokio::spawn(parts.take_over(server.clone()))),
            SocketRight::None => None,
        };
        Ok(Self { server, waiting })
    }

    /// Stops accepting and ends event streams. Other requests in flight still get a response.
    pub(super) fn stop_accepting(&self) {
        self.waiting.iter().for_each(JoinHandle::abort);
        self.server.get().into_iter().for_each(ControlServer::stop_accepting);
    }

    /// Waits for all connections to end.
    pub(super) async fn close(&self) {
        if let Some(server) = self.server.get() {
            server.close().await;
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.waiting.iter().for_each(JoinHandle::abort);
    }
}

impl ControlParts {
    fn start(self, claim: SocketClaim) -> io::Result<ControlServer> {
        ControlServer::start(self.path, claim, self.bridge, self.bus)
    }

    /// Waits until the socket is free, and opens it.
    async fn take_over(self, server: Arc<OnceLock<ControlServer>>) {
        let claim = loop {
            tokio::time::sleep(CLAIM_INTERVAL).await;
            if let Some(claim) = ControlServer::try_claim(&self.path) {
                break claim;
            }
        };
        match self.start(claim) {
            Ok(started) => {
                let _ = server.set(started);
                info!(target: OPERATIONS, "took over the control socket: `bascule status` shows this bridge now");
            }
            Err(error) => warn!(%error, "could not take over the control socket"),
        }
    }
}
