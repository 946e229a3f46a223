//! The registry of requests in flight: requests of clients to the bridge, and requests of the bridge to servers.
//!
//! It tells which clients a server's message can concern, which request a client cancels, and whether a server or a client
//! is idle. Responses are not matched here: each connection does that itself, by the ids of the requests it has sent.
//!
//! A request whose caller leaves before the response is *abandoned*. The server may still work on it and send messages about
//! it, so for the routing of messages it counts as in flight for some time. A server with abandoned requests only is idle:
//! nobody waits for it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_mcp::ResponseStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::ClientContext;

/// Distinguishes servers within the process, also those of one name.
type ServerSerial = u64;
/// Distinguishes clients within the process.
type ClientSerial = u64;
/// The JSON-RPC id of a request to a server.
type RequestId = u64;
/// A request of a client: the client, and the request's JSON-RPC id as the client spelled it.
type ClientKey = (ClientSerial, Arc<str>);

/// The most abandoned requests of one server that are stored individually.
const MAX_ABANDONED: usize = 256;

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
    /// Any sender: stands for the abandoned requests beyond `MAX_ABANDONED`.
    Unknown,
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
    servers: HashMap<ServerSerial, ServerTable, BuildHasherDefault<NumberHasher>>,
    /// Requests of clients. They are ordered, so those of one client are neighbours.
    clients: BTreeMap<ClientKey, CancellationToken>,
    last_entry_id: u64,
}

struct ServerTable {
    /// Requests whose callers wait.
    waiting: Vec<WaitingRequest>,
    /// The time at which the last one ended.
    idle_since: Instant,
    /// Requests whose callers have left. The server may still work on them.
    abandoned: Vec<AbandonedRequest>,
    notifiers: Arc<ServerNotifiers>,
}

/// Wakes the tasks that wait for events of one server's requests.
#[derive(Default)]
pub(crate) struct ServerNotifiers {
    /// A request that had been sent was abandoned.
    pub(crate) abandoned: Notify,
    /// The last request ended.
    idle: Notify,
}

struct WaitingRequest {
    entry_id: u64,
    origin: Origin,
    /// The id under which the request was sent; `None` while the server is not working on it (see
    /// [`mark_not_sent`](InFlight::mark_not_sent)).
    sent_id: Option<RequestId>,
}

struct AbandonedRequest {
    /// `None` for the one entry that stands for all requests beyond `MAX_ABANDONED`.
    sent_id: Option<RequestId>,
    origin: Origin,
    /// The server may ignore the cancellation, so the request counts as in flight until this time.
    until: Instant,
}

/// One request in flight, which ends when this is dropped. A request to a server that was sent and is dropped before
/// [`complete`](InFlight::complete) becomes abandoned. A request of a client cannot be abandoned.
pub(crate) struct InFlight {
    registry: Arc<InFlightRegistry>,
    key: Key,
    /// The time for which an abandoned request counts as in flight. Not used for requests of clients.
    abandoned_for: Duration,
    is_completed: bool,
}

/// A handle on the abandoned requests of one server, for its connections.
#[derive(Clone)]
pub(crate) struct AbandonedRequests {
    registry: Arc<InFlightRegistry>,
    server: ServerSerial,
}

impl AbandonedRequests {
    pub(crate) fn new(registry: &Arc<InFlightRegistry>, server: ServerSerial) -> Self {
        Self { registry: registry.clone(), server }
    }

    /// Ends the abandoned request with this id: the server has responded to it. To be called for every response that no
    /// caller waits for; ids of no abandoned request are ignored.
    pub(crate) fn on_response(&self, id: &str) {
        if let Ok(id) = id.parse() {
            self.registry.remove_abandoned(self.server, id);
        }
    }
}

enum Key {
    Server { serial: ServerSerial, entry_id: u64 },
    Client(ClientKey),
}

