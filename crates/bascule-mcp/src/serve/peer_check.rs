//! Checks the process at the other end of a connection, once and only when an otherwise acceptable request has arrived.
//! A client that connects and sends nothing costs nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tracing::warn;

use super::access::{AccessPolicy, PeerPredicate};
use super::http_error::HttpError;

/// Allows one check at a time, so that many connections occupy one thread.
pub(super) type PeerCheckSlot = Arc<Semaphore>;

/// The peer of one connection, and the result of its check.
pub(super) struct Peer {
    /// The addresses of the peer and of this side.
    addresses: Option<(SocketAddr, SocketAddr)>,
    was_checked: AtomicBool,
    is_allowed: AtomicBool,
}

impl Peer {
    pub(super) fn new(stream: &TcpStream) -> Self {
        let addresses = stream.peer_addr().ok().zip(stream.local_addr().ok());
        Self { addresses, was_checked: AtomicBool::new(false), is_allowed: AtomicBool::new(false) }
    }

    /// Checks the peer unless that was done before. A refused peer is disconnected, and is checked again only on a new
    /// connection.
    pub(super) async fn check(
        &self,
        access: &watch::Receiver<AccessPolicy>,
        slot: &PeerCheckSlot,
    ) -> Result<(), HttpError> {
        if self.is_allowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.was_checked.store(true, Ordering::Relaxed);
        let predicate = access.borrow().peers;
        if self.satisfies(predicate, slot).await {
            self.is_allowed.store(true, Ordering::Relaxed);
            return Ok(());
        }
        warn!("connection refused: the peer is confined, unknown, or a process of another user");
        let reason = "connection refused: without tokens (`--auth none`) only unconfined processes of the bridge's user are \
                      served";
        Err(HttpError::forbidden(reason).with_connection_close())
    }

    /// Checks the peer again after the policy has changed. A peer that was never checked is still allowed.
    pub(super) async fn is_still_allowed(
        &self,
        predicate: Option<PeerPredicate>,
        slot: &PeerCheckSlot,
    ) -> bool {
        self.is_allowed.store(false, Ordering::Relaxed);
        !self.was_checked.load(Ordering::Relaxed) || self.satisfies(predicate, slot).await
    }

    /// The check runs on a blocking thread and keeps the slot until it ends, even if this future is dropped.
    async fn satisfies(&self, predicate: Option<PeerPredicate>, slot: &PeerCheckSlot) -> bool {
        let Some(predicate) = predicate else { return true };
        let Some((peer, local)) = self.addresses else { return false };
        let Ok(permit) = slot.clone().acquire_owned().await else { return false };
        let check = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            predicate(peer, local)
        });
        check.await.unwrap_or(false)
    }
}
