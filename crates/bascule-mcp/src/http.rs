//! Streamable HTTP towards a server: each message is a POST of its own; the answer is JSON or an event stream.
//!
//! The GET stream (what the server says unasked) and resumption come with the fleet.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::router::Router;
use crate::scan::Unread;
use crate::sse::{Event, EventReader};
use crate::{Failure, Message, ProtocolVersion, RpcError, TransportError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// How much of a page that is no answer is shown.
const EXCERPT: usize = 300;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How many answers to a server's own requests may be on their way at once.
const MOST_REPLIES: usize = 32;
/// How long a stream may stay open after its answer, so that its connection can be used again.
const LINGER: Duration = Duration::from_secs(1);
/// Saying good-bye is a courtesy and may not hold anybody up.
const GOODBYE_WITHIN: Duration = Duration::from_secs(2);

/// Where a server is, and what is sent to it with every request.
#[derive(Clone)]
pub struct HttpEndpoint {
    url: Uri,
    headers: HeaderMap,
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpEndpoint({})", shown_url(&self.url.to_string()))
    }
}

/// An address or a header that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// Not an address of a server.
    #[error("`{url}` is no usable address: {why}")]
    Url { url: String, why: &'static str },
    /// Not a header; its value may be secret and is not shown.
    #[error("header `{0}` is not legal in HTTP")]
    Header(String),
}

impl HttpEndpoint {
    /// Checks an `http://` or `https://` address and the headers to send there.
    pub fn new<'a>(
        url: &str,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidEndpoint> {
        let wrong = |why| InvalidEndpoint::Url { url: shown_url(url), why };
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(host)) if !host.as_str().contains('@') => {}
            (Some("http" | "https"), Some(_)) => return Err(wrong("credentials belong into headers")),
            _ => return Err(wrong("it must begin with http:// or https://")),
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let illegal = || InvalidEndpoint::Header(name.to_owned());
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| illegal())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| illegal())?;
            value.set_sensitive(true);
            map.append(key, value);
        }
        Ok(Self { url: uri, headers: map })
    }
}

