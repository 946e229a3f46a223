//! Sends HTTP requests to one server and interprets its responses.
//!
//! The two HTTP transports decide about the contents of the requests.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bascule_model::error_chain;
use bytes::Bytes;
use http::header::{
    ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pool::ConnectionPool;
use super::{HttpEndpoint, redact_url};
use crate::router::MessageRouter;
use crate::sse::{EventReader, SseEvent};
use crate::{Failure, Message, RpcError, TransportError, is_large, run_large};

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// Maximum length of a quotation of an unexpected body, in characters.
const MAX_EXCERPT: usize = 300;
/// Maximum number of messages of one kind that are being sent at once.
const MAX_SENDING: usize = 32;
/// Maximum number of messages of one kind that are being sent or wait for that. A server that causes more than it accepts
/// does not get them.
const MAX_QUEUED: usize = 256;
/// Maximum number of bytes of an event stream that are handled before other tasks can run.
pub(crate) const MAX_FED_BYTES: usize = 8 << 10;
/// Time for reading the rest of a response, so that its connection can be used again.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for ending a session, and for messages that are being sent when the connection is closed.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a server to accept a message that has no response.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A delivery that is not finished yet: the message is too large for the runtime's thread. The next message waits for it.
pub(crate) type PendingDelivery = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Sends the HTTP requests of one MCP connection.
pub(crate) struct HttpClient {
    pool: OnceLock<Result<ConnectionPool, String>>,
    endpoint: HttpEndpoint,
    path: Uri,
    limit: usize,
    cancellations: Outbox,
    /// Responses to requests of the server, and notifications.
    replies: Outbox,
    pub(crate) router: Arc<MessageRouter>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// The kind of a message that has no response.
#[derive(Clone, Copy)]
pub(crate) enum MessageKind {
    /// Sent apart from the others: a server that delays these still gets cancellations.
    Cancellation,
    Reply,
}

/// The bounds on messages of one kind.
struct Outbox {
    queued: Arc<Semaphore>,
    sending: Arc<Semaphore>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { queued: Semaphore::new(MAX_QUEUED).into(), sending: Semaphore::new(MAX_SENDING).into() }
    }
}

impl HttpClient {
    pub(crate) fn new(
        endpoint: HttpEndpoint,
        limit: usize,
        router: Arc<MessageRouter>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let (pool, path) = (OnceLock::new(), path_of(&endpoint.url));
        let (cancellations, replies) = (Outbox::default(), Outbox::default());
        Self { pool, path, endpoint, limit, cancellations, replies, router, tasks, stop }
    }

    /// Returns the URL without secrets, for messages.
    pub(crate) fn redacted_url(&self) -> String {
        redact_url(&self.address().to_string())
    }

    /// Returns the URL with its secrets: for requests, never for messages.
    pub(crate) fn address(&self) -> &Uri {
        &self.endpoint.url
    }

    /// Returns the size limit of messages.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the headers of a request with a message.
    pub(crate) fn post_headers(&self) -> HeaderMap {
        let mut headers = self.get_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        // The map of each request is a copy of this one, and need not grow for the length of its body.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        headers
    }

    /// Returns the headers of a request for an event stream.
    pub(crate) fn get_headers(&self) -> HeaderMap {
        let mut headers = self.endpoint.headers.clone();
        if let Some(host) = host_header(&self.endpoint.url) {
            headers.entry(HOST).or_insert(host);
        }
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        headers
    }

    /// Builds a request to the path of the endpoint.
    pub(crate) fn request(
        &self,
        method: Method,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Request<Full<Bytes>> {
        match method {
            Method::POST => drop(headers.insert(CONTENT_LENGTH, body.len().into())),
            _ => drop(headers.remove(CONTENT_LENGTH)),
        }
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        request
    }

    /// Sends an HTTP request and returns the head of its response, with any status.
    pub(crate) async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TransportError> {
        self.fetch_and_mark(request, &AtomicBool::default()).await
    }

    /// Sends an HTTP request as [`HttpClient::fetch`] does, and sets `is_sent` while a connection has it.
    pub(crate) async fn fetch_and_mark(
        &self,
        mut request: Request<Full<Bytes>>,
        is_sent: &AtomicBool,
    ) -> Result<Response<Incoming>, TransportError> {
        let pool = self.pool.get_or_init(|| ConnectionPool::new(&self.endpoint.url)).as_ref();
        let pool = pool.map_err(|reason| self.unreachable(reason.clone()))?;
        loop {
            let pooled = pool.take();
            let is_reused = pooled.is_some();
            let mut sender = match pooled {
                Some(sender) => sender,
                None => {
                    let connected = Box::pin(pool.connect(self.endpoint.url.clone())).await;
                    connected.map_err(|error| self.unreachable(error_chain(&*error)))?
                }
            };
            is_sent.store(true, Ordering::Relaxed);
            match sender.try_send_request(request).await {
                Ok(response) => {
                    pool.put(sender);
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    // The server closed the connection before anything of the request was sent.
                    Some(unsent) => {
                        is_sent.store(false, Ordering::Relaxed);
                        if !is_reused {
                            return Err(self.unreachable(error_chain(&error.into_error())));
                        }
                        request = unsent;
                    }
                    None => return Err(self.interrupted_error(error_chain(&error.into_error()))),
                },
            }
        }
    }

    fn unreachable(&self, reason: String) -> TransportError {
        TransportError::Connect { url: self.redacted_url(), reason }
    }

    /// Sends a message that has no response, in a separate task. Drops it if too many are queued, or outside of a runtime.
    pub(crate) fn spawn_exchange(
        self: &Arc<Self>,
        kind: MessageKind,
        exchange: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) {
        let outbox = match kind {
            MessageKind::Cancellation => &self.cancellations,
            MessageKind::Reply => &self.replies,
        };
        let (Ok(place), Ok(runtime)) = (outbox.queued.clone().try_acquire_owned(), Handle::try_current())
        else {
            return tracing::debug!("dropped a message: too many are being sent");
        };
        let (client, sending) = (self.clone(), outbox.sending.clone());
        let send = async move {
            let exchange = async {
                let _permit = sending.acquire().await;
                exchange.await
            };
            tokio::select! {
                biased;
                () = client.send_deadline() => {}
                sent = exchange => {
                    if let Err(failure) = sent {
                        tracing::debug!(%failure, "could not deliver a message");
                    }
                }
            }
            drop(place);
        };
        self.tasks.spawn_on(send, &runtime);
    }

    /// Returns `CLOSE_TIMEOUT` after the connection was closed, because the message may be a cancellation. Returns after
    /// `SEND_TIMEOUT` in any case, because no caller waits for the message.
    async fn send_deadline(&self) {
        let ended = async {
            self.stop.cancelled().await;
            tokio::time::sleep(CLOSE_TIMEOUT).await;
        };
        let _ = timeout(SEND_TIMEOUT, ended).await;
    }

    /// Delivers a message of any size. A large one is returned as a future, which must be awaited before the next message.
    pub(crate) fn deliver_any<R>(
        self: &Arc<Self>,
        frame: impl AsRef<[u8]> + Send + 'static,
        stream_request_id: Option<u64>,
        reply: impl FnOnce(Vec<u8>) -> R + Send + 'static,
    ) -> Option<PendingDelivery>
    where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        if !is_large(frame.as_ref().len()) {
            self.deliver(frame.as_ref(), stream_request_id, reply);
            return None;
        }
        let client = self.clone();
        Some(Box::pin(run_large(move || client.deliver(frame.as_ref(), stream_request_id, reply))))
    }

    /// Delivers a message to the router. `stream_request_id` is the id of the request whose response carried the message, if
    /// that is known. `reply` sends the router's response to a request of the server.
    pub(crate) fn deliver<R>(
        self: &Arc<Self>,
        frame: &[u8],
        stream_request_id: Option<u64>,
        reply: impl FnOnce(Vec<u8>) -> R,
    ) where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        if let Some(response) = self.router.deliver(frame, stream_request_id) {
            self.spawn_exchange(MessageKind::Reply, reply(response));
        }
    }

    /// Reads an event stream to its end.
    pub(crate) async fn read_events(
        &self,
        body: &mut Incoming,
        events: &mut EventReader,
        mut on_event: impl FnMut(SseEvent) -> Option<PendingDelivery>,
    ) -> Result<(), TransportError> {
        while let Some(chunk) = self.next_chunk(body).await? {
            for part in chunk.chunks(MAX_FED_BYTES) {
                self.router.pacer.pace().await;
                let mut received = Vec::new();
                events.feed(part, |event| received.push(event));
                for delivery in received.into_iter().filter_map(&mut on_event) {
                    delivery.await;
                }
            }
        }
        Ok(())
    }

    /// Returns the next chunk of a body, or `None` at its end.
    pub(crate) async fn next_chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>, TransportError> {
        match body.frame().await {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
            Some(Err(error)) => Err(self.interrupted_error(error_chain(&error))),
        }
    }

    /// Reads a whole body. Returns `None` if it is longer than the limit.
    pub(crate) async fn read_body(&self, mut body: Incoming) -> Result<Option<Bytes>, TransportError> {
        let first = self.next_chunk(&mut body).await?.unwrap_or_default();
        let mut joined = Vec::new();
        while let Some(chunk) = self.next_chunk(&mut body).await? {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            if joined.len() + chunk.len() > self.limit {
                return Ok(None);
            }
            joined.extend_from_slice(&chunk);
        }
        let whole = if joined.is_empty() { first } else { Bytes::from(joined) };
        Ok((whole.len() <= self.limit).then_some(whole))
    }

    /// Reads and ignores the rest of a response, so that its connection can be used again.
    pub(crate) async fn drain(&self, body: Incoming) {
        let _ = timeout(DRAIN_TIMEOUT, read_start(body, MAX_EXCERPT)).await;
    }

    /// Returns the failure of a message that got an HTTP error. A JSON-RPC error in the body is the server's response.
    pub(crate) async fn failure_from_response(&self, response: Response<Incoming>) -> Failure {
        match self.interpret_error(response).await {
            Ok(error) => Failure::ErrorResponse(error),
            Err(cause) => transport_failure(cause),
        }
    }

    /// Returns the error of an HTTP request without a message that got an HTTP error.
    pub(crate) async fn error_from_response(&self, response: Response<Incoming>) -> TransportError {
        let status = response.status().as_u16();
        let quoted = |error: RpcError| TransportError::Status {
            url: self.redacted_url(),
            status,
            body: format!(": {error}"),
        };
        self.interpret_error(response).await.map_or_else(|cause| cause, quoted)
    }

    /// Reads an HTTP error. Returns the JSON-RPC error in its body, else the error of the transport.
    async fn interpret_error(&self, response: Response<Incoming>) -> Result<RpcError, TransportError> {
        let (url, status) = (self.redacted_url(), response.status().as_u16());
        let header =
            |name| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        Err(match status {
            300..=399 => TransportError::Redirect { url, status, location: redact_url(&header(LOCATION)) },
            401 => {
                let challenge = header(WWW_AUTHENTICATE);
                let challenge = if challenge.is_empty() { challenge } else { format!(", `{challenge}`") };
                TransportError::Unauthorised { url, challenge }
            }
            _ => match read_error_body(response).await {
                ErrorBody::Rpc(error) => return Ok(error),
                ErrorBody::Text(body) => TransportError::Status { url, status, body },
            },
        })
    }

    /// Returns the error of a response with an unexpected content type.
    pub(crate) async fn not_mcp_error(&self, response: Response<Incoming>) -> TransportError {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(|kind| kind.trim().to_ascii_lowercase());
        let kind = kind.map_or("no content type".to_owned(), |kind| format!("`{kind}`"));
        let reason = format!("HTTP {} with {kind}{}", response.status().as_u16(), excerpt(response).await);
        TransportError::NotMcp { url: self.redacted_url(), reason }
    }

    /// Returns the error of an exchange that ended too early.
    pub(crate) fn interrupted_error(&self, reason: impl Into<String>) -> TransportError {
        TransportError::Interrupted { url: self.redacted_url(), reason: reason.into() }
    }
}

