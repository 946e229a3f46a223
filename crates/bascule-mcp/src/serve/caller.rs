//! Asks who is at the other end of a connection: once, and only when a request has come that is fit to be answered
//! otherwise. Who connects and says nothing costs nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tracing::warn;

use super::admission::{Admitted, Peers};
use super::refusal::Refusal;

/// One at a time is asked about, so that a crowd costs one thread and not hundreds. Who asks has noted when: what was
/// found out for the one before may do for all who waited.
pub(super) type Turn = Arc<Semaphore>;

pub(super) fn turns() -> Turn {
    Arc::new(Semaphore::new(1))
}

/// Who is at the other end of a connection.
pub(super) struct Caller {
    /// Its address and ours.
    ends: Option<(SocketAddr, SocketAddr)>,
    is_asked_about: AtomicBool,
    is_admitted: AtomicBool,
}

impl Caller {
    pub(super) fn of(stream: &TcpStream) -> Self {
        let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
        Self { ends, is_asked_about: AtomicBool::new(false), is_admitted: AtomicBool::new(false) }
    }

    /// Whether it may be answered. Who may not is hung up on, and would have to connect again to be asked again.
    pub(super) async fn admit(
        &self,
        admitted: &watch::Receiver<Admitted>,
        turn: &Turn,
    ) -> Result<(), Refusal> {
        if self.is_admitted.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_asked_about.store(true, Ordering::Relaxed);
        let peers = admitted.borrow().peers;
        if self.is_welcome(peers, turn).await {
            self.is_admitted.store(true, Ordering::Relaxed);
            return Ok(());
        }
        warn!("a connection was refused: who made it may not come here");
        let reason = "this process may not come here: it belongs to one of the servers, or cannot be seen to \
                      belong to none";
        Err(Refusal::forbidden(reason).and_close())
    }

    /// Asks again, of who was asked about before: it is decided otherwise now.
    pub(super) async fn is_still_welcome(&self, peers: Option<Peers>, turn: &Turn) -> bool {
        self.is_admitted.store(false, Ordering::Relaxed);
        !self.is_asked_about.load(Ordering::Relaxed) || self.is_welcome(peers, turn).await
    }

    /// RequestHandler on a thread that may wait; the turn ends with the asking, even if nobody waits for the answer any more.
    async fn is_welcome(&self, peers: Option<Peers>, turn: &Turn) -> bool {
        let Some(is_welcome) = peers else { return true };
        let Some((peer, local)) = self.ends else { return false };
        let asked = Instant::now();
        let Ok(turn) = turn.clone().acquire_owned().await else { return false };
        let asking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            is_welcome(peer, local, asked)
        });
        asking.await.unwrap_or(false)
    }
}
