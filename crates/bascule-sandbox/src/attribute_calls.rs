//! The system calls that change file attributes: the file and the change that a call names.
//!
//! Everything is copied from the caller's memory once. The caller can change that memory afterwards without effect.

use std::ffi::CString;

use libc::c_long;
use rustix::fs::{Gid, Mode, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags};
use rustix::io::{Errno, Result};

use crate::notified_thread::NotifiedThread;

/// Not yet defined in `libc`.
pub(crate) const FCHMODAT2: c_long = 452;

/// The calls that [`AttributeCall::read`] understands.
pub(crate) const ATTRIBUTE_CALLS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

pub(crate) struct AttributeCall {
    pub(crate) file: NamedFile,
    pub(crate) change: AttributeChange,
}

/// The file as the caller names it.
#[derive(Debug, PartialEq)]
pub(crate) enum NamedFile {
    Descriptor(i32),
    WorkingFolder,
    Path {
        /// Relative paths start here: a descriptor, or `AT_FDCWD`.
        folder: i32,
        path: CString,
        follow_link: bool,
    },
}

#[derive(Debug)]
pub(crate) enum AttributeChange {
    Mode(Mode),
    Owner(Option<Uid>, Option<Gid>),
    Times(Timestamps),
    Set { name: CString, value: Vec<u8>, flags: XattrFlags },
    Remove { name: CString },
}

const MAX_PATH: usize = 4096;
/// With the final zero.
const MAX_NAME: usize = 256;
const MAX_VALUE: u64 = 65_536;
const CURRENT: u64 = libc::AT_FDCWD as u64;
const NO_FOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
const EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;

