//! HTTP+SSE, the transport before Streamable HTTP: one event stream carries all messages of the server, and its first
//! event announces the URL to which the client posts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::header::HeaderMap;
use http::uri::{PathAndQuery, Scheme};
use http::{Method, StatusCode, Uri};
use tokio::sync::watch;

use crate::connection::Exchange;
use crate::http::{
    EVENT_STREAM, HttpClient, MAX_FED_BYTES, PendingDelivery, has_media_type, path_of, redact_url,
    transport_failure,
};
use crate::router::SharedRequestState;
use crate::sse::{EventReader, SseEvent};
use crate::{Failure, TransportError};

/// A [`TransportSender`](crate::transport::TransportSender) over HTTP+SSE. Responses arrive on the stream.
pub(crate) struct SseLink {
    pub(crate) client: Arc<HttpClient>,
    headers: HeaderMap,
    /// The URL for messages, once the server has announced it.
    post_url: watch::Receiver<Option<Uri>>,
}

impl SseLink {
    /// Opens the stream. `http_failure` is the failure of Streamable HTTP, if the bridge tried that first.
    pub(crate) fn open(client: Arc<HttpClient>, http_failure: Option<Failure>) -> Arc<Self> {
        let (url_sender, post_url) = watch::channel(None);
        let link = Arc::new(Self { headers: client.post_headers(), client, post_url });
        link.client.tasks.spawn(link.clone().run_stream(url_sender, http_failure));
        link
    }

    /// Returns a future that sends a request and passes a failure to the router.
    pub(crate) fn request_exchange(
        self: &Arc<Self>,
        id: u64,
        frame: Vec<u8>,
        shared: Arc<SharedRequestState>,
    ) -> Exchange {
        let link = self.clone();
        Box::pin(async move {
            if let Err(failure) = link.post(frame, &shared.is_sent).await {
                link.client.router.fail(id, failure);
            }
        })
    }

    /// Sends a notification or a response, and waits until the server has accepted it.
    pub(crate) async fn send_and_wait(&self, frame: Vec<u8>) -> Result<(), Failure> {
        self.post(frame, &AtomicBool::default()).await
    }

    /// Posts a message as soon as the URL is known, and waits until the server has accepted it.
    pub(crate) async fn post(&self, frame: Vec<u8>, is_sent: &AtomicBool) -> Result<(), Failure> {
        let url = self.wait_for_url().await?;
        let mut request = self.client.request(Method::POST, self.headers.clone(), frame);
        *request.uri_mut() = path_of(&url);
        let response = self.client.fetch_and_mark(request, is_sent).await.map_err(transport_failure)?;
        let status = response.status();
        if status.is_success() {
            self.client.drain(response.into_body()).await;
            return Ok(());
        }
        Err(mark_not_sent(self.client.failure_from_response(response).await, status))
    }

