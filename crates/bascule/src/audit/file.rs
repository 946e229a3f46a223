//! Appends lines to the log and moves the side file after them. Several processes may do so at once.
//!
//! Every append begins with the side file, so that no process relies on what it knew before.

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ring::hmac;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::json;

use super::chain::{ChainPosition, MAX_LINE, Opening, line_end, sha256};
use super::entry::AuditEntry;
use super::head::Head;
use super::verify::catch_up;
use crate::hexadecimal::hexadecimal;

/// The longest wait for another process that appends.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The most times that replaced files are opened for one append.
const MAX_OPENS: usize = 3;
const LOCK_POLL: Duration = Duration::from_millis(2);
/// The most that processes which were killed can have left behind the side file's count.
const MAX_UNCOUNTED: u64 = 64 << 20;

/// The log and its side file.
pub(super) struct AuditFile {
    path: PathBuf,
    /// The configuration file that the first line names.
    config: Option<PathBuf>,
    fsync: bool,
    open: Option<OpenFiles>,
}

struct OpenFiles {
    log: File,
    head: File,
    /// The first line of the log, once it was read. It never changes.
    opening: OnceCell<Opening>,
}

/// Returns the path of the side file.
pub(crate) fn head_path(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

/// Opens the side file. `None`: there is none.
pub(super) fn open_head_for_reading(log: &Path) -> io::Result<Option<File>> {
    match File::open(head_path(log)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if a line with the hash of the position ends there.
pub(super) fn has_line_end(log: &File, position: &ChainPosition) -> io::Result<bool> {
    if *position == ChainPosition::START {
        return Ok(true);
    }
    let expected = line_end(&position.hash);
    let Some(offset) = position.bytes.checked_sub(expected.len() as u64) else { return Ok(false) };
    let mut found = vec![0; expected.len()];
    match log.read_exact_at(&mut found, offset) {
        Ok(()) => Ok(found == expected),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

impl AuditFile {
    pub(super) fn new(path: PathBuf, config: Option<PathBuf>, fsync: bool) -> Self {
        Self { path, config, fsync, open: None }
    }

    /// Appends the entries with one write, after a line that counts those that were lost before. Without entries it only
    /// creates or checks the files.
    pub(super) fn append(&mut self, entries: &[&AuditEntry], lost: u64) -> io::Result<()> {
        // Files that were moved away since the last append are opened anew.
        for _ in 0..MAX_OPENS {
            if self.open.is_none() {
                self.open = Some(OpenFiles::open(&self.path)?);
            }
            let Some(open) = &self.open else { continue };
            let lock = Lock::exclusive(&open.head)?;
            if open.is_at(&self.path) {
                return self.append_to(open, entries, lost);
            }
            drop(lock);
            self.open = None;
        }
        Err(io::Error::other("it is being replaced"))
    }

    /// Appends to the locked files.
    fn append_to(&self, open: &OpenFiles, entries: &[&AuditEntry], lost: u64) -> io::Result<()> {
        let mut head = open.read_head()?;
        let (position, fragment) = open.read_uncounted(&head)?;
        head.position = position;
        if !fragment.is_empty() {
            // A process was killed while it wrote this line. Its call was not sent.
            open.log.set_len(head.position.bytes)?;
        }
        let mut text = Vec::new();
        self.add_opening(&mut head, &fragment, &mut text);
        if lost > 0 {
            let members = format!(r#""kind":"lost","time":"{}","lines":{lost}"#, now());
            head.position.seal(&members, &mut text);
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, head.key.as_bytes());
        entries.iter().for_each(|entry| head.position.seal(&entry.members(&key), &mut text));
        // Without its repair line nobody would know that the fragment was there.
        let put_back = |_: &io::Error| drop((&open.log).write_all(&fragment));
        open.write(&text, self.fsync).inspect_err(put_back)?;
        head.write(&open.head)?;
        if self.fsync { open.head.sync_data() } else { Ok(()) }
    }

    /// Adds the first line of a chain, and one that records a removed fragment.
    fn add_opening(&self, head: &mut Head, fragment: &[u8], text: &mut Vec<u8>) {
        if head.position.lines == 0 {
            let members = format!(
                r#""kind":"chain","time":"{}","version":1,"chain":"{}","keySha256":"{}","configuration":{}"#,
                now(),
                head.chain,
                String::from_utf8_lossy(&sha256(head.key.as_bytes())),
                json!(self.config.as_deref().map(Path::to_string_lossy))
            );
            head.position.seal(&members, text);
        }
        if !fragment.is_empty() {
            let members = format!(
                r#""kind":"repair","time":"{}","removedBytes":{},"removedSha256":"{}""#,
                now(),
                fragment.len(),
                String::from_utf8_lossy(&sha256(fragment))
            );
            head.position.seal(&members, text);
        }
    }
}

impl OpenFiles {
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let (log, head) = (open_private(path, true)?, open_private(&head_path(path), false)?);
        Ok(Self { log, head, opening: OnceCell::new() })
    }

    /// Returns false if the files were moved away or removed.
    fn is_at(&self, path: &Path) -> bool {
        let is_same = |file: &File, path: &Path| match (file.metadata(), fs::symlink_metadata(path)) {
            (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
            _ => false,
        };
        is_same(&self.log, path) && is_same(&self.head, &head_path(path))
    }

    /// Reads the side file. For a new log it writes one: a process that is killed then leaves a log that can go on.
    fn read_head(&self) -> io::Result<Head> {
        if let Some(head) = Head::read(&self.head)? {
            return Ok(head);
        }
        if self.log.metadata()?.len() > 0 {
            return Err(broken("its side file is missing or empty"));
        }
        let head = Head::new()?;
        head.write(&self.head)?;
        Ok(head)
    }

    /// Returns the end of the last complete line, and the incomplete line after it.
    fn read_uncounted(&self, head: &Head) -> io::Result<(ChainPosition, Vec<u8>)> {
        let length = self.log.metadata()?.len();
        let Some(more) = length.checked_sub(head.position.bytes) else {
            return Err(broken("its end was cut off"));
        };
        if head.position.lines > 0 && !self.opening()?.is_of(&head.chain, &head.key) {
            return Err(broken("its first line has another chain or key than its side file"));
        }
        if more > MAX_UNCOUNTED || !has_line_end(&self.log, &head.position)? {
            return Err(broken("it does not end as its side file says"));
        }
        if more == 0 {
            return Ok((head.position.clone(), Vec::new()));
        }
        let mut text = vec![0; more as usize];
        self.log.read_exact_at(&mut text, head.position.bytes)?;
        catch_up(&head.position, &text).ok_or_else(|| broken("its last lines do not continue the chain"))
    }

    fn opening(&self) -> io::Result<&Opening> {
        if let Some(opening) = self.opening.get() {
            return Ok(opening);
        }
        let mut text = vec![0; MAX_LINE];
        let length = self.log.read_at(&mut text, 0)?;
        let line = text[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(self.opening.get_or_init(|| Opening::parse(line).unwrap_or_default()))
    }

    /// Hands the text to the operating system. What a failed write leaves is removed.
    fn write(&self, text: &[u8], fsync: bool) -> io::Result<()> {
        let before = self.log.metadata()?.len();
        let mut log = &self.log;
        let written = log.write_all(text).and_then(|()| if fsync { self.log.sync_data() } else { Ok(()) });
        written.inspect_err(|_| drop(self.log.set_len(before)))
    }
}

/// Opens or creates a file that belongs to its user alone.
fn open_private(path: &Path, append: bool) -> io::Result<File> {
    // Opening a pipe would wait for its reader.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).append(append).create(true).truncate(false);
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::getuid().as_raw() {
        return Err(io::Error::other("it is no regular file of this user"));
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn broken(reason: &str) -> io::Error {
    let message = format!(
        "{reason}: run `bascule audit verify`, then move the log and its side file away to begin a new chain"
    );
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// Returns the text of an object without its braces.
pub(super) fn members_of(object: &str) -> &str {
    &object[1..object.len() - 1]
}

/// Returns the digest of arguments, keyed: short ones could be guessed from a plain digest.
pub(super) fn keyed_digest(key: &hmac::Key, arguments: &str) -> String {
    hexadecimal(hmac::sign(key, arguments.as_bytes()).as_ref())
}

/// The lock of a log. Dropping it releases the lock.
pub(super) struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    fn exclusive(file: &'a File) -> io::Result<Self> {
        Self::wait(file, FlockOperation::NonBlockingLockExclusive)
    }

    pub(super) fn shared(file: &'a File) -> io::Result<Self> {
        Self::wait(file, FlockOperation::NonBlockingLockShared)
    }

    fn wait(file: &'a File, operation: FlockOperation) -> io::Result<Self> {
        let end = Instant::now() + LOCK_WAIT;
        loop {
            match flock(file, operation) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_POLL),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another process has locked its side file",
                    ));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}
