//! HTTP+SSE, the HTTP transport before 2025. One event stream carries all messages of the server. Its first event
//! names the address to which the client posts its messages.

use std::sync::Arc;

use http::uri::{PathAndQuery, Scheme};
use http::{StatusCode, Uri};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::http::{Remote, broken, media_type, redact_url};
use crate::sse::{Event, EventReader};
use crate::{Failure, TransportError};

/// The sending side of a connection. Responses arrive on the event stream.
pub(crate) struct LegacyLink {
    remote: Arc<Remote>,
    /// The address for messages, `None` until the server names it.
    post_to: watch::Receiver<Option<Uri>>,
}

impl LegacyLink {
    /// Opens the stream. `instead_of` is the failure of Streamable HTTP, if that was tried first.
    pub(crate) fn open(remote: Arc<Remote>, instead_of: Option<Failure>) -> Arc<Self> {
        let (named, post_to) = watch::channel(None);
        let link = Arc::new(Self { remote, post_to });
        link.remote.tasks.spawn(link.clone().keep(named, instead_of));
        link
    }

    /// Posts a message from a separate task. Failures are reported to the router.
    pub(crate) fn send(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> AbortHandle {
        let link = self.clone();
        self.remote.carry(id, async move { link.exchange(frame).await })
    }

    /// Waits for the address, posts a message, and waits until the server has accepted it.
    pub(crate) async fn exchange(&self, frame: Vec<u8>) -> Result<(), Failure> {
        let mut request = self.remote.post(frame);
        *request.uri_mut() = self.address().await?;
        let response = self.remote.fetch(request).await.map_err(broken)?;
        let status = response.status();
        if status.is_success() {
            self.remote.let_go(response.into_body());
            return Ok(());
        }
        Err(untaken(self.remote.refusal(response).await, status))
    }

    async fn address(&self) -> Result<Uri, Failure> {
        let mut post_to = self.post_to.clone();
        match post_to.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(address)) => Ok(address.clone()),
            _ => {
                let why = self.remote.router.ended();
                Err(Failure::not_sent(why.unwrap_or_else(|| Arc::new(TransportError::Closed))))
            }
        }
    }

    /// Reads the stream to its end. The connection ends with it.
    async fn keep(self: Arc<Self>, named: watch::Sender<Option<Uri>>, instead_of: Option<Failure>) {
        let why = tokio::select! {
            Err(why) = self.read(&named) => why,
            () = self.remote.stop.cancelled() => TransportError::Closed,
        };
        // Without an address nothing can have been posted.
        let has_begun = named.borrow().is_some();
        let why = match (instead_of, why) {
            (_, TransportError::Closed) => TransportError::Closed,
            (Some(http), sse) if !has_begun => {
                TransportError::Neither { http: Box::new(http), sse: Box::new(sse) }
            }
            (_, why) => why,
        };
        self.remote.router.end(Arc::new(why), |_| !has_begun);
        self.remote.stop.cancel();
    }

    /// Reads the stream until it fails. Even a regular end of the stream is an error.
    async fn read(
        self: &Arc<Self>,
        named: &watch::Sender<Option<Uri>>,
    ) -> Result<std::convert::Infallible, TransportError> {
        let response = self.remote.fetch(self.remote.get()).await?;
        if !response.status().is_success() {
            return Err(self.remote.refused(response).await);
        }
        if media_type(response.headers()).as_deref() != Some("text/event-stream") {
            return Err(self.remote.not_mcp(response).await);
        }
        let mut body = response.into_body();
        let mut events = EventReader::new(self.remote.limit());
        while let Some(piece) = self.remote.next_piece(&mut body).await? {
            let mut heard = Ok(());
            events.feed(&piece, |event| {
                if heard.is_ok() {
                    heard = self.hear(event, named);
                }
            });
            heard?;
        }
        Err(self.remote.broke_off("the event stream ended"))
    }

    fn hear(
        self: &Arc<Self>,
        event: Event,
        named: &watch::Sender<Option<Uri>>,
    ) -> Result<(), TransportError> {
        match event {
            Event::Endpoint(said) if named.borrow().is_none() => {
                let address = self.resolve(&String::from_utf8_lossy(&said))?;
                named.send_replace(Some(address));
            }
            Event::Endpoint(_) => tracing::debug!("the server names an address again; the first one counts"),
            Event::Data(data) => {
                let link = self.clone();
                self.remote.deliver(&data, None, |reply| async move { link.exchange(reply).await });
            }
            Event::TooLong(unread) => self.remote.router.deliver_unread(unread),
        }
        Ok(())
    }

    /// Resolves the address named by the server. It must have the server's origin, because our headers are sent there.
    fn resolve(&self, endpoint: &str) -> Result<Uri, TransportError> {
        let (base, url) = (self.remote.address(), self.remote.url());
        let endpoint = endpoint.trim();
        resolve(base, endpoint).map_err(|wrong| match wrong {
            Unusable::Foreign => TransportError::ForeignEndpoint { url, endpoint: shown(endpoint) },
            Unusable::NoAddress => {
                let what = format!("it wants messages sent to `{}`, which is no address", shown(endpoint));
                TransportError::NotMcp { url, what }
            }
        })
    }
}

