//! The registry of requests in flight: requests of clients to the bridge, and requests of the bridge to servers.
//!
//! It tells which clients a server's message can concern (GW-04), which request a client cancels, and whether a server or
//! a client is idle. The connection that sent a request matches its response by id.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_mcp::ResponseStream;
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::ClientContext;

/// The sender of a request to a server.
#[derive(Clone, Default)]
pub(crate) enum Origin {
    /// A client of the gateway. Messages of the server that belong to the request go to its response stream.
    Client { client: Arc<ClientContext>, stream: ResponseStream },
    /// A caller that cannot receive messages of servers: the command line, or a program that embeds the bridge.
    #[default]
    Detached,
    /// The bridge itself. No message of a server belongs to its requests.
    Bridge,
}

/// The requests in flight of one bridge: those of its clients, and those that [`Server::run`] sends. The handshake with a
/// server, and the `tools/list` and `ping` of its actor, are not registered.
///
/// [`Server::run`]: crate::fleet::server::Server::run
#[derive(Default)]
pub(crate) struct InFlightRegistry(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    /// Requests to servers, by the server's serial number.
    servers: HashMap<u64, ServerTable, BuildHasherDefault<NumberHasher>>,
    /// Requests of clients, by the client's serial number and the request's JSON-RPC id as the client spelled it.
    clients: HashMap<u64, HashMap<Box<str>, CancellationToken>, BuildHasherDefault<NumberHasher>>,
    last_entry_id: u64,
}

#[derive(Default)]
struct ServerTable {
    entries: Vec<Entry>,
    signals: Arc<ServerSignals>,
}

/// Wakes the tasks that wait for events of one server's requests.
#[derive(Default)]
pub(crate) struct ServerSignals {
    /// A request that had been sent was abandoned.
    pub(crate) abandoned: Notify,
    /// The last request ended.
    idle: Notify,
}

struct Entry {
    entry_id: u64,
    origin: Origin,
    state: RequestState,
}

#[derive(Clone, Copy, PartialEq)]
enum RequestState {
    NotSent,
    /// Sent, under this id.
    Sent(u64),
    /// Sent under this id, and the caller no longer waits. The server may ignore the cancellation and still work on the
    /// request, so the entry is kept until this time.
    Abandoned(u64, Instant),
}

impl RequestState {
    fn id(self) -> Option<u64> {
        match self {
            Self::NotSent => None,
            Self::Sent(id) | Self::Abandoned(id, _) => Some(id),
        }
    }
}

/// One request in flight. If it was sent and is dropped before [`complete`](InFlight::complete), it counts as abandoned.
pub(crate) struct InFlight {
    registry: Arc<InFlightRegistry>,
    key: Key,
    /// The time for which an abandoned request counts as in flight.
    abandoned_for: Duration,
    is_completed: bool,
}

/// A handle on the abandoned requests of one server.
#[derive(Clone)]
pub(crate) struct AbandonedRequests {
    registry: Arc<InFlightRegistry>,
    server: u64,
}

impl AbandonedRequests {
    pub(crate) fn new(registry: &Arc<InFlightRegistry>, server: u64) -> Self {
        Self { registry: registry.clone(), server }
    }

    /// Ends the request with this JSON-RPC id: the server has responded to it.
    pub(crate) fn on_response(&self, id: &str) {
        if let Ok(id) = id.parse() {
            self.registry.remove_abandoned(self.server, id);
        }
    }
}

enum Key {
    Server { serial: u64, entry_id: u64 },
    Client { serial: u64, id: Box<str> },
}

