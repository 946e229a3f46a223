//! Remembers the configuration files of working folders that the user trusts: one record for each path.
//!
//! The path is that of the entry, not of the target of a link: relative paths in the file start at the entry's folder.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::config::{ConfigError, ConfigLocation, ConfigOrigin, LoadedConfig, TrustSummary, canonical_entry};
use crate::hexadecimal::sha256;
use crate::private_file;

/// A summary is at most a few times larger than its file.
const MAX_BYTES: u64 = 128 << 20;

/// A trusted file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustRecord {
    /// The path of the file, for listings. The name of the record identifies the file.
    pub(crate) file: String,
    pub(crate) summary: TrustSummary,
}

/// Fails if the file was found in the working folder, and does anything that the user has not trusted.
pub(crate) fn check(location: &ConfigLocation, loaded: &LoadedConfig) -> Result<(), ConfigError> {
    if location.origin != ConfigOrigin::WorkingFolder {
        return Ok(());
    }
    let record = read(&location.path);
    let is_known = record.is_some();
    let trusted = record.map(|record| record.summary).unwrap_or_default();
    let changes = loaded.summary.describe_beyond(&trusted);
    match changes.is_empty() {
        true => Ok(()),
        false => Err(ConfigError::NotTrusted { path: location.path.clone(), is_known, changes }),
    }
}

/// Returns the record of a file. A record that others may have written is ignored.
pub(crate) fn read(file: &Path) -> Option<TrustRecord> {
    let path = record_path(file).ok()?;
    match read_record(&path) {
        Ok(record) => Some(record),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            warn!("could not read the trust in `{}`: {error}", file.display());
            None
        }
    }
}

/// Records that the user trusts a file with this summary.
pub(crate) fn record(file: &Path, summary: &TrustSummary) -> io::Result<PathBuf> {
    let entry = canonical_entry(file)?;
    let record = TrustRecord { file: entry.to_string_lossy().into_owned(), summary: summary.clone() };
    let path = record_path(file)?;
    let new = private_file::write_beside(&path, &serde_json::to_string(&record)?)?;
    fs::rename(new, &path)?;
    Ok(entry)
}

/// Forgets a file, which need not exist. Returns false if it was not trusted.
pub(crate) fn remove(file: &Path) -> io::Result<bool> {
    match fs::remove_file(record_path(file)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns all records, in the order of their files.
pub(crate) fn list() -> io::Result<Vec<TrustRecord>> {
    let entries = fs::read_dir(private_file::folder("trust")?)?.flatten();
    let paths =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|own| own == "json"));
    let mut records: Vec<TrustRecord> = paths.filter_map(|path| read_record(&path).ok()).collect();
    records.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(records)
}

/// Returns the path of a file's record, whose name depends on all bytes of the file's path.
pub(crate) fn record_path(file: &Path) -> io::Result<PathBuf> {
    // A folder that no longer exists has no links either.
    let entry = canonical_entry(file).or_else(|_| std::path::absolute(file))?;
    let name = sha256(entry.as_os_str().as_bytes());
    Ok(private_file::folder("trust")?.join(format!("{name}.json")))
}

fn read_record(path: &Path) -> io::Result<TrustRecord> {
    let text = private_file::read(path, MAX_BYTES)?;
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
