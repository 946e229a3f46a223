//! Opens the file. It belongs to its user alone. A damaged one is set aside, and a new one begun.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::OFlags;
use tracing::warn;

use crate::schema;

/// The wait for another bridge that writes to the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Follows the name of a file that was set aside.
const DAMAGED: &str = ".damaged-";

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the file has format {found}; this version reads up to {known}: use a newer bascule")]
    Newer { found: usize, known: usize },
    #[error("it belongs to another user")]
    Foreign,
    #[error("it is no regular file")]
    Irregular,
    #[error("it has no traces yet")]
    Empty,
}

impl StoreError {
    /// Returns true if the content of the file is at fault.
    pub(crate) fn is_damage(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
            || matches!(error, rusqlite::Error::SqliteFailure(code, Some(text))
                if code.code == ErrorCode::Unknown && text.contains("no such table"))
    }

    /// Returns true if another bridge was writing for too long.
    pub(crate) fn is_busy(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

/// Opens the file for writing, and creates it and its folder.
pub(crate) fn open(path: &Path) -> Result<Connection, StoreError> {
    create(path)?;
    // Nobody sets the file aside meanwhile: a new file would get the write-ahead log of the old one. Nobody else opens it
    // either: two processes that begin a write-ahead log at once get an error without a wait.
    let lock = lock_file(path)?;
    lock.lock()?;
    let opened = remove_log_of_another_file(path).map_err(StoreError::from).and_then(|()| try_open(path));
    drop(lock);
    if !opened.as_ref().is_err_and(StoreError::is_damage) {
        return opened;
    }
    replace_damaged(path)
}

/// Removes the write-ahead log beside a new file. It belongs to a file that was moved or removed, which other bridges may still write:
/// their entries must not get into the new one, nor those of the new one into theirs.
fn remove_log_of_another_file(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.len() > 0 {
        return Ok(());
    }
    for suffix in ["-wal", "-shm"] {
        match fs::remove_file(with_suffix(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Sets a damaged file aside, and opens a new one.
pub(crate) fn replace_damaged(path: &Path) -> Result<Connection, StoreError> {
    // One bridge sets it aside; the others find a new one.
    let lock = lock_file(path)?;
    lock.lock()?;
    match try_open(path).and_then(check_pages) {
        Err(error) if error.is_damage() => {
            let aside = set_aside(path)?;
            warn!(
                "the traces in `{}` are damaged ({error}): the file is now `{}`, and a new one is begun",
                path.display(),
                aside.display()
            );
            try_open(path)
        }
        opened => opened,
    }
}

/// Reads the whole file. A damaged page may not be noticed before.
fn check_pages(connection: Connection) -> Result<Connection, StoreError> {
    let problem: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match problem.as_str() {
        "ok" => Ok(connection),
        _ => Err(damage(problem)),
    }
}

/// Opens an existing file for reading.
pub(crate) fn open_for_reading(path: &Path) -> Result<Connection, StoreError> {
    // A reader of a write-ahead log needs its index, which it may have to write.
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE)
        .or_else(|_| Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_ONLY))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "mmap_size", 1_i64 << 30)?;
    schema::check(&connection)?;
    Ok(connection)
}

fn try_open(path: &Path) -> Result<Connection, StoreError> {
    create(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Has an effect before the first table only.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A killed process loses nothing that was committed. A power failure may lose the last commits, and never the file.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -4096)?;
    schema::migrate(&mut connection)?;
    check_tables(&connection)?;
    Ok(connection)
}

/// Fails if a table is missing: nothing could be written.
fn check_tables(connection: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN
               ('names', 'clients', 'spans', 'logs', 'counters', 'graph_nodes', 'graph_edges')";
    match connection.query_row(sql, [], |row| row.get::<_, i64>(0))? {
        7 => Ok(()),
        found => Err(damage(format!("it has {found} of 7 tables"))),
    }
}

fn damage(problem: String) -> StoreError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(problem)).into()
}

/// The file behind a path. Another file may get the path later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns `None` if there is no file.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Creates the file with its mode, which SQLite gives to the files beside it too.
fn create(path: &Path) -> Result<(), StoreError> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(private_file_flags());
    make_private(&options.open(path)?)
}

/// Fails if the file is no regular file of this user. Others lose their access to it.
fn make_private(file: &fs::File) -> Result<(), StoreError> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(StoreError::Irregular);
    }
    if metadata.uid() != rustix::process::getuid().as_raw() {
        return Err(StoreError::Foreign);
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Renames the file and those beside it. Returns the new path. The lock must be held.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    remove_earlier(path);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let aside = with_suffix(path, &format!("{DAMAGED}{now}"));
    // The file is the last: a process that ends in between leaves no log for a new file.
    for suffix in ["-wal", "-shm", ""] {
        match fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside)
}

/// Removes the files that were set aside before: one is kept. A failure leaves one more.
fn remove_earlier(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    let prefix = format!("{}{DAMAGED}", name.to_string_lossy());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Opens the file whose lock a bridge holds while it opens the store or sets it aside. Dropping it releases the lock.
fn lock_file(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(private_file_flags());
    options.open(with_suffix(path, ".lock"))
}

/// Follows no link, and does not wait for the other end of a pipe.
fn private_file_flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
