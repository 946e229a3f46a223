//! Chooses between the two HTTP transports by the server's response to `initialize`.

use std::sync::{Arc, OnceLock};

use http::StatusCode;

use crate::Failure;
use crate::connection::Exchange;
use crate::http::{HttpClient, HttpLink, transport_failure};
use crate::http_sse::SseLink;

/// A [`Link`](crate::transport::Link) over Streamable HTTP until the server rejects that, over HTTP+SSE from then on.
pub(crate) struct HttpOrSseLink {
    client: Arc<HttpClient>,
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
    pub(crate) fn request_exchange(self: &Arc<Self>, id: u64, frame: Vec<u8>) -> Exchange {
        match self.sse.get() {
            Some(sse) => return sse.request_exchange(id, frame),
            None if self.http.is_initialized() => return self.http.request_exchange(id, frame),
            None => {}
        }
        let link = self.clone();
        Box::pin(async move {
            if let Err(failure) = link.exchange(Some(id), frame).await {
                link.client.router.fail(id, failure);
            }
        })
    }

    /// Sends a notification or a response, in a separate task.
    pub(crate) fn send(self: &Arc<Self>, frame: Vec<u8>) {
        let link = self.clone();
        self.client.spawn_exchange(async move { link.exchange(None, frame).await });
    }

    pub(crate) async fn exchange(&self, id: Option<u64>, frame: Vec<u8>) -> Result<(), Failure> {
        if let Some(sse) = self.sse.get() {
            return sse.exchange(frame).await;
        }
        // The only request before the handshake is complete is `initialize`, and nothing else is sent meanwhile.
        if id.is_none() || self.http.is_initialized() {
            return self.http.exchange(id, frame).await;
        }
        let response = self.http.post(frame.clone()).await.map_err(transport_failure)?;
        if !may_need_sse(response.status()) {
            return self.http.receive(id, response).await;
        }
        let rejection = self.client.rejection(response).await;
        tracing::debug!(%rejection, "trying HTTP+SSE instead of Streamable HTTP");
        let sse = self.sse.get_or_init(|| SseLink::open(self.client.clone(), Some(rejection)));
        sse.exchange(frame).await
    }
}

/// Returns true if a server that responds to `initialize` with this status may support only HTTP+SSE. 401 and 403 concern
/// the credentials, not the transport, so they cause no fallback.
fn may_need_sse(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}
