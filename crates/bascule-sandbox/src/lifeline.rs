//! The lifeline: the socket between the bridge and a reaper. Closing the bridge's end makes the reaper kill the tree.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

/// The lifeline's descriptor in the jail: the first after standard input, output and error.
pub(crate) const LIFELINE: RawFd = 3;

/// Keeps a server alive. The reaper kills the server's whole process tree when this is dropped, and when the process
/// that holds it ends.
#[derive(Debug)]
pub struct Lifeline(pub(crate) KillSwitch);

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Kills a server's process tree without owning the server.
#[derive(Debug, Clone)]
pub(crate) struct KillSwitch(Arc<Mutex<LifelineSocket>>);

#[derive(Debug)]
struct LifelineSocket {
    /// `None` once it is closed, which makes the reaper kill the tree.
    stream: Option<UnixStream>,
    report: ReaperReport,
}

/// A reaper's message to the bridge. A field is 0 if there is nothing to report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReaperReport {
    /// The server's peak memory, which the bridge cannot observe.
    pub(crate) peak_bytes: u64,
    /// The number of processes, if there were too many.
    pub(crate) processes: u64,
}

impl KillSwitch {
    /// The stream must be non-blocking.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(LifelineSocket { stream: Some(stream), report: ReaperReport::default() })))
    }

    pub(crate) fn kill(&self) {
        let mut socket = self.socket();
        socket.read_reports();
        socket.stream = None;
    }

    /// Replaces the reaper's limit. A reaper that has ended needs none.
    pub(crate) fn set_max_processes(&self, max: Option<u64>) {
        let message = max.unwrap_or(u64::MAX).to_ne_bytes();
        self.socket().stream.iter_mut().for_each(|stream| drop(stream.write_all(&message)));
    }

    /// The server's peak memory, which the reaper reports after the server exits by itself.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        Some(self.report().peak_bytes).filter(|bytes| *bytes > 0)
    }

    /// The number of processes because of which the reaper killed the tree.
    pub(crate) fn excessive_processes(&self) -> Option<u64> {
        Some(self.report().processes).filter(|count| *count > 0)
    }

    fn report(&self) -> ReaperReport {
        let mut socket = self.socket();
        socket.read_reports();
        socket.report
    }

    fn socket(&self) -> MutexGuard<'_, LifelineSocket> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

impl LifelineSocket {
    /// Does not block: the stream is non-blocking.
    fn read_reports(&mut self) {
        let mut bytes = [0; 16];
        while self.stream.as_ref().is_some_and(|mut stream| stream.read_exact(&mut bytes).is_ok()) {
            let report = ReaperReport::from_bytes(bytes);
            self.report.peak_bytes = self.report.peak_bytes.max(report.peak_bytes);
            self.report.processes = self.report.processes.max(report.processes);
        }
    }
}

impl ReaperReport {
    fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.peak_bytes) << 64 | u128::from(self.processes)).to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_ne_bytes(bytes);
        Self { peak_bytes: (both >> 64) as u64, processes: both as u64 }
    }
}

/// The reaper's end.
pub(crate) struct ReaperLifeline(UnixStream);

/// A message of the bridge, or its end.
pub(crate) enum LifelineEvent {
    Closed,
    MaxProcesses(Option<u64>),
}

impl ReaperLifeline {
    /// Takes the descriptor that the bridge has passed. If it passed none, `poll` reports that, which counts as closed.
    pub(crate) fn take() -> Self {
        // SAFETY: the bridge opened it for this process, and only this function uses the number, once.
        Self(unsafe { UnixStream::from_raw_fd(LIFELINE) })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// To be called with the result of `poll`, if that is not 0.
    pub(crate) fn receive(&self, events: i16) -> LifelineEvent {
        let mut message = [0; 8];
        if is_end(events) || (&self.0).read_exact(&mut message).is_err() {
            return LifelineEvent::Closed;
        }
        let max = u64::from_ne_bytes(message);
        LifelineEvent::MaxProcesses((max != u64::MAX).then_some(max))
    }

    /// The bridge may have ended.
    pub(crate) fn send(&self, report: ReaperReport) {
        // Programs of Rust ignore SIGPIPE.
        let _ = (&self.0).write_all(&report.to_bytes());
    }

    /// Returns true if the bridge has closed its end or has ended.
    pub(crate) fn is_closed(&self) -> bool {
        let mut watched = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `watched` is one valid entry.
        unsafe { libc::poll(&raw mut watched, 1, 0) };
        is_end(watched.revents)
    }
}

fn is_end(events: i16) -> bool {
    events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}
