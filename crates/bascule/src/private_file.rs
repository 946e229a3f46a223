//! Files of the bridge in the user's home that no other user and no confined server can access.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use tracing::warn;

/// A file counts as used again after this time.
const USED_AGAIN: Duration = Duration::from_secs(24 * 3600);

/// Returns a folder of this name, and creates it. No sandbox grants access to it. It does not depend on the environment: a
/// bridge that was started with another one must close the same folder.
pub(crate) fn folder(name: &str) -> io::Result<PathBuf> {
    let home = bascule_sandbox::own_home()
        .ok_or_else(|| io::Error::other("neither HOME nor the user database names a home"))?;
    let folder = home.join(".local/share/bascule").join(name);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Reads a file of at most `max_bytes`. A file that others may know or have written is `InvalidData`.
pub(crate) fn read(path: &Path, max_bytes: u64) -> io::Result<String> {
    // Opening a pipe would wait for its writer.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    let is_own = metadata.is_file() && metadata.uid() == rustix::process::getuid().as_raw();
    if !is_own || metadata.mode() & 0o077 != 0 || metadata.len() > max_bytes {
        let message = format!("the file `{}` is damaged, or other users can access it", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    io::read_to_string(file.take(max_bytes))
}

/// Reads a JSON file of the expected version.
pub(crate) fn read_versioned<T: DeserializeOwned>(
    path: &Path,
    max_bytes: u64,
    expected: u32,
    version: fn(&T) -> u32,
) -> io::Result<T> {
    let damaged = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let content: T = serde_json::from_str(&read(path, max_bytes)?)
        .map_err(|error| damaged(format!("it is damaged: {error}")))?;
    match version(&content) {
        found if found == expected => Ok(content),
        found => Err(damaged(format!("it has version {found}, and this program reads version {expected}"))),
    }
}

/// Returns the content of a file that is only a memory. A file that cannot be used is ignored, with a warning unless it is
/// missing.
pub(crate) fn ignore_unusable<T>(read: io::Result<T>, title: &str, path: &Path) -> Option<T> {
    read.inspect_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {}
        _ => warn!("ignoring {title} in `{}`: {error}", path.display()),
    })
    .ok()
}

/// Writes a new file beside `path`, and returns its path. The caller gives it its name.
pub(crate) fn write_beside(path: &Path, text: &str) -> io::Result<PathBuf> {
    let own = path.with_extension(std::process::id().to_string());
    let _ = fs::remove_file(&own);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
    file.write_all(text.as_bytes())?;
    Ok(own)
}

/// Marks a file as used. The time of its last change is that of its last use.
pub(crate) fn mark_used(path: &Path) -> io::Result<()> {
    let (file, now) = (fs::File::open(path)?, SystemTime::now());
    let used = file.metadata()?.modified()?;
    match now.duration_since(used).is_ok_and(|passed| passed < USED_AGAIN) {
        true => Ok(()),
        false => file.set_modified(now),
    }
}

/// Removes the files beyond `max_files` that were not used for longest.
pub(crate) fn remove_oldest(folder: &Path, max_files: usize) -> io::Result<()> {
    let mut files: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    let surplus = files.len().saturating_sub(max_files);
    if surplus > 0 {
        files.sort_by_cached_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
        files.iter().take(surplus).for_each(|path| drop(fs::remove_file(path)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // req: GW-07
    #[test]
    fn refuses_file_that_others_may_know() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_beside(&folder.path().join("file"), "text").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&path, 4).unwrap(), "text");
        read(&path, 3).unwrap_err();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        read(&link, 4).unwrap_err();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path, 4).unwrap_err().to_string().contains("other users"));
    }
}
