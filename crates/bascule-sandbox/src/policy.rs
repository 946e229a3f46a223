//! What a confined process may do, in one value that crosses to the jail as JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A policy, complete: the jail adds nothing of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Which files.
    pub files: Files,
    /// Whether it may open sockets.
    pub network: bool,
    /// Whether it is kept from system calls that no tool server needs, and from the capabilities behind them.
    pub harden: bool,
    /// How many files each of its processes may hold open.
    pub open_files: Option<u64>,
}

/// Which files a process may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Files {
    /// Whatever the user may.
    All,
    /// Everything may be read and run, except `secrets` and what is below them; written, only below `write`.
    AllBut {
        /// What nobody but the user should read.
        secrets: Vec<PathBuf>,
        /// Where it may write.
        write: Vec<PathBuf>,
    },
    /// Only these.
    Listed {
        /// What it may read and run.
        read: Vec<PathBuf>,
        /// What it may also write.
        write: Vec<PathBuf>,
    },
}

impl Policy {
    /// No confinement at all, but for the reaper.
    pub fn off() -> Self {
        Self { files: Files::All, network: true, harden: false, open_files: None }
    }

    /// What nearly every server can live with. `write` is what this server may write besides the temporary
    /// folder and the caches of the usual package managers.
    pub fn standard(home: Option<&Path>, write: Vec<PathBuf>) -> Self {
        let mut write = write;
        write.extend(scratch());
        write.extend(home.into_iter().flat_map(caches));
        let secrets = home.into_iter().flat_map(secrets).chain(runtime_folder()).collect();
        let files = Files::AllBut { secrets, write };
        Self { files, network: true, harden: true, open_files: None }
    }

    /// Nothing but system libraries, the interpreter and what is listed; no network.
    pub fn strict(program: &Path, read: Vec<PathBuf>, write: Vec<PathBuf>) -> Self {
        let mut read = read;
        read.extend(SYSTEM.iter().map(PathBuf::from));
        read.extend(interpreter(program));
        let files = Files::Listed { read, write };
        Self { files, network: false, harden: true, open_files: None }
    }
}

/// What programs need to run at all.
const SYSTEM: [&str; 14] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/nsswitch.conf",
    "/proc/self",
    "/sys/devices/system/cpu",
];

/// Below the home folder: keys, tokens, and what browsers remember. Bascule's own files are among them.
const SECRETS: [&str; 24] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".password-store",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/bascule",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".mozilla",
    ".thunderbird",
    ".local/share/keyrings",
    ".local/share/bascule",
    ".vault-token",
    "Library/Keychains",
];

/// Below the home folder: where package managers keep what they fetched.
const CACHES: [&str; 6] = [".npm", ".cache", ".local/share/uv", ".local/state", ".bun", ".deno"];

fn secrets(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|name| home.join(name)).collect()
}

/// Where a running bridge keeps what its own commands need to reach it.
fn runtime_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(folder.join("bascule"))
}

fn caches(home: &Path) -> Vec<PathBuf> {
    CACHES.iter().map(|name| home.join(name)).collect()
}

fn scratch() -> Vec<PathBuf> {
    vec![std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]
}

/// The folder that a program was installed into: beside its `bin` are its libraries.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let folder = real.parent()?;
    let installed = if folder.ends_with("bin") { folder.parent()? } else { folder };
    // A program at the top of the tree must not open the whole of it.
    (installed.components().count() > 1).then(|| installed.to_path_buf())
}