impl InFlightRegistry {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().expect("no code panics while it holds the lock")
    }

    /// Registers a request to a server.
    pub(crate) fn begin_upstream_request(
        self: &Arc<Self>,
        serial: ServerSerial,
        origin: Origin,
        abandoned_for: Duration,
    ) -> InFlight {
        let mut tables = self.tables();
        tables.last_entry_id += 1;
        let entry_id = tables.last_entry_id;
        // A server that has stopped has no table: its requests fail at once.
        if let Some(table) = tables.servers.get_mut(&serial) {
            table.waiting.push(WaitingRequest { entry_id, origin, sent_id: None });
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
        serial: ClientSerial,
        id: &Arc<str>,
    ) -> Option<(InFlight, CancellationToken)> {
        let key = (serial, id.clone());
        let token = match self.tables().clients.entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(CancellationToken::new()).clone(),
        };
        let (registry, key) = (self.clone(), Key::Client(key));
        Some((InFlight { registry, key, abandoned_for: Duration::ZERO, is_completed: false }, token))
    }

    /// Cancels one request of a client. It stays registered until its handler has ended it.
    pub(crate) fn cancel(&self, client: ClientSerial, id: &str) {
        if let Some(token) = self.tables().clients.get(&(client, id.into())) {
            token.cancel();
        }
    }

    /// Cancels every request of a client that is gone, and removes them at once, so that the client counts as idle.
    pub(crate) fn cancel_all(&self, client: ClientSerial) {
        let requests: Vec<_> = self.tables().clients.extract_if(keys_of(client), |_, _| true).collect();
        requests.iter().for_each(|(_, token)| token.cancel());
    }

    pub(crate) fn has_requests_of(&self, client: ClientSerial) -> bool {
        self.tables().clients.range(keys_of(client)).next().is_some()
    }

    /// Adds a server, before its first request. [`remove_server`](Self::remove_server) removes it.
    pub(crate) fn add_server(&self, server: ServerSerial) -> Arc<ServerNotifiers> {
        let table = || ServerTable {
            waiting: Vec::new(),
            idle_since: Instant::now(),
            abandoned: Vec::new(),
            notifiers: Arc::default(),
        };
        self.tables().servers.entry(server).or_insert_with(table).notifiers.clone()
    }

    /// Returns true if a caller waits for a response of the server.
    pub(crate) fn has_requests_to(&self, server: ServerSerial) -> bool {
        self.tables().servers.get(&server).is_some_and(|table| !table.waiting.is_empty())
    }

    /// Returns the time since which no caller waits for a response of the server; `None` while one does.
    pub(crate) fn idle_since(&self, server: ServerSerial) -> Option<Instant> {
        let tables = self.tables();
        tables.servers.get(&server).filter(|table| table.waiting.is_empty()).map(|table| table.idle_since)
    }

    /// Returns when no caller waits for a response of the server.
    pub(crate) async fn wait_until_idle(&self, server: ServerSerial, notifiers: &ServerNotifiers) {
        loop {
            let idle = notifiers.idle.notified();
            if !self.has_requests_to(server) {
                return;
            }
            idle.await;
        }
    }

    /// Returns the origins of the requests that the server may be working on, the abandoned ones included.
    pub(crate) fn origins(&self, server: ServerSerial) -> Vec<Origin> {
        let mut tables = self.tables();
        let Some(table) = tables.servers.get_mut(&server) else { return Vec::new() };
        table.remove_expired();
        let sent = table.waiting.iter().filter(|entry| entry.sent_id.is_some()).map(|entry| &entry.origin);
        sent.chain(table.abandoned.iter().map(|request| &request.origin)).cloned().collect()
    }

    /// Returns the origin of the request that was sent to the server under this id. Abandoned requests are found even if
    /// they have expired: the id leaves no doubt about the origin.
    pub(crate) fn origin_of(&self, server: ServerSerial, id: RequestId) -> Option<Origin> {
        let tables = self.tables();
        let ServerTable { waiting, abandoned, .. } = tables.servers.get(&server)?;
        let mut waiting = waiting.iter().map(|entry| (entry.sent_id, &entry.origin));
        let mut abandoned = abandoned.iter().map(|request| (request.sent_id, &request.origin));
        let is_sent = |(sent_id, _): &(Option<RequestId>, &Origin)| *sent_id == Some(id);
        waiting.find(is_sent).or_else(|| abandoned.find(is_sent)).map(|(_, origin)| origin.clone())
    }

    /// Removes an abandoned request: the server has responded to it.
    fn remove_abandoned(&self, server: ServerSerial, id: RequestId) {
        self.retain_abandoned(server, |request| request.sent_id != Some(id));
    }

    /// Removes all abandoned requests: the connection that carried them is gone.
    pub(crate) fn remove_all_abandoned(&self, server: ServerSerial) {
        self.retain_abandoned(server, |_| false);
    }

    /// Removes the abandoned requests of clients: their clients are gone, so no message of the server can concern them.
    pub(crate) fn remove_abandoned_of_clients(&self, server: ServerSerial) {
        self.retain_abandoned(server, |request| !matches!(request.origin, Origin::Client { .. }));
    }

    fn retain_abandoned(&self, server: ServerSerial, is_kept: impl Fn(&AbandonedRequest) -> bool) {
        if let Some(table) = self.tables().servers.get_mut(&server) {
            table.abandoned.retain(is_kept);
        }
    }

    /// Removes a server that has stopped. It is idle from now on.
    pub(crate) fn remove_server(&self, server: ServerSerial) {
        if let Some(table) = self.tables().servers.remove(&server) {
            table.notifiers.idle.notify_waiters();
        }
    }
}

