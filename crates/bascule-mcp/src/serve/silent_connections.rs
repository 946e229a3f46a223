//! Connections without an accepted request. If there is no room for a new connection, the oldest of them is closed, so that
//! a peer without a token cannot keep clients out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

/// The silent connections, oldest first.
#[derive(Default)]
pub(super) struct SilentConnections(VecDeque<Weak<ConnectionState>>);

#[derive(Default)]
pub(super) struct ConnectionState {
    has_accepted_request: AtomicBool,
    /// Closes the connection.
    pub(super) evicted: CancellationToken,
}

impl SilentConnections {
    /// Adds a new connection, which drops its state when it ends.
    pub(super) fn add(&mut self) -> Arc<ConnectionState> {
        let state = Arc::new(ConnectionState::default());
        self.remove_outdated();
        self.0.push_back(Arc::downgrade(&state));
        state
    }

    /// Closes the oldest silent connection. Returns false if there is none.
    pub(super) fn close_oldest(&mut self) -> bool {
        self.remove_outdated();
        let oldest = self.0.pop_front().and_then(|state| state.upgrade());
        oldest.inspect(|state| state.evicted.cancel()).is_some()
    }

    fn remove_outdated(&mut self) {
        while self.0.front().is_some_and(|state| state.upgrade().is_none_or(|state| !state.is_silent())) {
            self.0.pop_front();
        }
    }
}

impl ConnectionState {
    fn is_silent(&self) -> bool {
        !self.has_accepted_request.load(Ordering::Relaxed)
    }

    /// To be called when a request has passed all access checks.
    pub(super) fn accept_request(&self) {
        self.has_accepted_request.store(true, Ordering::Relaxed);
    }
}
