//! Chooses between the two HTTP transports by the server's response to `initialize`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use http::StatusCode;

use crate::Failure;
use crate::connection::Exchange;
use crate::http::{HttpClient, HttpLink, transport_failure};
use crate::http_sse::SseLink;
use crate::router::SharedRequestState;

/// A [`TransportSender`](crate::transport::TransportSender) over Streamable HTTP until the server rejects that, over HTTP+SSE from then on.
pub(crate) struct HttpOrSseLink {
    pub(crate) client: Arc<HttpClient>,
    http: Arc<HttpLink>,
    sse: OnceLock<Arc<SseLink>>,
}

impl HttpOrSseLink {
    pub(crate) fn new(client: Arc<HttpClient>) -> Self {
        Self { http: Arc::new(HttpLink::new(client.clone())), client, sse: OnceLock::new() }
    }

    /// Returns the Streamable HTTP transport, unless the server rejected it.
    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        self.sse.get().is_none().then_some(&self.http)
    }

    /// Returns a future that sends a request and passes its result to the router.
    pub(crate) fn request_exchange(
        self: &Arc<Self>,
        id: u64,
        frame: Vec<u8>,
        shared: Arc<SharedRequestState>,
    ) -> Exchange {
        match self.sse.get() {
            Some(sse) => return sse.request_exchange(id, frame, shared),
            None if self.http.is_initialized() => return self.http.request_exchange(id, frame, shared),
            None => {}
        }
        let link = self.clone();
        Box::pin(async move {
            if let Err(failure) = link.initialize(id, frame, &shared.is_sent).await {
                link.client.router.fail(id, failure);
            }
        })
    }

    /// Sends a notification or a response, and waits until the server has accepted it.
    pub(crate) async fn send_and_wait(&self, frame: Vec<u8>) -> Result<(), Failure> {
        match self.sse.get() {
            Some(sse) => sse.send_and_wait(frame).await,
            None => self.http.send_and_wait(frame).await,
        }
    }

    /// Sends `initialize`: the only request before the handshake is complete, and nothing else is sent meanwhile.
    async fn initialize(&self, id: u64, frame: Vec<u8>, is_sent: &AtomicBool) -> Result<(), Failure> {
        let response = self.http.post(frame.clone(), is_sent).await.map_err(transport_failure)?;
        if !may_need_sse(response.status()) {
            return self.http.receive(Some(id), response).await;
        }
        let rejection = self.client.failure_from_response(response).await;
        tracing::debug!(%rejection, "trying HTTP+SSE instead of Streamable HTTP");
        let sse = self.sse.get_or_init(|| SseLink::open(self.client.clone(), Some(rejection)));
        sse.post(frame, is_sent).await
    }
}

/// Returns true if a server that responds to `initialize` with this status may support only HTTP+SSE. 401 and 403 concern
/// the credentials, not the transport, so they cause no fallback.
fn may_need_sse(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}