impl AttributeCall {
    pub(crate) fn read(caller: NotifiedThread, number: c_long, arguments: [u64; 6]) -> Result<Self> {
        let [a, b, c, d, e, _] = arguments;
        let descriptor = Ok(NamedFile::Descriptor(a as i32));
        let path = |folder, address, flags| read_path(caller, folder, address, flags);
        let (file, change) = match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (path(CURRENT, a, 0), mode(b)),
            libc::SYS_fchmod => (descriptor, mode(b)),
            libc::SYS_fchmodat => (path(a, b, 0), mode(c)),
            FCHMODAT2 => (path(a, b, d), mode(c)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => (path(CURRENT, a, 0), owner(b, c)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => (path(CURRENT, a, NO_FOLLOW), owner(b, c)),
            libc::SYS_fchown => (descriptor, owner(b, c)),
            libc::SYS_fchownat => (path(a, b, e), owner(c, d)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => (path(CURRENT, a, 0), read_seconds(caller, b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => (path(CURRENT, a, 0), read_microseconds(caller, b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat if b == 0 => (descriptor, read_microseconds(caller, c)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => (path(a, b, 0), read_microseconds(caller, c)),
            libc::SYS_utimensat if b == 0 => (descriptor, read_nanoseconds(caller, c)),
            libc::SYS_utimensat => (path(a, b, d), read_nanoseconds(caller, c)),
            libc::SYS_setxattr => (path(CURRENT, a, 0), read_set(caller, b, c, d, e)),
            libc::SYS_lsetxattr => (path(CURRENT, a, NO_FOLLOW), read_set(caller, b, c, d, e)),
            libc::SYS_fsetxattr => (descriptor, read_set(caller, b, c, d, e)),
            libc::SYS_removexattr => (path(CURRENT, a, 0), read_remove(caller, b)),
            libc::SYS_lremovexattr => (path(CURRENT, a, NO_FOLLOW), read_remove(caller, b)),
            libc::SYS_fremovexattr => (descriptor, read_remove(caller, b)),
            _ => return Err(Errno::NOSYS),
        };
        Ok(Self { file: file?, change: change? })
    }
}

fn read_path(caller: NotifiedThread, folder: u64, address: u64, flags: u64) -> Result<NamedFile> {
    // The kernel reads 32 bits of flags.
    let flags = flags & u64::from(u32::MAX);
    if flags & !(NO_FOLLOW | EMPTY_PATH) != 0 {
        return Err(Errno::INVAL);
    }
    let path = caller.read_string(address, MAX_PATH, Errno::NAMETOOLONG)?;
    let folder = folder as i32;
    let follow_link = flags & NO_FOLLOW == 0;
    match path.to_bytes() {
        [] if flags & EMPTY_PATH == 0 => Err(Errno::NOENT),
        [] if folder == libc::AT_FDCWD => Ok(NamedFile::WorkingFolder),
        [] => Ok(NamedFile::Descriptor(folder)),
        path if follow_link && let Some(own) = own_descriptor(path) => Ok(NamedFile::Descriptor(own)),
        _ => Ok(NamedFile::Path { folder, path, follow_link }),
    }
}

/// The descriptor in a path such as `/proc/self/fd/5`, by which libraries name an open file. `/proc/self` means another
/// process to us.
fn own_descriptor(path: &[u8]) -> Option<i32> {
    let path = std::str::from_utf8(path).ok()?;
    let prefixes = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"];
    let number = prefixes.iter().find_map(|prefix| path.strip_prefix(prefix))?;
    number.parse().ok().filter(|number: &i32| *number >= 0)
}

fn mode(mode: u64) -> Result<AttributeChange> {
    Ok(AttributeChange::Mode(Mode::from_raw_mode(mode as u32 & 0o7777)))
}

/// All bits set means: unchanged.
fn owner(user: u64, group: u64) -> Result<AttributeChange> {
    let given = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
    Ok(AttributeChange::Owner(given(user).map(Uid::from_raw), given(group).map(Gid::from_raw)))
}

fn read_nanoseconds(caller: NotifiedThread, address: u64) -> Result<AttributeChange> {
    read_times(caller, address, |[access, access_part, change, change_part]| {
        Ok([(access, access_part), (change, change_part)])
    })
}

#[cfg(target_arch = "x86_64")]
fn read_microseconds(caller: NotifiedThread, address: u64) -> Result<AttributeChange> {
    let nanoseconds = |microseconds| match microseconds {
        0..1_000_000 => Ok(microseconds * 1000),
        _ => Err(Errno::INVAL),
    };
    read_times(caller, address, |[access, access_part, change, change_part]| {
        Ok([(access, nanoseconds(access_part)?), (change, nanoseconds(change_part)?)])
    })
}

#[cfg(target_arch = "x86_64")]
fn read_seconds(caller: NotifiedThread, address: u64) -> Result<AttributeChange> {
    read_times(caller, address, |[access, change]| Ok([(access, 0), (change, 0)]))
}

/// No address means: now.
fn read_times<const N: usize>(
    caller: NotifiedThread,
    address: u64,
    convert: impl FnOnce([i64; N]) -> Result<[(i64, i64); 2]>,
) -> Result<AttributeChange> {
    let times = match address {
        0 => [(0, UTIME_NOW); 2],
        address => convert(caller.read_numbers(address)?)?,
    };
    let [last_access, last_modification] = times.map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
    Ok(AttributeChange::Times(Timestamps { last_access, last_modification }))
}

fn read_set(caller: NotifiedThread, name: u64, value: u64, size: u64, flags: u64) -> Result<AttributeChange> {
    if size > MAX_VALUE {
        return Err(Errno::TOOBIG);
    }
    let mut bytes = vec![0; size as usize];
    caller.read_exact(value, &mut bytes)?;
    let flags = XattrFlags::from_bits_retain(flags as u32);
    Ok(AttributeChange::Set { name: read_name(caller, name)?, value: bytes, flags })
}

fn read_remove(caller: NotifiedThread, name: u64) -> Result<AttributeChange> {
    Ok(AttributeChange::Remove { name: read_name(caller, name)? })
}

fn read_name(caller: NotifiedThread, address: u64) -> Result<CString> {
    caller.read_string(address, MAX_NAME, Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_own_descriptor(path: &str, expected: Option<i32>) {
        assert_eq!(own_descriptor(path.as_bytes()), expected, "{path}");
    }

    // req: SB-04
    #[test]
    fn recognises_own_descriptor_in_path() {
        check_own_descriptor("/proc/self/fd/7", Some(7));
        check_own_descriptor("/dev/fd/0", Some(0));
        for other in
            ["/proc/self/fd/", "/proc/self/fd/-1", "/proc/self/fd/7/x", "/proc/self/fd/../fd/7", "/x"]
        {
            check_own_descriptor(other, None);
        }
    }

    // req: SB-04
    #[test]
    fn every_notified_call_is_understood() {
        let own = NotifiedThread { thread: std::process::id() };
        let text = c"user.a".as_ptr() as u64;
        for number in ATTRIBUTE_CALLS {
            // The same address serves as path, name, value and times; the flags are zero.
            let read = AttributeCall::read(own, *number, [text, text, 0, 0, 0, 0]);
            assert!(!matches!(read, Err(Errno::NOSYS)), "{number}");
        }
    }
}