impl ServerTable {
    fn remove_expired(&mut self) {
        let now = Instant::now();
        self.abandoned.retain(|request| now < request.until);
    }

    /// Counts a request as in flight until this time. Beyond `MAX_ABANDONED`, one entry of `Origin::Unknown` stands for all: a
    /// message that may concern any of them has no recipient.
    fn abandon(&mut self, sent_id: RequestId, origin: Origin, until: Instant) {
        self.remove_expired();
        if self.abandoned.len() < MAX_ABANDONED {
            return self.abandoned.push(AbandonedRequest { sent_id: Some(sent_id), origin, until });
        }
        match self.abandoned.iter_mut().find(|request| request.sent_id.is_none()) {
            Some(others) => others.until = others.until.max(until),
            None => self.abandoned.push(AbandonedRequest { sent_id: None, origin: Origin::Unknown, until }),
        }
    }
}

impl InFlight {
    /// Marks the request as sent under this id. A retry has another id.
    pub(crate) fn mark_sent(&self, id: RequestId) {
        self.set_sent_id(Some(id));
    }

    /// Marks a request on which the server is not working: it was not sent, has ended at the server, or waits for a retry.
    pub(crate) fn mark_not_sent(&self) {
        self.set_sent_id(None);
    }

    fn set_sent_id(&self, sent_id: Option<RequestId>) {
        let Key::Server { serial, entry_id } = self.key else { return };
        let mut tables = self.registry.tables();
        let Some(table) = tables.servers.get_mut(&serial) else { return };
        if let Some(entry) = table.waiting.iter_mut().rev().find(|entry| entry.entry_id == entry_id) {
            entry.sent_id = sent_id;
        }
    }

    /// Ends the request: its response has arrived.
    pub(crate) fn complete(mut self) {
        self.is_completed = true;
    }
}

