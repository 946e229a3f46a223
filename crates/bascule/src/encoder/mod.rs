//! Embeds texts for search with an endpoint that speaks the protocol of OpenAI.
//!
//! `protocol` has the messages, `vector_cache` keeps the vectors of tools on disk. An endpoint that fails is not asked again for a
//! while; searches use the built-in encoder then. Only searches wait for it, and only for a bounded time.

mod protocol;
mod vector_cache;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bascule_mcp::{HttpEndpoint, InvalidEndpoint, PostClient, TransportError, redact_url};
use bascule_search::Embedding;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::blocking::run_blocking;
use crate::config::EncoderSettings;
use protocol::{InvalidResponse, parse_response, request_body};
use vector_cache::{VectorCache, WrongSize};

/// The texts of one request.
const BATCH: usize = 64;
/// The size limit of a response.
const MAX_RESPONSE: usize = 16 << 20;
/// An endpoint that failed is not asked again for this time.
const PAUSE: Duration = Duration::from_secs(60);

/// An endpoint and the vectors that it has returned.
pub(crate) struct Encoder {
    settings: EncoderSettings,
    client: PostClient,
    cache: Arc<Mutex<VectorCache>>,
    /// One search at a time asks the endpoint: the next one finds the vectors of the first.
    asking: Semaphore,
    /// The end of the pause after a failure.
    paused_until: Mutex<Option<Instant>>,
}

/// The reason why an encoder has no vectors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncoderError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Response(#[from] InvalidResponse),
    #[error(transparent)]
    Size(#[from] WrongSize),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl Encoder {
    pub(crate) fn new(settings: EncoderSettings) -> Result<Self, InvalidEndpoint> {
        let header = settings.api_key.as_ref().map(|key| format!("Bearer {}", key.reveal()));
        let headers = header.iter().map(|value| ("authorization", value.as_str()));
        let endpoint = HttpEndpoint::new(settings.url.as_str(), headers)?;
        let cache = VectorCache::new(settings.url.as_str(), &settings.model);
        Ok(Self {
            client: PostClient::new(endpoint, MAX_RESPONSE),
            cache: Arc::new(Mutex::new(cache)),
            asking: Semaphore::new(1),
            paused_until: Mutex::default(),
            settings,
        })
    }

    pub(crate) fn settings(&self) -> &EncoderSettings {
        &self.settings
    }

    /// Returns the vectors of the texts of tools and of intents. `None` if the endpoint fails, which is logged once a failure.
    pub(crate) async fn embed(
        &self,
        tools: Vec<String>,
        intents: Vec<String>,
    ) -> Option<(Vec<Embedding>, Vec<Embedding>)> {
        if self.pause().is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let limit = self.settings.timeout;
        // A search that waits too long for another one says nothing about the endpoint.
        let asking = timeout(limit, self.asking.acquire()).await.ok()?;
        let _asking = asking.expect("the semaphore is never closed");
        let embedded = timeout(limit, self.embed_all(tools, intents)).await;
        match embedded.unwrap_or(Err(EncoderError::Timeout(limit))) {
            Ok(embedded) => {
                *self.pause() = None;
                Some(embedded)
            }
            Err(error) => {
                self.start_pause(&error);
                None
            }
        }
    }

    /// Warns at the first failure of a series.
    fn start_pause(&self, error: &EncoderError) {
        let is_first = self.pause().replace(Instant::now() + PAUSE).is_none();
        if is_first {
            let url = redact_url(self.settings.url.as_str());
            warn!("search uses the built-in encoder, because the one at `{url}` failed: {error}");
        }
    }

    async fn embed_all(
        &self,
        tools: Vec<String>,
        intents: Vec<String>,
    ) -> Result<(Vec<Embedding>, Vec<Embedding>), EncoderError> {
        let (tools, intents) = (Arc::new(tools), Arc::new(intents));
        self.fetch_missing(&tools, true).await?;
        self.fetch_missing(&intents, false).await?;
        self.with_cache(move |cache| {
            let vectors = |cache: &mut VectorCache, texts: &[String]| {
                texts.iter().map(|text| cache.get(text).unwrap_or_default()).collect()
            };
            Ok((vectors(cache, &tools), vectors(cache, &intents)))
        })
        .await
    }

    /// Asks for the vectors that are not in the cache. Those of finished requests stay there if a later one fails.
    async fn fetch_missing(&self, texts: &Arc<Vec<String>>, is_written: bool) -> Result<(), EncoderError> {
        let all = texts.clone();
        let missing = self.with_cache(move |cache| {
            cache.open();
            all.iter().filter(|text| !cache.has(text)).cloned().collect::<Vec<_>>()
        });
        let missing = missing.await;
        let mut fetched = Ok(());
        for batch in missing.chunks(BATCH) {
            fetched = self.fetch(batch.to_vec(), is_written).await;
            if fetched.is_err() {
                break;
            }
        }
        self.with_cache(VectorCache::save).await;
        fetched
    }

    async fn fetch(&self, texts: Vec<String>, is_written: bool) -> Result<(), EncoderError> {
        let body = self.client.post("application/json", request_body(&self.settings.model, &texts)).await?;
        self.with_cache(move |cache| {
            for (text, vector) in texts.iter().zip(parse_response(&body, texts.len())?) {
                cache.insert(text, &vector, is_written)?;
            }
            Ok(())
        })
        .await
    }

    /// Parsing, hashing and files take long, so they run on another thread.
    async fn with_cache<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut VectorCache) -> T + Send + 'static,
    ) -> T {
        let cache = self.cache.clone();
        run_blocking(move || work(&mut cache.lock().unwrap_or_else(PoisonError::into_inner))).await
    }

    fn pause(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paused_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