/// Marks a request as not sent if the server rejected its message with a status below 500: it did not run it.
fn untaken(refusal: Failure, status: StatusCode) -> Failure {
    match refusal {
        Failure::Broken { why, .. } if !status.is_server_error() => Failure::not_sent(why),
        refusal => refusal,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    Foreign,
    NoAddress,
}

/// Resolves a reference against `base`. Scheme, host and port are always those of `base`: a reference with another
/// origin is refused, and an equivalent spelling of the origin is replaced by that of `base`.
fn resolve(base: &Uri, reference: &str) -> Result<Uri, Unusable> {
    let scheme = base.scheme_str().unwrap_or_default();
    let path = match reference {
        "" => return Err(Unusable::NoAddress),
        _ if reference.starts_with("//") => own_path(base, &format!("{scheme}:{reference}"))?,
        _ if has_scheme(reference) => own_path(base, reference)?,
        _ if reference.starts_with('/') => reference.to_owned(),
        _ if reference.starts_with('?') => format!("{}{reference}", base.path()),
        _ => {
            let folder = base.path().rfind('/').map_or("/", |at| &base.path()[..=at]);
            format!("{folder}{reference}")
        }
    };
    let path: PathAndQuery = without_dots(&path).parse().map_err(|_| Unusable::NoAddress)?;
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| Unusable::NoAddress)
}

/// Returns true if the reference begins with a scheme such as `http:`. A later colon may be part of a path.
fn has_scheme(reference: &str) -> bool {
    let letters = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    reference.split_once(':').is_some_and(|(name, _)| letters(name))
}

fn own_path(base: &Uri, absolute: &str) -> Result<String, Unusable> {
    let uri: Uri = absolute.parse().map_err(|_| Unusable::NoAddress)?;
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match origin(&uri) == origin(base) && !has_user {
        true => Ok(uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()),
        false => Err(Unusable::Foreign),
    }
}

fn origin(uri: &Uri) -> (Option<&Scheme>, Option<String>, Option<u16>) {
    let usual = match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    (uri.scheme(), uri.host().map(str::to_ascii_lowercase), uri.port_u16().or(usual))
}

/// Removes `.` and `..` segments from a path, and a fragment. The query stays unchanged.
fn without_dots(reference: &str) -> String {
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

/// Returns an address sent by a server for display: shortened, without control characters and secrets.
fn shown(endpoint: &str) -> String {
    redact_url(&endpoint.chars().filter(|c| !c.is_control()).take(200).collect::<String>())
}

#[cfg(test)]
mod tests;
