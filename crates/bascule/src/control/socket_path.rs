//! The paths of a bridge's control socket, token and lock: one set for each configuration file.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bascule_model::Secret;
use rustix::fs::{FlockOperation, flock};

use crate::config::canonical_entry;

/// The control socket of the bridge that serves one configuration file.
#[derive(Debug, Clone)]
pub(crate) struct SocketPath {
    pub(crate) config: PathBuf,
    /// The path of the three files without their extension.
    stem: PathBuf,
}

impl SocketPath {
    /// Fails if the folder of the file does not exist, or the user has neither a runtime folder nor a home. The file itself
    /// may be gone.
    pub(crate) fn new(config: &Path) -> io::Result<Self> {
        let config = config.canonicalize().or_else(|_| canonical_target(config, MAX_LINKS))?;
        let folder = folder().ok_or_else(|| io::Error::other("neither XDG_RUNTIME_DIR nor HOME is set"))?;
        let stem = folder.join(format!("{:016x}", config_hash(&config)));
        Ok(Self { config, stem })
    }

    /// Takes the lock, unless another bridge has it. Closing the file releases it, and so does the end of the process.
    pub(super) fn lock(&self) -> io::Result<fs::File> {
        self.create_folder()?;
        let mut options = fs::OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(self.lock_file())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Returns true if a bridge has the lock.
    pub(crate) fn is_locked(&self) -> bool {
        let lock = fs::File::open(self.lock_file());
        lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
    }

    /// Called before any server starts: a sandbox could grant the path while the folder does not exist.
    fn create_folder(&self) -> io::Result<()> {
        let folder = self.stem.parent().expect("the stem is in a folder");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.stem.with_extension("sock")
    }

    /// Reads the token of the bridge that runs here, or ran last.
    pub(super) fn read_token(&self) -> io::Result<String> {
        fs::read_to_string(self.token_file())
    }

    /// Writes a new token that only this user can read.
    pub(super) fn write_token(&self, token: &Secret<String>) -> io::Result<()> {
        self.create_folder()?;
        let _ = fs::remove_file(self.token_file());
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.token_file())?;
        file.write_all(token.reveal().as_bytes())
    }

    /// Removes the socket and the token.
    pub(super) fn remove_files(&self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_file(self.token_file());
    }

    fn token_file(&self) -> PathBuf {
        self.stem.with_extension("token")
    }

    fn lock_file(&self) -> PathBuf {
        self.stem.with_extension("lock")
    }
}

/// The most links that are followed to a file that is gone.
const MAX_LINKS: u32 = 40;

/// Returns the canonical path that a file had before it was removed. The path may be a link to it.
fn canonical_target(path: &Path, max_links: u32) -> io::Result<PathBuf> {
    let entry = canonical_entry(path)?;
    match fs::read_link(&entry) {
        Ok(target) if max_links > 0 => {
            let folder = entry.parent().expect("the entry is in a folder");
            canonical_target(&folder.join(target), max_links - 1)
        }
        _ => Ok(entry),
    }
}

/// No sandbox grants access to either folder.
fn folder() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let runtime = absolute("XDG_RUNTIME_DIR").map(|folder| folder.join("bascule"));
    runtime.or_else(|| absolute("HOME").map(|home| home.join(".local/share/bascule/run")))
}

/// Names the files of a configuration, given by its canonical path.
pub(crate) fn config_hash(config: &Path) -> u64 {
    fnv1a(config.as_os_str().as_encoded_bytes())
}

/// FNV-1a: short, equal in every build, and a collision gains nothing.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: US-01
    #[test]
    fn file_keeps_its_canonical_path_after_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, folder_link] =
            ["mcp.json", "link.json", "folder"].map(|name| folder.path().join(name));
        fs::write(&file, "{}").unwrap();
        std::os::unix::fs::symlink("mcp.json", &link).unwrap();
        std::os::unix::fs::symlink(".", &folder_link).unwrap();
        let paths = [&file, &link, &folder_link.join("mcp.json"), &folder_link.join("link.json")];
        let before = file.canonicalize().unwrap();
        fs::remove_file(&file).unwrap();
        for path in paths {
            assert_eq!(canonical_target(path, MAX_LINKS).unwrap(), before, "{}", path.display());
        }
        assert!(canonical_target(&folder.path().join("none/mcp.json"), MAX_LINKS).is_err());
    }
}