    async fn wait_for_url(&self) -> Result<Uri, Failure> {
        let mut post_url = self.post_url.clone();
        match post_url.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(url)) => Ok(url.clone()),
            _ => {
                let cause = self.client.router.close_reason();
                Err(Failure::not_sent(cause.unwrap_or_else(|| Arc::new(TransportError::Closed))))
            }
        }
    }

    /// Reads the stream, and closes the connection when it ends.
    async fn run_stream(
        self: Arc<Self>,
        url_sender: watch::Sender<Option<Uri>>,
        http_failure: Option<Failure>,
    ) {
        let cause = tokio::select! {
            Err(cause) = self.read_stream(&url_sender) => cause,
            () = self.client.stop.cancelled() => TransportError::Closed,
        };
        // Without a URL nothing was posted.
        let has_url = url_sender.borrow().is_some();
        let cause = match (http_failure, cause) {
            (_, TransportError::Closed) => TransportError::Closed,
            (Some(http), sse) if !has_url => {
                TransportError::BothHttpTransports { http: Box::new(http), sse: Box::new(sse) }
            }
            (_, cause) => cause,
        };
        self.client.router.close(Arc::new(cause), |_| !has_url);
        self.client.stop.cancel();
    }

    /// Reads the stream until it fails.
    async fn read_stream(
        self: &Arc<Self>,
        url_sender: &watch::Sender<Option<Uri>>,
    ) -> Result<std::convert::Infallible, TransportError> {
        let get = self.client.request(Method::GET, self.client.get_headers(), Vec::new());
        let response = self.client.fetch(get).await?;
        if !response.status().is_success() {
            return Err(self.client.error_from_response(response).await);
        }
        if !has_media_type(response.headers(), EVENT_STREAM) {
            return Err(self.client.not_mcp_error(response).await);
        }
        let mut body = response.into_body();
        let mut events = EventReader::new(self.client.limit());
        while let Some(chunk) = self.client.next_chunk(&mut body).await? {
            for part in chunk.chunks(MAX_FED_BYTES) {
                self.client.router.pacer.pace().await;
                let mut received = Vec::new();
                events.feed(part, |event| received.push(event));
                for event in received {
                    if let Some(delivery) = self.handle_event(event, url_sender)? {
                        delivery.await;
                    }
                }
            }
        }
        Err(self.client.interrupted_error("the event stream ended"))
    }

    fn handle_event(
        self: &Arc<Self>,
        event: SseEvent,
        url_sender: &watch::Sender<Option<Uri>>,
    ) -> Result<Option<PendingDelivery>, TransportError> {
        match event {
            SseEvent::Endpoint(reference) if url_sender.borrow().is_none() => {
                let url = self.resolve(&String::from_utf8_lossy(&reference))?;
                url_sender.send_replace(Some(url));
            }
            SseEvent::Endpoint(_) => tracing::debug!("ignoring a second endpoint event"),
            SseEvent::Data(data) => {
                let link = self.clone();
                let reply = move |reply| async move { link.send_and_wait(reply).await };
                return Ok(self.client.deliver_any(data, None, reply));
            }
            SseEvent::TooLong(scanned) => self.client.router.deliver_oversized(scanned),
        }
        Ok(None)
    }

    /// Resolves the URL that the server announces. It must have the same origin, because our headers are sent there.
    fn resolve(&self, endpoint: &str) -> Result<Uri, TransportError> {
        let (base, url) = (self.client.address(), self.client.redacted_url());
        let endpoint = endpoint.trim();
        resolve(base, endpoint).map_err(|error| match error {
            ReferenceError::CrossOrigin => {
                TransportError::CrossOriginEndpoint { url, endpoint: redact(endpoint) }
            }
            ReferenceError::Invalid => {
                let reason =
                    format!("it announces the endpoint `{}`, which is not a valid URL", redact(endpoint));
                TransportError::NotMcp { url, reason }
            }
        })
    }
}

/// Marks a message that was rejected with 3xx or 4xx as not sent: the server has not run its request. A 5xx may come after
/// the request ran.
fn mark_not_sent(rejection: Failure, status: StatusCode) -> Failure {
    match rejection {
        Failure::Transport { cause, .. } if !status.is_server_error() => Failure::not_sent(cause),
        rejection => rejection,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ReferenceError {
    /// The URL has another origin.
    CrossOrigin,
    Invalid,
}

/// Resolves a reference against a URL. The result has the scheme, host and port of the URL in its spelling; a reference
/// with others is an error.
fn resolve(base: &Uri, reference: &str) -> Result<Uri, ReferenceError> {
    let scheme = base.scheme_str().unwrap_or_default();
    let path = match reference {
        "" => return Err(ReferenceError::Invalid),
        _ if reference.starts_with("//") => same_origin_path(base, &format!("{scheme}:{reference}"))?,
        _ if has_scheme(reference) => same_origin_path(base, reference)?,
        _ if reference.starts_with('/') => reference.to_owned(),
        _ if reference.starts_with('?') => format!("{}{reference}", base.path()),
        _ => {
            let folder = base.path().rfind('/').map_or("/", |at| &base.path()[..=at]);
            format!("{folder}{reference}")
        }
    };
    let path: PathAndQuery = remove_dot_segments(&path).parse().map_err(|_| ReferenceError::Invalid)?;
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| ReferenceError::Invalid)
}

/// Returns true if the reference begins like `http:`. A colon further on may be part of a path.
fn has_scheme(reference: &str) -> bool {
    let is_scheme = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    reference.split_once(':').is_some_and(|(name, _)| is_scheme(name))
}

/// Returns the path and query of an absolute URL with the origin of `base`.
fn same_origin_path(base: &Uri, absolute: &str) -> Result<String, ReferenceError> {
    let uri: Uri = absolute.parse().map_err(|_| ReferenceError::Invalid)?;
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match origin(&uri) == origin(base) && !has_user {
        true => Ok(uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()),
        false => Err(ReferenceError::CrossOrigin),
    }
}

fn origin(uri: &Uri) -> (Option<&Scheme>, Option<String>, Option<u16>) {
    let default_port = match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    (uri.scheme(), uri.host().map(str::to_ascii_lowercase), uri.port_u16().or(default_port))
}

/// Removes the segments `.` and `..` from a path. The query is unchanged.
fn remove_dot_segments(reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or_default();
    let (path, query) = reference.split_at(reference.find('?').unwrap_or(reference.len()));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

/// Shortens a URL of the server for an error message and removes secrets.
fn redact(endpoint: &str) -> String {
    redact_url(&endpoint.chars().filter(|c| !c.is_control()).take(200).collect::<String>())
}

#[cfg(test)]
mod tests;
