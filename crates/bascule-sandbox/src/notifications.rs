//! Passes system calls of a confined server to its reaper for a decision (seccomp user notifications).
//!
//! The server's process installs the filter and sends the listener to the reaper. The kernel permits one listener for a
//! process and its descendants, so all notified system calls arrive here. A call that is not answered waits until its process is
//! killed; without a listener it fails.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use libc::{c_int, c_long};

use crate::seccomp;

/// The reaper's source of notifications: the listener, or the socket on which it arrives.
pub(crate) enum SyscallNotificationSource {
    /// The socket on which the server's process sends the listener.
    Expected(OwnedFd),
    Listener(Arc<OwnedFd>),
    /// The filter notifies nobody, or no process with the filter is left.
    Closed,
}

/// A system call that waits for an answer.
pub(crate) struct SyscallNotification {
    listener: Arc<OwnedFd>,
    id: u64,
    /// The thread that made the call.
    pub(crate) thread: u32,
    pub(crate) number: c_long,
    pub(crate) arguments: [u64; 6],
}

/// The reaper's decision about a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyscallAnswer {
    /// The call returns 0: the reaper has done what it requests.
    Done,
    /// The kernel executes the call. Its arguments in memory may have changed since.
    Proceed,
    FailWith(c_int),
}

impl SyscallNotificationSource {
    /// For `poll`, which ignores -1.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Expected(socket) => socket.as_raw_fd(),
            Self::Listener(listener) => listener.as_raw_fd(),
            Self::Closed => -1,
        }
    }

    /// To be called with the result of `poll`, if that is not 0. Returns `None` if there is no system call
    /// to answer: the listener has only arrived, has closed, or the thread that made the call has been killed.
    pub(crate) fn receive(&mut self, events: i16) -> Option<SyscallNotification> {
        match self {
            Self::Expected(socket) => {
                *self = receive_descriptor(socket).map(Arc::new).map_or(Self::Closed, Self::Listener);
                None
            }
            Self::Listener(_) if events & libc::POLLIN == 0 => {
                *self = Self::Closed;
                None
            }
            Self::Listener(listener) => receive_notification(listener),
            Self::Closed => None,
        }
    }
}

impl SyscallNotification {
    /// Returns false if the thread has left the call. Its id may belong to another thread by then.
    pub(crate) fn is_pending(&self) -> bool {
        let (listener, request) = (self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID);
        // SAFETY: the request reads the number that it is given.
        unsafe { libc::ioctl(listener, request, &raw const self.id) == 0 }
    }

    pub(crate) fn answer(&self, answer: SyscallAnswer) {
        let (error, flags) = match answer {
            SyscallAnswer::Done => (0, 0),
            SyscallAnswer::Proceed => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            SyscallAnswer::FailWith(errno) => (-errno, 0),
        };
        let mut response = libc::seccomp_notif_resp { id: self.id, val: 0, error, flags };
        // SAFETY: `response` has the layout that the request expects. Fails if the caller has left, which is harmless.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
    }
}

fn receive_notification(listener: &Arc<OwnedFd>) -> Option<SyscallNotification> {
    // SAFETY: the kernel requires an all-zero structure, and fills it. `poll` has reported a call; if that has left
    // meanwhile, the request fails.
    let (result, notification) = unsafe {
        let mut notification: libc::seccomp_notif = std::mem::zeroed();
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        (libc::ioctl(listener.as_raw_fd(), request, &raw mut notification), notification)
    };
    let libc::seccomp_notif { id, pid: thread, data, .. } = notification;
    let (number, arguments) = (data.nr.into(), data.args);
    (result == 0).then(|| SyscallNotification {
        listener: Arc::clone(listener),
        id,
        thread,
        number,
        arguments,
    })
}

/// Returns true if a process started by this one gets a listener. A container or sandbox may have the only one.
pub(crate) fn can_listen() -> bool {
    // A filter belongs to a thread, and ends with it.
    let listen = || {
        // SAFETY: takes numbers only, and changes this thread only.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        seccomp::install_with_listener(vec![seccomp::act(seccomp::ALLOW)]).is_ok()
    };
    are_available() && std::thread::spawn(listen).join().unwrap_or(false)
}

/// Returns true if this kernel can notify, and can let a notified call proceed.
pub(crate) fn are_available() -> bool {
    let action = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the first call reads `action` only. The second closes no descriptor: it shows that the kernel is Linux 5.9
    // or later, while calls can proceed since 5.5, which cannot be asked.
    unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0
            && libc::close_range(u32::MAX, u32::MAX, 0) == 0
    }
}

/// Space for the control message with one descriptor, aligned as `cmsghdr` requires.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

/// Sends a descriptor to the process at the other end of the socket.
pub(crate) fn send_descriptor(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut control = ControlBuffer([0; 64]);
    let mut byte = 0_u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: `message` points at `data` and `control`, which outlive the call; the macros keep within `control`, which
    // has room for one descriptor.
    unsafe {
        let message = message(&mut data, &mut control);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor.as_raw_fd());
        match libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns `None` if the other end was closed without sending one.
fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut control = ControlBuffer([0; 64]);
    let mut byte = 0_u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: as in `send_descriptor`. The kernel has created the descriptor for this process, and nothing else owns it.
    unsafe {
        let mut message = message(&mut data, &mut control);
        if libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) != 1 {
            return None;
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message).as_ref()?;
        let descriptor = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
        (header.cmsg_type == libc::SCM_RIGHTS).then(|| OwnedFd::from_raw_fd(descriptor))
    }
}

fn message(data: &mut libc::iovec, control: &mut ControlBuffer) -> libc::msghdr {
    // SAFETY: an all-zero `msghdr` is valid. `CMSG_SPACE` only computes.
    let (mut message, length): (libc::msghdr, _) =
        unsafe { (std::mem::zeroed(), libc::CMSG_SPACE(size_of::<c_int>() as u32)) };
    (message.msg_iov, message.msg_iovlen) = (data, 1);
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), length as _);
    message
}
