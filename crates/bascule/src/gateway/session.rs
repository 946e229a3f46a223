//! Sessions: clients known by a session id, for as long as they show that they are there.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_mcp::request_with_id;
use foldhash::HashMap;
use tokio::time::Instant;

use crate::client::{ClientContext, ClientGroup};
use crate::in_flight::InFlightRegistry;

/// The id of the bridge's own ping to a client, and the time in which the client must respond.
const PING: &str = "\"bascule-ping\"";
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// The most sessions at a time.
pub(super) const MAX_SESSIONS: usize = 10_000;
/// The most sessions that end together when all places are taken: the search for them is long.
const MAX_ENDED: usize = 100;

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

    /// Returns the sessions that end when all places are taken, oldest first: idle ones if there are any. They belong to the
    /// group of clients that has most of them, so that one client with many sessions cannot keep others out. Their clients
    /// start new ones.
    pub(super) fn find_excess(&self, in_flight: &InFlightRegistry) -> Vec<Arc<ClientContext>> {
        let is_idle = |client: &&Arc<ClientContext>| {
            client.stream().is_none() && !in_flight.has_requests_of(client.serial)
        };
        let sessions = self.sessions();
        let clients = || sessions.values().map(|session| &session.client);
        let idle = largest_group(clients().filter(is_idle));
        let mut largest = if idle.is_empty() { largest_group(clients()) } else { idle };
        largest.sort_by_key(|client| client.last_active());
        let count = (largest.len() / 2).clamp(1, MAX_ENDED);
        largest.into_iter().take(count).cloned().collect()
    }

    /// Returns the clients that are gone: silent for `idle` and, if they have a stream open, silent after a ping too. An
    /// open stream alone proves nothing: a proxy may keep it open.
    pub(super) fn find_gone(&self, idle: Duration, in_flight: &InFlightRegistry) -> Vec<Arc<ClientContext>> {
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

fn largest_group<'a>(clients: impl Iterator<Item = &'a Arc<ClientContext>>) -> Vec<&'a Arc<ClientContext>> {
    let mut groups: HashMap<&ClientGroup, Vec<&Arc<ClientContext>>> = HashMap::default();
    clients.for_each(|client| groups.entry(&client.group).or_default().push(client));
    groups.into_values().max_by_key(Vec::len).unwrap_or_default()
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
