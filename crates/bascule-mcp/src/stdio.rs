//! The stdio transport: messages over stdin and stdout of a child process. The end of its stderr is kept for errors.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
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

use crate::line::{InputLine, LineReader};
use crate::pacer::Pacer;
use crate::router::MessageRouter;
use crate::stdin_queue::StdinQueue;
use crate::tail::Tail;
use crate::{ProcessExit, TransportError, is_large, run_large};

/// Time for reading the last output after the process has ended. A grandchild may hold the pipes open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for the process to exit by itself after it has closed its stdout.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for the process to end after it was killed.
const REAP_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of bytes queued for stdin. A process that leaves more unread does not read its input.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The default capacity of a pipe, and the largest one without privileges.
const DEFAULT_PIPE: usize = 64 << 10;
const LARGE_PIPE: usize = 1 << 20;

/// The time a process has to end after each step of its shutdown.
#[derive(Debug, Clone, Copy)]
pub struct ShutdownTimeouts {
    /// Time after its stdin is closed. Then SIGTERM is sent.
    pub after_close: Duration,
    /// Time after SIGTERM. Then SIGKILL is sent.
    pub after_term: Duration,
}

impl ShutdownTimeouts {
    /// The process is killed at once.
    pub const NONE: Self = Self { after_close: Duration::ZERO, after_term: Duration::ZERO };
}

impl Default for ShutdownTimeouts {
    fn default() -> Self {
        Self { after_close: Duration::from_secs(1), after_term: Duration::from_secs(2) }
    }
}

/// A guard of a confined process: when it is dropped, the jail ends the process and its descendants.
pub type ProcessGuard = Box<dyn Send + Sync>;

/// Receives the bytes of a process's stderr. Must not block.
pub type StderrSink = Box<dyn FnMut(&[u8]) + Send + Sync>;

/// A started process with its three pipes.
pub struct StdioChild {
    child: Child,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: ChildStderr,
    on_stderr: Option<StderrSink>,
    shutdown_timeouts: ShutdownTimeouts,
    lifeline: Option<ProcessGuard>,
}

impl fmt::Debug for StdioChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioChild").field("pid", &self.child.id()).finish_non_exhaustive()
    }
}

impl StdioChild {
    /// Starts a program in its own process group. A confined program has a lifeline, and is killed by dropping that instead
    /// of by SIGKILL.
    pub fn spawn(
        command: std::process::Command,
        shutdown_timeouts: ShutdownTimeouts,
        lifeline: Option<ProcessGuard>,
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
            on_stderr: None,
            shutdown_timeouts,
            lifeline,
        })
    }

    /// Passes the bytes of stderr on as they arrive.
    pub fn with_stderr_sink(self, sink: Option<StderrSink>) -> Self {
        Self { on_stderr: sink, ..self }
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Splits the process into the sending side and the task that supervises it.
    pub(crate) fn split(
        self,
        limit: usize,
        router: Arc<MessageRouter>,
        stderr: Arc<Tail>,
        stop: CancellationToken,
    ) -> (Arc<StdinQueue>, impl Future<Output = ()> + Send) {
        let stdin_queue = Arc::new(StdinQueue::new(self.stdin, MAX_QUEUED_BYTES));
        let supervisor = Supervisor {
            group: self.child.id().and_then(|pid| Pid::from_raw(pid as i32)),
            child: self.child,
            lines: LineReader::new(self.stdout, limit),
            stderr: tokio::spawn(keep_tail(self.stderr, stderr, self.on_stderr)),
            shutdown_timeouts: self.shutdown_timeouts,
            lifeline: self.lifeline,
            router,
            stdin_queue: stdin_queue.clone(),
            stop,
        };
        (stdin_queue, supervisor.run())
    }
}

/// Reads the output of one process, notices its end, and shuts it down.
struct Supervisor {
    group: Option<Pid>,
    child: Child,
    lines: LineReader<pipe::Receiver>,
    stderr: JoinHandle<()>,
    shutdown_timeouts: ShutdownTimeouts,
    lifeline: Option<ProcessGuard>,
    router: Arc<MessageRouter>,
    stdin_queue: Arc<StdinQueue>,
    stop: CancellationToken,
}

/// The reason for which the supervisor stopped reading.
enum ReadEnd {
    Stopped,
    OutputClosed,
    PipeFailed(io::Error),
    Exited(ProcessExit),
}

impl Supervisor {
    async fn run(mut self) {
        let end = self.read().await;
        let cause = match end {
            ReadEnd::Stopped => TransportError::Closed,
            ReadEnd::Exited(exit) => TransportError::Exited(exit),
            // A pipe mostly closes because the process exits. The exit status says more, so it is awaited.
            ReadEnd::OutputClosed => self.exit_or_else(TransportError::OutputClosed).await,
            ReadEnd::PipeFailed(error) => self.exit_or_else(TransportError::Pipe(error)).await,
        };
        if matches!(cause, TransportError::Exited(_)) {
            let _ = timeout(DRAIN_TIMEOUT, &mut self.stderr).await;
        }
        let unsent = self.stdin_queue.close();
        self.router.close(Arc::new(cause), |id| unsent.contains(&id));
        self.shut_down().await;
        self.stderr.abort();
    }

