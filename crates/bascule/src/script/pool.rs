//! Keeps script workers ready. Each runs one script.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bascule_sandbox::lockdown::LockdownLimits;
use bascule_sandbox::{WorkerExit, WorkerOutput, WorkerProcess, spawn_worker};
use bascule_script::wire::{FrameDecoder, FromWorker};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::ScriptMode;
use super::worker::WorkerArgs;
use super::worker_socket::{WorkerReader, WorkerWriter};
use crate::config::ScriptSettings;
use crate::warm_pool::{WarmPool, spawn_on_drop};

/// Timeout for the start of a worker.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a worker to exit after it has closed its socket.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);
/// Delay before a replacement is started, which would take processor time from the script that has just begun.
const REFILL_DELAY: Duration = Duration::from_millis(1);
/// Bytes of standard error to keep.
const MAX_STDERR: usize = 4096;

/// The limits and time zone that a worker is started with. They cannot be raised later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerSpec {
    limits: LockdownLimits,
    time_zone: String,
}

impl WorkerSpec {
    pub(super) fn new(settings: &ScriptSettings) -> Self {
        let heap = u64::from(settings.memory_mb) << 20;
        let limits = LockdownLimits::for_scripts(heap, settings.timeout.as_secs() + 1);
        Self { limits, time_zone: settings.time_zone.clone() }
    }

    /// Returns true if a worker with this spec can run a script that needs the other.
    fn satisfies(&self, other: &Self) -> bool {
        self.time_zone == other.time_zone
            && self.limits.address_space_bytes >= other.limits.address_space_bytes
            && self.limits.cpu_seconds >= other.limits.cpu_seconds
    }
}

/// Starts workers and keeps some ready.
pub(super) struct WorkerPool {
    program: PathBuf,
    pub(super) warm: Arc<WarmPool<WorkerSpec, ConnectedWorker>>,
    has_logged_missing: AtomicBool,
}

impl WorkerPool {
    pub(super) fn new(program: PathBuf, spec: WorkerSpec, size: usize) -> Self {
        let warm = WarmPool::new(size, REFILL_DELAY, spec, CancellationToken::new());
        Self { program, warm, has_logged_missing: AtomicBool::new(false) }
    }

    /// Returns a ready worker that satisfies the spec, or starts one.
    pub(super) async fn take(
        self: &Arc<Self>,
        spec: &WorkerSpec,
        mode: ScriptMode,
    ) -> io::Result<ConnectedWorker> {
        if mode == ScriptMode::Worker {
            let ready = self.warm.take(|ready| ready.satisfies(spec), ConnectedWorker::is_alive);
            self.refill();
            if let Some(worker) = ready {
                return Ok(worker);
            }
        }
        self.start(spec, false).await
    }

    fn refill(self: &Arc<Self>) {
        self.warm.refill(|spec| {
            let pool = self.clone();
            async move {
                let started = pool.warm.stop.run_until_cancelled(pool.start(&spec, true)).await?;
                started
                    .inspect_err(|error| warn!(%error, "could not start a script worker for the pool"))
                    .ok()
            }
        });
    }

    async fn start(&self, spec: &WorkerSpec, is_pooled: bool) -> io::Result<ConnectedWorker> {
        let process = timeout(START_TIMEOUT, spawn(&self.program, spec, is_pooled)).await??;
        let mut worker = ConnectedWorker::new(process, self.warm.tasks.clone())?;
        let missing = timeout(START_TIMEOUT, worker.wait_ready()).await??;
        if !self.has_logged_missing.swap(true, Ordering::Relaxed) && !missing.is_empty() {
            info!(missing = missing.join("; "), "the kernel lacks some confinement features for scripts");
        }
        debug!(pid = worker.pid(), "script worker is ready");
        Ok(worker)
    }
}

async fn spawn(program: &Path, spec: &WorkerSpec, is_pooled: bool) -> io::Result<WorkerProcess> {
    let (sender, started) = oneshot::channel();
    let arguments = WorkerArgs { limits: spec.limits, is_pooled }.to_command_line();
    // If the receiver is gone, the worker is dropped here and thereby killed.
    let on_start = move |worker| drop(sender.send(worker));
    spawn_worker(program, arguments, &spec.time_zone, WorkerOutput::Captured, on_start)?;
    started.await.map_err(io::Error::other)?
}

/// A worker process and its socket. Dropping it kills the process.
pub(super) struct ConnectedWorker {
    process: Option<WorkerProcess>,
    pub(super) reader: WorkerReader,
    pub(super) frames: FrameDecoder,
    pub(super) writer: WorkerWriter,
    tasks: TaskTracker,
}

impl ConnectedWorker {
    fn new(process: WorkerProcess, tasks: TaskTracker) -> io::Result<Self> {
        let (reader, writer) = (WorkerReader::new(&process.socket)?, WorkerWriter::new(&process.socket)?);
        Ok(Self { process: Some(process), reader, frames: FrameDecoder::default(), writer, tasks })
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, WorkerProcess::pid)
    }

    fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Returns the peak resident memory of the process.
    pub(super) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
    }

    /// Waits until the worker has locked itself down. Returns the confinement features that the kernel lacks.
    async fn wait_ready(&mut self) -> io::Result<Vec<String>> {
        loop {
            match self.frames.next_message() {
                Ok(Some(FromWorker::Ready(ready))) => return Ok(ready.missing),
                Ok(Some(_)) => {
                    return Err(io::Error::other("the worker sent another message before `ready`"));
                }
                Err(error) => return Err(io::Error::other(error)),
                Ok(None) => {}
            }
            if !self.reader.read(&mut self.frames).await? {
                let (exit, stderr) = self.wait_exit().await?;
                return Err(io::Error::other(format!("{exit} {stderr}")));
            }
        }
    }

    /// Waits for the exit of a worker that has closed its socket. Returns its exit and its standard error.
    pub(super) async fn wait_exit(&mut self) -> io::Result<(WorkerExit, String)> {
        let mut process =
            self.process.take().ok_or_else(|| io::Error::other("the worker has already exited"))?;
        let wait = move || {
            let exit = process.wait_or_kill(EXIT_TIMEOUT)?;
            let mut stderr = vec![0; MAX_STDERR];
            let read = process.output.as_mut().map_or(Ok(0), |output| io::Read::read(output, &mut stderr));
            stderr.truncate(read.unwrap_or(0));
            Ok((exit, String::from_utf8_lossy(&stderr).trim().to_owned()))
        };
        tokio::task::spawn_blocking(wait).await.map_err(io::Error::other)?
    }
}

impl Drop for ConnectedWorker {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        // Killing the process blocks for a moment, so a blocking thread does it. The task starts after the current one yields,
        // so the outcome of the script is sent first.
        let kill = async move { drop(tokio::task::spawn_blocking(move || drop(process)).await) };
        spawn_on_drop(&self.tasks, kill);
    }
}
