//! The open event streams for messages that belong to no request: at most one for each session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Endpoint;
use super::response_stream::StreamCloser;

/// A session at an endpoint.
type SessionKey = (Endpoint, String);

/// The open streams. A newer stream of a session replaces the older one: a client that opens another has lost the first,
/// often before this side could notice.
#[derive(Default)]
pub(super) struct EventStreams(Mutex<State>);

#[derive(Default)]
struct State {
    count: u64,
    streams: HashMap<SessionKey, (u64, StreamCloser)>,
}

/// Removes a stream from [`EventStreams`] when dropped.
pub(super) struct EventStreamGuard {
    streams: Arc<EventStreams>,
    key: SessionKey,
    number: u64,
}

impl EventStreams {
    pub(super) fn insert(self: &Arc<Self>, key: SessionKey, closer: StreamCloser) -> EventStreamGuard {
        let mut state = self.lock();
        state.count += 1;
        let number = state.count;
        let older = state.streams.insert(key.clone(), (number, closer));
        drop(state);
        if let Some((_, older)) = older {
            older.close();
        }
        EventStreamGuard { streams: self.clone(), key, number }
    }

    pub(super) fn close_all(&self) {
        let streams = std::mem::take(&mut self.lock().streams);
        streams.into_values().for_each(|(_, closer)| closer.close());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EventStreamGuard {
    fn drop(&mut self) {
        let mut state = self.streams.lock();
        if state.streams.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            state.streams.remove(&self.key);
        }
    }
}
