//! The store: accepts entries without waiting, and writes them in batches on a thread of its own.
//!
//! The file is opened with the first batch, so a store without entries leaves none. A write that fails (the disk is full, the
//! folder read-only) is told once; entries are then dropped and counted, and now and then a write is tried again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bascule_graph::{CallSession, FingerprintKey};
use rusqlite::Connection;
use tracing::{info, warn};

use crate::file::{self, FileId, StoreError};
use crate::graph_keeper::GraphKeeper;
use crate::insert::{self, KnownIds};
use crate::log_line::LogLine;
use crate::observed_call::ObservedCall;
use crate::queue::{Batch, Queue, QueueEntry};
use crate::retention::{self, Retention};
use crate::span::Span;

/// The time between a failed write and the next attempt: the first, doubled after each further failure, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// The pause after which a file is tried again that another bridge was using.
const BUSY_RETRY: Duration = Duration::from_secs(2);
/// The number of immediate attempts on such a file, and the pause between them.
const BUSY_ATTEMPTS: usize = 3;
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// The entries, and the time, between two looks at the limits of the file.
const RETAIN_ENTRIES: usize = 5_000;
const RETAIN_TIME: Duration = Duration::from_secs(60);
/// The time between two looks at the path of the file, which may have been moved or removed.
const PATH_TIME: Duration = Duration::from_secs(1);

/// Accepts spans and log lines. Dropping it writes what was accepted, without waiting for it.
pub struct Store {
    path: PathBuf,
    shared: Arc<SharedWriter>,
}

#[derive(Default)]
struct SharedWriter {
    queue: Queue,
    written: AtomicU64,
    dropped: AtomicU64,
    /// The reason why nothing is written at the moment.
    stopped: Mutex<Option<String>>,
}

/// The work of a store so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    pub path: PathBuf,
    pub written: u64,
    pub dropped: u64,
    /// The reason why nothing is written at the moment.
    pub stopped: Option<String>,
}

impl Store {
    /// Starts the writer thread. The file is opened later, so a problem with it is logged.
    pub fn new(path: PathBuf, retention: Retention) -> std::io::Result<Self> {
        Self::start(path, retention, None)
    }

    /// Starts the writer thread, which also keeps the graph of tools. The key must be random and nowhere else.
    pub fn with_graph(path: PathBuf, retention: Retention, key: FingerprintKey) -> std::io::Result<Self> {
        Self::start(path, retention, Some(GraphKeeper::new(key)))
    }

