//! A server that is a child process: messages over its stdin and stdout, its stderr kept for the post-mortem.

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

/// After the process ended: how long its last words may still be in the pipes. Somebody else (a grandchild)
/// may hold them open for ever.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// After it closed its output: how long it may take to exit by itself.
const EXIT_AFTER_EOF: Duration = Duration::from_secs(1);

/// After everything was killed: how long it may take until nothing is left of it.
const REAPING: Duration = Duration::from_secs(20);

/// How much may wait to be read by the process. Beyond it, it is taken not to read at all.
const MOST_WAITING: usize = 64 << 20;

/// How much a pipe holds, unless it is told otherwise; and the most that everybody may ask for.
const USUAL_PIPE: usize = 64 << 10;
const WIDE_PIPE: usize = 1 << 20;

/// How long a process is given to end, each time it is asked less kindly.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    /// After its stdin was closed.
    pub after_close: Duration,
    /// After SIGTERM; then comes SIGKILL.
    pub after_term: Duration,
}

impl Grace {
    /// For what is not worth waiting for.
    pub const NONE: Self = Self { after_close: Duration::ZERO, after_term: Duration::ZERO };
}

impl Default for Grace {
    fn default() -> Self {
        Self { after_close: Duration::from_secs(1), after_term: Duration::from_secs(2) }
    }
}

/// Something on which a process's life hangs: when it is dropped, whoever confines the process ends it, and all
/// that came of it.
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
    /// Starts a program in a process group of its own. Environment and folder are the command's business. Where
    /// there is a lifeline, the program is never killed but by dropping that.
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

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Takes the process apart into what sends and the task that does all the rest.
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

/// Keeps one process: reads what it says, notices its end, and sees to it.
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

/// Why the keeper stopped listening.
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
            // Closed pipes are mostly the first sign of an exit, which says more.
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
            // Nothing is lost when a branch is dropped: lines and outbox keep what they have in themselves.
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

    /// Ends the process and whatever it left in its group: asked first, then told, then made to.
    async fn see_off(&mut self) {
        let gone = timeout(self.grace.after_close, self.child.wait()).await.is_ok();
        if !gone {
            self.signal(Signal::TERM);
            let _ = timeout(self.grace.after_term, self.child.wait()).await;
        }
        self.make_an_end();
        // It may have left the group, or whoever confines it may be stuck; itself it cannot leave.
        if timeout(REAPING, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        // Its number may be somebody else's by now: it is not signalled again.
        self.group = None;
    }

    /// Kills. Whoever confines the process does that better than we could, as long as it is not killed itself.
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

/// A runtime that ends, ends this task wherever it is: the server's children must not be forgotten.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.make_an_end();
    }
}

/// A server that sends what no pipe holds at once will do so again: with a wider one we are woken less often for it.
/// All pipes of a user have a bound together, so not every one is made wide, and this one need not be.
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
                // A server that asks but does not read will be found out by its own calls.
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
