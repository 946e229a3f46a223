//! Sessions: clients known by a session id, for as long as they show that they are there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_mcp::request_with_id;
use tokio::time::Instant;

use crate::client::ClientContext;
use crate::in_flight::InFlightRegistry;

/// The id of the bridge's own ping to a client, and the time in which the client must respond.
const PING: &str = "\"bascule-ping\"";
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// The most sessions at a time.
pub(super) const MAX_SESSIONS: usize = 10_000;
/// When all places are taken, a client that was silent for this long loses its place.
pub(super) const SILENT: Duration = Duration::from_secs(60);

/// All sessions, by session id.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Session>>);

struct Session {
    client: Arc<ClientContext>,
    /// The time of a ping that the client has not responded to, if it was not active since.
    pinged: Option<Instant>,
}

impl Sessions {
    pub(super) fn insert(&self, client: Arc<ClientContext>) {
        self.sessions().insert(client.id.clone(), Session { client, pinged: None });
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<ClientContext>> {
        self.sessions().get(id).map(|session| session.client.clone())
    }

    pub(super) fn remove(&self, id: &str) -> Option<Arc<ClientContext>> {
        self.sessions().remove(id).map(|session| session.client)
    }

    pub(super) fn clients(&self) -> Vec<Arc<ClientContext>> {
        self.sessions().values().map(|session| session.client.clone()).collect()
    }

    pub(super) fn is_full(&self) -> bool {
        self.sessions().len() >= MAX_SESSIONS
    }

    /// Returns the client that has been silent for longest, and for long enough, without a request or a stream open.
    pub(super) fn longest_silent(&self, in_flight: &InFlightRegistry) -> Option<Arc<ClientContext>> {
        let sessions = self.sessions();
        let is_idle = |client: &&Arc<ClientContext>| {
            client.stream().is_none() && !in_flight.has_requests_of(client.serial)
        };
        let silent = sessions.values().map(|session| &session.client).filter(is_idle);
        let longest = silent.min_by_key(|client| client.last_active())?;
        (longest.last_active().elapsed() > SILENT).then(|| longest.clone())
    }

    /// Returns the clients that are gone: silent for `idle` and, if they have a stream open, silent after a ping too. An
    /// open stream alone proves nothing: a proxy may keep it open.
    pub(super) fn gone(&self, idle: Duration, in_flight: &InFlightRegistry) -> Vec<Arc<ClientContext>> {
        let mut sessions = self.sessions();
        let gone = sessions.values_mut().filter_map(|session| {
            let is_gone = !in_flight.has_requests_of(session.client.serial) && session.is_gone(idle);
            is_gone.then(|| session.client.clone())
        });
        gone.collect()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

impl Session {
    fn is_gone(&mut self, idle: Duration) -> bool {
        let last_active = self.client.last_active();
        if last_active.elapsed() < idle {
            return false;
        }
        let Some(stream) = self.client.stream() else { return true };
        match self.pinged.filter(|pinged| *pinged > last_active) {
            Some(pinged) => pinged.elapsed() >= PONG_WITHIN.min(idle),
            None => {
                stream.push(request_with_id(PING, "ping", None));
                self.pinged = Some(Instant::now());
                false
            }
        }
    }
}
