//! Where a bridge's socket and token are: one pair for each configuration file.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The place of the bridge that serves one configuration file.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) config: PathBuf,
    stem: PathBuf,
}

impl Place {
    /// Where it is, or would be. Fails only where a user has neither a runtime folder nor a home.
    pub(crate) fn of(config: &Path) -> io::Result<Self> {
        let config = config.canonicalize()?;
        let folder = folder().ok_or_else(|| io::Error::other("neither XDG_RUNTIME_DIR nor HOME is set"))?;
        let stem = folder.join(format!("{:016x}", digest(config.as_os_str().as_encoded_bytes())));
        Ok(Self { config, stem })
    }

    /// Takes the place, unless another bridge has it. It is given back when what comes back is dropped, however that
    /// happens.
    pub(super) fn take(&self) -> io::Result<fs::File> {
        self.make_folder()?;
        let mut options = fs::OpenOptions::new();
        let lock = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.stem.with_extension("lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Whether a bridge has it.
    pub(crate) fn is_taken(&self) -> bool {
        let lock = fs::File::open(self.stem.with_extension("lock"));
        lock.is_ok_and(|lock| {
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
        })
    }

    /// Made before any server is started: what is not there yet might be taken for an ordinary folder.
    fn make_folder(&self) -> io::Result<()> {
        let folder = self.stem.parent().expect("it is below a folder");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.stem.with_extension("sock")
    }

    /// The token of the bridge that runs here, if one does or did.
    pub(super) fn token(&self) -> io::Result<String> {
        fs::read_to_string(self.token_file())
    }

    /// Writes a new token, readable by this user alone.
    pub(super) fn leave_token(&self, token: &str) -> io::Result<()> {
        self.make_folder()?;
        let _ = fs::remove_file(self.token_file());
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.token_file())?;
        file.write_all(token.as_bytes())
    }

    /// Takes both away.
    pub(super) fn clear(&self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_file(self.token_file());
    }

    fn token_file(&self) -> PathBuf {
        self.stem.with_extension("token")
    }
}

/// Both are among what the sandbox lets nobody read.
fn folder() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let runtime = absolute("XDG_RUNTIME_DIR").map(|folder| folder.join("bascule"));
    runtime.or_else(|| absolute("HOME").map(|home| home.join(".local/share/bascule/run")))
}

/// FNV-1a: short, the same in every build, and nobody gains by a collision.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
