//! Streamable HTTP client: each message is a separate POST; the response is JSON or an event stream.
//!
//! `endpoint` holds the address of the server, `remote` exchanges HTTP requests with it, and `stream` resumes broken
//! streams and receives unsolicited messages.

mod endpoint;
mod remote;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::task::AbortHandle;

pub use endpoint::{HttpEndpoint, InvalidEndpoint, redact_url};
pub(crate) use remote::{GOODBYE_WITHIN, Remote, broken, media_type};

use crate::{Failure, ProtocolVersion, TransportError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The sending side of a connection. Each response arrives in the HTTP response to its request.
pub(crate) struct HttpLink {
    remote: Arc<Remote>,
    session: Mutex<Option<HeaderValue>>,
    version: OnceLock<ProtocolVersion>,
}

impl HttpLink {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { remote, session: Mutex::new(None), version: OnceLock::new() }
    }

    pub(crate) fn set_version(&self, version: ProtocolVersion) {
        let _ = self.version.set(version);
    }

    /// Returns true if both sides have agreed on a protocol version.
    pub(crate) fn has_agreed(&self) -> bool {
        self.version.get().is_some()
    }

    /// Posts a message from a separate task. Responses and failures are reported to the router.
    pub(crate) fn send(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> AbortHandle {
        let link = self.clone();
        self.remote.carry(id, async move { link.exchange(id, frame).await })
    }

    /// Posts a message and passes the response to the router.
    pub(crate) async fn exchange(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> Result<(), Failure> {
        let response = self.post(frame).await.map_err(broken)?;
        self.take(id, response).await
    }

    pub(crate) async fn post(&self, frame: Vec<u8>) -> Result<Response<Incoming>, TransportError> {
        let response = self.remote.fetch(self.addressed(self.remote.post(frame))).await?;
        if let (true, Some(session)) = (response.status().is_success(), response.headers().get(SESSION)) {
            self.session().get_or_insert_with(|| session.clone());
        }
        Ok(response)
    }

    /// Passes the HTTP response to a message to the router.
    pub(crate) async fn take(
        self: &Arc<Self>,
        id: Option<u64>,
        response: Response<Incoming>,
    ) -> Result<(), Failure> {
        match response.status() {
            status if self.is_session_lost(status) => Err(self.lose_session(id)),
            status if !status.is_success() => Err(self.remote.refusal(response).await),
            // A message without an id expects no response, so the body is ignored.
            _ => match id {
                None => Ok(()),
                Some(id) => self.take_answer(id, response).await,
            },
        }
    }

    /// Ends all requests in flight, then the session at the server, if there is one.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.remote.router.end(Arc::new(TransportError::Closed), |_| false);
        // Messages still being sent, above all cancellations, need the session.
        let _ = tokio::time::timeout(2 * GOODBYE_WITHIN, self.remote.tasks.wait()).await;
        let farewell = self.addressed(self.remote.request(Method::DELETE, "application/json", Vec::new()));
        let session = self.session().take();
        if session.is_some() {
            let _ = tokio::time::timeout(GOODBYE_WITHIN, self.remote.fetch(farewell)).await;
        }
    }

    /// Adds the session and protocol version headers.
    fn addressed(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let headers = request.headers_mut();
        if let Some(session) = &*self.session() {
            headers.insert(SESSION, session.clone());
        }
        if let Some(version) = self.version.get() {
            headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        }
        request
    }

    async fn take_answer(self: &Arc<Self>, id: u64, response: Response<Incoming>) -> Result<(), Failure> {
        match media_type(response.headers()).as_deref() {
            Some("application/json") => self.take_json(id, response.into_body()).await,
            Some("text/event-stream") => self.take_events(id, response.into_body()).await,
            _ => Err(broken(self.remote.not_mcp(response).await)),
        }
    }

    async fn take_json(self: &Arc<Self>, id: u64, body: Incoming) -> Result<(), Failure> {
        match self.remote.read_whole(body).await.map_err(broken)? {
            // Some servers begin their bodies with a byte order mark.
            Some(frame) => self.deliver(frame.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&frame), Some(id)),
            None => return Err(Failure::TooLong { limit: self.remote.limit(), certain: true }),
        }
        // If the request is still pending, the body did not contain its response.
        let cut = self.remote.broke_off("the body did not answer the request");
        self.remote.router.fail(id, broken(cut));
        Ok(())
    }

    fn deliver(self: &Arc<Self>, frame: &[u8], during: Option<u64>) {
        let link = self.clone();
        self.remote.deliver(frame, during, |reply| async move { link.exchange(None, reply).await });
    }

    /// Returns true if the status means that the server no longer knows the session. A 404 without a session does not.
    fn is_session_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::NOT_FOUND && self.session().is_some()
    }

    /// Ends the connection, because no message in this session can succeed any more. The request that received the 404
    /// was not run; the outcome of the others is unknown.
    fn lose_session(&self, id: Option<u64>) -> Failure {
        let why = Arc::new(TransportError::SessionLost { url: self.remote.url() });
        let lost = Failure::not_sent(why.clone());
        if let Some(id) = id {
            self.remote.router.fail(id, lost.clone());
        }
        *self.session() = None;
        self.remote.router.end(why, |_| false);
        self.remote.stop.cancel();
        lost
    }

    fn session(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.session.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests;