    fn start(path: PathBuf, retention: Retention, graph: Option<GraphKeeper>) -> std::io::Result<Self> {
        let shared = Arc::new(SharedWriter::default());
        let writer = Writer::new(path.clone(), retention, graph, shared.clone());
        std::thread::Builder::new().name("store".into()).spawn(move || writer.run())?;
        Ok(Self { path, shared })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts a span, or drops and counts it. Never waits for the disk.
    pub fn offer_span(&self, span: Span) {
        self.offer(QueueEntry::Span(span, None));
    }

    /// Accepts the span of a call that the graph observes, or drops and counts it. If there is little room, the graph observes
    /// the call without its values.
    pub fn offer_call(&self, span: Span, call: ObservedCall) {
        self.offer(QueueEntry::Span(span, Some(call)));
    }

    /// Reports that no further call of a session will come: the graph forgets its values.
    pub fn end_session(&self, session: CallSession) {
        self.shared.queue.end_session(session);
    }

    /// Accepts a line, or drops and counts it. Never waits for the disk.
    pub fn offer_log(&self, line: LogLine) {
        self.offer(QueueEntry::Log(line));
    }

    fn offer(&self, entry: QueueEntry) {
        if !self.shared.queue.offer(entry) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything that was accepted so far is written. Returns false if that takes longer.
    pub fn flush(&self, at_most: Duration) -> bool {
        self.shared.queue.flush(at_most)
    }

    /// Writes what was accepted, and ends the writer thread. Returns false if that takes longer.
    pub fn close(&self, at_most: Duration) -> bool {
        self.shared.queue.close(at_most)
    }

    pub fn status(&self) -> StoreStatus {
        StoreStatus {
            path: self.path.clone(),
            written: self.shared.written.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            stopped: self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.queue.close(Duration::ZERO);
    }
}

struct Writer {
    path: PathBuf,
    retention: Retention,
    shared: Arc<SharedWriter>,
    connection: Option<Connection>,
    /// The file that is open, and the time of the last look at its path.
    opened: Option<(FileId, Instant)>,
    ids: KnownIds,
    graph: Option<GraphKeeper>,
    /// Entries that were dropped and are not in the file's count yet.
    uncounted: u64,
    /// After a failure, the time of the next attempt.
    retry_at: Option<Instant>,
    /// The wait after the next failure.
    retry_delay: Duration,
    entries: usize,
    retained_at: Option<Instant>,
    /// The last attempt to apply the limits has failed, and the failure was logged.
    retain_failed: bool,
}

/// Repeats work on a file that another bridge uses. SQLite waits for most locks itself, but not for all.
fn retry_while_busy<T>(mut work: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 1..BUSY_ATTEMPTS {
        match work() {
            Err(error) if error.is_busy() => std::thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
    work()
}

/// Ends the queue also if the thread panics: nobody must wait for it.
struct EndOfWriter(Arc<SharedWriter>);

impl Drop for EndOfWriter {
    fn drop(&mut self) {
        self.0.queue.end();
    }
}

impl Writer {
    fn new(
        path: PathBuf,
        retention: Retention,
        graph: Option<GraphKeeper>,
        shared: Arc<SharedWriter>,
    ) -> Self {
        Self {
            path,
            retention,
            shared,
            connection: None,
            opened: None,
            ids: KnownIds::default(),
            graph,
            uncounted: 0,
            retry_at: None,
            retry_delay: FIRST_RETRY,
            entries: 0,
            retained_at: None,
            retain_failed: false,
        }
    }

    fn run(mut self) {
        let _end = EndOfWriter(self.shared.clone());
        while let Some(mut batch) = self.shared.queue.take(self.graph.as_ref().and_then(GraphKeeper::save_at))
        {
            self.handle(&mut batch);
            self.save_graph(batch.flushes > 0);
            self.shared.queue.finish(&batch);
            self.retain();
        }
        self.leave_moved_file();
        self.save_graph(true);
        // Closing moves the write-ahead log into the file: whoever waits for the end finds it done.
        self.close();
    }

    fn handle(&mut self, batch: &mut Batch) {
        self.uncounted += batch.dropped;
        if !batch.entries.is_empty() {
            self.handle_entries(batch);
        }
        if let Some(graph) = &mut self.graph {
            batch.ended_sessions.iter().for_each(|session| graph.forget(session));
        }
    }

    fn handle_entries(&mut self, batch: &mut Batch) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return self.drop_entries(batch);
        }
        // Other bridges write to the same file meanwhile.
        batch.capture();
        if self.opened.is_none_or(|(_, looked_at)| looked_at.elapsed() >= PATH_TIME) {
            self.leave_moved_file();
        }
        match self.write_repaired(batch) {
            Ok(()) => self.on_written(batch),
            Err(error) => self.on_failed(batch, &error),
        }
    }

    /// Writes a batch. A damaged file is set aside, and the batch goes to the new one.
    fn write_repaired(&mut self, batch: &Batch) -> Result<(), StoreError> {
        match retry_while_busy(|| self.write(batch)) {
            Err(error) if error.is_damage() => {
                self.replace_damaged()?;
                self.write(batch)
            }
            written => written,
        }
    }

    fn replace_damaged(&mut self) -> Result<(), StoreError> {
        self.close();
        self.graph.iter_mut().for_each(GraphKeeper::reset);
        self.connection = Some(file::replace_damaged(&self.path)?);
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let connection = open_once(&mut self.connection, &self.path)?;
        if self.opened.is_none() {
            self.opened = FileId::at(&self.path).map(|file| (file, Instant::now()));
        }
        insert::write(connection, &mut self.ids, batch, self.uncounted)
    }

    /// Closes a file that was moved or removed: nobody would find what is written to it. The next write begins a new one.
    fn leave_moved_file(&mut self) {
        let Some(connection) = &self.connection else { return self.opened = None };
        let found = FileId::at(&self.path);
        if found.is_some() && self.opened.is_none_or(|(opened, _)| Some(opened) == found) {
            return self.opened = found.map(|found| (found, Instant::now()));
        }
        info!("the file `{}` was moved or removed: a new one is begun", self.path.display());
        // The log beside it keeps the old name, and would be missing to the file under its new one.
        let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        drop(moved);
        self.close();
        self.graph.iter_mut().for_each(GraphKeeper::reset);
    }

    fn close(&mut self) {
        (self.connection, self.opened) = (None, None);
        self.ids.clear();
    }

    fn on_written(&mut self, batch: &Batch) {
        self.uncounted = 0;
        self.entries += batch.entries.len();
        self.shared.written.fetch_add(batch.entries.len() as u64, Ordering::Relaxed);
        if self.retry_at.take().is_some() {
            self.retry_delay = FIRST_RETRY;
            info!("traces are written to `{}` again", self.path.display());
            *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        if let (Some(graph), Some(connection)) = (&mut self.graph, &self.connection) {
            graph.observe(connection, batch);
        }
    }

    /// Saves the changes of the graph now and then, or at once. A failure keeps them for the next time.
    fn save_graph(&mut self, at_once: bool) {
        let Some(graph) = &mut self.graph else { return };
        if graph.save_at().is_none_or(|at| !at_once && Instant::now() < at) {
            return;
        }
        // After a failure the next batch opens the file again. There may be none.
        if self.connection.is_none() && !at_once {
            return graph.postpone(self.retry_delay);
        }
        let (connection, path) = (&mut self.connection, &self.path);
        let saved = retry_while_busy(|| graph.save(open_once(connection, path)?));
        if let Err(error) = saved {
            graph.postpone(if error.is_busy() { BUSY_RETRY } else { self.retry_delay });
            if error.is_damage() {
                graph.reset();
            }
            self.on_error(&error);
        }
    }

    fn on_failed(&mut self, batch: &Batch, error: &StoreError) {
        self.drop_entries(batch);
        self.on_error(error);
    }

    /// Stops writing for a while, unless another bridge was just writing for too long.
    fn on_error(&mut self, error: &StoreError) {
        // Ids of a transaction that was rolled back do not exist.
        self.ids.clear();
        if error.is_busy() {
            return;
        }
        self.close();
        let delay = self.retry_delay;
        self.retry_delay = (delay * 2).min(MAX_RETRY);
        if self.retry_at.replace(Instant::now() + delay).is_none() {
            warn!("could not write traces to `{}`: {error}; calls go on without them", self.path.display());
            *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    }

    fn drop_entries(&mut self, batch: &Batch) {
        let count = batch.entries.len() as u64;
        self.uncounted += count;
        self.shared.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Applies the limits of the file now and then.
    fn retain(&mut self) {
        let Some(connection) = &self.connection else { return };
        let is_due = self.retained_at.is_none_or(|at| at.elapsed() >= RETAIN_TIME);
        if !is_due && self.entries < RETAIN_ENTRIES {
            return;
        }
        (self.entries, self.retained_at) = (0, Some(Instant::now()));
        match apply_limits(connection, &self.retention) {
            Ok(()) => self.retain_failed = false,
            Err(error) => self.on_retain_failed(&error),
        }
    }

    /// Replaces a damaged file: a write may never touch the damaged page. Tells another failure once.
    fn on_retain_failed(&mut self, error: &StoreError) {
        if error.is_damage() {
            return match self.replace_damaged() {
                Ok(()) => {}
                Err(error) => self.on_error(&error),
            };
        }
        if !error.is_busy() && !std::mem::replace(&mut self.retain_failed, true) {
            warn!("could not remove old traces from `{}`: {error}; the file may grow", self.path.display());
        }
    }
}

fn apply_limits(connection: &Connection, retention: &Retention) -> Result<(), StoreError> {
    retention::apply(connection, retention, now())?;
    Ok(retention::forget_unused(connection, now())?)
}

/// Returns the connection, and opens the file if there is none.
fn open_once<'a>(
    connection: &'a mut Option<Connection>,
    path: &Path,
) -> Result<&'a mut Connection, StoreError> {
    match connection {
        Some(connection) => Ok(connection),
        None => Ok(connection.insert(file::open(path)?)),
    }
}

/// Microseconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}
