//! Reads and replaces a configuration file of a user: a client's, or our own.
//!
//! A file is replaced as a whole and keeps its mode and owner. A link is followed. A file that has changed since it was read
//! is left alone.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Larger files are refused. Claude Code keeps its history in its file.
const MAX_BYTES: u64 = 64 << 20;

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    /// The path as the caller named it.
    pub(crate) path: PathBuf,
    /// The file behind the links.
    target: PathBuf,
    /// `None` if there is no file yet.
    bytes: Option<Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("could not {operation} `{}`: {source}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
}

impl SettingsFile {
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Io { operation: "read", path: path.into(), source };
        let unusable = |reason: String| FileError::Unusable { path: path.into(), reason };
        if !path.is_symlink() && !path.exists() {
            let target = std::path::absolute(path).map_err(failed)?;
            return Ok(Self { path: path.into(), target, bytes: None });
        }
        let target = path.canonicalize().map_err(|source| match path.is_symlink() {
            true => unusable("is a link to a file that does not exist".into()),
            false => failed(source),
        })?;
        let metadata = target.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(unusable("is not a regular file".into()));
        }
        if metadata.len() > MAX_BYTES {
            return Err(unusable(format!("is larger than {} MiB", MAX_BYTES >> 20)));
        }
        let bytes = read_bounded(&target).map_err(failed)?;
        if let Some(line) = find_invalid_line(&bytes) {
            return Err(unusable(format!("is not UTF-8 text: line {line} contains an invalid byte")));
        }
        Ok(Self { path: path.into(), target, bytes: Some(bytes) })
    }

    pub(crate) fn exists(&self) -> bool {
        self.bytes.is_some()
    }

    /// Returns the text; empty if there is no file.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes.as_deref().unwrap_or_default()).expect("checked when it was read")
    }

    /// Returns the path of the copy that is kept beside the file.
    pub(crate) fn backup_path(&self) -> PathBuf {
        let mut name = self.target.file_name().unwrap_or_default().to_owned();
        name.push(".bascule-backup");
        self.target.with_file_name(name)
    }

    /// Returns the text of the copy, if there is one.
    pub(crate) fn backup_text(&self) -> Option<String> {
        String::from_utf8(read_bounded(&self.backup_path()).ok()?).ok()
    }

    /// Writes a copy beside the file, for the user alone. Returns its path, or `None` if there is no file yet.
    pub(crate) fn back_up(&self) -> Result<Option<PathBuf>, FileError> {
        let Some(bytes) = &self.bytes else { return Ok(None) };
        let path = self.backup_path();
        self.check_writable()?;
        replace(&path, bytes, None).map_err(|source| FileError::Io {
            operation: "write the backup",
            path: path.clone(),
            source,
        })?;
        Ok(Some(path))
    }

    /// Replaces the file, which keeps its mode, or creates it with its folders, for the user alone.
    pub(crate) fn write(&self, text: &str) -> Result<(), FileError> {
        self.write_with(text, 0o7777)
    }

    /// Replaces the file, which loses all rights of other users, or creates it with its folders.
    pub(crate) fn write_private(&self, text: &str) -> Result<(), FileError> {
        self.write_with(text, 0o700)
    }

    fn write_with(&self, text: &str, kept_mode: u32) -> Result<(), FileError> {
        let failed = |source| FileError::Io { operation: "write", path: self.path.clone(), source };
        self.check_writable()?;
        if let Some(folder) = self.target.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let model = self.bytes.as_ref().map(|_| (self.target.as_path(), kept_mode));
        replace(&self.target, text.as_bytes(), model).map_err(failed)
    }

    /// Deletes the file.
    pub(crate) fn delete(&self) -> Result<(), FileError> {
        self.check_writable()?;
        fs::remove_file(&self.target).map_err(|source| FileError::Io {
            operation: "delete",
            path: self.path.clone(),
            source,
        })
    }

    fn check_writable(&self) -> Result<(), FileError> {
        let unusable = |reason: &str| FileError::Unusable { path: self.path.clone(), reason: reason.into() };
        let mode = self.target.metadata().ok().map(|metadata| metadata.mode());
        if mode.is_some_and(|mode| mode & 0o200 == 0) {
            return Err(unusable("is read-only: nothing was changed; `chmod u+w` would allow it"));
        }
        match read_bounded(&self.target).ok() == self.bytes {
            true => Ok(()),
            false => Err(unusable(
                "was changed by another program in the meantime: nothing was changed; try again",
            )),
        }
    }
}

/// Returns the number of the first line that is not UTF-8.
fn find_invalid_line(bytes: &[u8]) -> Option<usize> {
    let valid = std::str::from_utf8(bytes).err()?.valid_up_to();
    Some(1 + bytes[..valid].iter().filter(|byte| **byte == b'\n').count())
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file beside `path` and gives it its name. It gets the owner of `model`, and these bits of
/// its mode.
fn replace(path: &Path, bytes: &[u8], model: Option<(&Path, u32)>) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".bascule-{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let _ = fs::remove_file(&temporary);
    let written = write_new(&temporary, bytes, model).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8], model: Option<(&Path, u32)>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if let Some((model, kept_mode)) = model {
        let model = model.metadata()?;
        // Without the right to do so the file belongs to the user who asked for the change.
        let _ = fchown(&file, Some(model.uid()), Some(model.gid()));
        file.set_permissions(Permissions::from_mode(model.mode() & kept_mode))?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    // req: US-04
    #[test]
    fn creates_folders_and_keeps_mode_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file");
        let file = SettingsFile::read(&path).unwrap();
        assert!(!file.exists() && file.back_up().unwrap().is_none());
        file.write("one").unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = SettingsFile::read(&link).unwrap();
        assert_eq!(file.text(), "one");
        let backup = file.back_up().unwrap().unwrap();
        file.write("two").unwrap();
        assert!(link.is_symlink());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two", 0o640));
        assert_eq!((fs::read_to_string(&backup).unwrap().as_str(), mode(&backup)), ("one", 0o600));
        assert_eq!(backup, path.canonicalize().unwrap().with_file_name("file.bascule-backup"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2, "no temporary file is left");
    }

    // req: US-04
    #[test]
    fn leaves_other_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "one").unwrap();
        let file = SettingsFile::read(&path).unwrap();
        fs::write(&path, "other").unwrap();
        assert!(file.write("two").unwrap_err().to_string().contains("changed by another program"));
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        let file = SettingsFile::read(&path).unwrap();
        assert!(file.write("two").unwrap_err().to_string().contains("read-only"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
    }

    // req: US-04
    #[test]
    fn refuses_what_is_no_settings_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let error = |path: &Path| SettingsFile::read(path).unwrap_err().to_string();
        assert!(error(folder.path()).contains("not a regular file"));
        fs::write(&path, b"a\n\xff").unwrap();
        assert!(error(&path).contains("line 2 contains an invalid byte"));
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(error(&path).contains("larger than 64 MiB"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(error(&link).contains("does not exist"));
    }
}
