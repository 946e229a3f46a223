//! Measures the size of a folder.
//!
//! The folder may have been prepared against it: entries that cannot be read, and paths that are too long to be opened.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

/// Deeper folders count as too large.
const MAX_DEPTH: usize = 64;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;
/// Each entry counts at least this much: empty files take space too.
const MIN_ENTRY: u64 = 1024;

/// Adds up the disk space below a folder, and stops once it is more than `enough`. Links are not followed. A folder that
/// cannot be read counts as more than enough.
pub(crate) fn folder_bytes(folder: &Path, enough: u64) -> u64 {
    let mut bytes = 0;
    match open_folder(CWD, folder) {
        Some(folder) if add_entries(&folder, 0, enough, &mut bytes).is_some() => bytes,
        Some(_) => enough.saturating_add(1).max(bytes),
        None => 0,
    }
}

/// Returns `None` if the sum is more than `enough` or cannot be known.
fn add_entries(folder: &OwnedFd, depth: usize, enough: u64, bytes: &mut u64) -> Option<()> {
    for entry in Dir::read_from(folder).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // An entry may be removed meanwhile.
        let Ok(metadata) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        *bytes += (u64::try_from(metadata.st_blocks).unwrap_or(0) * BLOCK).max(MIN_ENTRY);
        if *bytes > enough || depth > MAX_DEPTH {
            return None;
        }
        if FileType::from_raw_mode(metadata.st_mode) == FileType::Directory {
            match open_folder(folder, name) {
                Some(inner) => add_entries(&inner, depth + 1, enough, bytes)?,
                None if statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => return None,
                None => {}
            }
        }
    }
    Some(())
}

fn open_folder(above: impl AsFd, name: impl rustix::path::Arg) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // req: SB-07
    #[test]
    fn measures_nested_files_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", folder.path().join("link")).unwrap();
        let bytes = folder_bytes(folder.path(), u64::MAX);
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        assert!(folder_bytes(folder.path(), 1000) > 1000);
    }

    // req: SB-07
    #[test]
    fn counts_empty_files_and_refuses_what_it_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        (0..100).for_each(|name| fs::write(folder.path().join(name.to_string()), "").unwrap());
        assert!(folder_bytes(folder.path(), u64::MAX) >= 100 << 10);
        let hidden = folder.path().join("hidden");
        fs::create_dir(&hidden).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o300)).unwrap();
        // Root reads it all the same.
        if fs::read_dir(&hidden).is_err() {
            assert!(folder_bytes(folder.path(), 1 << 30) > 1 << 30);
        }
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
        let mut deep = hidden;
        for _ in 0..MAX_DEPTH + 5 {
            deep = deep.join("d");
        }
        fs::create_dir_all(deep).unwrap();
        assert!(folder_bytes(folder.path(), 1 << 30) > 1 << 30);
    }
}
