//! Streamable HTTP to a server: each message is a POST, the response is JSON or an event stream.
//!
//! `endpoint` is the address, `client` sends HTTP requests to it over the connections of `pool`, and `stream` reads and
//! resumes event streams. `post_client` and `grpc_client` serve endpoints that are no MCP servers.

mod client;
mod endpoint;
#[cfg(feature = "grpc")]
mod grpc_client;
mod pool;
mod post_client;
mod stream;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Buf;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};

pub(crate) use client::{
    CLOSE_TIMEOUT, DRAIN_TIMEOUT, EVENT_STREAM, HttpClient, JSON, MAX_FED_BYTES, MessageKind,
    PendingDelivery, has_media_type, path_of, transport_failure,
};
pub use endpoint::{HttpEndpoint, InvalidEndpoint, redact_url};
#[cfg(feature = "grpc")]
pub use grpc_client::{GrpcClient, GrpcError};
pub use post_client::PostClient;

use crate::connection::Exchange;
use crate::router::SharedRequestState;
use crate::{Failure, ProtocolVersion, TransportError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A [`TransportSender`](crate::transport::TransportSender) over Streamable HTTP.
pub(crate) struct HttpLink {
    pub(crate) client: Arc<HttpClient>,
    /// The headers of every POST. Session and version are added when they are known.
    headers: Mutex<HeaderMap>,
}

impl HttpLink {
    pub(crate) fn new(client: Arc<HttpClient>) -> Self {
        let mut headers = client.post_headers();
        // Their presence is the state of the connection, so the configured headers must not contain them.
        headers.remove(SESSION);
        headers.remove(VERSION);
        Self { headers: Mutex::new(headers), client }
    }

    pub(crate) fn set_version(&self, version: ProtocolVersion) {
        self.headers().insert(VERSION, HeaderValue::from_static(version.as_str()));
    }

    /// Returns true after the handshake.
    pub(crate) fn is_initialized(&self) -> bool {
        self.headers().contains_key(VERSION)
    }

    /// Returns a future that sends a request and passes its result to the router.
    pub(crate) fn request_exchange(
        self: &Arc<Self>,
        id: u64,
        frame: Vec<u8>,
        shared: Arc<SharedRequestState>,
    ) -> Exchange {
        let link = self.clone();
        Box::pin(async move {
            if let Err(failure) = link.exchange(Some(id), frame, &shared.is_sent).await {
                link.client.router.fail(id, failure);
            }
        })
    }

    /// Sends a notification or a response, and waits until the server has accepted it.
    pub(crate) async fn send_and_wait(self: &Arc<Self>, frame: Vec<u8>) -> Result<(), Failure> {
        self.exchange(None, frame, &AtomicBool::default()).await
    }

    /// Posts a message and delivers the response to the router.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        id: Option<u64>,
        frame: Vec<u8>,
        is_sent: &AtomicBool,
    ) -> Result<(), Failure> {
        let response = self.post(frame, is_sent).await.map_err(transport_failure)?;
        self.receive(id, response).await
    }

    pub(crate) async fn post(
        &self,
        frame: Vec<u8>,
        is_sent: &AtomicBool,
    ) -> Result<Response<Incoming>, TransportError> {
        let headers = self.headers().clone();
        let request = self.client.request(Method::POST, headers, frame);
        let response = self.client.fetch_and_mark(request, is_sent).await?;
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
            status if self.is_session_expired(status) => Err(self.expire_session(id)),
            status if !status.is_success() => {
                Err(Box::pin(self.client.failure_from_response(response)).await)
            }
            _ => match id {
                // The HTTP response to a notification or a response has no message.
                None => Ok(()),
                Some(id) => self.receive_result(id, response).await,
            },
        }
    }

    /// Closes the connection and, if there is one, the session at the server.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.client.router.close(Arc::new(TransportError::Closed), |_| false);
        // Messages that are being sent, above all cancellations, need the session that ends here.
        let _ = tokio::time::timeout(2 * CLOSE_TIMEOUT, self.client.tasks.wait()).await;
        let delete = self.request_without_body(Method::DELETE, JSON);
        if self.headers().remove(SESSION).is_some() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.client.fetch(delete)).await;
        }
    }

    fn request_without_body(&self, method: Method, accept: &'static str) -> Request<Full<Bytes>> {
        let mut headers = self.headers().clone();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.remove(CONTENT_TYPE);
        self.client.request(method, headers, Vec::new())
    }

    async fn receive_result(self: &Arc<Self>, id: u64, response: Response<Incoming>) -> Result<(), Failure> {
        // The futures of the rarer cases are boxed, so that this one stays small.
        if has_media_type(response.headers(), JSON) {
            self.receive_json(id, response.into_body()).await
        } else if has_media_type(response.headers(), EVENT_STREAM) {
            Box::pin(self.receive_events(id, response.into_body())).await
        } else {
            Err(transport_failure(Box::pin(self.client.not_mcp_error(response)).await))
        }
    }

    async fn receive_json(self: &Arc<Self>, id: u64, body: Incoming) -> Result<(), Failure> {
        match self.client.read_body(body).await.map_err(transport_failure)? {
            // Some servers begin their bodies with a byte order mark.
            Some(mut frame) => {
                if frame.starts_with(b"\xef\xbb\xbf") {
                    frame.advance(3);
                }
                if let Some(delivery) = self.deliver(frame, Some(id)) {
                    delivery.await;
                }
            }
            None => return Err(Failure::TooLong { limit: self.client.limit(), is_matched: true }),
        }
        if self.client.router.is_pending(id) {
            return Err(transport_failure(
                self.client.interrupted_error("the body holds no response to the request"),
            ));
        }
        Ok(())
    }

    fn deliver(
        self: &Arc<Self>,
        frame: impl AsRef<[u8]> + Send + 'static,
        stream_request_id: Option<u64>,
    ) -> Option<PendingDelivery> {
        let link = self.clone();
        let reply = move |reply| async move { link.send_and_wait(reply).await };
        self.client.deliver_any(frame, stream_request_id, reply)
    }

    /// Returns true if the status says that the session has expired.
    fn is_session_expired(&self, status: StatusCode) -> bool {
        status == StatusCode::NOT_FOUND && self.headers().contains_key(SESSION)
    }

    /// Closes the connection, because no request can succeed in an expired session. The server did not run the request
    /// that received the 404; the delivery of the others is unknown.
    fn expire_session(&self, id: Option<u64>) -> Failure {
        let cause = Arc::new(TransportError::SessionExpired { url: self.client.redacted_url() });
        let expired = Failure::not_sent(cause.clone());
        if let Some(id) = id {
            self.client.router.fail(id, expired.clone());
        }
        self.headers().remove(SESSION);
        self.client.router.close(cause, |_| false);
        self.client.stop.cancel();
        expired
    }

    fn headers(&self) -> MutexGuard<'_, HeaderMap> {
        self.headers.lock().expect("no code panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests;
