//! The audit log: every call is in it before it is sent, and again when it has ended.
//!
//! One thread writes, so that calls wait for the disk and the event loop does not. If a line cannot be written, its call is
//! refused: a log that loses lines silently proves nothing.

mod chain;
mod entry;
mod file;
mod head;
#[cfg(test)]
mod tests;
mod verify;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use serde_json::value::RawValue;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::{error, info};

use crate::call_record::CallRecord;
use crate::config::AuditSettings;
use entry::{AuditEntry, LineKind};
use file::AuditFile;

pub(crate) use file::head_path;
pub(crate) use verify::{Fault, Verified, verify};

/// The most calls that have a line in the queue or are in progress. Further calls wait.
const MAX_CALLS: usize = 4_096;
/// The size of all arguments that wait for their digests. Further calls wait.
const MAX_ARGUMENTS_KIB: u32 = 64 << 10;
/// The line of a refused call with arguments of up to this many bytes needs no room for them.
const MAX_SHORT_ARGUMENTS: usize = 1 << 10;
/// The most lines that one write hands to the operating system.
const MAX_BATCH: usize = 1_024;
/// The longest wait of a call for its line. The writer itself waits at most two seconds for other processes.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The result of a write. All lines of a write share it.
type Written = Result<(), Arc<io::Error>>;

/// A handle of the writer thread, which ends with the last handle.
pub(crate) struct AuditLog {
    path: PathBuf,
    /// Never holds more than two lines for each permit of `room`.
    jobs: Sender<Job>,
    room: Arc<Semaphore>,
    /// One permit for each KiB of arguments in the queue.
    argument_room: Arc<Semaphore>,
    /// Lines without room since the last write.
    dropped: Arc<AtomicU64>,
}

enum Job {
    Line {
        entry: AuditEntry,
        done: oneshot::Sender<Written>,
        _permits: [Option<OwnedSemaphorePermit>; 2],
    },
    /// Asks for an answer when all jobs before it are done.
    Flush(oneshot::Sender<Written>),
}

/// The place of a call in the log. A call that has one has a line at its beginning, and room for one at its end.
pub(crate) struct AuditTicket(OwnedSemaphorePermit);

/// Resolves when a line was handed to the operating system, or could not be.
pub(crate) struct PendingLine(oneshot::Receiver<Written>);

impl AuditLog {
    /// Creates or checks the files, and starts the writer. A log that cannot be used refuses every call.
    pub(crate) fn open(settings: &AuditSettings, config: Option<PathBuf>) -> Self {
        let mut file = AuditFile::new(settings.path.clone(), config, settings.fsync);
        // Before any server starts: sandboxes close files that exist.
        if let Err(cause) = file.append(&[], 0) {
            error!(path = %settings.path.display(), "calls are refused, because the audit log cannot be written: {cause}");
        }
        let (jobs, queue) = channel();
        let (path, dropped) = (settings.path.clone(), Arc::<AtomicU64>::default());
        let lines_dropped = dropped.clone();
        let writer = std::thread::Builder::new().name("audit".into());
        // Without the thread the queue has no reader, and calls are refused.
        if let Err(cause) = writer.spawn(move || Writer::new(file, lines_dropped).run(&queue)) {
            error!("calls are refused, because the writer of the audit log did not start: {cause}");
        }
        Self::with_writer(path, jobs, dropped)
    }

    fn with_writer(path: PathBuf, jobs: Sender<Job>, dropped: Arc<AtomicU64>) -> Self {
        let room = Arc::new(Semaphore::new(MAX_CALLS));
        let argument_room = Arc::new(Semaphore::new(MAX_ARGUMENTS_KIB as usize));
        Self { path, jobs, room, argument_room, dropped }
    }

    /// Waits for room, and queues the line of a call that is about to be sent.
    pub(crate) async fn begin(
        &self,
        record: &CallRecord,
        arguments: &RawValue,
    ) -> BridgeResult<(AuditTicket, PendingLine)> {
        let room = async {
            let permit = self.room.clone().acquire_owned().await?;
            Ok::<_, AcquireError>((
                permit,
                self.argument_room.clone().acquire_many_owned(kib(arguments)).await?,
            ))
        };
        let (permit, of_arguments) = match tokio::time::timeout(MAX_WAIT, room).await {
            Ok(Ok(permits)) => permits,
            _ => return Err(self.refusal(&"too many calls wait for it")),
        };
        let line =
            self.queue(AuditEntry::new(LineKind::Begin, record, arguments), [Some(of_arguments), None]);
        Ok((AuditTicket(permit), line))
    }

