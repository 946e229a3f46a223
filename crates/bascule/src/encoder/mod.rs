//! Embeds texts for search: with an endpoint that speaks the protocol of OpenAI, or with a model from a folder.
//!
//! `endpoint` and `local_model` make vectors, `vector_cache` keeps those of tools on disk. An encoder that fails is not asked again
//! for a while; searches use the built-in one then. Only searches wait for an encoder, and only for a bounded time.

mod endpoint;
#[cfg(feature = "local-model")]
mod local_model;
mod protocol;
mod vector_cache;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bascule_mcp::{InvalidEndpoint, TransportError};
use bascule_search::Embedding;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::blocking::run_blocking;
use crate::config::{EncoderSettings, EncoderSource};
use endpoint::EmbeddingsClient;
#[cfg(feature = "local-model")]
use local_model::{LocalModel, LocalModelError};
use protocol::InvalidResponse;
use vector_cache::{VectorCache, WrongSize};

/// An encoder that failed is not asked again for this time.
const PAUSE: Duration = Duration::from_secs(60);

/// A source of vectors, and the vectors that it has returned.
pub(crate) struct Encoder {
    settings: EncoderSettings,
    source: VectorSource,
    cache: Arc<Mutex<VectorCache>>,
    /// One search at a time asks the source: the next one finds the vectors of the first.
    asking: Arc<Semaphore>,
    /// A search has stopped waiting for the work of a local model, which goes on.
    is_late: AtomicBool,
    /// The end of the pause after a failure.
    paused_until: Mutex<Option<Instant>>,
}

enum VectorSource {
    Endpoint(Box<EmbeddingsClient>),
    #[cfg(feature = "local-model")]
    Model(LocalModel),
}

/// The vectors of the texts of tools, and of intents.
type EmbeddedTexts = (Vec<Embedding>, Vec<Embedding>);

/// Writes the vectors of a search that has stopped waiting, on another thread. `None`: they are written.
struct UnsavedVectors(Option<Arc<Mutex<VectorCache>>>);

impl Drop for UnsavedVectors {
    fn drop(&mut self) {
        if let (Some(cache), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            drop(runtime.spawn_blocking(move || cache.lock().unwrap_or_else(PoisonError::into_inner).save()));
        }
    }
}

