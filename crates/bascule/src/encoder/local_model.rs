//! Embeds texts with a model from a folder. The model is read at the first search and stays in memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use bascule_search::{ModelError, ModelFiles, SentenceModel};

use crate::blocking::run_blocking;

const WEIGHTS: &str = "model.safetensors";
/// Larger files are not read.
const MAX_WEIGHTS: u64 = 2 << 30;
const MAX_TEXT: u64 = 64 << 20;

pub(super) struct LocalModel {
    folder: PathBuf,
    loaded: Arc<Mutex<Option<Arc<SentenceModel>>>>,
}

/// The folder has no model that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalModelError {
    #[error("could not read `{file}`: {source}")]
    Read { file: String, source: io::Error },
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl LocalModel {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, loaded: Arc::default() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Distinguishes the vectors of this model from those of one that was in the folder before.
    pub(super) fn version(&self) -> String {
        let written = fs::metadata(self.folder.join(WEIGHTS)).ok().and_then(|file| {
            let time = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(format!("{} {}", file.len(), time.as_nanos()))
        });
        written.unwrap_or_default()
    }

    /// Returns the vectors of texts. Reading the model and computing run on another thread.
    pub(super) async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, LocalModelError> {
        let (folder, loaded) = (self.folder.clone(), self.loaded.clone());
        run_blocking(move || {
            let model = load_once(&folder, &loaded)?;
            Ok(texts.iter().map(|text| model.embed(text).values().to_vec()).collect())
        })
        .await
    }
}

fn load_once(
    folder: &Path,
    loaded: &Mutex<Option<Arc<SentenceModel>>>,
) -> Result<Arc<SentenceModel>, LocalModelError> {
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(model) = &*loaded {
        return Ok(model.clone());
    }
    let model = Arc::new(SentenceModel::new(&read_files(folder)?)?);
    Ok(loaded.insert(model).clone())
}

fn read_files(folder: &Path) -> Result<ModelFiles, LocalModelError> {
    let text = |name: &str| match read_file(&folder.join(name), MAX_TEXT).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Some(text)),
        Ok(Err(_)) => Err(read_error(&folder.join(name), io::ErrorKind::InvalidData.into())),
        Err(LocalModelError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let missing = || read_error(&folder.join("config.json"), io::ErrorKind::NotFound.into());
    Ok(ModelFiles {
        config: text("config.json")?.ok_or_else(missing)?,
        tokenizer: text("tokenizer.json")?,
        vocabulary: text("vocab.txt")?,
        weights: read_file(&folder.join(WEIGHTS), MAX_WEIGHTS)?,
        pooling: text("1_Pooling/config.json")?,
        sentences: text("sentence_bert_config.json")?,
    })
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, LocalModelError> {
    let read = || -> io::Result<Vec<u8>> {
        let (file, mut bytes) = (File::open(path)?, Vec::new());
        // One byte more tells that there is more.
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::other(format!("it has more than {limit} bytes")));
        }
        Ok(bytes)
    };
    read().map_err(|source| read_error(path, source))
}

fn read_error(path: &Path, source: io::Error) -> LocalModelError {
    LocalModelError::Read { file: path.display().to_string(), source }
}