    /// Queues the last line of a call. Without a ticket the call was refused before it was sent.
    pub(crate) fn end(
        &self,
        record: &CallRecord,
        arguments: &RawValue,
        ticket: Option<AuditTicket>,
    ) -> Option<PendingLine> {
        let (kind, permits) = match ticket {
            Some(AuditTicket(permit)) => (LineKind::End, Some([Some(permit), None])),
            None => (LineKind::Refused, self.try_room(arguments)),
        };
        let Some(permits) = permits else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(self.queue(AuditEntry::new(kind, record, arguments), permits))
    }

    fn try_room(&self, arguments: &RawValue) -> Option<[Option<OwnedSemaphorePermit>; 2]> {
        let permit = self.room.clone().try_acquire_owned().ok()?;
        // Short arguments are bounded by the number of calls: long ones of another call do not suppress a refusal.
        if arguments.get().len() <= MAX_SHORT_ARGUMENTS {
            return Some([Some(permit), None]);
        }
        Some([Some(permit), Some(self.argument_room.clone().try_acquire_many_owned(kib(arguments)).ok()?)])
    }

    /// Waits for a line at the beginning of a call. Fails if it could not be written.
    pub(crate) async fn require(&self, line: PendingLine) -> BridgeResult<()> {
        match line.wait().await {
            Some(Ok(())) => Ok(()),
            Some(Err(cause)) => Err(self.refusal(&cause)),
            None => Err(self.refusal(&"its writer does not respond")),
        }
    }

    /// Waits until all lines are written.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let _ = self.jobs.send(Job::Flush(done));
        PendingLine(flushed).wait().await;
    }

    fn queue(&self, entry: AuditEntry, _permits: [Option<OwnedSemaphorePermit>; 2]) -> PendingLine {
        let (done, written) = oneshot::channel();
        // The thread ends after the last handle.
        let _ = self.jobs.send(Job::Line { entry, done, _permits });
        PendingLine(written)
    }

    /// The operator demands a log of every call: policy forbids a call without. Its server is not at fault.
    fn refusal(&self, cause: &dyn std::fmt::Display) -> Box<BridgeError> {
        let message = format!(
            "the call was refused, because the audit log `{}` could not be written: {cause}",
            self.path.display()
        );
        BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, message)
    }
}

/// Returns the permits that arguments take. Those of any length get room.
fn kib(arguments: &RawValue) -> u32 {
    let kib = arguments.get().len().div_ceil(1 << 10);
    u32::try_from(kib).map_or(MAX_ARGUMENTS_KIB, |kib| kib.min(MAX_ARGUMENTS_KIB))
}

impl PendingLine {
    /// Returns `None` if it takes too long.
    pub(crate) async fn wait(self) -> Option<Written> {
        tokio::time::timeout(MAX_WAIT, self.0).await.ok()?.ok()
    }
}

/// Owns the files.
struct Writer {
    file: AuditFile,
    dropped: Arc<AtomicU64>,
    /// Lines that could not be written since the last one that was.
    lost: u64,
    has_failed: bool,
}

impl Writer {
    fn new(file: AuditFile, dropped: Arc<AtomicU64>) -> Self {
        Self { file, dropped, lost: 0, has_failed: false }
    }

    fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let jobs: Vec<Job> = std::iter::once(first).chain(queue.try_iter().take(MAX_BATCH - 1)).collect();
            self.write(jobs);
        }
    }

    fn write(&mut self, jobs: Vec<Job>) {
        self.lost += self.dropped.swap(0, Ordering::Relaxed);
        let entries: Vec<&AuditEntry> = jobs.iter().filter_map(Job::entry).collect();
        let is_needed = !entries.is_empty() || self.lost > 0;
        let written = if is_needed { self.file.append(&entries, self.lost) } else { Ok(()) };
        match &written {
            Ok(()) => self.lost = 0,
            Err(_) => self.lost += entries.len() as u64,
        }
        self.report(&written);
        let written = written.map_err(Arc::new);
        for job in jobs {
            let (Job::Line { done, .. } | Job::Flush(done)) = job;
            let _ = done.send(written.clone());
        }
    }

    /// Logs the first failure, and the end of failures.
    fn report(&mut self, written: &io::Result<()>) {
        match written {
            Err(cause) if !self.has_failed => {
                error!("calls are refused, because the audit log cannot be written: {cause}");
            }
            Ok(()) if self.has_failed => info!("the audit log is written again"),
            _ => {}
        }
        self.has_failed = written.is_err();
    }
}

impl Job {
    fn entry(&self) -> Option<&AuditEntry> {
        match self {
            Self::Line { entry, .. } => Some(entry),
            Self::Flush(_) => None,
        }
    }
}
