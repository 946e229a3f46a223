//! Asks an embeddings endpoint for vectors.

use bascule_mcp::{HttpEndpoint, InvalidEndpoint, PostClient, redact_url};
use bascule_model::Secret;

use super::EncoderError;
use super::protocol::{parse_response, request_body};
use crate::blocking::run_blocking;
use crate::config::ServerUrl;

/// The size limit of a response.
const MAX_RESPONSE: usize = 16 << 20;

pub(super) struct EmbeddingsClient {
    client: PostClient,
    url: String,
    model: String,
}

impl EmbeddingsClient {
    pub(super) fn new(
        url: &ServerUrl,
        model: &str,
        api_key: Option<&Secret<String>>,
    ) -> Result<Self, InvalidEndpoint> {
        let header = api_key.map(|key| format!("Bearer {}", key.reveal()));
        let headers = header.iter().map(|value| ("authorization", value.as_str()));
        let client = PostClient::new(HttpEndpoint::new(url.as_str(), headers)?, MAX_RESPONSE);
        Ok(Self { client, url: url.as_str().to_owned(), model: model.to_owned() })
    }

    /// The address without secrets.
    pub(super) fn redacted_url(&self) -> String {
        redact_url(&self.url).to_string()
    }

    pub(super) async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EncoderError> {
        let body = self.client.post("application/json", request_body(&self.model, texts)).await?;
        let count = texts.len();
        Ok(run_blocking(move || parse_response(&body, count)).await?)
    }
}
