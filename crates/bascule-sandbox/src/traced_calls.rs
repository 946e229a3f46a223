//! Reads the purpose of a refused system call from its number and arguments.
//!
//! Calls that programs make only to ask, such as `access` and `stat`, and calls that the sandbox never refuses are left out.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::c_long;
use rustix::io::Errno;

use crate::attribute_calls::{ATTRIBUTE_CALLS, AttributeCall, NamedFile};
use crate::file_verdict::FileNeed;
use crate::fork_gate::FORK_SYSCALLS;
use crate::notified_thread::NotifiedThread;
use crate::server_syscalls::{REFUSED, is_limited_to_self};
use crate::syscall_names::name_of;
use crate::trace_log::{RefusedOperation, RefusedSyscall};

/// Returns the refused operations of a call that failed. A call with two paths may have two.
pub(crate) fn refused_operations(
    caller: NotifiedThread,
    number: c_long,
    arguments: [u64; 6],
    errno: i32,
) -> Vec<RefusedSyscall> {
    let operations = match errno {
        libc::EMFILE => vec![RefusedOperation::OpenFile],
        libc::ENOMEM => memory(number, arguments).into_iter().collect(),
        libc::EAGAIN if FORK_SYSCALLS.contains(&number) => vec![RefusedOperation::Process],
        libc::EACCES | libc::EPERM | libc::EROFS => permission(caller, number, arguments, errno),
        // Landlock's answer to moving a file between folders.
        libc::EXDEV => moved_files(caller, number, arguments),
        _ => Vec::new(),
    };
    let call = |operation| RefusedSyscall { call: name_of(number), operation, errno };
    operations.into_iter().map(call).collect()
}

fn memory(number: c_long, [_, length, new_length, ..]: [u64; 6]) -> Option<RefusedOperation> {
    let bytes = match number {
        libc::SYS_mmap => length,
        libc::SYS_mremap => new_length,
        _ => return None,
    };
    Some(RefusedOperation::Memory { bytes })
}

fn permission(
    caller: NotifiedThread,
    number: c_long,
    arguments: [u64; 6],
    errno: i32,
) -> Vec<RefusedOperation> {
    let [a, b, ..] = arguments;
    match number {
        libc::SYS_socket => vec![RefusedOperation::Socket { family: a as i32 }],
        libc::SYS_socketpair => vec![RefusedOperation::Socket { family: libc::AF_UNIX }],
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => vec![RefusedOperation::Signal],
        libc::SYS_bind => {
            bound_path(caller, b).into_iter().map(|path| file(&path, FileNeed::ChangeFolder)).collect()
        }
        _ if ATTRIBUTE_CALLS.contains(&number) => {
            let path = attribute_path(caller, number, arguments);
            path.map(|path| RefusedOperation::Attributes { path: text(&path) }).into_iter().collect()
        }
        _ if is_filtered(number) && errno == libc::EPERM => vec![RefusedOperation::Other],
        _ => opened_file(caller, number, arguments)
            .map_or_else(|| moved_files(caller, number, arguments), |opened| vec![opened]),
    }
}

/// Returns true for a call that the filter refuses, always or with some arguments, or that takes a dropped capability.
fn is_filtered(number: c_long) -> bool {
    const CAPABILITIES: &[c_long] =
        &[libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setgroups, libc::SYS_setresuid, libc::SYS_setresgid];
    REFUSED.contains(&number)
        || FORK_SYSCALLS.contains(&number)
        || CAPABILITIES.contains(&number)
        || is_limited_to_self(number)
        || [libc::SYS_fcntl, libc::SYS_ioctl].contains(&number)
}

