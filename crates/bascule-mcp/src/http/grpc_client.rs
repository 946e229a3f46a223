//! Makes unary gRPC calls: an HTTP/2 request whose body is one message behind five bytes, and a status in the trailers.
//!
//! Messages are bytes. One connection is kept open between calls, and is replaced after a failure.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bascule_model::error_chain;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::pool::{CONNECT_TIMEOUT, tcp_connector, tls_without_roots};
use super::{HttpEndpoint, redact_url};

/// The bytes in front of a message: a flag for compression, and the length.
const FRAME_HEAD: usize = 5;
/// The longest message of a status that an error shows, in characters.
const MAX_MESSAGE: usize = 300;
/// Codes of gRPC whose call may succeed later, as OTLP lists them: cancelled, deadline exceeded, aborted, out of range,
/// unavailable, data loss.
const TRANSIENT_CODES: [u32; 6] = [1, 4, 10, 11, 14, 15];

type GrpcSender = SendRequest<Full<Bytes>>;

/// The failure of a call.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    #[error("could not connect to {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("the gRPC call to {url} was interrupted: {reason}")]
    Interrupted { url: String, reason: String },
    #[error("{url} does not respond as a gRPC server: {reason}")]
    NotGrpc { url: String, reason: String },
    #[error("{url} responded with gRPC status {code}{message}")]
    Status { url: String, code: u32, message: String },
}

impl GrpcError {
    /// Returns true if another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Interrupted { .. } => true,
            Self::NotGrpc { .. } => false,
            Self::Status { code, .. } => TRANSIENT_CODES.contains(code),
        }
    }
}

/// Calls the methods of one gRPC server. A call beside another one opens a connection of its own.
pub struct GrpcClient {
    endpoint: HttpEndpoint,
    /// The size limit of a response.
    limit: usize,
    connector: OnceLock<Result<HttpsConnector<HttpConnector>, String>>,
    /// The open connection, unless a call uses it.
    idle: Mutex<Option<GrpcSender>>,
    tasks: ConnectionTasks,
    /// Ends the tasks of connections with the client.
    _stop: DropGuard,
}

impl GrpcClient {
    /// The path of the endpoint is not used: that of a call is the name of its method. `limit` is the size limit of a response.
    pub fn new(endpoint: HttpEndpoint, limit: usize) -> Self {
        let stop = CancellationToken::new();
        let tasks = ConnectionTasks { tracker: TaskTracker::new(), stop: stop.clone() };
        let (connector, idle) = (OnceLock::new(), Mutex::default());
        Self { endpoint, limit, connector, idle, tasks, _stop: stop.drop_guard() }
    }

    /// Calls a method, such as `/package.Service/Method`. Returns the message of the response. The caller bounds the time: a
    /// call that is dropped closes its connection.
    pub async fn call(&self, method: &str, message: &[u8]) -> Result<Bytes, GrpcError> {
        let request = self.request(method, message)?;
        let idle = self.idle().take().filter(|sender| !sender.is_closed());
        let mut sender = match idle {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let answered = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let response = answered.await.map_err(|error| self.interrupted(error_chain(&error)))?;
        let message = self.read_response(response).await;
        if !matches!(message, Err(GrpcError::Interrupted { .. })) {
            *self.idle() = Some(sender);
        }
        message
    }

    fn request(&self, method: &str, message: &[u8]) -> Result<Request<Full<Bytes>>, GrpcError> {
        let invalid = |_| self.not_grpc(format!("`{method}` is no name of a method"));
        let mut parts = self.endpoint.url.clone().into_parts();
        parts.path_and_query = Some(method.parse().map_err(invalid)?);
        let mut request = Request::new(Full::new(frame(message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_parts(parts).map_err(|error| self.not_grpc(error.to_string()))?;
        *request.headers_mut() = self.endpoint.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        Ok(request)
    }

    async fn connect(&self) -> Result<GrpcSender, GrpcError> {
        let failed = |reason| GrpcError::Connect { url: self.url(), reason };
        let connector = self.connector.get_or_init(|| connector(&self.endpoint.url));
        let mut connector = connector.clone().map_err(failed)?;
        let url = self.endpoint.url.clone();
        let connecting = async {
            poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|error| error_chain(&*error))?;
            let stream = connector.call(url).await.map_err(|error| error_chain(&*error))?;
            http2::handshake(self.tasks.clone(), stream).await.map_err(|error| error_chain(&error))
        };
        let too_slow = |_| Err(format!("no connection within {CONNECT_TIMEOUT:?}"));
        let connected = timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(too_slow);
        let (sender, connection) = connected.map_err(failed)?;
        // The call on the connection fails with it and reports the error.
        self.tasks.spawn(async move { _ = connection.await });
        Ok(sender)
    }

    async fn read_response(&self, response: http::Response<Incoming>) -> Result<Bytes, GrpcError> {
        let (head, mut body) = response.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(self.not_grpc(format!("HTTP status {}", head.status.as_u16())));
        }
        // A response without a message has its status in the headers.
        let mut status = head.headers;
        let mut data = BytesMut::new();
        while let Some(part) = body.frame().await {
            let part = part.map_err(|error| self.interrupted(error_chain(&error)))?;
            match part.into_data() {
                Ok(bytes) if data.len() + bytes.len() > self.limit + FRAME_HEAD => {
                    return Err(self.not_grpc(format!("the response is longer than {} bytes", self.limit)));
                }
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(part) => status = part.into_trailers().unwrap_or_default(),
            }
        }
        self.check_status(&status)?;
        unframe(data.freeze()).ok_or_else(|| self.not_grpc("the response is no whole message".into()))
    }

    fn check_status(&self, headers: &HeaderMap) -> Result<(), GrpcError> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(code) = text("grpc-status").and_then(|code| code.parse().ok()) else {
            return Err(self.not_grpc("the response has no `grpc-status`".into()));
        };
        if code == 0 {
            return Ok(());
        }
        let message = text("grpc-message").map(|message| {
            let message = percent_decode_str(message).decode_utf8_lossy();
            format!(
                ": {}",
                message.chars().take(MAX_MESSAGE).flat_map(char::escape_debug).collect::<String>()
            )
        });
        Err(GrpcError::Status { url: self.url(), code, message: message.unwrap_or_default() })
    }

    fn idle(&self) -> MutexGuard<'_, Option<GrpcSender>> {
        self.idle.lock().expect("no code panics while it holds the lock")
    }

