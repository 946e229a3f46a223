//! A server behind an address: one HTTP request to it, and what its response means.
//!
//! What the requests say is left to the two transports that speak HTTP.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{HttpEndpoint, redact_url};
use crate::router::Router;
use crate::sse::{Event, EventReader};
use crate::{Failure, Message, RpcError, TransportError};

/// How much of a page that is no answer is shown.
const EXCERPT: usize = 300;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How many answers to a server's own requests may be on their way at once.
const MOST_REPLIES: usize = 32;
/// How long a response may stay open after all was said, so that its connection can be used again.
const LINGER: Duration = Duration::from_secs(1);
/// Saying good-bye is a courtesy and may not hold anybody up.
pub(crate) const GOODBYE_WITHIN: Duration = Duration::from_secs(2);
/// How long a server may take to take a notification.
const NOTICE_WITHIN: Duration = Duration::from_secs(10);

/// The server, and the connection of which its responses are part.
pub(crate) struct Remote {
    client: OnceLock<Result<HttpClient, String>>,
    endpoint: HttpEndpoint,
    limit: usize,
    replies: Arc<Semaphore>,
    pub(crate) router: Arc<Router>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl Remote {
    pub(crate) fn new(
        endpoint: HttpEndpoint,
        limit: usize,
        router: Arc<Router>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let (client, replies) = (OnceLock::new(), Arc::new(Semaphore::new(MOST_REPLIES)));
        Self { client, endpoint, limit, replies, router, tasks, stop }
    }

    /// The address as it may be shown.
    pub(crate) fn url(&self) -> String {
        redact_url(&self.address().to_string())
    }

    pub(crate) fn address(&self) -> &Uri {
        &self.endpoint.url
    }

    /// The longest message that is read.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A request that carries a message.
    pub(crate) fn post(&self, frame: Vec<u8>) -> Request<Full<Bytes>> {
        let mut request = self.request(Method::POST, "application/json, text/event-stream", frame);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    /// A request for a stream of events.
    pub(crate) fn get(&self) -> Request<Full<Bytes>> {
        self.request(Method::GET, "text/event-stream", Vec::new())
    }

    pub(crate) fn request(
        &self,
        method: Method,
        accept: &'static str,
        body: Vec<u8>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.url.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.endpoint.headers);
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        request
    }

    pub(crate) async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TransportError> {
        let client = self.client.get_or_init(|| client_for(&self.endpoint.url)).as_ref();
        let client =
            client.map_err(|reason| TransportError::Connect { url: self.url(), reason: reason.clone() })?;
        client.request(request).await.map_err(|error| {
            let (url, reason) = (self.url(), chain(&error));
            match error.is_connect() {
                true => TransportError::Connect { url, reason },
                false => TransportError::Cut { url, reason },
            }
        })
    }

    /// Carries a message as a task of its own; what becomes of it reaches the router.
    pub(crate) fn carry(
        self: &Arc<Self>,
        id: Option<u64>,
        exchange: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) -> AbortHandle {
        let remote = self.clone();
        let carried = async move {
            let ended = tokio::select! {
                biased;
                () = remote.nobody_waits(id) => return,
                ended = exchange => ended,
            };
            match (ended, id) {
                (Ok(()), _) => {}
                (Err(failure), Some(id)) => remote.router.fail(id, failure),
                (Err(failure), None) => tracing::debug!(%failure, "a notification did not arrive"),
            }
        };
        self.tasks.spawn(carried).abort_handle()
    }

    /// Returns when the connection ends. What wants no answer gets a moment more: it may be a cancellation. But then it
    /// has a bound of its own, too, for nobody else gives up on it.
    async fn nobody_waits(&self, id: Option<u64>) {
        if id.is_some() {
            return self.stop.cancelled().await;
        }
        let ended = async {
            self.stop.cancelled().await;
            tokio::time::sleep(GOODBYE_WITHIN).await;
        };
        let _ = timeout(NOTICE_WITHIN, ended).await;
    }

    /// Hands a message to the router, and the request in whose answer it came if that is known; what the router says to a
    /// request of the server's goes out by `reply`.
    pub(crate) fn deliver<R>(
        self: &Arc<Self>,
        frame: &[u8],
        during: Option<u64>,
        reply: impl FnOnce(Vec<u8>) -> R,
    ) where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let Some(said) = self.router.deliver(frame, during) else { return };
        // A server that asks faster than it takes our answers goes without them.
        let Ok(permit) = self.replies.clone().try_acquire_owned() else {
            return tracing::debug!("a request of the server's goes unanswered");
        };
        let (exchange, stop) = (reply(said), self.stop.clone());
        self.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(exchange).await;
            drop(permit);
        });
    }

    /// Reads a stream to its end. One that serves a single request is left, after a moment, when that is answered.
    pub(crate) async fn read_events(
        &self,
        serves: Option<u64>,
        body: &mut Incoming,
        events: &mut EventReader,
        mut each: impl FnMut(Event),
    ) -> Result<(), TransportError> {
        loop {
            let is_answered = serves.is_some_and(|id| !self.router.awaits(id));
            let piece = match is_answered {
                false => self.next_piece(body).await?,
                true => timeout(LINGER, self.next_piece(body)).await.unwrap_or(Ok(None))?,
            };
            let Some(piece) = piece else { return Ok(()) };
            events.feed(&piece, &mut each);
        }
    }

    /// The next piece of a body, or nothing at its end.
    pub(crate) async fn next_piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, TransportError> {
        match body.frame().await {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
            Some(Err(error)) => Err(self.broke_off(chain(&error))),
        }
    }

    /// The body, or none if it is too long to be kept.
    pub(crate) async fn read_whole(&self, mut body: Incoming) -> Result<Option<Vec<u8>>, TransportError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next_piece(&mut body).await? {
            if whole.len() + piece.len() > self.limit {
                return Ok(None);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Some(whole))
    }

    /// Passes over the rest of a response that nobody needs, so that its connection can be used again.
    pub(crate) fn let_go(&self, body: Incoming) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(timeout(LINGER, beginning(body, EXCERPT))).await;
        });
    }

    /// What an HTTP failure means to the message that met it. A JSON-RPC error in its body is the server's answer.
    pub(crate) async fn refusal(&self, response: Response<Incoming>) -> Failure {
        match self.explain(response).await {
            Ok(error) => Failure::Answered(error),
            Err(why) => broken(why),
        }
    }

    /// What it means where no message was sent that could be answered.
    pub(crate) async fn refused(&self, response: Response<Incoming>) -> TransportError {
        let status = response.status().as_u16();
        let quoted =
            |error: RpcError| TransportError::Status { url: self.url(), status, body: format!(": {error}") };
        self.explain(response).await.map_or_else(|why| why, quoted)
    }

    async fn explain(&self, response: Response<Incoming>) -> Result<RpcError, TransportError> {
        let (url, status) = (self.url(), response.status().as_u16());
        let header =
            |name| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        Err(match status {
            300..=399 => TransportError::Redirect { url, status, location: redact_url(&header(LOCATION)) },
            401 => {
                let challenge = header(WWW_AUTHENTICATE);
                let challenge = if challenge.is_empty() { challenge } else { format!(", `{challenge}`") };
                TransportError::Unauthorised { url, challenge }
            }
            _ => match read_excerpt(response).await {
                Said::Error(error) => return Ok(error),
                Said::Text(body) => TransportError::Status { url, status, body },
            },
        })
    }

    /// What to say of a response that is of no kind an MCP server sends.
    pub(crate) async fn not_mcp(&self, response: Response<Incoming>) -> TransportError {
        let kind = media_type(response.headers());
        let kind = kind.map_or("no content type".to_owned(), |kind| format!("`{kind}`"));
        let what = format!("HTTP {} with {kind}{}", response.status().as_u16(), excerpt(response).await);
        TransportError::NotMcp { url: self.url(), what }
    }

    pub(crate) fn broke_off(&self, reason: impl Into<String>) -> TransportError {
        TransportError::Cut { url: self.url(), reason: reason.into() }
    }
}