    async fn read(&mut self) -> ReadEnd {
        let mut exited: Option<(ProcessExit, Instant)> = None;
        let mut has_large_pipe = false;
        // A large message is delivered before the next line is read.
        let mut delivering: Option<Delivering> = None;
        let exit = self.child.wait();
        let writing = self.stdin_queue.run();
        tokio::pin!(exit, writing);
        loop {
            // Every branch is cancel-safe: reader and queue keep their state.
            tokio::select! {
                line = next_line(&mut self.lines, &self.router), if delivering.is_none() => match line {
                    Ok(Some(line)) => {
                        if !has_large_pipe && line.is_longer_than(DEFAULT_PIPE) {
                            has_large_pipe = true;
                            enlarge(self.lines.source());
                        }
                        delivering = start_delivery(line, &self.router, &self.stdin_queue);
                    }
                    Ok(None) => return exited.map_or(ReadEnd::OutputClosed, |(exit, _)| ReadEnd::Exited(exit)),
                    Err(error) => return ReadEnd::PipeFailed(error),
                },
                status = &mut exit, if exited.is_none() => match status {
                    Ok(status) => exited = Some((status.into(), Instant::now())),
                    Err(error) => return ReadEnd::PipeFailed(error),
                },
                result = &mut writing, if exited.is_none() => match result {
                    Ok(()) => return ReadEnd::Stopped,
                    Err(error) => return ReadEnd::PipeFailed(error),
                },
                () = finish(&mut delivering) => {
                    // The output after the large message has its own time.
                    exited = exited.map(|(exit, _)| (exit, Instant::now()));
                }
                exit = drain(exited), if delivering.is_none() => return ReadEnd::Exited(exit),
                () = self.stop.cancelled() => return ReadEnd::Stopped,
            }
        }
    }

    async fn exit_or_else(&mut self, otherwise: TransportError) -> TransportError {
        match timeout(EXIT_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => TransportError::Exited(status.into()),
            _ => otherwise,
        }
    }

    /// Ends the process and its group: waits after stdin was closed, then SIGTERM, then SIGKILL.
    async fn shut_down(&mut self) {
        let has_ended = timeout(self.shutdown_timeouts.after_close, self.child.wait()).await.is_ok();
        if !has_ended {
            self.signal(Signal::TERM);
            let _ = timeout(self.shutdown_timeouts.after_term, self.child.wait()).await;
        }
        self.kill();
        // The process may have left the group, or the jail may hang: kill the process by its own id.
        if timeout(REAP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        // The id of the group may be reused by now.
        self.group = None;
    }

    /// Kills the process and its descendants. With a lifeline the jail does that, which also reaches processes that have
    /// left the group; a signal to the group would kill the jail first.
    fn kill(&mut self) {
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

/// Kills the process if the runtime drops the supervisor's task before `shut_down` has finished.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Enlarges a pipe: a server that sent a message larger than the pipe will do so again, and a larger pipe needs fewer
/// wake-ups. All pipes of a user share one limit, so not every pipe is enlarged, and a failure is ignored.
fn enlarge(pipe: &pipe::Receiver) {
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, LARGE_PIPE);
    #[cfg(not(target_os = "linux"))]
    let _ = (pipe, LARGE_PIPE);
}

/// Waits until the time for reading the last output of an ended process is over; for ever if the process runs. Cancel-safe.
async fn drain(exited: Option<(ProcessExit, Instant)>) -> ProcessExit {
    match exited {
        Some((exit, since)) => {
            sleep_until(since + DRAIN_TIMEOUT).await;
            exit
        }
        None => std::future::pending().await,
    }
}

type Delivering = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Delivers a line at once, or returns the delivery of a large one, which runs on another thread.
fn start_delivery(
    line: InputLine,
    router: &Arc<MessageRouter>,
    stdin_queue: &Arc<StdinQueue>,
) -> Option<Delivering> {
    match line {
        InputLine::Whole(frame) if is_large(frame.len()) => {
            let (router, stdin_queue) = (router.clone(), stdin_queue.clone());
            Some(Box::pin(run_large(move || deliver(InputLine::Whole(frame), &router, &stdin_queue))))
        }
        line => {
            deliver(line, router, stdin_queue);
            None
        }
    }
}

/// Waits for the delivery of a large message, for ever if there is none. Cancel-safe.
async fn finish(delivering: &mut Option<Delivering>) {
    match delivering {
        Some(running) => running.await,
        None => std::future::pending().await,
    }
    *delivering = None;
}

/// Returns the next line of a server that does not exceed its rate. Cancel-safe.
async fn next_line(
    lines: &mut LineReader<pipe::Receiver>,
    router: &MessageRouter,
) -> io::Result<Option<InputLine>> {
    router.pacer.pace().await;
    lines.next().await
}

fn deliver(line: InputLine, router: &MessageRouter, stdin_queue: &StdinQueue) {
    match line {
        InputLine::Whole(frame) => {
            if let Some(reply) = router.deliver(&frame, None) {
                // A full queue needs no handling: the next request fails.
                let _ = stdin_queue.send(None, reply);
            }
        }
        InputLine::TooLong(scanned) => router.deliver_oversized(scanned),
        InputLine::Blank(bytes) => router.pacer.charge_bytes(bytes),
    }
}

async fn keep_tail(mut stream: ChildStderr, tail: Arc<Tail>, mut sink: Option<StderrSink>) {
    let (mut buffer, pacer) = (vec![0; 4096], Pacer::new());
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        tail.push(&buffer[..count]);
        sink.iter_mut().for_each(|sink| sink(&buffer[..count]));
        pacer.charge_bytes(count);
        pacer.pace().await;
    }
}
