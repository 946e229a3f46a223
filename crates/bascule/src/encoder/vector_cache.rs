//! The vectors of texts by the hashes of the texts, in memory and, those of tools, in a private file for each endpoint and model.
//!
//! The file is only a memory: one that is damaged is ignored and replaced. Intents are not written.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bascule_search::Embedding;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::hexadecimal::hexadecimal;
use crate::{launch, private_file};

const VERSION: u32 = 1;
/// Beyond this number, the vectors that were not used for longest are forgotten, unless one search needs more.
const MAX_VECTORS: usize = 10_000;
/// A longer file is neither read nor written.
const MAX_BYTES: u64 = 128 << 20;
/// The bytes of a line beside its texts, and of the file beside its lines.
const LINE_OVERHEAD: usize = 8;
const FILE_OVERHEAD: usize = 100;
/// The largest number of a vector in eight bits.
const LARGEST: f32 = 127.0;

/// The hash of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TextKey([u8; 32]);

/// The vectors of an endpoint have another size than before.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the vectors have {found} numbers, and earlier ones {expected}")]
pub(crate) struct WrongSize {
    found: usize,
    expected: usize,
}

pub(crate) struct VectorCache {
    path: PathBuf,
    is_open: bool,
    is_changed: bool,
    vectors: HashMap<TextKey, CachedVector>,
    /// The most vectors.
    room: usize,
    /// Grows with each use of a vector.
    uses: u64,
}

struct CachedVector {
    values: Vec<i8>,
    last_use: u64,
    is_written: bool,
}

#[derive(Serialize, Deserialize)]
struct CacheFile {
    version: u32,
    /// Hashes and values as hexadecimal digits, those last used at the end.
    vectors: Vec<(String, String)>,
}

impl TextKey {
    fn new(text: &str) -> Self {
        Self(digest([text]))
    }
}

impl VectorCache {
    /// `url` and `model` choose the file.
    pub(crate) fn new(url: &str, model: &str) -> Self {
        let name = hexadecimal(&digest([url, model])[..16]);
        let path = launch::data_folder().join("bascule/vectors").join(name).with_extension("json");
        Self::at(path)
    }

    fn at(path: PathBuf) -> Self {
        Self { path, is_open: false, is_changed: false, vectors: HashMap::new(), room: MAX_VECTORS, uses: 0 }
    }

    /// Makes room for all texts of one search, and reads the file, once.
    pub(crate) fn open(&mut self, texts: usize) {
        // A tenth more: so many are forgotten at once when there is no room.
        self.room = self.room.max(texts + texts / 10 + 1);
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        let path = &self.path;
        let found = path.parent().map_or(Ok(()), launch::create_private).and_then(|()| read_file(path));
        let vectors = private_file::ignore_unusable(found, "the vectors", path).unwrap_or_default();
        vectors.into_iter().for_each(|(key, values)| self.put(key, values, true));
    }

    /// Returns the vector of a text, and marks it as used.
    pub(crate) fn get(&mut self, text: &str) -> Option<Embedding> {
        self.uses += 1;
        let vector = self.vectors.get_mut(&TextKey::new(text))?;
        vector.last_use = self.uses;
        Some(vector.embedding())
    }

    #[cfg(test)]
    fn has(&self, text: &str) -> bool {
        self.vectors.contains_key(&TextKey::new(text))
    }

    /// Adds the vector of a text, and returns it as the cache has it; `is_written` adds it to the file. If its size differs from
    /// that of the others, all are forgotten.
    pub(crate) fn insert(
        &mut self,
        text: &str,
        vector: &[f32],
        is_written: bool,
    ) -> Result<Embedding, WrongSize> {
        let known = self.vectors.values().next().map(|known| known.values.len());
        if let Some(expected) = known.filter(|expected| *expected != vector.len()) {
            self.vectors.clear();
            self.is_changed = true;
            return Err(WrongSize { found: vector.len(), expected });
        }
        let values = quantised(vector);
        let embedding = embedding(&values);
        self.put(TextKey::new(text), values, is_written);
        self.is_changed |= is_written;
        Ok(embedding)
    }

    fn put(&mut self, key: TextKey, values: Vec<i8>, is_written: bool) {
        self.uses += 1;
        self.vectors.insert(key, CachedVector { values, last_use: self.uses, is_written });
        if self.vectors.len() > self.room {
            self.forget_oldest();
        }
    }

