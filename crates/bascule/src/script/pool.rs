//! Keeps workers ready, each for one script.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_sandbox::lockdown::LockdownLimits;
use bascule_sandbox::{WorkerExit, WorkerOutput, WorkerProcess, spawn_worker_with_callback};
use bascule_script::wire::{Frames, FromWorker};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::Mode;
use super::link::{Incoming, Outgoing};
use super::worker::{self, Orders};
use crate::config::ScriptSettings;

/// A worker that is not ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A worker that has said its last word has so long to end by itself.
const LAST_BREATH: Duration = Duration::from_millis(200);
/// The script that took a worker is so far ahead of the start of the next one, which would take the processor from it.
const HEAD_START: Duration = Duration::from_millis(1);
/// No more is kept of what a worker wrote to its standard error.
const LAST_WORDS: usize = 4096;

/// What a worker was made for. It cannot be given more later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    limits: LockdownLimits,
    zone: String,
}

impl Shape {
    pub(super) fn of(settings: &ScriptSettings) -> Self {
        let heap = u64::from(settings.memory_mb) << 20;
        let limits = LockdownLimits::for_scripts(heap, settings.timeout.as_secs() + 1);
        Self { limits, zone: settings.time_zone.clone() }
    }

    /// Whether a worker of this shape will do for a script of that one.
    fn holds(&self, other: &Self) -> bool {
        self.zone == other.zone
            && self.limits.address_space_bytes >= other.limits.address_space_bytes
            && self.limits.cpu_seconds >= other.limits.cpu_seconds
    }
}

/// Workers that wait.
pub(super) struct Pool {
    program: PathBuf,
    size: usize,
    state: Mutex<State>,
    /// Workers that are being started or seen off.
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct State {
    /// What those that wait were made for.
    shape: Shape,
    ready: VecDeque<Cell>,
    coming: usize,
    /// What the kernel could not give has been said.
    has_told: bool,
}

impl Pool {
    pub(super) fn new(program: PathBuf, shape: Shape, size: usize) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let state = State { shape, ready: VecDeque::new(), coming: 0, has_told: false };
        Self { program, size, state: Mutex::new(state), tasks, stop }
    }

    /// What the configuration wants now. Workers made for something else go.
    pub(super) fn reshape(&self, shape: &Shape) {
        let mut state = self.state();
        if state.shape != *shape {
            state.shape = shape.clone();
            drop(std::mem::take(&mut state.ready));
        }
    }

    /// A worker for one script: one that waits, if there is one that will do, else a new one.
    pub(super) async fn take(self: &Arc<Self>, shape: &Shape, mode: Mode) -> io::Result<Cell> {
        if mode == Mode::Worker {
            let waiting = if self.state().shape.holds(shape) { self.waiting() } else { None };
            self.refill();
            if let Some(cell) = waiting {
                return Ok(cell);
            }
        }
        self.start(shape, false).await
    }

    fn waiting(&self) -> Option<Cell> {
        loop {
            let mut cell = self.state().ready.pop_front()?;
            if cell.is_alive() {
                return Some(cell);
            }
        }
    }

    fn refill(self: &Arc<Self>) {
        let (wanted, shape) = {
            let mut state = self.state();
            let wanted = self.size.saturating_sub(state.ready.len() + state.coming);
            state.coming += wanted;
            (wanted, state.shape.clone())
        };
        for _ in 0..wanted {
            let (pool, shape) = (self.clone(), shape.clone());
            self.tasks.spawn(async move {
                let start = async {
                    tokio::time::sleep(HEAD_START).await;
                    pool.start(&shape, true).await
                };
                let started = pool.stop.run_until_cancelled(start).await;
                let mut state = pool.state();
                state.coming -= 1;
                let is_of_use = !pool.stop.is_cancelled() && state.shape == shape;
                match started {
                    Some(Ok(cell)) if is_of_use => state.ready.push_back(cell),
                    Some(Err(error)) => warn!(%error, "a script worker did not start"),
                    _ => {}
                }
            });
        }
    }