/// The connection's sending side. HTTP has no other: answers come to whoever posted.
pub(crate) struct HttpLink {
    client: OnceLock<Result<HttpClient, String>>,
    endpoint: HttpEndpoint,
    limit: usize,
    router: Arc<Router>,
    session: Mutex<Option<HeaderValue>>,
    version: OnceLock<ProtocolVersion>,
    tasks: TaskTracker,
    stop: CancellationToken,
    replies: Arc<Semaphore>,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl HttpLink {
    pub(crate) fn new(
        endpoint: HttpEndpoint,
        limit: usize,
        router: Arc<Router>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let (client, session, version) = (OnceLock::new(), Mutex::new(None), OnceLock::new());
        let replies = Arc::new(Semaphore::new(MOST_REPLIES));
        Self { client, endpoint, limit, router, session, version, tasks, stop, replies }
    }

    pub(crate) fn agree_on(&self, version: ProtocolVersion) {
        let _ = self.version.set(version);
    }

    /// Posts a message from a task of its own; what comes of it reaches the router.
    pub(crate) fn send(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> AbortHandle {
        let link = self.clone();
        let exchange = async move {
            let ended = tokio::select! {
                biased;
                () = link.nobody_waits(id) => return,
                ended = link.exchange(id, frame) => ended,
            };
            match (ended, id) {
                (Ok(()), _) => {}
                (Err(failure), Some(id)) => link.router.fail(id, failure),
                (Err(failure), None) => tracing::debug!(%failure, "a notification did not arrive"),
            }
        };
        self.tasks.spawn(exchange).abort_handle()
    }

    /// Returns when the connection ends. What wants no answer gets a moment more: it may be a cancellation.
    async fn nobody_waits(&self, id: Option<u64>) {
        self.stop.cancelled().await;
        if id.is_none() {
            tokio::time::sleep(GOODBYE_WITHIN).await;
        }
    }

    /// Posts a message and hands what comes back to the router.
    pub(crate) async fn exchange(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> Result<(), Failure> {
        let response = self.post(frame).await.map_err(broken)?;
        match response.status() {
            status if !status.is_success() => Err(self.refusal(response).await),
            // Whatever else the server says to what wants no answer is nothing that anybody waits for.
            _ => match id {
                None => Ok(()),
                Some(id) => self.take_answer(id, response).await,
            },
        }
    }

    /// Ends the session at the server, if there is one, and everything under way.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.router.end(Arc::new(TransportError::Closed), &[]);
        // What is still on its way, a cancellation above all, needs the session that ends here.
        let _ = tokio::time::timeout(2 * GOODBYE_WITHIN, self.tasks.wait()).await;
        let farewell = self.request(Method::DELETE, Vec::new());
        let session = self.session.lock().expect("nothing panics while holding it").take();
        if session.is_some() {
            let _ = tokio::time::timeout(GOODBYE_WITHIN, self.fetch(farewell)).await;
        }
    }

    async fn post(&self, frame: Vec<u8>) -> Result<Response<Incoming>, TransportError> {
        let request = self.request(Method::POST, frame);
        let response = self.fetch(request).await?;
        if let (true, Some(session)) = (response.status().is_success(), response.headers().get(SESSION)) {
            let mut known = self.session.lock().expect("nothing panics while holding it");
            known.get_or_insert_with(|| session.clone());
        }
        Ok(response)
    }

    fn request(&self, method: Method, body: Vec<u8>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.url.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.endpoint.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(session) = &*self.session.lock().expect("nothing panics while holding it") {
            headers.insert(SESSION, session.clone());
        }
        if let Some(version) = self.version.get() {
            headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        }
        request
    }

    async fn fetch(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, TransportError> {
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

    async fn take_answer(self: &Arc<Self>, id: u64, response: Response<Incoming>) -> Result<(), Failure> {
        match media_type(response.headers()).as_deref() {
            Some("application/json") => self.take_json(id, response.into_body()).await,
            Some("text/event-stream") => self.take_events(id, response.into_body()).await,
            other => {
                let kind = other.map_or("no content type".to_owned(), |kind| format!("`{kind}`"));
                let what =
                    format!("HTTP {} with {kind}{}", response.status().as_u16(), excerpt(response).await);
                Err(broken(TransportError::NotMcp { url: self.url(), what }))
            }
        }
    }

    async fn take_json(self: &Arc<Self>, id: u64, body: Incoming) -> Result<(), Failure> {
        match self.read_whole(body).await.map_err(broken)? {
            // Some servers begin their bodies with a byte order mark.
            Some(frame) => self.deliver(frame.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&frame)),
            None => return Err(Failure::TooLong { limit: self.limit, certain: true }),
        }
        self.must_be_settled(id, "the body did not answer the request")
    }

    /// The body, or none if it is too long to be kept.
    async fn read_whole(&self, mut body: Incoming) -> Result<Option<Vec<u8>>, TransportError> {
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.cut(&error))?;
            let piece = frame.data_ref().map_or(&[][..], |data| data);
            if whole.len() + piece.len() > self.limit {
                return Ok(None);
            }
            whole.extend_from_slice(piece);
        }
        Ok(Some(whole))
    }

    async fn take_events(self: &Arc<Self>, id: u64, mut body: Incoming) -> Result<(), Failure> {
        let mut events = EventReader::new(self.limit);
        while let Some(frame) = self.next_frame(id, &mut body).await {
            let frame = frame.map_err(|error| broken(self.cut(&error)))?;
            events.feed(frame.data_ref().map_or(&[][..], |data| data), |event| match event {
                Event::Data(data) => self.deliver(&data),
                // The stream belongs to one request: nobody else's answer is in it.
                Event::TooLong(Unread::Unknown) => {
                    self.router.fail(id, Failure::TooLong { limit: self.limit, certain: false });
                }
                Event::TooLong(unread) => self.router.deliver_unread(unread),
            });
        }
        self.must_be_settled(id, "the stream ended before the answer")
    }

    /// The next piece of a stream. Once it has answered it should end; one that does not is left, after a moment.
    async fn next_frame(&self, id: u64, body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        match self.router.awaits(id) {
            true => body.frame().await,
            false => tokio::time::timeout(LINGER, body.frame()).await.unwrap_or_default(),
        }
    }

    fn deliver(self: &Arc<Self>, frame: &[u8]) {
        let Some(reply) = self.router.deliver(frame) else { return };
        // A server that asks faster than it takes our answers goes without them.
        let Ok(permit) = self.replies.clone().try_acquire_owned() else {
            return tracing::debug!("a request of the server's goes unanswered");
        };
        let link = self.clone();
        self.tasks.spawn(async move {
            let _ = link.stop.run_until_cancelled(link.exchange(None, reply)).await;
            drop(permit);
        });
    }

    /// An exchange is over. Whoever still waits for its answer waits in vain.
    fn must_be_settled(&self, id: u64, reason: &str) -> Result<(), Failure> {
        let cut = TransportError::Cut { url: self.url(), reason: reason.to_owned() };
        self.router.fail(id, broken(cut));
        Ok(())
    }

    /// Turns an HTTP failure into what it means. A JSON-RPC error in its body is the server's answer.
    async fn refusal(&self, response: Response<Incoming>) -> Failure {
        let (url, status) = (self.url(), response.status().as_u16());
        let header =
            |name| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        broken(match status {
            300..=399 => TransportError::Redirect { url, status, location: shown_url(&header(LOCATION)) },
            401 => {
                let challenge = header(WWW_AUTHENTICATE);
                let challenge = if challenge.is_empty() { challenge } else { format!(", `{challenge}`") };
                TransportError::Unauthorised { url, challenge }
            }
            404 if self.session.lock().expect("nothing panics while holding it").is_some() => {
                TransportError::SessionLost { url }
            }
            _ => match read_excerpt(response).await {
                Said::Error(error) => return Failure::Answered(error),
                Said::Text(body) => TransportError::Status { url, status, body },
            },
        })
    }

    fn cut(&self, error: &hyper::Error) -> TransportError {
        TransportError::Cut { url: self.url(), reason: chain(error) }
    }

    fn url(&self) -> String {
        shown_url(&self.endpoint.url.to_string())
    }
}

/// An address as it may be shown: a user and a query may be secret.
pub fn shown_url(url: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, ""), |(address, _)| (address, "?***"));
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let host =
                authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("***@{host}"));
            format!("{scheme}://{host}{path}{query}")
        }
        None => format!("{address}{query}"),
    }
}

fn broken(error: TransportError) -> Failure {
    Failure::Broken { delivery: error.delivery(), why: Arc::new(error) }
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
        Ok(Message::Answer { outcome: Err(error), .. }) if is_json => Said::Error(RpcError::read(error)),
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

fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
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

#[cfg(test)]
mod tests {
    use super::*;

    // req: CL-09
    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("http://h:1/mcp", "http://h:1/mcp"),
            ("https://h/mcp?api_key=secret", "https://h/mcp?***"),
            ("https://user:secret@h/mcp", "https://***@h/mcp"),
            ("http://user:secret@h", "http://***@h"),
            ("/elsewhere?token=secret", "/elsewhere?***"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
        let refused = HttpEndpoint::new("http://user:secret@h/", []).unwrap_err();
        assert!(!refused.to_string().contains("secret"), "{refused}");
        let endpoint = HttpEndpoint::new("http://h/?k=secret", [("authorization", "secret")]).unwrap();
        assert_eq!(format!("{endpoint:?}"), "HttpEndpoint(http://h/?***)");
    }
}
