//! Streamable HTTP to a server: each message is a POST, the response is JSON or an event stream.
//!
//! `endpoint` is the address, `remote` sends HTTP requests to it over the connections of `pool`, and `stream` reads and
//! resumes event streams.

mod endpoint;
mod pool;
mod remote;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard};

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};

pub use endpoint::{HttpEndpoint, InvalidEndpoint, redact_url};
pub(crate) use remote::{CLOSE_TIMEOUT, EVENT_STREAM, JSON, Remote, broken, has_media_type, path_of};

use crate::connection::Exchange;
use crate::{Failure, ProtocolVersion, TransportError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The sending side of a Streamable HTTP connection.
pub(crate) struct HttpLink {
    remote: Arc<Remote>,
    /// The headers of every POST. Session and version are added when they are known.
    headers: Mutex<HeaderMap>,
}

impl HttpLink {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { headers: Mutex::new(remote.post_headers()), remote }
    }

    pub(crate) fn set_version(&self, version: ProtocolVersion) {
        self.headers().insert(VERSION, HeaderValue::from_static(version.as_str()));
    }

    pub(crate) fn has_version(&self) -> bool {
        self.headers().contains_key(VERSION)
    }

    /// Sends a request. Its result reaches the router.
    pub(crate) fn start_exchange(self: &Arc<Self>, id: u64, frame: Vec<u8>) -> Exchange {
        let link = self.clone();
        Box::pin(async move {
            if let Err(failure) = link.exchange(Some(id), frame).await {
                link.remote.router.fail(id, failure);
            }
        })
    }

    /// Sends a message that expects no response from a task of its own.
    pub(crate) fn send(self: &Arc<Self>, frame: Vec<u8>) {
        let link = self.clone();
        self.remote.spawn_exchange(async move { link.exchange(None, frame).await });
    }

    /// Posts a message and delivers the response to the router.
    pub(crate) async fn exchange(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> Result<(), Failure> {
        let response = self.post(frame).await.map_err(broken)?;
        self.receive(id, response).await
    }

    pub(crate) async fn post(&self, frame: Vec<u8>) -> Result<Response<Incoming>, TransportError> {
        let headers = self.headers().clone();
        let response = self.remote.fetch(self.remote.request(Method::POST, headers, frame)).await?;
        if let (true, Some(session)) = (response.status().is_success(), response.headers().get(SESSION)) {
            self.headers().entry(SESSION).or_insert_with(|| session.clone());
        }
        Ok(response)
    }

    /// Delivers the response to a message.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        id: Option<u64>,
        response: Response<Incoming>,
    ) -> Result<(), Failure> {
        match response.status() {
            status if self.is_session_lost(status) => Err(self.lose_session(id)),
            status if !status.is_success() => Err(Box::pin(self.remote.refusal(response)).await),
            _ => match id {
                // No request waits for the body of a notification's response.
                None => Ok(()),
                Some(id) => self.receive_result(id, response).await,
            },
        }
    }

    /// Ends all requests and, if there is one, the session at the server.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.remote.router.end(Arc::new(TransportError::Closed), |_| false);
        // Messages under way, cancellations above all, need the session that ends here.
        let _ = tokio::time::timeout(2 * CLOSE_TIMEOUT, self.remote.tasks.wait()).await;
        let delete = self.request_without_body(Method::DELETE, JSON);
        if self.headers().remove(SESSION).is_some() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.remote.fetch(delete)).await;
        }
    }

    fn request_without_body(&self, method: Method, accept: &'static str) -> Request<Full<Bytes>> {
        let mut headers = self.headers().clone();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.remove(CONTENT_TYPE);
        self.remote.request(method, headers, Vec::new())
    }

    async fn receive_result(self: &Arc<Self>, id: u64, response: Response<Incoming>) -> Result<(), Failure> {
        // The futures of the rarer cases are boxed, so that this one stays small.
        if has_media_type(response.headers(), JSON) {
            self.receive_json(id, response.into_body()).await
        } else if has_media_type(response.headers(), EVENT_STREAM) {
            Box::pin(self.receive_events(id, response.into_body())).await
        } else {
            Err(broken(Box::pin(self.remote.not_mcp(response)).await))
        }
    }

    async fn receive_json(self: &Arc<Self>, id: u64, body: Incoming) -> Result<(), Failure> {
        match self.remote.read_body(body).await.map_err(broken)? {
            // Some servers begin their bodies with a byte order mark.
            Some(frame) => self.deliver(frame.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&frame), Some(id)),
            None => return Err(Failure::TooLong { limit: self.remote.limit(), certain: true }),
        }
        if self.remote.router.is_waiting(id) {
            return Err(broken(self.remote.cut("the body did not answer the request")));
        }
        Ok(())
    }

    fn deliver(self: &Arc<Self>, frame: &[u8], stream_request_id: Option<u64>) {
        self.remote.deliver(frame, stream_request_id, |reply| {
            let link = self.clone();
            async move { link.exchange(None, reply).await }
        });
    }

    /// Returns true if the server has forgotten the session that it gave us.
    fn is_session_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::NOT_FOUND && self.headers().contains_key(SESSION)
    }

    /// Ends the connection: no request of this session can succeed any more. The request that received the 404 did not
    /// run; the fate of the others is unknown.
    fn lose_session(&self, id: Option<u64>) -> Failure {
        let cause = Arc::new(TransportError::SessionLost { url: self.remote.url() });
        let lost = Failure::not_sent(cause.clone());
        if let Some(id) = id {
            self.remote.router.fail(id, lost.clone());
        }
        self.headers().remove(SESSION);
        self.remote.router.end(cause, |_| false);
        self.remote.stop.cancel();
        lost
    }

    fn headers(&self) -> MutexGuard<'_, HeaderMap> {
        self.headers.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests;
