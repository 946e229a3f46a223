//! Lists the secrets of a home: paths that no sandbox opens unless the configuration names them.
//!
//! They are known by name. The secrets of a project are not (`project_secrets`).

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mounts::Mounts;

/// Identifies a file whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    pub fn from_metadata(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Paths in the home folder that hold keys, tokens, browser profiles, histories, the configuration of MCP clients, and
/// Bascule's own files.
const HOME_SECRETS: [&str; 58] = [
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
    ".local/state/bascule",
    ".vault-token",
    "Library/Keychains",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/rclone",
    ".claude",
    ".claude.json",
    "snap/firefox",
    "snap/chromium",
    ".var/app",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".cursor",
    ".codeium",
    ".codex",
    ".gemini",
    ".continue",
    ".config/Claude",
    ".config/Code/User",
    ".config/Cursor",
    ".config/zed",
    ".config/github-copilot",
    ".config/doctl",
    ".config/hcloud",
    ".terraform.d",
    ".fly",
    ".local/share/fish",
    ".config/atuin",
    ".local/share/atuin",
];

/// The secrets of some homes and Bascule's own folders.
pub struct Secrets {
    /// As they are named: below a home, links not resolved.
    named: Vec<PathBuf>,
    /// The real paths, and their aliases through other mounts.
    real: Vec<PathBuf>,
}

impl Secrets {
    /// The secrets need not exist: one that is created later is closed too.
    pub fn of_homes(homes: &[PathBuf]) -> Self {
        let own: Vec<PathBuf> = own_folders().collect();
        let named = homes.iter().flat_map(|home| home_secrets(home)).chain(own.clone()).collect();
        let real_homes: BTreeSet<PathBuf> = homes.iter().filter_map(|home| resolve(home)).collect();
        let in_homes =
            real_homes.iter().flat_map(|home| HOME_SECRETS.iter().map(|name| resolve_below(home, name)));
        let real = in_homes.chain(own.iter().filter_map(|folder| resolve(folder))).collect();
        Self { named, real: add_aliases(real) }
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.real
    }

    /// Returns true if the path is a secret or lies in one.
    pub fn contain(&self, real: &Path) -> bool {
        self.real.iter().any(|secret| real.starts_with(secret))
    }

    /// Returns true if the path names a secret without the help of a link.
    pub fn are_named_by(&self, path: &Path) -> bool {
        self.named.iter().chain(&self.real).any(|secret| path.starts_with(secret))
    }

    /// Returns true if the folder is a secret, or holds one.
    pub(crate) fn are_below(&self, folder: &Path) -> bool {
        self.real.iter().any(|secret| secret.starts_with(folder))
    }

    /// Returns the files among the secrets that have a further hard link.
    pub(crate) fn with_hard_links(&self) -> HashSet<FileIdentity> {
        let mut found = HashSet::new();
        self.real.iter().for_each(|secret| add_hard_links(secret, &mut found));
        found
    }
}

/// Adds the files of one secret that have a further hard link. Looks at the first levels only, and at a bounded number of
/// entries: key files lie there, and browser profiles are large.
fn add_hard_links(secret: &Path, found: &mut HashSet<FileIdentity>) {
    const MAX_ENTRIES: usize = 4_000;
    let (mut open, mut seen) = (VecDeque::from([(secret.to_path_buf(), 0)]), 0);
    while let Some((path, depth)) = open.pop_front() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        // The homes of servers lie in a secret folder too, and belong to the servers.
        let is_searched = metadata.is_dir() && depth < 3 && !path.ends_with("bascule/servers");
        if metadata.is_file() && metadata.nlink() > 1 {
            found.insert(FileIdentity::from_metadata(&metadata));
        } else if is_searched && seen < MAX_ENTRIES {
            let entries: Vec<_> = fs::read_dir(&path).into_iter().flatten().flatten().collect();
            seen += entries.len();
            open.extend(entries.into_iter().map(|entry| (entry.path(), depth + 1)));
        }
    }
}

/// Resolves each path, and adds the same places in other mounts.
pub(crate) fn with_aliases<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    add_aliases(paths.filter_map(|path| resolve(path)).collect())
}

fn add_aliases(real: Vec<PathBuf>) -> Vec<PathBuf> {
    let mounts = Mounts::read();
    real.into_iter().flat_map(|path| mounts.aliases(&path).into_iter().chain([path])).collect()
}

/// Resolves links in a relative path below a real folder. Most parts do not exist, and few are links.
fn resolve_below(folder: &Path, name: &str) -> PathBuf {
    let mut real = folder.to_path_buf();
    let mut parts = Path::new(name).components();
    while let Some(part) = parts.next() {
        real.push(part);
        match real.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                let whole = real.join(parts.as_path());
                return resolve(&whole).unwrap_or(whole);
            }
            Ok(_) => {}
            Err(_) => return real.join(parts.as_path()),
        }
    }
    real
}

/// Resolves links in a path that need not exist.
pub fn resolve(path: &Path) -> Option<PathBuf> {
    let (above, real) = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)))?;
    let rest = path.strip_prefix(above).ok()?;
    // Joining nothing would append a slash, and a file has none.
    Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
}

fn home_secrets(home: &Path) -> Vec<PathBuf> {
    HOME_SECRETS.iter().map(|name| home.join(name)).collect()
}

/// Bascule's own folders, where the environment moves them: control sockets, tokens and configurations.
fn own_folders() -> impl Iterator<Item = PathBuf> {
    ["XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"].into_iter().filter_map(
        |variable| {
            let folder = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())?;
            Some(folder.join("bascule"))
        },
    )
}
