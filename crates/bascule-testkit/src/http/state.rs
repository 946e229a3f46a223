//! The state shared by all connections of one scripted HTTP server.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::fault::FaultQueue;
use super::request::RecordedRequest;
use super::response_writer::ResponseWriter;
use crate::client_requests::ClientRequests;
use crate::script::Script;
use crate::steps::Step;

/// Each part has its own lock, held only briefly.
#[derive(Default)]
pub(super) struct HttpServerState {
    pub(super) client_requests: ClientRequests,
    script: Mutex<Script>,
    turns: Mutex<HashMap<String, usize>>,
    faults: Mutex<FaultQueue>,
    requests: Mutex<Vec<RecordedRequest>>,
    connections: Mutex<HashMap<u64, TcpStream>>,
    /// The remaining steps of suspended streams, by the last event id of each.
    suspended: Mutex<HashMap<String, Vec<Step>>>,
    /// The stream of the client in the deprecated transport.
    stream: Mutex<Option<ResponseWriter>>,
    count: AtomicU64,
    closed: AtomicBool,
}

impl HttpServerState {
    pub(super) fn new(script: Script) -> HttpServerState {
        HttpServerState { script: Mutex::new(script), ..HttpServerState::default() }
    }

    pub(super) fn script(&self) -> Script {
        lock(&self.script).clone()
    }

    /// Replaces the script and restarts its behaviours from the first turn.
    pub(super) fn set_script(&self, script: Script) {
        lock(&self.turns).clear();
        *lock(&self.script) = script;
    }

    /// Counts this request and returns the number of earlier requests of this kind.
    pub(super) fn next_turn(&self, kind: String) -> usize {
        let mut turns = lock(&self.turns);
        let count = turns.entry(kind).or_default();
        *count += 1;
        *count - 1
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, FaultQueue> {
        lock(&self.faults)
    }

    pub(super) fn record(&self, request: &RecordedRequest) {
        lock(&self.requests).push(request.clone());
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.requests).clone()
    }

    /// Keeps the remaining steps of a stream whose last event has this id.
    pub(super) fn suspend_stream(&self, id: String, rest: Vec<Step>) {
        lock(&self.suspended).insert(id, rest);
    }

    /// Returns the remaining steps after the event with this id.
    pub(super) fn resume_stream(&self, id: &str) -> Option<Vec<Step>> {
        lock(&self.suspended).remove(id)
    }

    pub(super) fn stream(&self) -> MutexGuard<'_, Option<ResponseWriter>> {
        lock(&self.stream)
    }

    /// Keeps a handle of the connection to close it later.
    pub(super) fn register(&self, connection: &TcpStream) -> u64 {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if let Ok(handle) = connection.try_clone() {
            lock(&self.connections).insert(number, handle);
        }
        number
    }

    pub(super) fn accepted(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn unregister(&self, number: u64) {
        lock(&self.connections).remove(&number);
    }

    pub(super) fn open_connections(&self) -> usize {
        lock(&self.connections).len()
    }

    pub(super) fn drop_connections(&self) {
        for (_, connection) in lock(&self.connections).drain() {
            // The client may have closed it.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for HttpServerState {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("HttpServerState").field("script", &self.script).finish_non_exhaustive()
    }
}

/// Ignores poisoning: a connection that panicked over a bad script leaves consistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
