//! Takes connections, and sees each of them through to its end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_model::Secret;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::Host;
use super::caller::{Caller, turns};
use super::exchange::Desk;
use super::wire::{Activity, Patience, Wire};
use crate::DEFAULT_MESSAGE_LIMIT;

/// How long to leave a machine alone that has no more file descriptors.
const BREATH: Duration = Duration::from_millis(100);
const MOST_HEADERS: usize = 100;
const LONGEST_HEAD: usize = 64 << 10;

/// MCP over Streamable HTTP. The default is safe on a loopback address; on any other there should be a token.
#[derive(Debug, Clone)]
pub struct HttpFace {
    /// Names that clients may call us by besides loopback names: `name` (any port) or `name:port`.
    pub hosts: Vec<String>,
    /// Where pages may come from besides loopback: `scheme://name:port`, or names as above.
    pub origins: Vec<String>,
    /// Any one of these must be shown; nobody needs one if there are none.
    pub tokens: Vec<Secret<String>>,
    /// The longest message that is taken.
    pub body_limit: usize,
    /// How much of all longer messages together may be in reading. Who comes with more is asked to come again.
    pub body_room: usize,
    /// How much may be waiting for a client that does not read, on each lane.
    pub lane_limit: usize,
    /// Who may come at all, by the addresses of both ends and the moment of asking; everybody where nobody is asked. It
    /// may take a while: it is asked once of each connection, when a request has come, and of one at a time.
    pub admit: Option<fn(SocketAddr, SocketAddr, Instant) -> bool>,
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
            hosts: Vec::new(),
            origins: Vec::new(),
            tokens: Vec::new(),
            body_limit: DEFAULT_MESSAGE_LIMIT,
            body_room: 8 * DEFAULT_MESSAGE_LIMIT,
            lane_limit: DEFAULT_MESSAGE_LIMIT,
            admit: None,
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
        let desk = Arc::new(Desk { face: self, host, room, turn: turns(), listeners: Arc::default() });
        let connections = TaskTracker::new();
        while let Some(stream) = accept(&listener, &stop).await {
            if connections.len() >= most {
                warn!(most, "too many connections; one was refused");
                continue;
            }
            connections.spawn(desk.clone().attend(stream, stop.clone()));
        }
        drop(listener);
        desk.listeners.close_all();
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

impl<H: Host> Desk<H> {
    async fn attend(self: Arc<Self>, stream: TcpStream, stop: CancellationToken) {
        let caller = Caller::of(&stream);
        prepare(&stream, self.face.write_within);
        let activity = Arc::new(Activity::default());
        let wire = TokioIo::new(Wire::new(stream, self.face.patience(), activity.clone()));
        let service = service_fn(|request| {
            let busy = activity.begin();
            let (desk, caller) = (&self, &caller);
            async move { Ok::<_, Infallible>(desk.answer(request, caller, busy).await) }
        });
        let mut http = http1::Builder::new();
        // The socket keeps these deadlines itself: with fewer timers, and idleness told from slowness.
        http.header_read_timeout(None).max_headers(MOST_HEADERS).max_header_size(LONGEST_HEAD);
        let mut connection = pin!(http.serve_connection(wire, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Ok(ended),
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                // A stream may have been begun after the others were closed.
                self.listeners.close_all();
                timeout(self.face.stop_grace, connection).await
            }
        };
        if let Ok(Err(error)) = ended {
            debug!(%error, "a connection broke");
        }
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