    /// Forgets a tenth, so that this is rare.
    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.vectors.values().map(|vector| vector.last_use).collect();
        uses.sort_unstable();
        let first_kept = uses[self.room / 10];
        self.vectors.retain(|_, vector| vector.last_use >= first_kept);
    }

    /// Writes the file if a vector of a tool was added.
    pub(crate) fn save(&mut self) {
        if !std::mem::replace(&mut self.is_changed, false) {
            return;
        }
        if let Err(error) = self.write_file() {
            debug!("could not store vectors: {error}");
        }
    }

    fn write_file(&self) -> io::Result<()> {
        let mut kept: Vec<_> = self.vectors.iter().filter(|(_, vector)| vector.is_written).collect();
        kept.sort_by_key(|(_, vector)| vector.last_use);
        let line = |(key, vector): &(&TextKey, &CachedVector)| {
            let bytes: Vec<u8> = vector.values.iter().map(|value| value.cast_unsigned()).collect();
            (hexadecimal(&key.0), hexadecimal(&bytes))
        };
        let mut lines: Vec<_> = kept.iter().map(line).collect();
        // Those last used fit.
        let bytes = lines.first().map_or(1, |(key, values)| key.len() + values.len() + LINE_OVERHEAD);
        let most = (MAX_BYTES as usize - FILE_OVERHEAD) / bytes;
        let file = CacheFile { version: VERSION, vectors: lines.split_off(lines.len().saturating_sub(most)) };
        let text = serde_json::to_string(&file)?;
        fs::rename(private_file::write_beside(&self.path, &text)?, &self.path)
    }
}

fn read_file(path: &Path) -> io::Result<Vec<(TextKey, Vec<i8>)>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
    let file = private_file::read_versioned(path, MAX_BYTES, VERSION, |file: &CacheFile| file.version)?;
    let parse = |(key, values): &(String, String)| {
        let key = TextKey(bytes(key)?.try_into().ok()?);
        Some((key, bytes(values)?.into_iter().map(u8::cast_signed).collect::<Vec<i8>>()))
    };
    let vectors: Option<Vec<_>> = file.vectors.iter().map(parse).collect();
    let vectors = vectors.ok_or_else(damaged)?;
    let has_one_size = vectors.windows(2).all(|pair| pair[0].1.len() == pair[1].1.len());
    if has_one_size { Ok(vectors) } else { Err(damaged()) }
}

impl CachedVector {
    fn embedding(&self) -> Embedding {
        embedding(&self.values)
    }
}

fn embedding(values: &[i8]) -> Embedding {
    Embedding::new(values.iter().map(|value| f32::from(*value)).collect())
}

/// Search compares vectors in eight bits, so no more is kept.
fn quantised(vector: &[f32]) -> Vec<i8> {
    let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let factor = if largest > 0.0 { LARGEST / largest } else { 0.0 };
    vector.iter().map(|value| (value * factor).round() as i8).collect()
}

/// Hashes texts with their lengths.
fn digest<const N: usize>(texts: [&str; N]) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    for text in texts {
        digest.update(&(text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.finish().as_ref());
    hash
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((value(*high)? << 4 | value(*low)?) as u8),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn cache(folder: &tempfile::TempDir) -> VectorCache {
        let mut cache = VectorCache::at(folder.path().join("vectors.json"));
        cache.open(0);
        cache
    }

    // req: SE-01
    #[test]
    fn holds_all_texts_of_one_search() {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, count) = (cache(&folder), MAX_VECTORS + 2_000);
        first.open(count);
        for number in 0..count {
            first.insert(&number.to_string(), &[1.0], true).unwrap();
        }
        first.save();
        let mut again = VectorCache::at(folder.path().join("vectors.json"));
        again.open(count);
        for cache in [&first, &again] {
            assert_eq!((0..count).filter(|number| !cache.has(&number.to_string())).count(), 0);
        }
    }

    // req: SE-01
    #[test]
    fn keeps_vectors_of_tools_in_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = cache(&folder);
        first.insert("tool", &[0.6, -0.8, 0.0], true).unwrap();
        first.insert("intent", &[1.0, 0.0, 0.0], false).unwrap();
        first.save();
        let mut second = cache(&folder);
        assert!(second.get("tool").unwrap().cosine(&Embedding::new(vec![0.6, -0.8, 0.0])) > 0.9999);
        assert!(!second.has("intent"));
        let mode = fs::metadata(folder.path().join("vectors.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    // req: SE-01
    #[test]
    fn ignores_damaged_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.json");
        for text in ["", "{", r#"{"version":2,"vectors":[]}"#, r#"{"version":1,"vectors":[["00","zz"]]}"#] {
            fs::rename(private_file::write_beside(&path, text).unwrap(), &path).unwrap();
            assert!(cache(&folder).vectors.is_empty(), "{text}");
        }
    }

    // req: SE-01
    #[test]
    fn forgets_all_vectors_of_another_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = cache(&folder);
        cache.insert("a", &[1.0, 0.0], true).unwrap();
        assert_eq!(cache.insert("b", &[1.0], true), Err(WrongSize { found: 1, expected: 2 }));
        assert!(!cache.has("a"));
        cache.insert("b", &[1.0], true).unwrap();
    }

    // req: SE-01
    #[test]
    fn forgets_least_recently_used_vectors() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = cache(&folder);
        for number in 0..MAX_VECTORS {
            cache.insert(&number.to_string(), &[1.0], true).unwrap();
        }
        cache.get("0").unwrap();
        cache.insert("new", &[1.0], true).unwrap();
        assert!(cache.vectors.len() <= MAX_VECTORS);
        assert!(cache.has("0") && cache.has("new") && !cache.has("1"));
    }
}