/// The reason why an encoder has no vectors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncoderError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Response(#[from] InvalidResponse),
    #[cfg(feature = "local-model")]
    #[error(transparent)]
    Model(#[from] LocalModelError),
    #[error(transparent)]
    Size(#[from] WrongSize),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl VectorSource {
    /// The number of texts that are embedded at once.
    fn batch(&self) -> usize {
        match self {
            Self::Endpoint(_) => 64,
            #[cfg(feature = "local-model")]
            Self::Model(_) => 16,
        }
    }

    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EncoderError> {
        match self {
            Self::Endpoint(endpoint) => endpoint.embed(texts).await,
            #[cfg(feature = "local-model")]
            Self::Model(model) => Ok(model.embed(texts.to_vec()).await?),
        }
    }

    /// A name for messages.
    fn name(&self) -> String {
        match self {
            Self::Endpoint(endpoint) => format!("the one at `{}`", endpoint.redacted_url()),
            #[cfg(feature = "local-model")]
            Self::Model(model) => format!("the model in `{}`", model.folder().display()),
        }
    }
}

impl Encoder {
    /// Looks at the files of a model, but does not read them.
    pub(crate) fn new(settings: EncoderSettings) -> Result<Self, InvalidEndpoint> {
        let (source, cache) = match &settings.source {
            EncoderSource::Endpoint { url, model, api_key } => {
                let endpoint = EmbeddingsClient::new(url, model, api_key.as_ref())?;
                (VectorSource::Endpoint(Box::new(endpoint)), VectorCache::new(url.as_str(), model))
            }
            #[cfg(feature = "local-model")]
            EncoderSource::Folder(folder) => {
                let model = LocalModel::new(folder.clone());
                let cache = VectorCache::new(&folder.to_string_lossy(), &model.version());
                (VectorSource::Model(model), cache)
            }
            #[cfg(not(feature = "local-model"))]
            EncoderSource::Folder(_) => unreachable!("the configuration has refused the folder"),
        };
        Ok(Self {
            source,
            cache: Arc::new(Mutex::new(cache)),
            asking: Arc::new(Semaphore::new(1)),
            is_late: AtomicBool::new(false),
            paused_until: Mutex::default(),
            settings,
        })
    }

    pub(crate) fn settings(&self) -> &EncoderSettings {
        &self.settings
    }

    /// Returns the vectors of the texts of tools and of intents. `None` if the encoder fails, which is logged once a failure.
    pub(crate) async fn embed(
        self: &Arc<Self>,
        tools: Vec<String>,
        intents: Vec<String>,
    ) -> Option<EmbeddedTexts> {
        let is_paused = self.pause().is_some_and(|until| Instant::now() < until);
        if is_paused || self.is_late() {
            return None;
        }
        let limit = self.settings.timeout;
        // A search that waits too long for another one says nothing about the encoder.
        let asking = timeout(limit, self.asking.clone().acquire_owned()).await.ok()?;
        let asking = asking.expect("the semaphore is never closed");
        match self.embed_in_time(tools, intents, asking).await {
            Ok(embedded) => {
                *self.pause() = None;
                embedded
            }
            Err(error) => {
                self.start_pause(&error);
                None
            }
        }
    }

    /// Embeds texts until the time limit. An endpoint is then given up. A local model needs a while for many tools: it goes on, and
    /// searches do not wait for it until it has ended.
    async fn embed_in_time(
        self: &Arc<Self>,
        tools: Vec<String>,
        intents: Vec<String>,
        asking: OwnedSemaphorePermit,
    ) -> Result<Option<EmbeddedTexts>, EncoderError> {
        let (encoder, limit) = (self.clone(), self.settings.timeout);
        let mut work = AbortOnDropHandle::new(tokio::spawn(async move {
            let _asking = asking;
            encoder.embed_all(tools, intents).await
        }));
        match timeout(limit, &mut work).await {
            Ok(Ok(embedded)) => embedded.map(Some),
            Ok(Err(failed)) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(None),
            },
            Err(_) if matches!(self.source, VectorSource::Endpoint(_)) => Err(EncoderError::Timeout(limit)),
            Err(_) => {
                self.is_late.store(true, Ordering::Relaxed);
                warn!("search uses the built-in encoder until {} has embedded all tools", self.source.name());
                // The work is bounded: so many tools. It holds this encoder and the permit.
                drop(work.detach());
                Ok(None)
            }
        }
    }

    /// Returns true while the work goes on that a search has stopped waiting for.
    fn is_late(&self) -> bool {
        if self.asking.available_permits() > 0 {
            self.is_late.store(false, Ordering::Relaxed);
        }
        self.is_late.load(Ordering::Relaxed)
    }

    /// Warns at the first failure of a series.
    fn start_pause(&self, error: &EncoderError) {
        let is_first = self.pause().replace(Instant::now() + PAUSE).is_none();
        if is_first {
            warn!("search uses the built-in encoder, because {} failed: {error}", self.source.name());
        }
    }

    async fn embed_all(
        &self,
        tools: Vec<String>,
        intents: Vec<String>,
    ) -> Result<EmbeddedTexts, EncoderError> {
        let tools = self.vectors_of(tools, true).await?;
        Ok((tools, self.vectors_of(intents, false).await?))
    }

    /// Returns the vectors of texts in their order: those in the cache, and the others from the source. The file is written once,
    /// also if a batch fails or the search stops waiting.
    async fn vectors_of(&self, texts: Vec<String>, is_written: bool) -> Result<Vec<Embedding>, EncoderError> {
        let (texts, mut vectors) = self
            .with_cache(move |cache| {
                cache.open(texts.len());
                let known: Vec<_> = texts.iter().map(|text| cache.get(text)).collect();
                (texts, known)
            })
            .await;
        let missing: Vec<usize> = (0..texts.len()).filter(|at| vectors[*at].is_none()).collect();
        let mut unsaved = UnsavedVectors(Some(self.cache.clone()));
        let fetched = self.fetch(&texts, &missing, &mut vectors, is_written).await;
        self.with_cache(VectorCache::save).await;
        unsaved.0 = None;
        fetched?;
        Ok(vectors.into_iter().flatten().collect())
    }

    /// Makes the missing vectors. Those of earlier batches stay in the cache if a later one fails.
    async fn fetch(
        &self,
        texts: &[String],
        missing: &[usize],
        vectors: &mut [Option<Embedding>],
        is_written: bool,
    ) -> Result<(), EncoderError> {
        for batch in missing.chunks(self.source.batch()) {
            let batch_texts: Vec<String> = batch.iter().map(|at| texts[*at].clone()).collect();
            let made = self.source.embed(&batch_texts).await?;
            let insert = move |cache: &mut VectorCache| {
                let pairs = batch_texts.iter().zip(&made);
                pairs
                    .map(|(text, vector)| cache.insert(text, vector, is_written))
                    .collect::<Result<Vec<_>, _>>()
            };
            for (at, vector) in batch.iter().zip(self.with_cache(insert).await?) {
                vectors[*at] = Some(vector);
            }
        }
        Ok(())
    }

    /// Hashing and files take long, so they run on another thread.
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
