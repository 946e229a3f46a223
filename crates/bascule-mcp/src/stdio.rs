//! A server as a child process: messages use its stdin and stdout, its stderr is kept for the post-mortem.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::line::{Line, Lines};
use crate::outbox::Outbox;
use crate::router::Router;
use crate::tail::Tail;
use crate::{Exit, TransportError};

/// Time to drain the pipes after the process has exited. A grandchild may hold them open for ever.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Time for the process to exit by itself after it has closed its stdout.
const EXIT_AFTER_EOF: Duration = Duration::from_secs(1);

/// Time for the process to be reaped after the kill.
const REAPING: Duration = Duration::from_secs(20);

/// Maximum number of bytes queued for the process. Above it the process counts as not reading.
const MOST_WAITING: usize = 64 << 20;

/// Default capacity of a pipe, and the maximum for an unprivileged process.
const USUAL_PIPE: usize = 64 << 10;
const WIDE_PIPE: usize = 1 << 20;

/// Time given to a process at each step of its shutdown.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    /// Time after its stdin is closed, until SIGTERM.
    pub after_close: Duration,
    /// Time after SIGTERM, until SIGKILL.
    pub after_term: Duration,
}

impl Grace {
    /// No waiting at any step.
    pub const NONE: Self = Self { after_close: Duration::ZERO, after_term: Duration::ZERO };
}

impl Default for Grace {
    fn default() -> Self {
        Self { after_close: Duration::from_secs(1), after_term: Duration::from_secs(2) }
    }
}

/// Guard of a confined process. Dropping it makes the jail kill the process and all its descendants.
pub type Lifeline = Box<dyn Send + Sync>;

/// A started process with its three pipes.
pub struct StdioChild {
    child: Child,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: ChildStderr,
    grace: Grace,
    lifeline: Option<Lifeline>,
}

impl fmt::Debug for StdioChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioChild").field("pid", &self.child.id()).finish_non_exhaustive()
    }
}

impl StdioChild {
    /// Starts a program in a new process group. The caller sets environment and working directory in `command`. With a
    /// lifeline, the program is killed only by dropping the lifeline.
    pub fn spawn(
        command: std::process::Command,
        grace: Grace,
        lifeline: Option<Lifeline>,
    ) -> Result<Self, TransportError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |reason| TransportError::Spawn { program: program.clone(), reason };
        let mut child = Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(lifeline.is_none())
            .spawn()
            .map_err(failed)?;
        let stdin: OwnedFd = child.stdin.take().expect("piped above").into_owned_fd().map_err(failed)?;
        let stdout: OwnedFd = child.stdout.take().expect("piped above").into_owned_fd().map_err(failed)?;
        let stderr = child.stderr.take().expect("piped above");
        Ok(Self {
            child,
            stdin: pipe::Sender::from_owned_fd(stdin).map_err(failed)?,
            stdout: pipe::Receiver::from_owned_fd(stdout).map_err(failed)?,
            stderr,
            grace,
            lifeline,
        })
    }

    /// Returns the process id, `None` once the process has been reaped.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Splits the process into the sending side and a task that reads its output and handles its end.
    pub(crate) fn split(
        self,
        limit: usize,
        router: Arc<Router>,
        stderr: Arc<Tail>,
        stop: CancellationToken,
    ) -> (Arc<Outbox>, impl Future<Output = ()> + Send) {
        let outbox = Arc::new(Outbox::new(self.stdin, MOST_WAITING));
        let keeper = Keeper {
            group: self.child.id().and_then(|pid| Pid::from_raw(pid as i32)),
            child: self.child,
            lines: Lines::new(self.stdout, limit),
            stderr: tokio::spawn(keep_tail(self.stderr, stderr)),
            grace: self.grace,
            lifeline: self.lifeline,
            router,
            outbox: outbox.clone(),
            stop,
        };
        (outbox, keeper.run())
    }
}

/// Supervises one process: reads its output, detects its exit, and shuts it down.
struct Keeper {
    group: Option<Pid>,
    child: Child,
    lines: Lines<pipe::Receiver>,
    stderr: JoinHandle<()>,
    grace: Grace,
    lifeline: Option<Lifeline>,
    router: Arc<Router>,
    outbox: Arc<Outbox>,
    stop: CancellationToken,
}

/// The reason why the keeper stopped reading.
enum End {
    RequestHandler,
    Output,
    Pipe(io::Error),
    Exit(Exit),
}