    async fn start(&self, shape: &Shape, will_wait: bool) -> io::Result<Cell> {
        let process = timeout(READY_WITHIN, spawn(&self.program, shape, will_wait)).await??;
        let mut cell = Cell::new(process, self.tasks.clone())?;
        let missing = timeout(READY_WITHIN, cell.ready()).await??;
        let tells = !std::mem::replace(&mut self.state().has_told, true);
        if tells && !missing.is_empty() {
            info!(missing = missing.join("; "), "scripts are confined, but not by all that there is");
        }
        debug!(pid = cell.pid(), "a script worker is ready");
        Ok(cell)
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        let ready = std::mem::take(&mut self.state().ready);
        drop(ready);
        self.tasks.close();
        self.tasks.wait().await;
        drop(std::mem::take(&mut self.state().ready));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

async fn spawn(program: &Path, shape: &Shape, will_wait: bool) -> io::Result<WorkerProcess> {
    let (done, started) = oneshot::channel();
    let arguments = worker::arguments(&Orders { limits: shape.limits, will_wait });
    // If nobody waits any more it is killed.
    let done = move |worker| drop(done.send(worker));
    spawn_worker_with_callback(program, arguments, &shape.zone, WorkerOutput::Captured, done)?;
    started.await.map_err(io::Error::other)?
}

/// A worker process, and the way to it. Dropped, it is killed.
pub(super) struct Cell {
    process: Option<WorkerProcess>,
    pub(super) incoming: Incoming,
    pub(super) frames: Frames,
    pub(super) outgoing: Outgoing,
    tasks: TaskTracker,
}

impl Cell {
    fn new(process: WorkerProcess, tasks: TaskTracker) -> io::Result<Self> {
        let (incoming, outgoing) = (Incoming::of(&process.socket)?, Outgoing::of(&process.socket)?);
        Ok(Self { process: Some(process), incoming, frames: Frames::default(), outgoing, tasks })
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, WorkerProcess::pid)
    }

    fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// The most memory it had resident at any time.
    pub(super) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
    }

    /// Waits until it has locked itself in. Gives what the kernel lacked for that.
    async fn ready(&mut self) -> io::Result<Vec<String>> {
        loop {
            match self.frames.next_message() {
                Ok(Some(FromWorker::Ready(ready))) => return Ok(ready.missing),
                Ok(Some(_)) => return Err(io::Error::other("the worker spoke before it was ready")),
                Err(error) => return Err(io::Error::other(error)),
                Ok(None) => {}
            }
            if !self.incoming.read(&mut self.frames).await? {
                let (end, words) = self.end().await?;
                return Err(io::Error::other(format!("{end} {words}")));
            }
        }
    }

    /// How it ended, now that it says no more, and what it wrote before.
    pub(super) async fn end(&mut self) -> io::Result<(WorkerExit, String)> {
        let mut process = self.process.take().ok_or_else(|| io::Error::other("it has ended before"))?;
        let seen_off = move || {
            let end = process.wait_or_kill(LAST_BREATH)?;
            let mut words = vec![0; LAST_WORDS];
            let read = process.output.as_mut().map_or(Ok(0), |output| io::Read::read(output, &mut words));
            words.truncate(read.unwrap_or(0));
            Ok((end, String::from_utf8_lossy(&words).trim().to_owned()))
        };
        tokio::task::spawn_blocking(seen_off).await.map_err(io::Error::other)?
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        // Killing it and waiting for that takes a moment, which is not for the thread that carries the calls. What its script
        // came to is told first: a task of ours begins when whoever holds it has no more to do.
        let seen_off = async move { drop(tokio::task::spawn_blocking(move || drop(process)).await) };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.spawn_on(seen_off, &runtime);
        }
    }
}
