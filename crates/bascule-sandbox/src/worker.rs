//! Starts a script worker, and sees it off.
//!
//! The worker is our own program again, with an empty environment and one end of a socket as its standard input; it locks
//! itself (`cell`). Nothing is run between fork and exec, so that starting one costs the same however large the bridge
//! has grown.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::launcher;
use crate::watchdog::resident_bytes;

/// What becomes of what a worker writes to standard output and standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Nobody reads it.
    Dropped,
    /// It comes to `Worker::output`. A worker that writes more than is read waits.
    Captured,
}

/// A worker that was started. Dropped, it is killed and waited for, so that none is left over.
#[derive(Debug)]
pub struct Worker {
    /// Our end of its socket; does not block. At its end the worker has ended, or has closed it and is of no more use.
    pub socket: UnixStream,
    /// What it writes, if that is captured; does not block.
    pub output: Option<PipeReader>,
    child: Child,
    killed: bool,
    end: Option<End>,
}

/// Starts a worker, and waits the fraction of a millisecond that takes. Its environment is empty but for the time zone.
pub fn spawn_worker(
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    zone: &str,
    output: Output,
) -> io::Result<Worker> {
    let (done, started) = sync_channel(1);
    spawn_worker_then(program, arguments, zone, output, move |worker| drop(done.send(worker)))?;
    started.recv().map_err(io::Error::other)?
}

/// The same for who cannot wait: the thread of ours that starts workers, and lives as long as we do, hands it over.
pub fn spawn_worker_then(
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    zone: &str,
    output: Output,
    done: impl FnOnce(io::Result<Worker>) + Send + 'static,
) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("TZ", zone).current_dir("/");
    // What is typed at the bridge's terminal is not for it. A session of its own would do as well, but makes it a newcomer
    // to the scheduler, who waits until everybody else had a turn: milliseconds on a busy machine.
    command.process_group(0);
    launcher::order(move || done(start(command, output)))
}

/// What of the command is the worker's, pipes above all, is closed before this returns.
fn start(mut command: Command, output: Output) -> io::Result<Worker> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    command.stdin(OwnedFd::from(theirs));
    let output = match output {
        Output::Dropped => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            None
        }
        Output::Captured => {
            let (reader, writer) = io::pipe()?;
            do_not_block(&reader)?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Some(reader)
        }
    };
    let child = command.spawn()?;
    Ok(Worker { socket: ours, output, child, killed: false, end: None })
}

impl Worker {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How much memory it has resident, in bytes. 0 if it has ended.
    pub fn resident_bytes(&self) -> u64 {
        if self.end.is_some() { 0 } else { resident_bytes(self.pid()) }
    }

    /// Kills it, whatever it does. If it has ended already, that end is the one that is told.
    pub fn kill(&mut self) -> io::Result<()> {
        self.killed = true;
        self.child.kill()
    }

    /// How it ended, if it has. Does not wait.
    pub fn try_wait(&mut self) -> io::Result<Option<End>> {
        if self.end.is_none() {
            self.end = self.child.try_wait()?.map(|status| End::of(status, self.killed));
        }
        Ok(self.end)
    }

    /// Waits for its end, however long that takes.
    pub fn wait(&mut self) -> io::Result<End> {
        let end = End::of(self.child.wait()?, self.killed);
        Ok(*self.end.get_or_insert(end))
    }

    /// Lets it end by itself for so long, then kills it. To be called when the socket has: what has ended then is about
    /// to be over, and patience tells how it came to that; what only closed its socket will be killed.
    pub fn finish(&mut self, patience: Duration) -> io::Result<End> {
        if self.try_wait()?.is_none() && !ends_within(self.pid(), patience) {
            self.kill()?;
        }
        self.wait()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.end.is_none() {
            // Fails only for what has ended.
            let _ = self.kill().and_then(|()| self.wait());
        }
    }
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// We killed it.
    Killed,
    /// It made a system call that it may not make (SIGSYS).
    Violation,
    /// It used up its processor time (SIGXCPU).
    OutOfTime,
    /// It gave up (SIGABRT), as Rust and C programs do that find themselves in an impossible state, or out of memory.
    Aborted,
    /// It crashed: SIGSEGV above all; or somebody else killed it: SIGKILL, by the kernel when memory is short.
    Signal(i32),
}

impl End {
    fn of(status: ExitStatus, killed: bool) -> Self {
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

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(out, "it ended with code {code}"),
            Self::Killed => out.write_str("it was killed"),
            Self::Violation => out.write_str("it made a system call that is forbidden"),
            Self::OutOfTime => out.write_str("it used up its processor time"),
            Self::Aborted => out.write_str("it aborted"),
            Self::Signal(signal) => write!(out, "it was ended by signal {signal}"),
        }
    }
}

/// Waits for a child that nobody has waited for yet.
fn ends_within(pid: u32, patience: Duration) -> bool {
    // SAFETY: takes numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(descriptor @ 0..) = i32::try_from(descriptor) else { return false };
    // SAFETY: the kernel just gave it to us, and nobody else has it.
    let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut watched = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `watched` is one valid entry. Interrupted, it says that nothing has happened.
    unsafe { libc::poll(&raw mut watched, 1, milliseconds) > 0 }
}

fn do_not_block(pipe: &PipeReader) -> io::Result<()> {
    // SAFETY: the pipe is open, and has no other flags that matter.
    match unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
