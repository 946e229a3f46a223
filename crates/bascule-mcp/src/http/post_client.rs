//! Posts to an HTTP endpoint that is no MCP server, over the connections of the MCP client.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{HttpClient, HttpEndpoint};
use crate::TransportError;
use crate::router::MessageRouter;

/// Sends requests to one endpoint. Redirects are refused, because headers may be secret.
pub struct PostClient(HttpClient);

impl PostClient {
    /// `limit` is the size limit of a response.
    pub fn new(endpoint: HttpEndpoint, limit: usize) -> Self {
        // No message of MCP arrives here.
        let router = Arc::new(MessageRouter::new(limit, Box::new(|_| {}), None));
        Self(HttpClient::new(endpoint, limit, router, TaskTracker::new(), CancellationToken::new()))
    }

    /// Posts a body of this media type. Returns the body of a successful response. The caller bounds the time.
    pub async fn post(&self, media_type: &'static str, body: Vec<u8>) -> Result<Bytes, TransportError> {
        let client = &self.0;
        let mut headers = client.post_headers();
        headers.insert(ACCEPT, HeaderValue::from_static(media_type));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        let response = client.fetch(client.request(Method::POST, headers, body)).await?;
        if !response.status().is_success() {
            return Err(client.error_from_response(response).await);
        }
        let too_long =
            || client.interrupted_error(format!("the response is longer than {} bytes", client.limit()));
        client.read_body(response.into_body()).await?.ok_or_else(too_long)
    }
}