impl InFlightRegistry {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().expect("no code panics while it holds the lock")
    }

    /// Registers a request to a server.
    pub(crate) fn begin_upstream_request(
        self: &Arc<Self>,
        serial: u64,
        origin: Origin,
        abandoned_for: Duration,
    ) -> InFlight {
        let mut tables = self.tables();
        tables.last_entry_id += 1;
        let entry_id = tables.last_entry_id;
        let entry = Entry { entry_id, origin, state: RequestState::NotSent };
        // A server that has stopped has no table: its requests fail at once.
        if let Some(table) = tables.servers.get_mut(&serial) {
            table.remove_expired();
            table.entries.push(entry);
        }
        InFlight {
            registry: self.clone(),
            key: Key::Server { serial, entry_id },
            abandoned_for,
            is_completed: false,
        }
    }

    /// Registers a request of a client. Returns `None` if the client has a request with the same id in flight: the client
    /// could not tell the responses apart.
    pub(crate) fn begin_client_request(
        self: &Arc<Self>,
        serial: u64,
        id: &str,
    ) -> Option<(InFlight, CancellationToken)> {
        let mut tables = self.tables();
        let requests = tables.clients.entry(serial).or_default();
        if requests.contains_key(id) {
            return None;
        }
        let token = CancellationToken::new();
        requests.insert(id.into(), token.clone());
        let key = Key::Client { serial, id: id.into() };
        Some((
            InFlight { registry: self.clone(), key, abandoned_for: Duration::ZERO, is_completed: true },
            token,
        ))
    }

    /// Cancels one request of a client.
    pub(crate) fn cancel(&self, client: u64, id: &str) {
        if let Some(token) = self.tables().clients.get(&client).and_then(|requests| requests.get(id)) {
            token.cancel();
        }
    }

    /// Cancels every request of a client.
    pub(crate) fn cancel_all(&self, client: u64) {
        let requests = self.tables().clients.remove(&client);
        requests.iter().flat_map(HashMap::values).for_each(CancellationToken::cancel);
    }

    pub(crate) fn has_requests_of(&self, client: u64) -> bool {
        self.tables().clients.contains_key(&client)
    }

    /// Adds a server. [`remove_server`](Self::remove_server) takes it out again.
    pub(crate) fn add_server(&self, server: u64) -> Arc<ServerSignals> {
        self.tables().servers.entry(server).or_default().signals.clone()
    }

    /// Returns true if a caller waits for a response of the server.
    pub(crate) fn has_requests_to(&self, server: u64) -> bool {
        self.tables().servers.get(&server).is_some_and(ServerTable::is_busy)
    }

    /// Returns when no caller waits for a response of the server.
    pub(crate) async fn wait_until_idle(&self, server: u64, signals: &ServerSignals) {
        loop {
            let idle = signals.idle.notified();
            if !self.has_requests_to(server) {
                return;
            }
            idle.await;
        }
    }

    /// Returns the origins of the requests that the server may be working on, the abandoned ones included.
    pub(crate) fn origins(&self, server: u64) -> Vec<Origin> {
        let mut tables = self.tables();
        let Some(table) = tables.servers.get_mut(&server) else { return Vec::new() };
        table.remove_expired();
        table.entries.iter().map(|entry| entry.origin.clone()).collect()
    }

    /// Returns the origin of the request that was sent to the server under this id.
    pub(crate) fn origin_of(&self, server: u64, id: u64) -> Option<Origin> {
        let tables = self.tables();
        let mut entries = tables.servers.get(&server)?.entries.iter();
        entries.find(|entry| entry.state.id() == Some(id)).map(|entry| entry.origin.clone())
    }

    /// Removes an abandoned request: the server has responded to it.
    fn remove_abandoned(&self, server: u64, id: u64) {
        let is_completed =
            |state: RequestState| matches!(state, RequestState::Abandoned(sent_id, _) if sent_id == id);
        if let Some(table) = self.tables().servers.get_mut(&server) {
            table.entries.retain(|entry| !is_completed(entry.state));
        }
    }

    /// Removes all abandoned requests: the connection that carried them is gone.
    pub(crate) fn remove_all_abandoned(&self, server: u64) {
        if let Some(table) = self.tables().servers.get_mut(&server) {
            table.entries.retain(|entry| !matches!(entry.state, RequestState::Abandoned(..)));
        }
    }

    /// Removes the abandoned requests of clients: their clients are gone, so no message of the server can concern them.
    pub(crate) fn remove_abandoned_of_clients(&self, server: u64) {
        let is_clients = |entry: &Entry| matches!(entry.origin, Origin::Client { .. });
        if let Some(table) = self.tables().servers.get_mut(&server) {
            table
                .entries
                .retain(|entry| !(matches!(entry.state, RequestState::Abandoned(..)) && is_clients(entry)));
        }
    }

    /// Removes a server that has stopped. It is idle from now on.
    pub(crate) fn remove_server(&self, server: u64) {
        if let Some(table) = self.tables().servers.remove(&server) {
            table.signals.idle.notify_waiters();
        }
    }
}

impl ServerTable {
    fn remove_expired(&mut self) {
        self.entries.retain(|entry| match entry.state {
            RequestState::Abandoned(_, until) => Instant::now() < until,
            _ => true,
        });
    }

    fn is_busy(&self) -> bool {
        self.entries.iter().any(|entry| !matches!(entry.state, RequestState::Abandoned(..)))
    }
}

impl InFlight {
    /// Marks the request as sent under this id. A retry has another id.
    pub(crate) fn mark_sent(&self, id: u64) {
        self.set_state(RequestState::Sent(id));
    }

    /// Marks a request that waits for a retry: no process works on it.
    pub(crate) fn mark_not_sent(&self) {
        self.set_state(RequestState::NotSent);
    }

    fn set_state(&self, state: RequestState) {
        let Key::Server { serial, entry_id } = self.key else { return };
        if let Some(entry) = self.registry.tables().entry(serial, entry_id) {
            entry.state = state;
        }
    }

    /// Ends the request with its result. A timeout after sending abandons it.
    pub(crate) fn complete<T>(mut self, result: &BridgeResult<T>) {
        self.is_completed = !matches!(result, Err(error) if may_still_run(error));
    }
}

impl Tables {
    fn entry(&mut self, serial: u64, entry_id: u64) -> Option<&mut Entry> {
        self.servers.get_mut(&serial)?.entries.iter_mut().rev().find(|entry| entry.entry_id == entry_id)
    }

