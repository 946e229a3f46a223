//! Sees to it that nothing survives: the parent of a confined server, which stays for that alone.
//!
//! Being a subreaper, it inherits whatever its descendants abandon, `setsid` and double forks included. It ends
//! them all when the server ends, and when the bridge does: the bridge holds the other end of the lifeline.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::tree::below;

/// How the server ended, and what it used.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// As `waitpid` has it.
    status: i32,
    /// The most memory that it, or a child it waited for, had resident.
    peak_bytes: u64,
}

/// Call before forking: from now on orphans come to us, and signals wait to be read.
pub(crate) fn prepare() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    // SAFETY: an all-zero `sigset_t` is a valid place for `sigemptyset` to fill.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `signals` is valid for all of these; the descriptor that comes back is ours alone.
    unsafe {
        libc::sigemptyset(&raw mut signals);
        for signal in WATCHED {
            libc::sigaddset(&raw mut signals, signal);
        }
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()))?;
        let descriptor =
            check(libc::signalfd(-1, &raw const signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Call in the child: signals are delivered again, and mean what they usually do.
pub(crate) fn unblock_signals() {
    // SAFETY: as in `prepare`; restoring a default takes numbers only.
    unsafe {
        // Rust's programs ignore it, and what is ignored stays so in the program that comes after.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

const WATCHED: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Waits for the end of the server, or of the bridge, and then ends everything that is left.
pub(crate) fn keep(server: i32, signals: &OwnedFd, lifeline: BorrowedFd<'_>) -> Option<Ended> {
    let mut ended = None;
    while ended.is_none() {
        let mut watched = [poll_in(signals.as_raw_fd()), poll_in(lifeline.as_raw_fd())];
        // SAFETY: `watched` is an array of two valid entries.
        unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) };
        if watched[1].revents != 0 {
            break;
        }
        if read_signals(signals) {
            // SAFETY: takes numbers only. The server leads its own group.
            unsafe { libc::kill(-server, libc::SIGTERM) };
        }
        ended = reap(server);
    }
    end_all(server).or(ended)
}

/// Whether the bridge has let go of the line, or is no more.
pub(crate) fn is_cut(lifeline: BorrowedFd<'_>) -> bool {
    let mut watched = poll_in(lifeline.as_raw_fd());
    // SAFETY: `watched` is one valid entry.
    unsafe { libc::poll(&raw mut watched, 1, 0) };
    watched.revents != 0
}

/// Empties the queue of signals. Says whether one of them asked us to end.
fn read_signals(signals: &OwnedFd) -> bool {
    let mut asked = false;
    // SAFETY: an all-zero `signalfd_siginfo` is a valid place for the kernel to fill.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `info` has room for `size` bytes.
    while unsafe { libc::read(signals.as_raw_fd(), (&raw mut info).cast(), size) } == size as isize {
        asked |= info.ssi_signo != libc::SIGCHLD as u32;
    }
    asked
}

/// Takes leave of every child that has ended. Says how the server did, if it was among them.
fn reap(server: i32) -> Option<Ended> {
    let mut found = None;
    loop {
        match wait(libc::WNOHANG) {
            None => return found,
            Some((pid, ended)) if pid == server => found = Some(ended),
            Some(_) => {}
        }
    }
}

/// Takes leave of one child. None if there is none to take leave of.
fn wait(options: i32) -> Option<(i32, Ended)> {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid place for the kernel to fill.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid places for the answer.
    let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut used) };
    let peak_bytes = u64::try_from(used.ru_maxrss).unwrap_or(0) << 10;
    (pid > 0).then_some((pid, Ended { status, peak_bytes }))
}

/// Kills until there is nobody left. What forks faster than we look meets us again, with fewer to fork.
fn end_all(server: i32) -> Option<Ended> {
    let own = std::process::id();
    let mut found = None;
    loop {
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            for pid in below(own) {
                // SAFETY: takes numbers only; the process is a descendant that we have not waited for.
                unsafe { libc::kill(pid as libc::pid_t, signal) };
            }
        }
        match wait(0) {
            None => return found,
            Some((pid, ended)) if pid == server => found = Some(ended),
            Some(_) => {}
        }
        found = reap(server).or(found);
    }
}

impl Ended {
    /// Tells the bridge what it cannot see by itself. It may not be there, or may not care.
    pub(crate) fn tell(&self, lifeline: BorrowedFd<'_>) {
        let word = self.peak_bytes.to_ne_bytes();
        // SAFETY: `word` is readable for its whole length.
        unsafe { libc::send(lifeline.as_raw_fd(), word.as_ptr().cast(), word.len(), libc::MSG_NOSIGNAL) };
    }

    /// Ends this process in the same way, so that the bridge sees what the server came to.
    pub(crate) fn imitate(&self) -> ! {
        let status = self.status;
        if libc::WIFEXITED(status) {
            std::process::exit(libc::WEXITSTATUS(status));
        }
        let signal = libc::WTERMSIG(status);
        // SAFETY: restoring the default and raising a signal take numbers only.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            unblock_signals();
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
