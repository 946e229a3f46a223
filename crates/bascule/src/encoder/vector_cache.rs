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
use tracing::{debug, warn};

use crate::{launch, private_file};

const VERSION: u32 = 1;
/// Beyond this number, the vectors that were not used for longest are forgotten.
const MAX_VECTORS: usize = 10_000;
/// A longer file is neither read nor written.
const MAX_BYTES: u64 = 128 << 20;
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
        Self { path, is_open: false, is_changed: false, vectors: HashMap::new(), uses: 0 }
    }

    /// Reads the file, once.
    pub(crate) fn open(&mut self) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        let path = &self.path;
        let found = path.parent().map_or(Ok(()), launch::create_private).and_then(|()| read_file(path));
        match found {
            Ok(vectors) => {
                for (key, values) in vectors {
                    self.put(key, values, true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!("ignoring the vectors in `{}`: {error}", path.display()),
        }
    }

    /// Returns the vector of a text, and marks it as used.
    pub(crate) fn get(&mut self, text: &str) -> Option<Embedding> {
        self.uses += 1;
        let vector = self.vectors.get_mut(&TextKey::new(text))?;
        vector.last_use = self.uses;
        Some(Embedding::new(vector.values.iter().map(|value| f32::from(*value)).collect()))
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.vectors.contains_key(&TextKey::new(text))
    }

    /// Adds the vector of a text; `is_written` adds it to the file. If its size differs from that of the others, all are forgotten.
    pub(crate) fn insert(&mut self, text: &str, vector: &[f32], is_written: bool) -> Result<(), WrongSize> {
        let known = self.vectors.values().next().map(|known| known.values.len());
        if let Some(expected) = known.filter(|expected| *expected != vector.len()) {
            self.vectors.clear();
            self.is_changed = true;
            return Err(WrongSize { found: vector.len(), expected });
        }
        self.put(TextKey::new(text), quantised(vector), is_written);
        self.is_changed |= is_written;
        Ok(())
    }

    fn put(&mut self, key: TextKey, values: Vec<i8>, is_written: bool) {
        self.uses += 1;
        self.vectors.insert(key, CachedVector { values, last_use: self.uses, is_written });
        if self.vectors.len() > MAX_VECTORS {
            self.forget_oldest();
        }
    }

    /// Forgets a tenth, so that this is rare.
    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.vectors.values().map(|vector| vector.last_use).collect();
        uses.sort_unstable();
        let first_kept = uses[MAX_VECTORS / 10];
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
        let file = CacheFile { version: VERSION, vectors: kept.iter().map(line).collect() };
        let text = serde_json::to_string(&file)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("they are too many"));
        }
        fs::rename(private_file::write_beside(&self.path, &text)?, &self.path)
    }
}

fn read_file(path: &Path) -> io::Result<Vec<(TextKey, Vec<i8>)>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
    let text = private_file::read(path, MAX_BYTES)?;
    let file: CacheFile = serde_json::from_str(&text).map_err(|_| damaged())?;
    let parse = |(key, values): &(String, String)| {
        let key = TextKey(bytes(key)?.try_into().ok()?);
        Some((key, bytes(values)?.into_iter().map(u8::cast_signed).collect::<Vec<i8>>()))
    };
    let vectors: Option<Vec<_>> = file.vectors.iter().map(parse).collect();
    let vectors = vectors.filter(|_| file.version == VERSION).ok_or_else(damaged)?;
    let has_one_size = vectors.windows(2).all(|pair| pair[0].1.len() == pair[1].1.len());
    if has_one_size { Ok(vectors) } else { Err(damaged()) }
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

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
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
        cache.open();
        cache
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