    /// Returns true if the request counts as abandoned from now on.
    fn abandon(&mut self, serial: u64, entry_id: u64, abandoned_for: Duration) -> bool {
        let Some(entry) = self.entry(serial, entry_id) else { return false };
        let RequestState::Sent(id) = entry.state else { return false };
        entry.state = RequestState::Abandoned(id, Instant::now() + abandoned_for);
        true
    }

    fn remove_client_request(&mut self, serial: u64, id: &str) {
        let Some(requests) = self.clients.get_mut(&serial) else { return };
        requests.remove(id);
        if requests.is_empty() {
            self.clients.remove(&serial);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut tables = self.registry.tables();
        let (serial, entry_id) = match &self.key {
            Key::Client { serial, id } => return tables.remove_client_request(*serial, id),
            Key::Server { serial, entry_id } => (*serial, *entry_id),
        };
        let is_abandoned = !self.is_completed && tables.abandon(serial, entry_id, self.abandoned_for);
        let Some(table) = tables.servers.get_mut(&serial) else { return };
        if is_abandoned {
            table.signals.abandoned.notify_one();
        } else {
            table.entries.retain(|entry| entry.entry_id != entry_id);
        }
        if !table.is_busy() {
            table.signals.idle.notify_waiters();
        }
    }
}

/// Returns true if the server may still run a request that failed with this error.
fn may_still_run(error: &BridgeError) -> bool {
    error.code == ErrorCode::ProviderTimeout && error.delivery == Delivery::Unknown
}

/// Hashes the serial numbers that the bridge counts itself: no attacker chooses them.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use bascule_mcp::Endpoint;

    use super::*;

    const SERVER: u64 = 7;

    fn client() -> Origin {
        let client = Arc::new(ClientContext::new("id".into(), Endpoint::All, "{}"));
        Origin::Client { client, stream: ResponseStream::new(1 << 10) }
    }

    /// Returns a registry with one request of a client and one detached request, both abandoned after sending, and with
    /// one detached request that was only sent.
    fn registry() -> (Arc<InFlightRegistry>, InFlight) {
        let registry = Arc::new(InFlightRegistry::default());
        registry.add_server(SERVER);
        let begin = |id, origin| {
            let request = registry.begin_upstream_request(SERVER, origin, Duration::from_secs(60));
            request.mark_sent(id);
            request
        };
        drop([begin(1, client()), begin(2, Origin::Detached)]);
        let sent = begin(3, Origin::Detached);
        (registry, sent)
    }

    fn ids(registry: &InFlightRegistry) -> Vec<u64> {
        (1..=3).filter(|id| registry.origin_of(SERVER, *id).is_some()).collect()
    }

    // req: GW-04
    #[tokio::test]
    async fn response_ends_an_abandoned_request_only() {
        let (registry, sent) = registry();
        registry.remove_abandoned(SERVER, 3);
        assert_eq!(ids(&registry), [1, 2, 3]);
        registry.remove_abandoned(SERVER, 2);
        assert_eq!(ids(&registry), [1, 3]);
        sent.complete(&Ok(()));
        assert_eq!(ids(&registry), [1]);
    }

    // req: GW-04
    #[tokio::test]
    async fn lost_connection_ends_all_abandoned_requests() {
        let (registry, sent) = registry();
        registry.remove_all_abandoned(SERVER);
        assert_eq!(ids(&registry), [3]);
        drop(sent);
        assert_eq!(ids(&registry), [3], "it is abandoned now");
    }

    // req: GW-04
    #[tokio::test]
    async fn leaving_clients_end_their_abandoned_requests_only() {
        let (registry, _sent) = registry();
        registry.remove_abandoned_of_clients(SERVER);
        assert_eq!(ids(&registry), [2, 3]);
    }

    // req: GW-04
    #[tokio::test(start_paused = true)]
    async fn abandoned_requests_expire() {
        let (registry, _sent) = registry();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(registry.origins(SERVER).len(), 3);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(registry.origins(SERVER).len(), 1);
    }

    // req: BR-13
    #[tokio::test]
    async fn removed_server_is_idle() {
        let (registry, _sent) = registry();
        let signals = registry.add_server(SERVER);
        let mut idle = Box::pin(registry.wait_until_idle(SERVER, &signals));
        assert!(futures_util::poll!(&mut idle).is_pending());
        registry.remove_server(SERVER);
        assert!(futures_util::poll!(&mut idle).is_ready());
    }

    // req: GW-04
    #[test]
    fn cancels_the_request_of_one_client_only() {
        let registry = Arc::new(InFlightRegistry::default());
        let [(first, cancelled), (_second, other)] =
            [1, 2].map(|client| registry.begin_client_request(client, "1").expect("the id is free"));
        assert!(registry.begin_client_request(1, "1").is_none());
        registry.cancel(1, "2");
        registry.cancel(3, "1");
        assert!(!cancelled.is_cancelled());
        registry.cancel(1, "1");
        assert!(cancelled.is_cancelled() && !other.is_cancelled());
        drop(first);
        assert!(!registry.has_requests_of(1) && registry.has_requests_of(2));
    }
}