pub(crate) fn broken(error: TransportError) -> Failure {
    Failure::Broken { delivery: error.delivery(), why: Arc::new(error) }
}

pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// What stands in a body that came with an HTTP failure.
enum Said {
    Error(RpcError),
    Text(String),
}

async fn read_excerpt(response: Response<Incoming>) -> Said {
    let is_json = media_type(response.headers()).as_deref() == Some("application/json");
    let body = beginning(response.into_body(), 64 << 10).await;
    match Message::parse(&body) {
        Ok(Message::Response { outcome: Err(error), .. }) if is_json => Said::Error(RpcError::parse(error)),
        _ => Said::Text(quote(&body)),
    }
}

async fn excerpt(response: Response<Incoming>) -> String {
    quote(&beginning(response.into_body(), 4 * EXCERPT).await)
}

async fn beginning(mut body: Incoming, most: usize) -> Vec<u8> {
    let mut start = Vec::new();
    while let (true, Some(Ok(frame))) = (start.len() < most, body.frame().await) {
        start.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    start
}

fn quote(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
    match text.chars().count() {
        0 => String::new(),
        long if long > EXCERPT => format!(": {}…", text.chars().take(EXCERPT).collect::<String>()),
        _ => format!(": {text}"),
    }
}

/// The machine's certificates are read only where they are needed.
fn client_for(url: &Uri) -> Result<HttpClient, String> {
    let builder = HttpsConnectorBuilder::new();
    let builder = match url.scheme_str() {
        Some("https") => builder
            .with_native_roots()
            .map_err(|error| format!("this machine has no certificates: {error}"))?,
        _ => builder.with_tls_config(no_tls()),
    };
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_WITHIN));
    let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn no_tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("ring offers the default versions");
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

/// An error and what led to it, joined by colons.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}
