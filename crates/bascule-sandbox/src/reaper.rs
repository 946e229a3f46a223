//! The reaper: the parent of a confined server, which kills every process the server leaves behind.
//!
//! It is a subreaper, so it inherits all orphans among its descendants, also after `setsid` and double forks. It kills
//! all descendants when the server exits and when the bridge ends, which closes the other end of the lifeline.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::process_tree::descendants_of;

/// The server's exit.
#[derive(Clone, Copy)]
pub(crate) struct ServerExit {
    /// The status from `waitpid`.
    status: i32,
    /// Peak resident memory of the server or of a child it waited for.
    peak_bytes: u64,
}

/// Makes this process a subreaper and blocks signals, which are then read from the returned descriptor. To be called
/// before forking.
pub(crate) fn prepare() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    // SAFETY: an all-zero `sigset_t` is valid for `sigemptyset` to fill.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `signals` is valid for all of these; nothing else owns the returned descriptor.
    unsafe {
        libc::sigemptyset(&raw mut signals);
        for signal in BLOCKED {
            libc::sigaddset(&raw mut signals, signal);
        }
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()))?;
        let descriptor =
            check(libc::signalfd(-1, &raw const signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Unblocks all signals and restores SIGPIPE.
pub(crate) fn reset_signals() {
    // SAFETY: as in `prepare`; restoring a default takes numbers only.
    unsafe {
        // Rust programs ignore SIGPIPE, and an executed program inherits that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

const BLOCKED: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Waits until the server exits or the lifeline closes, then kills all descendants.
pub(crate) fn supervise(server: i32, signals: &OwnedFd, lifeline: BorrowedFd<'_>) -> Option<ServerExit> {
    let mut exit = None;
    while exit.is_none() {
        let mut watched = [poll_in(signals.as_raw_fd()), poll_in(lifeline.as_raw_fd())];
        // SAFETY: `watched` is an array of two valid entries.
        unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) };
        if watched[1].revents != 0 {
            break;
        }
        if read_signals(signals) {
            // SAFETY: takes numbers only. The server leads its own process group.
            unsafe { libc::kill(-server, libc::SIGTERM) };
        }
        exit = reap(server);
    }
    kill_descendants(server).or(exit)
}

/// Returns true if the bridge has closed its end of the lifeline or has ended.
pub(crate) fn is_closed(lifeline: BorrowedFd<'_>) -> bool {
    let mut watched = poll_in(lifeline.as_raw_fd());
    // SAFETY: `watched` is one valid entry.
    unsafe { libc::poll(&raw mut watched, 1, 0) };
    watched.revents != 0
}

/// Reads all queued signals. Returns true if one of them requests termination.
fn read_signals(signals: &OwnedFd) -> bool {
    let mut is_termination = false;
    // SAFETY: an all-zero `signalfd_siginfo` is valid for the kernel to fill.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `info` has room for `size` bytes.
    while unsafe { libc::read(signals.as_raw_fd(), (&raw mut info).cast(), size) } == size as isize {
        is_termination |= info.ssi_signo != libc::SIGCHLD as u32;
    }
    is_termination
}

/// Collects all exited children. Returns the server's exit if it is among them.
fn reap(server: i32) -> Option<ServerExit> {
    let mut found = None;
    loop {
        match wait(libc::WNOHANG) {
            None => return found,
            Some((pid, exit)) if pid == server => found = Some(exit),
            Some(_) => {}
        }
    }
}

/// Collects one exited child.
fn wait(options: i32) -> Option<(i32, ServerExit)> {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is valid for the kernel to fill.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for the results.
    let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) };
    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10;
    (pid > 0).then_some((pid, ServerExit { status, peak_bytes }))
}

/// Repeats until no descendant is left: processes may fork while the tree is read. Stopping all of them first leaves
/// fewer that can.
fn kill_descendants(server: i32) -> Option<ServerExit> {
    let own = std::process::id();
    let mut found = None;
    loop {
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            for pid in descendants_of(own) {
                // SAFETY: takes numbers only; the process is a descendant that has not been waited for.
                unsafe { libc::kill(pid as libc::pid_t, signal) };
            }
        }
        match wait(0) {
            None => return found,
            Some((pid, exit)) if pid == server => found = Some(exit),
            Some(_) => {}
        }
        found = reap(server).or(found);
    }
}

impl ServerExit {
    /// Sends the peak memory to the bridge, which cannot observe it. The bridge may have ended.
    pub(crate) fn report_peak(&self, lifeline: BorrowedFd<'_>) {
        let bytes = self.peak_bytes.to_ne_bytes();
        // SAFETY: `bytes` is readable for its whole length.
        unsafe { libc::send(lifeline.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    }

    /// Ends this process with the server's exit code or signal, so that the bridge sees it.
    pub(crate) fn exit_alike(&self) -> ! {
        let status = self.status;
        if libc::WIFEXITED(status) {
            std::process::exit(libc::WEXITSTATUS(status));
        }
        let signal = libc::WTERMSIG(status);
        // SAFETY: restoring the default and raising a signal take numbers only.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            reset_signals();
            libc::raise(signal);
        }
        std::process::exit(128 + signal)
    }
}

fn poll_in(descriptor: i32) -> libc::pollfd {
    libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