/// Returns the range of the keys of one client. No text is smaller than the empty one.
fn keys_of(client: ClientSerial) -> Range<ClientKey> {
    (client, "".into())..(client + 1, "".into())
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut tables = self.registry.tables();
        let (serial, entry_id) = match &self.key {
            Key::Client(key) => {
                tables.clients.remove(key);
                return;
            }
            Key::Server { serial, entry_id } => (*serial, *entry_id),
        };
        let Some(table) = tables.servers.get_mut(&serial) else { return };
        let Some(at) = table.waiting.iter().rposition(|entry| entry.entry_id == entry_id) else { return };
        let WaitingRequest { origin, sent_id, .. } = table.waiting.remove(at);
        if let (Some(id), false) = (sent_id, self.is_completed) {
            table.abandon(id, origin, Instant::now() + self.abandoned_for);
            table.notifiers.abandoned.notify_one();
        }
        if table.waiting.is_empty() {
            table.idle_since = Instant::now();
            table.notifiers.idle.notify_waiters();
        }
    }
}

/// Hashes serial numbers. The bridge counts them itself, so no attacker can choose colliding ones, and a fast hash is enough.
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
    use bascule_mcp::{Endpoint, PeerId};

    use super::*;

    const SERVER: ServerSerial = 7;

    fn client() -> Origin {
        let client = Arc::new(ClientContext::new("id".into(), Endpoint::All, PeerId::default(), "{}"));
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
        sent.complete();
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

    // req: GW-04, BR-12
    #[tokio::test(start_paused = true)]
    async fn many_abandoned_requests_take_bounded_room() {
        let (registry, _sent) = registry();
        for id in 10..10_000 {
            registry.begin_upstream_request(SERVER, client(), Duration::from_secs(60)).mark_sent(id);
        }
        let origins = registry.origins(SERVER);
        assert!(origins.len() <= MAX_ABANDONED + 2, "{}", origins.len());
        (1..10_000).for_each(|id| registry.remove_abandoned(SERVER, id));
        assert_eq!(
            registry.origins(SERVER).len(),
            2,
            "those that were not stored individually count until they expire"
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(registry.origins(SERVER).len(), 1);
    }

    // req: GW-04, BR-12
    #[tokio::test(start_paused = true)]
    async fn requests_that_share_one_entry_expire_with_the_last_of_them() {
        let (registry, sent) = registry();
        sent.complete();
        let abandon = |id| {
            registry.begin_upstream_request(SERVER, client(), Duration::from_secs(60)).mark_sent(id);
        };
        (10..1_000).for_each(abandon);
        tokio::time::advance(Duration::from_secs(30)).await;
        abandon(1_000);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(registry.origins(SERVER).len(), 1);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(registry.origins(SERVER).len(), 0);
    }

    // req: GW-04
    #[tokio::test]
    async fn server_messages_concern_no_request_that_was_not_sent() {
        let (registry, sent) = registry();
        registry.remove_all_abandoned(SERVER);
        let _queued = registry.begin_upstream_request(SERVER, client(), Duration::from_secs(60));
        assert_eq!(registry.origins(SERVER).len(), 1);
        sent.mark_not_sent();
        assert_eq!(registry.origins(SERVER).len(), 0);
        assert!(registry.has_requests_to(SERVER));
    }

    // req: BR-13
    #[tokio::test]
    async fn removed_server_is_idle() {
        let (registry, _sent) = registry();
        let notifiers = registry.add_server(SERVER);
        let mut idle = Box::pin(registry.wait_until_idle(SERVER, &notifiers));
        assert!(futures_util::poll!(&mut idle).is_pending());
        registry.remove_server(SERVER);
        assert!(futures_util::poll!(&mut idle).is_ready());
    }

    // req: GW-04
    #[test]
    fn cancels_the_request_of_one_client_only() {
        let registry = Arc::new(InFlightRegistry::default());
        let [(first, cancelled), (_second, other)] =
            [1, 2].map(|client| registry.begin_client_request(client, &"1".into()).expect("the id is free"));
        assert!(registry.begin_client_request(1, &"1".into()).is_none());
        registry.cancel(1, "2");
        registry.cancel(3, "1");
        assert!(!cancelled.is_cancelled());
        registry.cancel(1, "1");
        assert!(cancelled.is_cancelled() && !other.is_cancelled());
        drop(first);
        assert!(!registry.has_requests_of(1) && registry.has_requests_of(2));
    }
}
