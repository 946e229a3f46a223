//! Accepts HTTP connections and serves each until its end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::access::AccessPolicy;
use super::connections::{ConnectionState, Connections};
use super::peer_check::{Peer, PeerCheckSlot};
use super::peer_id::peer_address;
use super::router::Router;
use super::service::HttpService;
use super::timed_socket::{SocketTimeouts, TimedSocket};
use crate::DEFAULT_MESSAGE_LIMIT;

/// The pause after a failed `accept`, for example when the process has no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 << 10;

/// An HTTP server and its limits. The default is safe on a loopback address; any other address needs a token.
#[derive(Debug, Clone)]
pub struct HttpServer {
    /// The accepted requests. A change applies to the next request: requests in flight get their responses, but the event
    /// streams of sessions end and have to be opened again.
    pub access: watch::Receiver<AccessPolicy>,
    /// The largest accepted body.
    pub body_limit: usize,
    /// The size of all large bodies that may be read and handled at the same time. Requests beyond it are refused with 503.
    pub body_budget: usize,
    /// The bytes that may wait for a slow client on each response stream.
    pub stream_limit: usize,
    /// For each connection beyond this number another one is closed, unless all have requests in flight.
    pub max_connections: usize,
    /// The time for the head of a request.
    pub head_timeout: Duration,
    /// The time for a body, in addition to one second for every 64 KiB.
    pub body_timeout: Duration,
    /// The time that a connection may stay open between two requests.
    pub idle_timeout: Duration,
    /// The time that a client may take before it reads some of the bytes written to it.
    pub write_timeout: Duration,
    /// The longest silence of an event stream. The response to a request that takes longer is an event stream.
    pub keep_alive: Duration,
    /// The time that requests in flight have when the server stops.
    pub shutdown_grace: Duration,
}

impl Default for HttpServer {
    fn default() -> Self {
        Self {
            access: watch::channel(AccessPolicy::default()).1,
            body_limit: DEFAULT_MESSAGE_LIMIT,
            body_budget: 8 * DEFAULT_MESSAGE_LIMIT,
            stream_limit: DEFAULT_MESSAGE_LIMIT,
            max_connections: 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

impl HttpServer {
    /// Serves until `stop`. Then accepts no more connections, ends the event streams of sessions, gives requests in flight
    /// their grace, and returns when all connections have ended.
    pub async fn serve(self, listener: TcpListener, router: Router, stop: CancellationToken) {
        let (max_connections, grace) = (self.max_connections, self.shutdown_grace);
        let mut access = self.access.clone();
        let service = Arc::new(HttpService::new(self, router));
        let (tasks, mut connections) = (TaskTracker::new(), Connections::default());
        let places = Arc::new(Semaphore::new(max_connections));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &stop) => accepted,
                Ok(()) = access.changed() => {
                    service.event_streams.close_all();
                    continue;
                }
            };
            let Some((stream, address)) = accepted else { break };
            if places.available_permits() == 0 && !connections.make_room() {
                warn!(max_connections, "connection refused: all connections have requests in flight");
                continue;
            }
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let state = connections.add(peer_address(address.ip()));
            let serving = service.clone().serve_connection(stream, state, stop.clone());
            tasks.spawn(async move {
                serving.await;
                drop(place);
            });
        }
        drop(listener);
        service.event_streams.close_all();
        tasks.close();
        // Every connection ends itself after its grace; this covers those that could not.
        if timeout(grace + Duration::from_secs(1), tasks.wait()).await.is_err() {
            warn!(open = tasks.len(), "connections did not end in time");
        }
    }

    fn socket_timeouts(&self) -> SocketTimeouts {
        SocketTimeouts { head: self.head_timeout, idle: self.idle_timeout, write: self.write_timeout }
    }
}

/// Returns the next connection, or `None` after `stop`.
async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => {
                warn!(%error, "could not accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

impl HttpService {
    fn new(config: HttpServer, router: Router) -> Self {
        Self {
            body_budget: Semaphore::new(config.body_budget.min(Semaphore::MAX_PERMITS)),
            config,
            router,
            peer_check_slot: Arc::new(Semaphore::new(1)),
            event_streams: Arc::default(),
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        state: Arc<ConnectionState>,
        stop: CancellationToken,
    ) {
        let mut access = self.config.access.clone();
        access.mark_unchanged();
        let peer = Peer::new(&stream);
        set_socket_options(&stream, self.config.write_timeout);
        let activity = &state.activity;
        let socket = TimedSocket::new(stream, self.config.socket_timeouts(), activity.clone());
        let service = service_fn(|request| {
            let guard = activity.start_request();
            let (service, peer, state) = (&self, &peer, &state);
            async move { Ok::<_, Infallible>(service.handle_request(request, peer, state, guard).await) }
        });
        let mut http = http1::Builder::new();
        // The socket keeps these deadlines itself, with fewer timers, and distinguishes an idle client from a slow one.
        http.header_read_timeout(None).max_headers(MAX_HEADERS).max_header_size(MAX_HEAD_BYTES);
        let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
        // A connection is polled several times for each request; this set polls its future only when that is woken.
        let mut end =
            FuturesUnordered::from_iter([must_end(access, &peer, &self.peer_check_slot, &stop, &state)]);
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            _ = end.next() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => Some(ended),
                    () = state.evicted.cancelled() => None,
                    () = self.grace_period(&stop) => None,
                }
            }
        };
        if let Some(Err(error)) = ended {
            debug!(%error, "connection failed");
        }
    }

    /// Returns when requests in flight have had their time after `stop`.
    async fn grace_period(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        // A stream may have been opened after the others were closed.
        self.event_streams.close_all();
        sleep(self.config.shutdown_grace).await;
    }
}

/// Returns when a connection must end: the server stops, its peer is no longer allowed, or it makes room for another one.
async fn must_end(
    mut access: watch::Receiver<AccessPolicy>,
    peer: &Peer,
    slot: &PeerCheckSlot,
    stop: &CancellationToken,
    state: &ConnectionState,
) {
    let peer_refused = async {
        while access.changed().await.is_ok() {
            let predicate = access.borrow_and_update().peers;
            if !peer.is_still_allowed(predicate, slot).await {
                return;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = state.evicted.cancelled() => {}
        () = peer_refused => {}
    }
}

/// Sends small responses at once, and detects clients whose machine has vanished by missing acknowledgements.
fn set_socket_options(stream: &TcpStream, write_timeout: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let write_timeout = u32::try_from(write_timeout.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, write_timeout);
        let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = write_timeout;
}