/// Reads the file of a call that opens, executes or truncates it.
fn opened_file(caller: NotifiedThread, number: c_long, [a, b, c, ..]: [u64; 6]) -> Option<RefusedOperation> {
    const CURRENT: u64 = libc::AT_FDCWD as u64;
    let (folder, path, need) = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (CURRENT, a, need_of_flags(b)),
        libc::SYS_openat => (a, b, need_of_flags(c)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => (CURRENT, a, FileNeed::Write),
        libc::SYS_truncate => (CURRENT, a, FileNeed::Write),
        libc::SYS_execve => (CURRENT, a, FileNeed::Read),
        libc::SYS_execveat => (a, b, FileNeed::Read),
        _ => return None,
    };
    let mut path = absolute(caller, folder, path)?;
    if need == FileNeed::ChangeFolder {
        // A file without a name, in this folder.
        path.push("unnamed");
    }
    Some(file(&path, need))
}

fn need_of_flags(flags: u64) -> FileNeed {
    let flags = flags as i32;
    match flags & libc::O_ACCMODE {
        _ if flags & libc::O_TMPFILE == libc::O_TMPFILE => FileNeed::ChangeFolder,
        libc::O_RDONLY if flags & (libc::O_TRUNC | libc::O_CREAT) == 0 => FileNeed::Read,
        _ => FileNeed::Write,
    }
}

/// Reads the entries that a call creates, removes or moves.
fn moved_files(caller: NotifiedThread, number: c_long, [a, b, c, d, ..]: [u64; 6]) -> Vec<RefusedOperation> {
    const CURRENT: u64 = libc::AT_FDCWD as u64;
    let entries = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir | libc::SYS_mknod | libc::SYS_rmdir | libc::SYS_unlink => vec![(CURRENT, a)],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink | libc::SYS_link => vec![(CURRENT, b)],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => vec![(CURRENT, a), (CURRENT, b)],
        libc::SYS_mkdirat | libc::SYS_mknodat | libc::SYS_unlinkat => vec![(a, b)],
        libc::SYS_symlinkat => vec![(b, c)],
        libc::SYS_linkat => vec![(c, d)],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_renameat => vec![(a, b), (c, d)],
        libc::SYS_renameat2 => vec![(a, b), (c, d)],
        _ => return Vec::new(),
    };
    let path = |(folder, path)| absolute(caller, folder, path);
    entries.into_iter().filter_map(path).map(|path| file(&path, FileNeed::ChangeFolder)).collect()
}

fn attribute_path(caller: NotifiedThread, number: c_long, arguments: [u64; 6]) -> Option<PathBuf> {
    match AttributeCall::read(caller, number, arguments).ok()?.file {
        NamedFile::Descriptor(descriptor) => folder_path(caller, descriptor),
        NamedFile::WorkingFolder => folder_path(caller, libc::AT_FDCWD),
        NamedFile::Path { folder, path, .. } => join(caller, folder, path.to_bytes()),
    }
}

/// Reads the path of a Unix socket's address. An abstract address has none.
fn bound_path(caller: NotifiedThread, address: u64) -> Option<PathBuf> {
    let mut family = [0; 2];
    caller.read_exact(address, &mut family).ok()?;
    let is_unix = i32::from(u16::from_ne_bytes(family)) == libc::AF_UNIX;
    let path = is_unix.then(|| caller.read_string(address + 2, 109, Errno::NAMETOOLONG).ok())??;
    if path.is_empty() { None } else { join(caller, libc::AT_FDCWD, path.to_bytes()) }
}

fn absolute(caller: NotifiedThread, folder: u64, address: u64) -> Option<PathBuf> {
    let path = caller.read_string(address, 4096, Errno::NAMETOOLONG).ok()?;
    join(caller, folder as i32, path.to_bytes())
}

fn join(caller: NotifiedThread, folder: i32, path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    if path.is_absolute() { Some(path.to_path_buf()) } else { Some(folder_path(caller, folder)?.join(path)) }
}

fn folder_path(caller: NotifiedThread, descriptor: i32) -> Option<PathBuf> {
    let link = match descriptor {
        libc::AT_FDCWD => format!("/proc/{}/cwd", caller.thread),
        descriptor => format!("/proc/{}/fd/{descriptor}", caller.thread),
    };
    std::fs::read_link(link).ok()
}

fn file(path: &Path, need: FileNeed) -> RefusedOperation {
    RefusedOperation::File { path: text(path), need }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
