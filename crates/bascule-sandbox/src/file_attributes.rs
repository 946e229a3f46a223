//! Changes of mode, owner, times and extended attributes for servers that may change them only where they may write.
//!
//! Landlock does not cover these calls, so the kernel passes them to the reaper (`notifications`). A thread of the
//! reaper opens the file itself, decides by the opened file, and changes that one: the caller can neither exchange a
//! path nor a link in between. The thread has no more rights over files than the server, so the kernel refuses what it
//! would refuse the server.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, chmod, chown, fstat, fstatfs, openat2,
    readlinkat, removexattr, setxattr, utimensat,
};
use rustix::io::{Errno, Result};

use crate::attribute_calls::{AttributeCall, AttributeChange, NamedFile};
use crate::notifications::{SyscallAnswer, SyscallNotification};
use crate::notified_thread::{self, NotifiedThread};
use crate::policy::FileAccess;
use crate::secrets::FileIdentity;
use crate::{capabilities, filesystem};

/// Returns true if this kernel lets the reaper read and execute the calls of its server.
pub(crate) fn can_answer() -> bool {
    notified_thread::can_read_descendants() && open_path(CWD, c"/", OFlags::PATH).is_ok()
}

/// The paths below which a server may change attributes, as they were before it started.
pub(crate) struct WritablePaths {
    granted: HashMap<PathBuf, FileIdentity>,
    /// Closed, though a folder above them is granted.
    closed: Vec<PathBuf>,
    closed_files: HashSet<FileIdentity>,
}

impl WritablePaths {
    pub(crate) fn from_file_access(files: &FileAccess) -> Self {
        match files {
            FileAccess::All => Self::new([], &[]),
            FileAccess::Granted { grants, closed } => Self::new(filesystem::writable_paths(grants), closed),
        }
    }

    /// The paths have no links in them.
    fn new(paths: impl IntoIterator<Item = PathBuf>, closed: &[PathBuf]) -> Self {
        let known = |path: PathBuf| identity(&path).map(|identity| (path, identity));
        Self {
            granted: paths.into_iter().filter_map(known).collect(),
            closed: closed.to_vec(),
            closed_files: closed.iter().filter_map(|path| identity(path)).collect(),
        }
    }