impl Keeper {
    async fn run(mut self) {
        let end = self.listen().await;
        let why = match end {
            End::RequestHandler => TransportError::Closed,
            End::Exit(exit) => TransportError::Exited(exit),
            // A closed pipe is usually the first sign of an exit, and the exit status is more informative.
            End::Output => self.exit_or(TransportError::OutputClosed).await,
            End::Pipe(error) => self.exit_or(TransportError::Pipe(error)).await,
        };
        if matches!(why, TransportError::Exited(_)) {
            let _ = timeout(LAST_WORDS, &mut self.stderr).await;
        }
        let unsent = self.outbox.close();
        self.router.end(Arc::new(why), |id| unsent.contains(&id));
        self.see_off().await;
        self.stderr.abort();
    }

    async fn listen(&mut self) -> End {
        let mut exited: Option<(Exit, Instant)> = None;
        let mut is_wide = false;
        let exit = self.child.wait();
        let writing = self.outbox.run();
        tokio::pin!(exit, writing);
        loop {
            let waited_enough = async {
                match exited {
                    Some((exit, since)) => {
                        sleep_until(since + LAST_WORDS).await;
                        exit
                    }
                    None => std::future::pending().await,
                }
            };
            // Dropping a branch loses nothing: `lines` and `outbox` keep their state in themselves.
            tokio::select! {
                line = self.lines.next() => match line {
                    Ok(Some(line)) => {
                        if !is_wide && line.is_longer_than(USUAL_PIPE) {
                            is_wide = true;
                            widen(self.lines.source());
                        }
                        hear(line, &self.router, &self.outbox);
                    }
                    Ok(None) => return exited.map_or(End::Output, |(exit, _)| End::Exit(exit)),
                    Err(error) => return End::Pipe(error),
                },
                status = &mut exit, if exited.is_none() => match status {
                    Ok(status) => exited = Some((status.into(), Instant::now())),
                    Err(error) => return End::Pipe(error),
                },
                result = &mut writing, if exited.is_none() => match result {
                    Ok(()) => return End::RequestHandler,
                    Err(error) => return End::Pipe(error),
                },
                exit = waited_enough => return End::Exit(exit),
                () = self.stop.cancelled() => return End::RequestHandler,
            }
        }
    }

    async fn exit_or(&mut self, otherwise: TransportError) -> TransportError {
        match timeout(EXIT_AFTER_EOF, self.child.wait()).await {
            Ok(Ok(status)) => TransportError::Exited(status.into()),
            _ => otherwise,
        }
    }

    /// Shuts down the process and the rest of its group: waits for an exit, then sends SIGTERM, then kills.
    async fn see_off(&mut self) {
        let gone = timeout(self.grace.after_close, self.child.wait()).await.is_ok();
        if !gone {
            self.signal(Signal::TERM);
            let _ = timeout(self.grace.after_term, self.child.wait()).await;
        }
        self.make_an_end();
        // The process may have left its group, or its jail may hang. A kill by process id still reaches it.
        if timeout(REAPING, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        // The group id may be reused by now, so it must not be signalled again.
        self.group = None;
    }

    /// Kills the process: with a lifeline by dropping it, because the jail also ends processes that left the group. The
    /// jail can do so only if it is not killed itself, so the group is not signalled then.
    fn make_an_end(&mut self) {
        match self.lifeline.take() {
            Some(lifeline) => {
                drop(lifeline);
                self.group = None;
            }
            None => self.signal(Signal::KILL),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// A runtime that shuts down drops this task at any point. The server's processes must end then too.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.make_an_end();
    }
}

/// Enlarges the pipe of a server that has sent a message longer than the default capacity: it will probably send more,
/// and a larger pipe needs fewer wake-ups. All pipes of a user share one limit, so only such pipes are enlarged, and
/// a failure is ignored.
fn widen(pipe: &pipe::Receiver) {
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, WIDE_PIPE);
    #[cfg(not(target_os = "linux"))]
    let _ = (pipe, WIDE_PIPE);
}

fn hear(line: Line, router: &Router, outbox: &Outbox) {
    match line {
        Line::Whole(frame) => {
            if let Some(reply) = router.deliver(&frame, None) {
                // The error is ignored: if the server does not read its input, later calls report it.
                let _ = outbox.send(None, reply);
            }
        }
        Line::TooLong(unread) => router.deliver_unread(unread),
    }
}

async fn keep_tail(mut stream: ChildStderr, tail: Arc<Tail>) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        tail.push(&buffer[..count]);
    }
}
