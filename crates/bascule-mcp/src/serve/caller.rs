//! Asks who is at the other end of a connection: once, and only when a request has come that is fit to be answered
//! otherwise. Who connects and says nothing costs nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tracing::warn;

use super::HttpFace;
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
    is_admitted: AtomicBool,
}

impl Caller {
    pub(super) fn of(stream: &TcpStream) -> Self {
        let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
        Self { ends, is_admitted: AtomicBool::new(false) }
    }

    /// Whether it may be answered. Who may not is hung up on, and would have to connect again to be asked again.
    pub(super) async fn admit(&self, face: &HttpFace, turn: &Turn) -> Result<(), Refusal> {
        if face.admit.is_none()
            || self.is_admitted.load(Ordering::Relaxed)
            || self.is_welcome(face, turn).await
        {
            self.is_admitted.store(true, Ordering::Relaxed);
            return Ok(());
        }
        warn!("a connection was refused: who made it may not come here");
        let reason = "this process may not come here: it belongs to one of the servers, or cannot be seen to belong to none";
        Err(Refusal::forbidden(reason).and_close())
    }

    /// Asked on a thread that may wait; the turn ends with the asking, even if nobody waits for the answer any more.
    async fn is_welcome(&self, face: &HttpFace, turn: &Turn) -> bool {
        let (Some(admit), Some((peer, local))) = (face.admit, self.ends) else { return false };
        let asked = Instant::now();
        let Ok(turn) = turn.clone().acquire_owned().await else { return false };
        let asking = tokio::task::spawn_blocking(move || {
            let is_welcome = admit(peer, local, asked);
            drop(turn);
            is_welcome
        });
        asking.await.unwrap_or(false)
    }
}