    /// Decides by the name that the kernel gives the opened file: it follows the tree of folders and mounts from the file
    /// up, as Landlock does, whatever links led there. A granted path counts only while it is the folder that was granted.
    fn allow(&self, file: &OwnedFd) -> Result<()> {
        let path = readlinkat(CWD, link(file), Vec::new())?;
        let stat = fstat(file)?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        if is_nameless(path, &stat) {
            return Ok(());
        }
        // A shared folder for temporary files belongs to nobody.
        let is_shared = stat.st_mode & libc::S_ISVTX != 0 && self.granted.contains_key(path);
        let is_closed = self.closed_files.contains(&FileIdentity { device: stat.st_dev, inode: stat.st_ino });
        match self.covers(path) && !is_closed && !is_shared && !path.starts_with("/proc") {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }

    /// A folder with a closed path below it is not covered itself, as in Landlock's rules.
    fn covers(&self, path: &Path) -> bool {
        let is_granted =
            |above: &Path| self.granted.get(above).is_some_and(|granted| identity(above) == Some(*granted));
        let is_cut_out = |above: &Path| {
            let within = self.closed.iter().filter(|closed| *closed != above && closed.starts_with(above));
            within.into_iter().any(|closed| path.starts_with(closed) || closed.starts_with(path))
        };
        path.ancestors().any(|above| is_granted(above) && !is_cut_out(above))
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    path.symlink_metadata().ok().map(|metadata| FileIdentity::from_metadata(&metadata))
}

/// Pipes, sockets and memory files: no other program can open them by a path.
fn is_nameless(path: &Path, stat: &Stat) -> bool {
    let name = path.as_os_str().as_bytes();
    let is_memory = name.starts_with(b"/memfd:") && stat.st_nlink == 0;
    is_memory || [&b"pipe:["[..], b"socket:[", b"anon_inode:"].iter().any(|kind| name.starts_with(kind))
}

/// The thread that answers calls. File operations may wait, and must not delay the reaper.
pub(crate) struct AttributeThread(Option<Sender<SyscallNotification>>);

impl AttributeThread {
    pub(crate) fn start(writable: WritablePaths) -> Self {
        // Not bounded: there is one call at most for each thread of the server, and that thread waits.
        let (sender, calls) = channel();
        let thread = std::thread::Builder::new().spawn(move || answer_all(&writable, &calls));
        Self(thread.is_ok().then_some(sender))
    }

    pub(crate) fn answer(&self, call: SyscallNotification) {
        let unsent = match &self.0 {
            Some(thread) => thread.send(call).err().map(|unsent| unsent.0),
            None => Some(call),
        };
        if let Some(call) = unsent {
            call.answer(SyscallAnswer::FailWith(libc::EPERM));
        }
    }
}

fn answer_all(writable: &WritablePaths, calls: &Receiver<SyscallNotification>) {
    if capabilities::drop_file_rights().is_err() {
        return;
    }
    for call in calls {
        call.answer(match answer(writable, &call) {
            Ok(()) => SyscallAnswer::Done,
            Err(error) => SyscallAnswer::FailWith(error.raw_os_error()),
        });
    }
}

/// Makes the change that a call requests, if the server may.
fn answer(writable: &WritablePaths, call: &SyscallNotification) -> Result<()> {
    let caller = NotifiedThread { thread: call.thread };
    let AttributeCall { file, change } = AttributeCall::read(caller, call.number, call.arguments)?;
    let file = open(caller, &file)?;
    // The thread's id may belong to another one by now.
    if !call.is_pending() {
        return Err(Errno::SRCH);
    }
    writable.allow(&file)?;
    change.apply(&file)
}

/// Opens the file without access to its content, so that no device, pipe or lease reacts. The server has our root folder: it
/// cannot change its own.
fn open(caller: NotifiedThread, file: &NamedFile) -> Result<OwnedFd> {
    match file {
        NamedFile::Descriptor(descriptor) => caller.open_descriptor(*descriptor),
        NamedFile::WorkingFolder => caller.open_folder(libc::AT_FDCWD),
        NamedFile::Path { folder, path, follow_link } => {
            let mut flags = OFlags::PATH | OFlags::CLOEXEC;
            flags.set(OFlags::NOFOLLOW, !follow_link);
            match path.to_bytes().starts_with(b"/") {
                true => open_path(CWD, path, flags),
                false => open_path(caller.open_folder(*folder)?, path, flags),
            }
        }
    }
}

/// Links of `/proc` to the files of a process are refused: they mean this process, not the caller.
fn open_path(folder: impl AsFd, path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    openat2(folder, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

impl AttributeChange {
    fn apply(&self, file: &OwnedFd) -> Result<()> {
        let path = link(file);
        match self {
            Self::Mode(mode) if mode.intersects(Mode::SUID | Mode::SGID) => Err(Errno::PERM),
            Self::Mode(_) if is_link(file)? => Err(Errno::OPNOTSUPP),
            Self::Mode(mode) => chmod(path, *mode),
            Self::Owner(user, group) => chown(path, *user, *group),
            Self::Times(times) => utimensat(CWD, path, times, AtFlags::empty()),
            Self::Set { name, .. } | Self::Remove { name } if !is_for_users(name) => Err(Errno::PERM),
            // The kernel would charge us for the memory, not the server.
            Self::Set { .. } if fstatfs(file)?.f_type == libc::TMPFS_MAGIC => Err(Errno::OPNOTSUPP),
            Self::Set { name, value, flags } => setxattr(path, name.as_c_str(), value, *flags),
            Self::Remove { name } => removexattr(path, name.as_c_str()),
        }
    }
}

/// Others are labels and capabilities, which change the rights of programs.
fn is_for_users(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

fn is_link(file: &OwnedFd) -> Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::Symlink)
}

/// A path to exactly the opened file, even if that is a link.
fn link(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder with an empty file in it.
    fn folder_with_file(path: &Path) -> PathBuf {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("file"), "").unwrap();
        path.to_path_buf()
    }

    fn check(writable: &WritablePaths, path: &Path, expected: Result<()>) {
        let file = rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(writable.allow(&file), expected, "{}", path.display());
    }

    // req: SB-04
    #[test]
    fn allows_changes_below_writable_paths() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let granted = folder_with_file(&home.join("granted"));
        let other = folder_with_file(&home.join("granted-too"));
        symlink(&other, granted.join("link")).unwrap();
        let writable = WritablePaths::new([granted.clone(), other.join("file"), home.join("missing")], &[]);
        check(&writable, &granted, Ok(()));
        check(&writable, &granted.join("file"), Ok(()));
        check(&writable, &other.join("file"), Ok(()));
        for outside in
            [other, granted.join("link"), granted.join(".."), "/".into(), "/proc/self/status".into()]
        {
            check(&writable, &outside, Err(Errno::PERM));
        }
    }

    // req: SB-04
    #[test]
    fn refuses_changes_below_folder_in_the_place_of_a_writable_one() {
        let home = tempfile::tempdir().unwrap();
        let granted = folder_with_file(&home.path().canonicalize().unwrap().join("granted"));
        let writable = WritablePaths::new([granted.clone()], &[]);
        fs::rename(&granted, granted.with_file_name("moved")).unwrap();
        folder_with_file(&granted);
        check(&writable, &granted.join("file"), Err(Errno::PERM));
        check(&writable, &granted.with_file_name("moved/file"), Err(Errno::PERM));
    }

    // req: SB-04
    #[test]
    fn refuses_changes_of_shared_folder_itself() {
        let home = tempfile::tempdir().unwrap();
        let shared = folder_with_file(&home.path().canonicalize().unwrap().join("shared"));
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let writable = WritablePaths::new([shared.clone()], &[]);
        check(&writable, &shared, Err(Errno::PERM));
        check(&writable, &shared.join("file"), Ok(()));
    }

    // req: SB-04
    #[test]
    fn deleted_file_keeps_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let writable = WritablePaths::new([folder_with_file(&home.join("granted"))], &[]);
        folder_with_file(&home.join("other"));
        for (name, expected) in [("granted/file", Ok(())), ("other/file", Err(Errno::PERM))] {
            let file = rustix::fs::open(home.join(name), OFlags::PATH, Mode::empty()).unwrap();
            fs::remove_file(home.join(name)).unwrap();
            assert_eq!(writable.allow(&file), expected, "{name}");
        }
    }
}
