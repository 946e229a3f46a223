//! The thread that waits in a notified system call: its memory and its open files, read from outside.
//!
//! The kernel permits this only to a process that may trace the thread. So the thread has the user and groups of this
//! process, and no capabilities beyond those of this process.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, Result};

#[derive(Clone, Copy)]
pub(crate) struct NotifiedThread {
    /// The thread's id in our PID namespace.
    pub(crate) thread: u32,
}

impl NotifiedThread {
    /// Copies a string of at most `max` bytes, with its final zero.
    pub(crate) fn read_string(self, address: u64, max: usize, too_long: Errno) -> Result<CString> {
        let mut bytes = vec![0; max];
        let length = self.read(address, &mut bytes)?;
        bytes.truncate(length);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.ok_or(if length < max { Errno::FAULT } else { too_long })?);
        CString::new(bytes).map_err(|_| Errno::INVAL)
    }

    pub(crate) fn read_exact(self, address: u64, buffer: &mut [u8]) -> Result<()> {
        match self.read(address, buffer)? {
            length if length == buffer.len() => Ok(()),
            _ => Err(Errno::FAULT),
        }
    }

    pub(crate) fn read_numbers<const N: usize>(self, address: u64) -> Result<[i64; N]> {
        let mut numbers = [0; N];
        for (place, number) in numbers.iter_mut().enumerate() {
            let mut bytes = [0; size_of::<i64>()];
            self.read_exact(address.wrapping_add((place * bytes.len()) as u64), &mut bytes)?;
            *number = i64::from_ne_bytes(bytes);
        }
        Ok(numbers)
    }

    /// Returns the number of bytes before the first that is not readable.
    fn read(self, address: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let remote = pages(address, buffer.len());
        // SAFETY: `local` covers `buffer`, which is writable. The remote ranges are only read, by the kernel.
        let length = unsafe {
            let (count, thread) = (remote.len() as libc::c_ulong, self.thread as libc::pid_t);
            libc::process_vm_readv(thread, &raw const local, 1, remote.as_ptr(), count, 0)
        };
        usize::try_from(length).map_err(|_| last_error())
    }

    /// Opens the file behind a descriptor of the thread, without access to its content.
    pub(crate) fn open_descriptor(self, descriptor: i32) -> Result<OwnedFd> {
        let opened = self.open(&format!("fd/{descriptor}"));
        opened.map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
    }

    /// Opens the folder that relative paths of a call start from.
    pub(crate) fn open_folder(self, descriptor: i32) -> Result<OwnedFd> {
        match descriptor {
            libc::AT_FDCWD => self.open("cwd"),
            descriptor => self.open_descriptor(descriptor),
        }
    }

    fn open(self, link: &str) -> Result<OwnedFd> {
        let path = format!("/proc/{}/{link}", self.thread);
        openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Ranges that end at page boundaries: the kernel reads a range completely or not at all.
fn pages(address: u64, length: usize) -> Vec<libc::iovec> {
    const PAGE: u64 = 4096;
    let (mut start, end) = (address, address.saturating_add(length as u64));
    let mut ranges = Vec::new();
    while start < end {
        let next = (start - start % PAGE).saturating_add(PAGE).min(end);
        ranges.push(libc::iovec { iov_base: start as *mut libc::c_void, iov_len: (next - start) as usize });
        start = next;
    }
    ranges
}

/// Returns true if the kernel lets a process read the memory of its descendants.
pub(crate) fn can_read_descendants() -> bool {
    let is_permitted = match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) => matches!(scope.trim(), "0" | "1"),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let (own, sample) = (NotifiedThread { thread: std::process::id() }, [1]);
    is_permitted && own.read_exact(sample.as_ptr() as u64, &mut [0]).is_ok()
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> NotifiedThread {
        NotifiedThread { thread: std::process::id() }
    }

    /// A readable page, followed by one that is not.
    fn page_before_gap() -> *mut u8 {
        // SAFETY: maps new memory and removes half of it again.
        unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let start = libc::mmap(std::ptr::null_mut(), 8192, access, kind, -1, 0).cast::<u8>();
            libc::munmap(start.add(4096).cast(), 4096);
            start
        }
    }

    // req: SB-04
    #[test]
    fn reads_string_up_to_its_end_and_no_further() {
        let text = c"/some/path";
        let read = own().read_string(text.as_ptr() as u64, 4096, Errno::NAMETOOLONG);
        assert_eq!(read.as_deref(), Ok(text));
        assert_eq!(own().read_string(text.as_ptr() as u64, 4, Errno::NAMETOOLONG), Err(Errno::NAMETOOLONG));
        assert_eq!(own().read_string(0, 4096, Errno::NAMETOOLONG), Err(Errno::FAULT));
        assert_eq!(own().read_string(u64::MAX, 4096, Errno::NAMETOOLONG), Err(Errno::FAULT));
    }

    // req: SB-04
    #[test]
    fn reads_string_at_the_end_of_memory() {
        let start = page_before_gap();
        // SAFETY: the first page is writable.
        let last = unsafe {
            start.add(4093).copy_from(c"ab".as_ptr().cast(), 3);
            start.add(4093)
        };
        assert_eq!(own().read_string(last as u64, 4096, Errno::NAMETOOLONG).as_deref(), Ok(c"ab"));
        // SAFETY: as above.
        unsafe { start.add(4095).write(b'c') };
        assert_eq!(own().read_string(last as u64, 4096, Errno::NAMETOOLONG), Err(Errno::FAULT));
    }
}
