//! The folder of one server: its home, its temporary files and its copies of the user's package settings.
//!
//! Nothing in it is shared with another server, so that no server can plant code that another one runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bascule_sandbox::{Access, Grant};

use crate::config::{HomeAccess, Sandbox, ServerSettings};
use crate::control::config_hash;

pub(super) struct ServerFolder {
    root: PathBuf,
    /// Kept for the next starts. `None` if the server uses the user's home.
    pub(super) home: Option<PathBuf>,
    /// Readable by the server, written by the bridge.
    pub(super) settings: PathBuf,
}

impl ServerFolder {
    /// Returns `None` for a server that has neither a home nor temporary files.
    pub(super) fn from_settings(settings: &ServerSettings) -> Option<Self> {
        let home = match settings.sandbox {
            Sandbox::Standard => HomeAccess::Own,
            Sandbox::Off | Sandbox::Strict => HomeAccess::None,
            Sandbox::Custom { home, .. } => home,
        };
        if home == HomeAccess::None {
            return None;
        }
        let root = data_folder().join("bascule/servers").join(folder_name(settings));
        let own_home = (home == HomeAccess::Own).then(|| root.join("home"));
        Some(Self { home: own_home, settings: root.join("settings"), root })
    }

    pub(super) fn create(&self) -> io::Result<()> {
        // The folder of all servers too: it may be in a shared place.
        let all = self.root.parent().and_then(Path::parent);
        let folders = all.into_iter().chain([&*self.root, &*self.settings]).chain(self.home.as_deref());
        folders.into_iter().try_for_each(create_private)
    }

    /// The jail creates a folder in it for each process.
    pub(super) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(super) fn grants(&self) -> Vec<Grant> {
        let home = self.home.as_deref().and_then(|home| Grant::resolved(home, Access::Write));
        home.into_iter().chain(Grant::resolved(&self.settings, Access::Read)).collect()
    }
}

/// Names the folder after the server and its configuration file: another file may have a server of this name.
fn folder_name(settings: &ServerSettings) -> String {
    let config = settings.config_file().unwrap_or(Path::new(""));
    format!("{}-{:016x}", settings.name, config_hash(config))
}

/// The first of these folders that can be written: `$XDG_DATA_HOME`, `$HOME/.local/share`, the same in the user database, and
/// a folder of this user among the temporary files.
pub(crate) fn data_folder() -> PathBuf {
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    if let Some(configured) = variable("XDG_DATA_HOME") {
        return configured;
    }
    let homes = variable("HOME").into_iter().chain(bascule_sandbox::own_home());
    // A home that does not exist is not created: root could, and the files would be nobody's.
    let homes = homes.filter(|home| home != Path::new("/") && home.is_dir());
    let mut folders = homes.map(|home| home.join(".local/share"));
    folders.find(|folder| is_writable(folder)).unwrap_or_else(shared_data_folder)
}

fn shared_data_folder() -> PathBuf {
    std::env::temp_dir().join(format!("bascule-{}", rustix::process::getuid().as_raw()))
}

/// Returns true if the folder can be created, or written if it exists.
fn is_writable(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|above| above.exists());
    existing.is_some_and(|existing| rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_ok())
}

/// Creates a folder that only this user can write. Among the temporary files another user may have made the folder above it
/// first, and could then exchange everything in it; so that one is checked too.
pub(crate) fn create_private(folder: &Path) -> io::Result<()> {
    let shared = shared_data_folder();
    if folder.starts_with(&shared) && folder != shared {
        create_private(&shared)?;
    }
    let describe =
        |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", folder.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(describe)?;
    let metadata = fs::symlink_metadata(folder).map_err(describe)?;
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::getuid().as_raw();
    match is_own && metadata.permissions().mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(format!("others can write `{}`", folder.display()))),
    }
}
