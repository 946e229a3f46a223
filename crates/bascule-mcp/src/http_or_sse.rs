//! Chooses between the two HTTP transports by the server's response to the first message.

use std::sync::{Arc, OnceLock};

use http::StatusCode;
use tokio::task::AbortHandle;

use crate::Failure;
use crate::http::{HttpLink, Remote, broken};
use crate::legacy::LegacyLink;

/// Uses Streamable HTTP until the server refuses it, then HTTP+SSE.
pub(crate) struct HttpOrSseLink {
    remote: Arc<Remote>,
    http: Arc<HttpLink>,
    sse: OnceLock<Arc<LegacyLink>>,
}

impl HttpOrSseLink {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { http: Arc::new(HttpLink::new(remote.clone())), remote, sse: OnceLock::new() }
    }

    /// Returns the Streamable HTTP link, unless the connection uses HTTP+SSE.
    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        self.sse.get().is_none().then_some(&self.http)
    }

    /// Posts a message from a separate task. Responses and failures are reported to the router.
    pub(crate) fn send(self: &Arc<Self>, id: Option<u64>, frame: Vec<u8>) -> AbortHandle {
        let link = self.clone();
        self.remote.carry(id, async move { link.exchange(id, frame).await })
    }

    pub(crate) async fn exchange(&self, id: Option<u64>, frame: Vec<u8>) -> Result<(), Failure> {
        if let Some(sse) = self.sse.get() {
            return sse.exchange(frame).await;
        }
        // Before a version is agreed on, `initialize` is the only request, and no other message is sent meanwhile.
        if id.is_none() || self.http.has_agreed() {
            return self.http.exchange(id, frame).await;
        }
        let response = self.http.post(frame.clone()).await.map_err(broken)?;
        if !is_of_another_time(response.status()) {
            return self.http.take(id, response).await;
        }
        let refusal = self.remote.refusal(response).await;
        tracing::debug!(%refusal, "trying HTTP+SSE instead of Streamable HTTP");
        let sse = self.sse.get_or_init(|| LegacyLink::open(self.remote.clone(), Some(refusal)));
        sse.exchange(frame).await
    }
}

/// Returns true if a server with this response to `initialize` may support only HTTP+SSE. 401 and 403 concern
/// authorisation, not the transport.
fn is_of_another_time(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}
