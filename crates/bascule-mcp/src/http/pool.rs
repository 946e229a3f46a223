//! Keeps HTTP connections to one server open between requests.
//!
//! `hyper-util` has a client that does this. It starts a task and hashes the address for every request, which took a
//! tenth of a call.

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
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is not used again: the server may be about to close it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) type RequestSender = SendRequest<Full<Bytes>>;

pub(super) struct ConnectionPool {
    connector: HttpsConnector<HttpConnector>,
    connections: Mutex<Vec<PooledConnection>>,
}

struct PooledConnection {
    sender: RequestSender,
    returned_at: Instant,
}

impl ConnectionPool {
    /// Reads the system's root certificates if the server needs TLS.
    pub(super) fn new(server: &Uri) -> Result<Self, String> {
        let builder = HttpsConnectorBuilder::new();
        let builder = match server.scheme_str() {
            Some("https") => builder
                .with_native_roots()
                .map_err(|error| format!("could not load the system's root certificates: {error}"))?,
            _ => builder.with_tls_config(tls_without_roots()),
        };
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self { connector, connections: Mutex::default() })
    }

    /// Takes a connection that is ready for a request out of the pool, and drops those that are closed or too old.
    pub(super) fn take(&self) -> Option<RequestSender> {
        let mut connections = self.connections();
        let now = Instant::now();
        let is_old = |connection: &PooledConnection| now - connection.returned_at > IDLE_TIMEOUT;
        connections.retain(|it| !(it.sender.is_closed() || it.sender.is_ready() && is_old(it)));
        let at = connections.iter().rposition(|connection| connection.sender.is_ready())?;
        Some(connections.swap_remove(at).sender)
    }

    /// Returns a connection to the pool. It may still receive a response; it becomes ready at the end of that.
    pub(super) fn put(&self, sender: RequestSender) {
        self.connections().push(PooledConnection { sender, returned_at: Instant::now() });
    }

    pub(super) async fn connect(&self, server: Uri) -> Result<RequestSender, Box<dyn Error + Send + Sync>> {
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await?;
        let stream = connector.call(server).await?;
        let (sender, connection) = http1::handshake(stream).await?;
        // No task waits for it: it ends with its sender, at the latest when the pool is dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn connections(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        self.connections.lock().expect("no code panics while it holds the lock")
    }
}

/// Returns a TLS configuration that trusts no certificate, for a server without TLS: the connector needs a configuration,
/// and the system's roots need not be read.
fn tls_without_roots() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("ring offers the default versions");
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}