/// Returns the failure of a request from the error of its transport.
pub(crate) fn transport_failure(error: TransportError) -> Failure {
    Failure::Transport { delivery: error.delivery(), cause: Arc::new(error) }
}

/// Returns true if the content type is this one. Its parameters are ignored.
pub(crate) fn has_media_type(headers: &HeaderMap, expected: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(expected.as_bytes())
}

/// Returns the path and query of a URL, for the request line.
pub(crate) fn path_of(url: &Uri) -> Uri {
    url.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()))
}

fn host_header(url: &Uri) -> Option<HeaderValue> {
    let host = url.host()?;
    let port = url
        .port_u16()
        .filter(|port| !matches!((url.scheme_str(), port), (Some("http"), 80) | (Some("https"), 443)));
    HeaderValue::from_str(&port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))).ok()
}

/// The body of an HTTP error.
enum ErrorBody {
    Rpc(RpcError),
    Text(String),
}

async fn read_error_body(response: Response<Incoming>) -> ErrorBody {
    let is_json = has_media_type(response.headers(), JSON);
    let body = read_start(response.into_body(), 64 << 10).await;
    match Message::parse(&body) {
        Ok(Message::Response { outcome: Err(error), .. }) if is_json => {
            ErrorBody::Rpc(RpcError::parse(error))
        }
        _ => ErrorBody::Text(quote(&body)),
    }
}

async fn excerpt(response: Response<Incoming>) -> String {
    quote(&read_start(response.into_body(), 4 * MAX_EXCERPT).await)
}

/// Reads chunks of a body until there are at least `length` bytes.
async fn read_start(mut body: Incoming, length: usize) -> Vec<u8> {
    let mut start = Vec::new();
    while let (true, Some(Ok(frame))) = (start.len() < length, body.frame().await) {
        start.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    start
}

fn quote(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
    match text.chars().count() {
        0 => String::new(),
        long if long > MAX_EXCERPT => format!(": {}…", text.chars().take(MAX_EXCERPT).collect::<String>()),
        _ => format!(": {text}"),
    }
}
