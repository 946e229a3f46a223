//! Chooses between the two HTTP transports by the server's response to `initialize`.

use std::sync::{Arc, OnceLock};

use http::StatusCode;

use crate::Failure;
use crate::connection::Exchange;
use crate::http::{HttpLink, Remote, broken};
use crate::legacy::LegacyLink;

/// Uses Streamable HTTP until the server rejects it, HTTP+SSE from then on.
pub(crate) struct HttpOrSseLink {
    remote: Arc<Remote>,
    http: Arc<HttpLink>,
    sse: OnceLock<Arc<LegacyLink>>,
}

impl HttpOrSseLink {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { http: Arc::new(HttpLink::new(remote.clone())), remote, sse: OnceLock::new() }
    }

    /// The Streamable HTTP transport, unless the server rejected it.
    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        self.sse.get().is_none().then_some(&self.http)
    }

    /// Sends a request. Its result reaches the router.
    pub(crate) fn start_exchange(self: &Arc<Self>, id: u64, frame: Vec<u8>) -> Exchange {
        match self.sse.get() {
            Some(sse) => return sse.start_exchange(id, frame),
            None if self.http.has_version() => return self.http.start_exchange(id, frame),
            None => {}
        }
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

    pub(crate) async fn exchange(&self, id: Option<u64>, frame: Vec<u8>) -> Result<(), Failure> {
        if let Some(sse) = self.sse.get() {
            return sse.exchange(frame).await;
        }
        // The only request before the version is known is `initialize`, and nothing is sent beside it.
        if id.is_none() || self.http.has_version() {
            return self.http.exchange(id, frame).await;
        }
        let response = self.http.post(frame.clone()).await.map_err(broken)?;
        if !may_need_sse(response.status()) {
            return self.http.receive(id, response).await;
        }
        let refusal = self.remote.refusal(response).await;
        tracing::debug!(%refusal, "trying HTTP+SSE instead of Streamable HTTP");
        let sse = self.sse.get_or_init(|| LegacyLink::open(self.remote.clone(), Some(refusal)));
        sse.exchange(frame).await
    }
}

/// Returns true if a server that responds to `initialize` with this status may support only HTTP+SSE. A server that
/// wants or rejects credentials is not asked again.
fn may_need_sse(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}
