//! What all connections of one scripted HTTP server share.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::answer::Answer;
use super::request::Request;
use super::trouble::Troubles;
use crate::asked::Asked;
use crate::script::Script;
use crate::steps::Step;

/// The state of a server. Each part has its own lock, held for a moment only.
#[derive(Default)]
pub(super) struct Server {
    pub(super) asked: Asked,
    script: Mutex<Script>,
    turns: Mutex<HashMap<String, usize>>,
    troubles: Mutex<Troubles>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<HashMap<u64, TcpStream>>,
    /// What is left to say on streams that were left, by the last id on each.
    left: Mutex<HashMap<String, Vec<Step>>>,
    /// The stream of the client, in the older transport.
    stream: Mutex<Option<Answer>>,
    count: AtomicU64,
    closed: AtomicBool,
}

impl Server {
    pub(super) fn new(script: Script) -> Server {
        Server { script: Mutex::new(script), ..Server::default() }
    }

    pub(super) fn script(&self) -> Script {
        lock(&self.script).clone()
    }

    /// Replaces the script. Its behaviours begin from their first turn.
    pub(super) fn change(&self, script: Script) {
        lock(&self.turns).clear();
        *lock(&self.script) = script;
    }

    /// How many requests of this kind came before; counts this one.
    pub(super) fn turn(&self, kind: String) -> usize {
        let mut turns = lock(&self.turns);
        let count = turns.entry(kind).or_default();
        *count += 1;
        *count - 1
    }

    pub(super) fn troubles(&self) -> MutexGuard<'_, Troubles> {
        lock(&self.troubles)
    }

    pub(super) fn record(&self, request: &Request) {
        lock(&self.requests).push(request.clone());
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// Keeps what is left to say on a stream whose last event had this id.
    pub(super) fn leave_stream(&self, id: String, rest: Vec<Step>) {
        lock(&self.left).insert(id, rest);
    }

    /// What was left to say after the event of this id.
    pub(super) fn take_up(&self, id: &str) -> Option<Vec<Step>> {
        lock(&self.left).remove(id)
    }

    /// The stream of the older transport's client.
    pub(super) fn stream(&self) -> MutexGuard<'_, Option<Answer>> {
        lock(&self.stream)
    }

    /// Remembers a connection, so that it can be cut.
    pub(super) fn enter(&self, connection: &TcpStream) -> u64 {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if let Ok(handle) = connection.try_clone() {
            lock(&self.connections).insert(number, handle);
        }
        number
    }

    pub(super) fn leave(&self, number: u64) {
        lock(&self.connections).remove(&number);
    }

    pub(super) fn drop_connections(&self) {
        for (_, connection) in lock(&self.connections).drain() {
            // It may have gone by itself.
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

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Server").field("script", &self.script).finish_non_exhaustive()
    }
}

/// A connection that panicked over a bad script leaves nothing half done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
