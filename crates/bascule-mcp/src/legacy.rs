//! HTTP+SSE, the transport before Streamable HTTP: one event stream carries all messages of the server, and its first
//! event names the URL to which the client posts.

use std::sync::Arc;

use http::header::HeaderMap;
use http::uri::{PathAndQuery, Scheme};
use http::{Method, StatusCode, Uri};
use tokio::sync::watch;

use crate::connection::Exchange;
use crate::http::{EVENT_STREAM, Remote, broken, has_media_type, path_of, redact_url};
use crate::sse::{Event, EventReader};
use crate::{Failure, TransportError};

/// The sending side of an HTTP+SSE connection. Responses arrive on the stream.
pub(crate) struct LegacyLink {
    remote: Arc<Remote>,
    headers: HeaderMap,
    /// The URL for messages, once the server has named it.
    post_url: watch::Receiver<Option<Uri>>,
}

impl LegacyLink {
    /// Opens the stream. `http_failure` is the failure of Streamable HTTP, if that was tried first.
    pub(crate) fn open(remote: Arc<Remote>, http_failure: Option<Failure>) -> Arc<Self> {
        let (url_sender, post_url) = watch::channel(None);
        let link = Arc::new(Self { headers: remote.post_headers(), remote, post_url });
        link.remote.tasks.spawn(link.clone().keep_stream(url_sender, http_failure));
        link
    }

    /// Sends a request. A failure reaches the router.
    pub(crate) fn start_exchange(self: &Arc<Self>, id: u64, frame: Vec<u8>) -> Exchange {
        let link = self.clone();
        Box::pin(async move {
            if let Err(failure) = link.exchange(frame).await {
                link.remote.router.fail(id, failure);
            }
        })
    }

    /// Sends a message that expects no response from a task of its own.
    pub(crate) fn send(self: &Arc<Self>, frame: Vec<u8>) {
        let link = self.clone();
        self.remote.spawn_exchange(async move { link.exchange(frame).await });
    }

    /// Posts a message as soon as the URL is known, and waits until the server has accepted it.
    pub(crate) async fn exchange(&self, frame: Vec<u8>) -> Result<(), Failure> {
        let url = self.wait_for_url().await?;
        let mut request = self.remote.request(Method::POST, self.headers.clone(), frame);
        *request.uri_mut() = path_of(&url);
        let response = self.remote.fetch(request).await.map_err(broken)?;
        let status = response.status();
        if status.is_success() {
            self.remote.drain(response.into_body());
            return Ok(());
        }
        Err(rejected(self.remote.refusal(response).await, status))
    }

