//! A temporary folder for one process tree. The reaper removes it after the end of the tree.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

/// A folder that is not locked yet may be this old.
const MAX_UNLOCKED: Duration = Duration::from_secs(60);
/// The address of a socket has 108 bytes, of which Chromium needs 46 below its temporary folder.
const MAX_LENGTH_FOR_SOCKETS: usize = 60;

pub(crate) struct TemporaryFolder {
    path: PathBuf,
    /// A short name of the folder.
    link: Option<PathBuf>,
    /// Tells other reapers that the folder is in use.
    _lock: File,
}

impl TemporaryFolder {
    /// Creates a folder in `parent`, and removes those that killed reapers have left there.
    pub(crate) fn create(parent: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        remove_abandoned(parent);
        // Processes of another machine or container may have the same id.
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let path = parent.join(format!("{}-{:x}", std::process::id(), time.as_nanos()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, link: None, _lock: lock })
    }

    /// Gives the folder a short name, so that programs can create sockets in it. Landlock does not restrict the following of
    /// links, and the server cannot replace this one, because `/tmp` is closed to it.
    pub(crate) fn shorten(&mut self) {
        let link = link_to(&self.path);
        if self.path.as_os_str().len() > MAX_LENGTH_FOR_SOCKETS && symlink(&self.path, &link).is_ok() {
            self.link = Some(link);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name for the server.
    pub(crate) fn shortest_path(&self) -> &Path {
        self.link.as_deref().unwrap_or(&self.path)
    }

    pub(crate) fn remove(self) {
        remove_with_link(&self.path);
    }
}

fn link_to(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Path::new("/tmp").join(format!("bascule-{name}"))
}

fn remove_with_link(folder: &Path) {
    let link = link_to(folder);
    if fs::read_link(&link).is_ok_and(|target| target == folder) {
        let _ = fs::remove_file(link);
    }
    remove_all(folder);
}

fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_abandoned = || {
            let folder = File::open(&path)?;
            let age = SystemTime::now().duration_since(folder.metadata()?.modified()?).unwrap_or_default();
            io::Result::Ok(
                age > MAX_UNLOCKED && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok(),
            )
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_abandoned().unwrap_or(false) {
            remove_with_link(&path);
        }
    }
}

/// Removes a folder, also if its server has closed folders in it.
fn remove_all(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() {
        open_folders(folder);
        let _ = fs::remove_dir_all(folder);
    }
}

fn open_folders(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links are not followed: nothing of the server runs any more, so nothing replaces a folder by one.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_folders(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-07
    #[test]
    fn removes_only_old_folders_that_nobody_uses() {
        let parent = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - Duration::from_secs(3600);
        let create = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "").unwrap();
            File::open(&path).unwrap().set_modified(old).unwrap();
            path
        };
        let (used, abandoned) = (create("used"), create("abandoned"));
        let lock = File::open(&used).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let own = TemporaryFolder::create(parent.path()).unwrap();
        let path = own.path().to_path_buf();
        assert!(used.exists() && !abandoned.exists() && path.exists());
        fs::create_dir_all(path.join("closed/in")).unwrap();
        fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        own.remove();
        assert!(!path.exists());
    }

    // req: SB-07, US-05
    #[test]
    fn long_path_has_a_short_name_until_the_end() {
        let parent = tempfile::tempdir().unwrap();
        let mut folder = TemporaryFolder::create(&parent.path().join("x".repeat(80))).unwrap();
        folder.shorten();
        let link = folder.shortest_path().to_path_buf();
        assert!(link.as_os_str().len() <= MAX_LENGTH_FOR_SOCKETS);
        assert_eq!(link.canonicalize().unwrap(), folder.path().canonicalize().unwrap());
        folder.remove();
        assert!(link.symlink_metadata().is_err());
    }
}
