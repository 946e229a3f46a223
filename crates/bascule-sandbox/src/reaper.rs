//! The reaper: the parent of a confined server, which kills every process the server leaves behind.
//!
//! It is a subreaper, so it inherits all orphans among its descendants, also after `setsid` and double forks. It kills
//! all descendants when the server exits, when there are too many of them, and when the lifeline closes. The lifeline is a
//! socket whose other end only the bridge holds, so it closes when the bridge wants the server killed and when the bridge
//! itself ends.
//!
//! The server's seccomp filter makes the kernel notify the reaper of each fork, and the fork waits for the answer. While
//! the reaper kills, it has stopped answering, so the descendants cannot fork.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use crate::cgroup;
use crate::file_attributes::AttributeThread;
use crate::fork_gate::{FORK_SYSCALLS, ForkGate, TooManyProcesses};
use crate::lifeline::{LifelineEvent, ReaperLifeline, ReaperReport};
use crate::notifications::{SyscallAnswer, SyscallNotificationSource};
use crate::process_tree::descendants_of;
use crate::syscall_result::check;

/// The server's exit.
#[derive(Clone, Copy)]
pub(crate) struct ServerExit {
    /// The status from `waitpid`.
    status: i32,
    /// Peak resident memory of the server or of a child it waited for.
    pub(crate) peak_bytes: u64,
}

/// Makes this process a subreaper and blocks `BLOCKED_SIGNALS`, which are then read from the returned descriptor. To be
/// called before forking.
pub(crate) fn become_subreaper() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    // SAFETY: an all-zero `sigset_t` is valid for `sigemptyset` to fill.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `signals` is valid for all of these; nothing else owns the returned descriptor.
    unsafe {
        libc::sigemptyset(&raw mut signals);
        for signal in BLOCKED_SIGNALS {
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
    // SAFETY: as in `become_subreaper`; restoring a default takes numbers only.
    unsafe {
        // Rust programs ignore SIGPIPE, and an executed program inherits that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

const BLOCKED_SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// The reaper of one running server, and all that it watches.
pub(crate) struct Reaper<'a> {
    pub(crate) server_pid: i32,
    /// Signals to this process, from [`become_subreaper`].
    pub(crate) signals: OwnedFd,
    pub(crate) lifeline: &'a ReaperLifeline,
    /// System calls of the descendants that wait for an answer.
    pub(crate) notifications: SyscallNotificationSource,
    /// Answers the system calls of `FORK_SYSCALLS`.
    pub(crate) fork_gate: ForkGate,
    /// Answers system calls that change attributes of files. `None` if the filter notifies none of these.
    pub(crate) attributes: Option<AttributeThread>,
    /// Folders of the server's control groups.
    pub(crate) cgroups: &'a [PathBuf],
}

impl Reaper<'_> {
    /// Waits until the server exits, has too many processes, or the lifeline closes. Then kills all descendants. Returns
    /// `None` if the kernel reported no exit of the server.
    pub(crate) fn supervise(mut self) -> Option<ServerExit> {
        let mut exit = None;
        while exit.is_none() {
            let [signals, lifeline, notifications] = self.wait_for_events();
            if lifeline != 0 && !self.obey_bridge(lifeline) {
                break;
            }
            if notifications != 0 && self.answer_syscall(notifications).is_err() {
                break;
            }
            if signals != 0 {
                exit = self.handle_signals();
            }
        }
        self.kill_descendants().or(exit)
    }

    /// Waits for signals, lifeline and notifications. Returns the events of each, as `poll` reports them; 0 for none.
    fn wait_for_events(&self) -> [i16; 3] {
        let descriptors =
            [self.signals.as_raw_fd(), self.lifeline.descriptor(), self.notifications.descriptor()];
        let mut watched = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: `watched` is an array of three valid entries.
        unsafe { libc::poll(watched.as_mut_ptr(), 3, -1) };
        watched.map(|entry| entry.revents)
    }

    /// Receives a message of the bridge. Returns false if the tree must be killed.
    fn obey_bridge(&mut self, events: i16) -> bool {
        match self.lifeline.receive(events) {
            LifelineEvent::Closed => return false,
            LifelineEvent::MaxProcesses(max) => self.fork_gate.set_max_processes(max),
        }
        true
    }

    /// Answers one system call. Fails if the tree must be killed; then the call is not answered.
    fn answer_syscall(&mut self, events: i16) -> Result<(), TooManyProcesses> {
        let Some(syscall) = self.notifications.receive(events) else { return Ok(()) };
        if FORK_SYSCALLS.contains(&syscall.number) {
            syscall.answer(self.admit_fork()?);
        } else if let Some(attributes) = &self.attributes {
            attributes.answer(syscall);
        } else {
            syscall.answer(SyscallAnswer::FailWith(libc::ENOSYS));
        }
        Ok(())
    }

    fn admit_fork(&mut self) -> Result<SyscallAnswer, TooManyProcesses> {
        self.fork_gate.admit().inspect_err(|TooManyProcesses(processes)| {
            self.lifeline.send(ReaperReport { processes: *processes, ..ReaperReport::default() });
        })
    }

    /// Passes a request for termination on to the server, and collects exited children. Returns the server's exit if it is
    /// among them.
    fn handle_signals(&self) -> Option<ServerExit> {
        if read_signals(&self.signals) {
            // SAFETY: takes numbers only. The server leads its own process group.
            unsafe { libc::kill(-self.server_pid, libc::SIGTERM) };
        }
        reap(self.server_pid)
    }

    /// Kills all descendants, and repeats that until none is left: on a kernel without seccomp notifications, processes may
    /// fork while the tree is read. Stopping all of them first leaves fewer that can. Returns the server's exit if it had not
    /// been collected before.
    fn kill_descendants(&self) -> Option<ServerExit> {
        cgroup::kill(self.cgroups);
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
                Some((pid, exit)) if pid == self.server_pid => found = Some(exit),
                Some(_) => {}
            }
            found = reap(self.server_pid).or(found);
        }
    }
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
fn reap(server_pid: i32) -> Option<ServerExit> {
    let mut found = None;
    loop {
        match wait(libc::WNOHANG) {
            None => return found,
            Some((pid, exit)) if pid == server_pid => found = Some(exit),
            Some(_) => {}
        }
    }
}

/// Collects one exited child, with the options of `wait4`. Returns `None` if there is none.
fn wait(options: i32) -> Option<(i32, ServerExit)> {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is valid for the kernel to fill.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for the results.
    let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) };
    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10;
    (pid > 0).then_some((pid, ServerExit { status, peak_bytes }))
}

impl ServerExit {
    /// Ends this process with the server's exit code or signal, so that the bridge sees it.
    pub(crate) fn exit_with_same_status(&self) -> ! {
        exit_with_status(self.status)
    }
}

/// Ends this process like the one that ended with a status from `waitpid`.
pub(crate) fn exit_with_status(status: i32) -> ! {
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