    async fn wait_for_url(&self) -> Result<Uri, Failure> {
        let mut post_url = self.post_url.clone();
        match post_url.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(url)) => Ok(url.clone()),
            _ => {
                let cause = self.remote.router.end_reason();
                Err(Failure::not_sent(cause.unwrap_or_else(|| Arc::new(TransportError::Closed))))
            }
        }
    }

    /// Reads the stream and ends the connection with it.
    async fn keep_stream(
        self: Arc<Self>,
        url_sender: watch::Sender<Option<Uri>>,
        http_failure: Option<Failure>,
    ) {
        let cause = tokio::select! {
            Err(cause) = self.read_stream(&url_sender) => cause,
            () = self.remote.stop.cancelled() => TransportError::Closed,
        };
        // Without a URL nothing was posted.
        let has_url = url_sender.borrow().is_some();
        let cause = match (http_failure, cause) {
            (_, TransportError::Closed) => TransportError::Closed,
            (Some(http), sse) if !has_url => {
                TransportError::Neither { http: Box::new(http), sse: Box::new(sse) }
            }
            (_, cause) => cause,
        };
        self.remote.router.end(Arc::new(cause), |_| !has_url);
        self.remote.stop.cancel();
    }

    /// Reads the stream until it fails.
    async fn read_stream(
        self: &Arc<Self>,
        url_sender: &watch::Sender<Option<Uri>>,
    ) -> Result<std::convert::Infallible, TransportError> {
        let get = self.remote.request(Method::GET, self.remote.get_headers(), Vec::new());
        let response = self.remote.fetch(get).await?;
        if !response.status().is_success() {
            return Err(self.remote.stream_refusal(response).await);
        }
        if !has_media_type(response.headers(), EVENT_STREAM) {
            return Err(self.remote.not_mcp(response).await);
        }
        let mut body = response.into_body();
        let mut events = EventReader::new(self.remote.limit());
        while let Some(piece) = self.remote.next_piece(&mut body).await? {
            let mut handled = Ok(());
            events.feed(&piece, |event| {
                if handled.is_ok() {
                    handled = self.handle_event(event, url_sender);
                }
            });
            handled?;
        }
        Err(self.remote.cut("the event stream ended"))
    }

    fn handle_event(
        self: &Arc<Self>,
        event: Event,
        url_sender: &watch::Sender<Option<Uri>>,
    ) -> Result<(), TransportError> {
        match event {
            Event::Endpoint(reference) if url_sender.borrow().is_none() => {
                let url = self.resolve(&String::from_utf8_lossy(&reference))?;
                url_sender.send_replace(Some(url));
            }
            Event::Endpoint(_) => tracing::debug!("ignoring a second endpoint event"),
            Event::Data(data) => {
                self.remote.deliver(&data, None, |reply| {
                    let link = self.clone();
                    async move { link.exchange(reply).await }
                });
            }
            Event::TooLong(unread) => self.remote.router.deliver_unread(unread),
        }
        Ok(())
    }

    /// Resolves the URL that the server names. It must be on the same server, because our headers are sent there.
    fn resolve(&self, endpoint: &str) -> Result<Uri, TransportError> {
        let (base, url) = (self.remote.address(), self.remote.url());
        let endpoint = endpoint.trim();
        resolve(base, endpoint).map_err(|wrong| match wrong {
            ReferenceError::Foreign => TransportError::ForeignEndpoint { url, endpoint: redact(endpoint) },
            ReferenceError::Invalid => {
                let reason =
                    format!("it names the endpoint `{}`, which is not a valid URL", redact(endpoint));
                TransportError::NotMcp { url, reason }
            }
        })
    }
}

/// A server that rejects a message has not run its request, whatever the reason.
fn rejected(refusal: Failure, status: StatusCode) -> Failure {
    match refusal {
        Failure::Broken { cause, .. } if !status.is_server_error() => Failure::not_sent(cause),
        refusal => refusal,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ReferenceError {
    /// The URL is on another server.
    Foreign,
    Invalid,
}

/// Resolves a reference against a URL. The result has the scheme, host and port of the URL in its spelling; a reference
/// with others is an error.
fn resolve(base: &Uri, reference: &str) -> Result<Uri, ReferenceError> {
    let scheme = base.scheme_str().unwrap_or_default();
    let path = match reference {
        "" => return Err(ReferenceError::Invalid),
        _ if reference.starts_with("//") => own_path(base, &format!("{scheme}:{reference}"))?,
        _ if has_scheme(reference) => own_path(base, reference)?,
        _ if reference.starts_with('/') => reference.to_owned(),
        _ if reference.starts_with('?') => format!("{}{reference}", base.path()),
        _ => {
            let folder = base.path().rfind('/').map_or("/", |at| &base.path()[..=at]);
            format!("{folder}{reference}")
        }
    };
    let path: PathAndQuery = remove_dots(&path).parse().map_err(|_| ReferenceError::Invalid)?;
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

fn own_path(base: &Uri, absolute: &str) -> Result<String, ReferenceError> {
    let uri: Uri = absolute.parse().map_err(|_| ReferenceError::Invalid)?;
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match origin(&uri) == origin(base) && !has_user {
        true => Ok(uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()),
        false => Err(ReferenceError::Foreign),
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

/// Removes `.` and `..` from a path; the query stays as it is.
fn remove_dots(reference: &str) -> String {
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