    /// Returns the URL without secrets.
    fn url(&self) -> String {
        redact_url(&self.endpoint.url.to_string())
    }

    fn interrupted(&self, reason: String) -> GrpcError {
        GrpcError::Interrupted { url: self.url(), reason }
    }

    fn not_grpc(&self, reason: String) -> GrpcError {
        GrpcError::NotGrpc { url: self.url(), reason }
    }
}

/// Returns a connector that offers HTTP/2 alone. It reads the system's root certificates if the server needs TLS.
fn connector(server: &Uri) -> Result<HttpsConnector<HttpConnector>, String> {
    let mut tls = match server.scheme_str() {
        Some("https") => {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = rustls::ClientConfig::builder_with_provider(provider);
            let builder =
                builder.with_safe_default_protocol_versions().expect("ring offers the default versions");
            let roots = builder.with_native_roots();
            let roots =
                roots.map_err(|error| format!("could not load the system's root certificates: {error}"))?;
            roots.with_no_client_auth()
        }
        _ => tls_without_roots(),
    };
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(HttpsConnector::from((tcp_connector(), tls)))
}

fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// Returns the one message of an uncompressed body.
fn unframe(mut body: Bytes) -> Option<Bytes> {
    let head = (body.len() >= FRAME_HEAD).then(|| body.split_to(FRAME_HEAD))?;
    let length = u32::from_be_bytes(head[1..].try_into().ok()?);
    (head[0] == 0 && body.len() == length as usize).then_some(body)
}

/// The tasks of the connections of a client. They end with their connections, or with the client.
#[derive(Clone)]
struct ConnectionTasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl ConnectionTasks {
    fn spawn<F: Future<Output: Send> + Send + 'static>(&self, task: F) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move { _ = stop.run_until_cancelled(task).await });
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for ConnectionTasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn frames_have_flag_and_length() {
        assert_eq!(&frame(b"abc")[..], b"\0\0\0\0\x03abc");
        assert_eq!(unframe(frame(b"abc")).as_deref(), Some(&b"abc"[..]));
        assert_eq!(unframe(frame(b"")).as_deref(), Some(&b""[..]));
        for broken in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\x01\0\0\0\x01a"] {
            assert_eq!(unframe(Bytes::from_static(broken)), None, "{broken:?}");
        }
    }

    #[track_caller]
    fn check(headers: &[(&'static str, &'static str)], expected: &str) {
        let client = GrpcClient::new(HttpEndpoint::new("http://h:1/x?secret", []).unwrap(), 10);
        let map = headers.iter().map(|(name, value)| {
            (http::header::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        let shown =
            client.check_status(&map.collect()).map_or_else(|error| error.to_string(), |()| "ok".into());
        assert_eq!(shown, expected);
    }

    // req: TR-01
    #[test]
    fn reads_the_status_of_a_call() {
        check(&[("grpc-status", "0")], "ok");
        check(
            &[("grpc-status", "16"), ("grpc-message", "no%20token%0a")],
            "http://h:1/x?*** responded with gRPC status 16: no token\\n",
        );
        for missing in [&[][..], &[("grpc-status", "x")], &[("grpc-status", "-1")]] {
            check(
                missing,
                "http://h:1/x?*** does not respond as a gRPC server: the response has no `grpc-status`",
            );
        }
    }
}
