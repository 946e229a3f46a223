//! Keeps HTTP connections to one server open between requests.
//!
//! `hyper-util` has a client that does this. It starts a task and hashes the address for every request, which cost
//! about 10 % of the processor time of a call.

use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower_service::Service;

/// The longest time to open a connection: TCP, and TLS where the server needs it.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that was returned to the pool longer ago is not used again: the server may be about to close it. A response
/// that was still being received then counts too, so a connection with a very long response is used once.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) type RequestSender = SendRequest<Full<Bytes>>;

type ConnectError = Box<dyn Error + Send + Sync>;

/// The connections to one server that are open, except those that a request is being sent on.
pub(super) struct ConnectionPool {
    connector: HttpsConnector<HttpConnector>,
    connections: Mutex<Vec<PooledConnection>>,
    /// One task for each open connection, which reads and writes its socket. Tasks end with their connections, or are
    /// aborted when the pool is dropped.
    tasks: Mutex<JoinSet<()>>,
}

struct PooledConnection {
    sender: RequestSender,
    returned_at: Instant,
}

impl PooledConnection {
    /// Returns true if the connection is fit for a request now, or may be after the response that it still receives.
    fn is_usable(&self, now: Instant) -> bool {
        let is_outdated = self.sender.is_ready() && now - self.returned_at > IDLE_TIMEOUT;
        !self.sender.is_closed() && !is_outdated
    }
}

impl ConnectionPool {
    /// Creates an empty pool. Reads the system's root certificates if the server needs TLS.
    pub(super) fn new(server: &Uri) -> Result<Self, String> {
        let builder = HttpsConnectorBuilder::new();
        let builder = match server.scheme_str() {
            Some("https") => builder
                .with_native_roots()
                .map_err(|error| format!("could not load the system's root certificates: {error}"))?,
            _ => builder.with_tls_config(tls_without_roots()),
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp_connector());
        Ok(Self { connector, connections: Mutex::default(), tasks: Mutex::default() })
    }

    /// Takes a connection that is ready for a request out of the pool, and drops those that are closed or too old.
    pub(super) fn take(&self) -> Option<RequestSender> {
        let mut connections = self.connections();
        let now = Instant::now();
        connections.retain(|connection| connection.is_usable(now));
        let at = connections.iter().rposition(|connection| connection.sender.is_ready())?;
        Some(connections.swap_remove(at).sender)
    }

    /// Returns a connection to the pool. It may still receive a response; it becomes ready at the end of that.
    pub(super) fn put(&self, sender: RequestSender) {
        self.connections().push(PooledConnection { sender, returned_at: Instant::now() });
    }

    /// Opens a connection that is not in the pool yet.
    pub(super) async fn connect(&self, server: Uri) -> Result<RequestSender, ConnectError> {
        timeout(CONNECT_TIMEOUT, self.connect_without_timeout(server))
            .await
            .unwrap_or_else(|_| Err(format!("no connection within {CONNECT_TIMEOUT:?}").into()))
    }

    async fn connect_without_timeout(&self, server: Uri) -> Result<RequestSender, ConnectError> {
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await?;
        let stream = connector.call(server).await?;
        let (sender, connection) = http1::handshake(stream).await?;
        let mut tasks = self.tasks.lock().expect("no code panics while it holds the lock");
        // A finished task stays in the set until it is joined.
        while tasks.try_join_next().is_some() {}
        // The request on the connection fails with it and reports the error.
        tasks.spawn(async move { _ = connection.await });
        Ok(sender)
    }

    fn connections(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        self.connections.lock().expect("no code panics while it holds the lock")
    }
}

pub(super) fn tcp_connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    // Divided among the addresses of the server: one that does not answer leaves time for the next.
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp
}

/// Returns a TLS configuration that trusts no certificate, for a server without TLS: the connector needs a configuration,
/// and the system's roots need not be read.
pub(super) fn tls_without_roots() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("ring offers the default versions");
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}
