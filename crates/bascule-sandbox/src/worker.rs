//! Spawns script worker processes and collects their exit.
//!
//! A worker is the bridge's own program with an empty environment and one end of a socket as standard input. It locks
//! itself down (`lockdown`). No code runs between fork and exec, so spawning takes the same time however much memory the
//! bridge uses.

use std::ffi::OsStr;
use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::spawn_thread;
use crate::syscall_result::check;

/// The destination of a worker's standard output and standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerOutput {
    Discarded,
    /// Available in [`WorkerProcess::output`]. The worker blocks while the pipe is full.
    Captured,
}

/// A running worker. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub struct WorkerProcess {
    /// The host's end of the worker's socket; non-blocking. At end of file the worker has ended or closed its end, and is
    /// of no more use.
    pub socket: UnixStream,
    /// Captured output; non-blocking.
    pub output: Option<PipeReader>,
    child: Child,
    killed: bool,
    exit: Option<WorkerExit>,
}

/// Spawns a worker without blocking. Its environment contains only the time zone. The thread that spawns workers calls
/// `on_spawned`.
pub fn spawn_worker(
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    zone: &str,
    output: WorkerOutput,
    on_spawned: impl FnOnce(io::Result<WorkerProcess>) + Send + 'static,
) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("TZ", zone).current_dir("/");
    // Keeps signals of the bridge's terminal away. A new session would too, but puts the worker into a new scheduler group,
    // whose first turn takes milliseconds on a busy machine.
    command.process_group(0);
    spawn_thread::submit(move || on_spawned(spawn(command, output)))
}

/// Consumes the command, which closes the worker's ends of the socket and pipes in this process.
fn spawn(mut command: Command, output: WorkerOutput) -> io::Result<WorkerProcess> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    command.stdin(OwnedFd::from(theirs));
    let output = match output {
        WorkerOutput::Discarded => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            None
        }
        WorkerOutput::Captured => {
            let (reader, writer) = io::pipe()?;
            set_nonblocking(&reader)?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Some(reader)
        }
    };
    let child = command.spawn()?;
    Ok(WorkerProcess { socket: ours, output, child, killed: false, exit: None })
}

impl WorkerProcess {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// If the worker has ended already, its own exit is the one reported.
    pub fn kill(&mut self) -> io::Result<()> {
        self.killed = true;
        self.child.kill()
    }

    /// Returns the worker's exit, or `None` if it is still running.
    pub fn try_wait(&mut self) -> io::Result<Option<WorkerExit>> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait()?.map(|status| WorkerExit::new(status, self.killed));
        }
        Ok(self.exit)
    }

    /// Blocks until the worker ends.
    pub fn wait(&mut self) -> io::Result<WorkerExit> {
        let exit = WorkerExit::new(self.child.wait()?, self.killed);
        Ok(*self.exit.get_or_insert(exit))
    }

    /// Waits for the worker's end and kills it after the timeout. To be called at the socket's end of file: a worker that
    /// is ending gets the time to do so, which reveals the cause; one that only closed its socket is killed.
    pub fn wait_or_kill(&mut self, timeout: Duration) -> io::Result<WorkerExit> {
        if self.try_wait()?.is_none() && !ends_within(self.pid(), timeout) {
            self.kill()?;
        }
        self.wait()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if self.exit.is_none() {
            // Fails only if the process has ended.
            let _ = self.kill().and_then(|()| self.wait());
        }
    }
}

/// The way a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkerExit {
    #[error("it exited with code {0}")]
    Exited(i32),
    /// By the host.
    #[error("it was killed")]
    Killed,
    /// SIGSYS.
    #[error("it made a forbidden system call")]
    Violation,
    /// SIGXCPU.
    #[error("it used up its processor time")]
    OutOfTime,
    /// SIGABRT, as Rust and C programs do on a failed invariant or without memory.
    #[error("it aborted")]
    Aborted,
    /// It crashed, mostly by SIGSEGV, or another process or the kernel's OOM killer ended it by SIGKILL.
    #[error("it was ended by signal {0}")]
    Signal(i32),
}

impl WorkerExit {
    fn new(status: ExitStatus, killed: bool) -> Self {
        match (status.code(), status.signal().unwrap_or(0)) {
            (Some(code), _) => Self::Exited(code),
            (_, libc::SIGKILL) if killed => Self::Killed,
            (_, libc::SIGSYS) => Self::Violation,
            (_, libc::SIGXCPU) => Self::OutOfTime,
            (_, libc::SIGABRT) => Self::Aborted,
            (_, signal) => Self::Signal(signal),
        }
    }
}

/// The process must be a child that has not been waited for.
fn ends_within(pid: u32, timeout: Duration) -> bool {
    // SAFETY: takes numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(descriptor @ 0..) = i32::try_from(descriptor) else { return false };
    // SAFETY: the kernel just returned it, and nothing else owns it.
    let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut watched = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `watched` is one valid entry. An interrupted call counts as a timeout.
    unsafe { libc::poll(&raw mut watched, 1, milliseconds) > 0 }
}

fn set_nonblocking(pipe: &PipeReader) -> io::Result<()> {
    // SAFETY: the pipe is open, and no other status flag of it matters.
    check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok(())
}
