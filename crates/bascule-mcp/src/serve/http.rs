//! Takes connections, and sees each of them through to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::Host;
use super::admission::Admitted;
use super::caller::{Caller, Turn, turns};
use super::exchange::Reception;
use super::wire::{Activity, Patience, Wire};
use crate::DEFAULT_MESSAGE_LIMIT;

/// How long to leave a machine alone that has no more file descriptors.
const BREATH: Duration = Duration::from_millis(100);
const MOST_HEADERS: usize = 100;
const LONGEST_HEAD: usize = 64 << 10;

/// MCP over Streamable HTTP. The default is safe on a loopback address; on any other there should be a token.
#[derive(Debug, Clone)]
pub struct HttpFace {
    /// Who may come. A change holds from the next request on: open requests are still answered, but who listens for
    /// what is said unasked has to ask for it again.
    pub admitted: watch::Receiver<Admitted>,
    /// The longest message that is taken.
    pub body_limit: usize,
    /// How much of all longer messages together may be in reading. Who comes with more is asked to come again.
    pub body_room: usize,
    /// How much may be waiting for a client that does not read, on each lane.
    pub lane_limit: usize,
    /// How many may be connected at once. The next one is hung up on.
    pub connections: usize,
    /// How long a request's head may take.
    pub head_within: Duration,
    /// How long a body may take, besides a second for every 64 KiB.
    pub body_grace: Duration,
    /// How long a client may stay between two requests.
    pub idle_within: Duration,
    /// How long a client may take nothing of what is written to it.
    pub write_within: Duration,
    /// How long a stream is silent at most. A request that takes longer is answered by a stream.
    pub keep_alive: Duration,
    /// What open requests are given when we stop.
    pub stop_grace: Duration,
}

impl Default for HttpFace {
    fn default() -> Self {
        Self {
            admitted: watch::channel(Admitted::default()).1,
            body_limit: DEFAULT_MESSAGE_LIMIT,
            body_room: 8 * DEFAULT_MESSAGE_LIMIT,
            lane_limit: DEFAULT_MESSAGE_LIMIT,
            connections: 1024,
            head_within: Duration::from_secs(10),
            body_grace: Duration::from_secs(30),
            idle_within: Duration::from_secs(120),
            write_within: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            stop_grace: Duration::from_secs(5),
        }
    }
}

impl HttpFace {
    /// Serves until `stop`. Then takes no more connections, ends the streams of those who only listen, gives open
    /// requests a moment, and returns when all have ended.
    pub async fn serve<H: Host>(self, listener: TcpListener, host: Arc<H>, stop: CancellationToken) {
        let most = self.connections;
        let grace = self.stop_grace;
        let room = Semaphore::new(self.body_room.min(Semaphore::MAX_PERMITS));
        let mut admitted = self.admitted.clone();
        let reception =
            Arc::new(Reception { face: self, host, room, turn: turns(), listeners: Arc::default() });
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &stop) => accepted,
                Ok(()) = admitted.changed() => {
                    reception.listeners.close_all();
                    continue;
                }
            };
            let Some(stream) = accepted else { break };
            if connections.len() >= most {
                warn!(most, "too many connections; one was refused");
                continue;
            }
            connections.spawn(reception.clone().attend(stream, stop.clone()));
        }
        drop(listener);
        reception.listeners.close_all();
        connections.close();
        // Every connection ends itself after its grace; this is for those that could not.
        if timeout(grace + Duration::from_secs(1), connections.wait()).await.is_err() {
            warn!(open = connections.len(), "connections did not end in time");
        }
    }

    fn patience(&self) -> Patience {
        Patience { head: self.head_within, idle: self.idle_within, write: self.write_within }
    }
}

/// The next connection; none when it is time to stop.
async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) => {
                warn!(%error, "could not accept a connection");
                sleep(BREATH).await;
            }
        }
    }
}

impl<H: Host> Reception<H> {
    async fn attend(self: Arc<Self>, stream: TcpStream, stop: CancellationToken) {
        let mut admitted = self.face.admitted.clone();
        admitted.mark_unchanged();
        let caller = Caller::of(&stream);
        prepare(&stream, self.face.write_within);
        let activity = Arc::new(Activity::default());
        let wire = TokioIo::new(Wire::new(stream, self.face.patience(), activity.clone()));
        let service = service_fn(|request| {
            let busy = activity.begin();
            let (reception, caller) = (&self, &caller);
            async move { Ok::<_, Infallible>(reception.answer(request, caller, busy).await) }
        });
        let mut http = http1::Builder::new();
        // The socket keeps these deadlines itself: with fewer timers, and idleness told from slowness.
        http.header_read_timeout(None).max_headers(MOST_HEADERS).max_header_size(LONGEST_HEAD);
        let mut connection = pin!(http.serve_connection(wire, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = is_due(admitted, &caller, &self.turn, &stop) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => Some(ended),
                    () = self.last_moment(&stop) => None,
                }
            }
        };
        if let Some(Err(error)) = ended {
            debug!(%error, "a connection broke");
        }
    }

    /// Returns when open requests have had their time.
    async fn last_moment(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        // A stream may have been begun after the others were closed.
        self.listeners.close_all();
        sleep(self.face.stop_grace).await;
    }
}

/// Returns when a connection is to end with the request that it has: we stop, or whose it is may come no more.
async fn is_due(
    mut admitted: watch::Receiver<Admitted>,
    caller: &Caller,
    turn: &Turn,
    stop: &CancellationToken,
) {
    let unwelcome = async {
        while admitted.changed().await.is_ok() {
            let peers = admitted.borrow_and_update().peers;
            if !caller.is_still_welcome(peers, turn).await {
                return;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = unwelcome => {}
    }
}

/// Answers leave at once, and a client whose machine has vanished is noticed by what it does not acknowledge.
fn prepare(stream: &TcpStream, patience: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, patience);
        let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = patience;
}
