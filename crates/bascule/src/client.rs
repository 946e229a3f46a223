//! A client of the bridge as a value that its requests carry: identity, capabilities, subscriptions, and the streams that
//! lead to it.
//!
//! A session is one way to have a client context; its lifetime is `gateway::session`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bascule_mcp::{Endpoint, PeerId, QualifiedIndex, ResponseStream, RpcError, patch};
use bascule_model::clip;
use bascule_store::ClientLabel;
use tokio::time::Instant;

use crate::fleet::server::Server;
use crate::logging_level::LoggingLevel;

/// The client capabilities that a server acts on, with the members it may look at.
const SERVER_REQUESTS: [(&str, &[&str]); 3] =
    [("roots", &["listChanged"]), ("sampling", &["context", "tools"]), ("elicitation", &["form", "url"])];
/// The most requests of servers that one client may have open.
const MAX_SERVER_REQUESTS: usize = 256;
/// The most messages, and bytes, kept for a client that has no stream open.
const MAX_KEPT: usize = 64;
const MAX_KEPT_BYTES: usize = 1 << 20;

/// The part of a session id that traces show: the whole id is a credential.
const SHOWN_SESSION: usize = 12;

/// The error that servers get when the client they asked is gone.
const CLIENT_DISCONNECTED: &str = "the client has disconnected";
/// The longest name and version of a client that are kept, in bytes. The client has chosen them.
const MAX_LABEL: usize = 128;

/// Decides which clients share one session towards a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SharingKey {
    /// Clients with this capability set share it.
    Capabilities(Arc<str>),
    /// One client has it alone.
    Client(u64),
}

impl SharingKey {
    /// Clients without capabilities share the bridge's own session.
    pub(crate) fn without_capabilities() -> Self {
        Self::Capabilities("{}".into())
    }

    pub(crate) fn has_no_capabilities(&self) -> bool {
        matches!(self, Self::Capabilities(capabilities) if &**capabilities == "{}")
    }
}

/// The clients that count as one where they share something: those with one token, address and name. A program with a wrong
/// name has the same token as the others, and is trusted like them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientGroup {
    sender: PeerId,
    name: Arc<str>,
}

pub(crate) struct ClientContext {
    /// Distinguishes clients within the process.
    pub(crate) serial: u64,
    /// The session id, for logs and records.
    pub(crate) id: String,
    /// The name and version from the client's `clientInfo`.
    pub(crate) identity: ClientIdentity,
    /// The client in traces.
    pub(crate) label: Arc<ClientLabel>,
    pub(crate) group: ClientGroup,
    pub(crate) endpoint: Endpoint,
    /// The capabilities that servers are told of: the JSON text of an object.
    pub(crate) capabilities: Arc<str>,
    last_active: Mutex<Instant>,
    state: Mutex<State>,
    next_request: AtomicU64,
}

pub(crate) struct ClientIdentity {
    name: Arc<str>,
    version: String,
}

impl fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name.escape_debug(), self.version.escape_debug())
    }
}

#[derive(Default)]
struct State {
    /// The stream for messages that belong to no request, while the client has one open.
    stream: Option<ResponseStream>,
    /// Messages for that stream while the client has none open.
    kept: VecDeque<Vec<u8>>,
    /// Requests of servers to this client, by the id the bridge gave them.
    server_requests: HashMap<String, ServerRequest>,
    logging_level: Option<LoggingLevel>,
    /// Subscribed resources, by server and URI.
    subscriptions: HashMap<(String, String), Subscription>,
    /// Names of the servers that the client is attached to.
    servers: HashSet<String>,
    /// The resource URIs of the last listing that the client was given.
    listed_uris: Option<Arc<QualifiedIndex>>,
    is_initialized: bool,
    is_closed: bool,
}

/// A client's subscription to a resource.
struct Subscription {
    /// The URI under which the client knows the resource.
    shown: String,
    /// The server has accepted it. Updates may arrive before that.
    is_confirmed: bool,
}

/// A request of a server to a client.
struct ServerRequest {
    server: Arc<Server>,
    /// The id that the server gave it.
    id: String,
    /// The server's progress token. The client sees the bridge's id in its place.
    progress_token: Option<String>,
    /// The response stream that carried it, if it was not the client's own stream.
    stream: Option<ResponseStream>,
}

impl ClientContext {
    /// Reads a client from the parameters of its `initialize`.
    pub(crate) fn new(id: String, endpoint: Endpoint, sender: PeerId, params: &str) -> Self {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let [capabilities, info] = ["capabilities", "clientInfo"].map(|name| patch::find(params, &[name]));
        let field = |name: &str| patch::find_string(info.unwrap_or("{}"), &[name]).unwrap_or_default();
        let name: Arc<str> = field("name").into();
        let label = ClientLabel {
            name: clip(&name, MAX_LABEL).to_owned(),
            version: clip(&field("version"), MAX_LABEL).to_owned(),
            session: id.chars().take(SHOWN_SESSION).collect(),
        };
        Self {
            label: Arc::new(label),
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
            id,
            group: ClientGroup { sender, name: name.clone() },
            identity: ClientIdentity { name, version: field("version") },
            endpoint,
            capabilities: normalized_capabilities(capabilities.unwrap_or("{}")).into(),
            last_active: Mutex::new(Instant::now()),
            state: Mutex::default(),
            next_request: AtomicU64::new(1),
        }
    }

    /// Returns the key that clients must have in common to share a server.
    pub(crate) fn sharing_key(&self) -> SharingKey {
        SharingKey::Capabilities(self.capabilities.clone())
    }

    pub(crate) fn touch(&self) {
        *self.last_active.lock().expect("no code panics while it holds the lock") = Instant::now();
    }

    pub(crate) fn last_active(&self) -> Instant {
        *self.last_active.lock().expect("no code panics while it holds the lock")
    }

    pub(crate) fn set_initialized(&self) {
        self.state().is_initialized = true;
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.state().is_initialized
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Opens the stream for messages that belong to no request, and closes the one before it.
    pub(crate) fn open_stream(&self, limit: usize) -> ResponseStream {
        let stream = ResponseStream::new(limit);
        let mut state = self.state();
        std::mem::take(&mut state.kept).into_iter().for_each(|frame| _ = stream.push(frame));
        if let Some(old) = state.stream.replace(stream.clone()) {
            old.close();
        }
        stream
    }

    /// Returns the stream for messages that belong to no request, while it is open.
    pub(crate) fn stream(&self) -> Option<ResponseStream> {
        self.state().stream.clone().filter(|stream| !stream.is_closed())
    }

    /// Sends a message that belongs to no request. It is kept while the client has no stream open; the oldest go first.
    pub(crate) fn notify(&self, frame: Vec<u8>) {
        let mut state = self.state();
        match &state.stream {
            Some(stream) if !stream.is_closed() => _ = stream.push(frame),
            _ => state.keep(frame),
        }
    }

    /// Sends a message that belongs to a request, on the request's stream while that is open.
    pub(crate) fn send(&self, stream: Option<&ResponseStream>, frame: Vec<u8>) {
        match stream.filter(|stream| !stream.is_closed()) {
            Some(stream) => _ = stream.push(frame),
            None => self.notify(frame),
        }
    }

    /// Registers a request of a server. Returns the id that the client sees, which is its progress token too.
    pub(crate) fn begin_server_request(
        &self,
        server: &Arc<Server>,
        id: &str,
        progress_token: Option<&str>,
        stream: Option<&ResponseStream>,
    ) -> Result<String, &'static str> {
        let bridge_id = format!("\"bascule-{}\"", self.next_request.fetch_add(1, Ordering::Relaxed));
        let (server, id, stream) = (server.clone(), id.to_owned(), stream.cloned());
        let request = ServerRequest { server, id, progress_token: progress_token.map(str::to_owned), stream };
        let mut state = self.state();
        if state.is_closed {
            return Err(CLIENT_DISCONNECTED);
        }
        if state.server_requests.len() >= MAX_SERVER_REQUESTS {
            return Err("this client has too many open requests of servers");
        }
        state.server_requests.insert(bridge_id.clone(), request);
        Ok(bridge_id)
    }

    /// Returns the server whose request has this progress token of the bridge, and the token that the server chose.
    pub(crate) fn progress_target(&self, token: &str) -> Option<(Arc<Server>, String)> {
        let state = self.state();
        let request = state.server_requests.get(token)?;
        Some((request.server.clone(), request.progress_token.clone()?))
    }

    /// Returns true if a server may send this method to the client: either the client has declared the capability, or
    /// the method needs none.
    pub(crate) fn accepts(&self, method: &str) -> bool {
        let family = method.split('/').next().unwrap_or_default();
        let needs_capability = SERVER_REQUESTS.iter().any(|(name, _)| *name == family);
        method != "initialize" && (!needs_capability || patch::find(&self.capabilities, &[family]).is_some())
    }

    /// Forwards the client's response to the server that made the request.
    pub(crate) fn complete_server_request(&self, id: &str, frame: &[u8]) {
        let request = self.state().server_requests.remove(id);
        if let (Some(request), Ok(text)) = (request, std::str::from_utf8(frame)) {
            request.server.send(patch::insert(text, &["id"], &request.id).into_bytes());
        }
    }

    /// Removes one request of a server, or all of them. Returns the ids that the client knows, with their streams.
    pub(crate) fn remove_server_requests(
        &self,
        server: &Server,
        id: Option<&str>,
    ) -> Vec<(String, Option<ResponseStream>)> {
        let is_removed = |request: &ServerRequest| {
            std::ptr::eq(&*request.server, server) && id.is_none_or(|id| request.id == id)
        };
        let mut state = self.state();
        let removed = state.server_requests.extract_if(|_, request| is_removed(request));
        removed.map(|(bridge_id, request)| (bridge_id, request.stream)).collect()
    }

    /// Closes the client's streams and fails the servers' requests to it.
    pub(crate) fn close(&self) {
        let (server_requests, stream) = {
            let mut state = self.state();
            state.is_closed = true;
            (std::mem::take(&mut state.server_requests), state.stream.take())
        };
        stream.iter().for_each(ResponseStream::close);
        for request in server_requests.into_values() {
            request.server.reject_request(&request.id, RpcError::CONNECTION_CLOSED, CLIENT_DISCONNECTED);
        }
    }

    pub(crate) fn set_logging_level(&self, level: LoggingLevel) {
        self.state().logging_level = Some(level);
    }

    pub(crate) fn logging_level(&self) -> Option<LoggingLevel> {
        self.state().logging_level
    }

    /// Adds a subscription that the server has not confirmed yet. Returns false if the client has it already.
    pub(crate) fn subscribe(&self, server: &str, uri: &str, shown: &str) -> bool {
        match self.state().subscriptions.entry((server.to_owned(), uri.to_owned())) {
            Entry::Occupied(mut known) => {
                known.get_mut().shown = shown.to_owned();
                false
            }
            Entry::Vacant(free) => {
                free.insert(Subscription { shown: shown.to_owned(), is_confirmed: false });
                true
            }
        }
    }

    pub(crate) fn confirm_subscription(&self, server: &str, uri: &str) {
        if let Some(known) = self.state().subscriptions.get_mut(&(server.to_owned(), uri.to_owned())) {
            known.is_confirmed = true;
        }
    }

    pub(crate) fn has_confirmed_subscription(&self, server: &str, uri: &str) -> bool {
        let state = self.state();
        state.subscriptions.get(&(server.to_owned(), uri.to_owned())).is_some_and(|one| one.is_confirmed)
    }

    pub(crate) fn unsubscribe(&self, server: &str, uri: &str) {
        self.state().subscriptions.remove(&(server.to_owned(), uri.to_owned()));
    }

    pub(crate) fn is_subscribed(&self, server: &str, uri: &str) -> bool {
        self.state().subscriptions.contains_key(&(server.to_owned(), uri.to_owned()))
    }

    /// Returns the URI under which the client knows a subscribed resource, or a part of one.
    pub(crate) fn subscribed_uri(&self, server: &str, uri: &str) -> Option<String> {
        let state = self.state();
        if let Some(known) = state.subscriptions.get(&(server.to_owned(), uri.to_owned())) {
            return Some(known.shown.clone());
        }
        let mut own = state.subscriptions.iter().filter(|((own, _), _)| own == server);
        own.find_map(|((_, whole), Subscription { shown, .. })| {
            let rest = uri.strip_prefix(whole.as_str())?;
            let is_part = whole.ends_with('/') || rest.starts_with(['/', '?', '#']);
            is_part.then(|| format!("{shown}{rest}"))
        })
    }

    /// Returns the URIs of a server's resources that the client has subscribed to.
    pub(crate) fn subscriptions(&self, server: &str) -> Vec<String> {
        let state = self.state();
        state.subscriptions.keys().filter(|(own, _)| own == server).map(|(_, uri)| uri.clone()).collect()
    }

    pub(crate) fn add_server(&self, server: &str) {
        self.state().servers.insert(server.to_owned());
    }

    pub(crate) fn servers(&self) -> Vec<String> {
        self.state().servers.iter().cloned().collect()
    }

    pub(crate) fn listed_uris(&self) -> Option<Arc<QualifiedIndex>> {
        self.state().listed_uris.clone()
    }

    pub(crate) fn set_listed_uris(&self, uris: Arc<QualifiedIndex>) {
        self.state().listed_uris = Some(uris);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl State {
    fn keep(&mut self, frame: Vec<u8>) {
        self.kept.push_back(frame);
        let mut bytes: usize = self.kept.iter().map(Vec::len).sum();
        while self.kept.len() > MAX_KEPT || bytes > MAX_KEPT_BYTES {
            bytes -= self.kept.pop_front().map_or(bytes, |oldest| oldest.len());
        }
    }
}

/// Reduces a client's capabilities to those that servers act on, in one spelling. Members that make no difference to a
/// server must not make a difference between clients: each capability set has a server process of its own.
fn normalized_capabilities(offered: &str) -> String {
    let is_offered = |value: &&str| value.starts_with('{') || *value == "true";
    let capability = |(name, members): &(&str, &[&str])| {
        let value = patch::find(offered, &[name]).filter(is_offered)?;
        let members = members.iter().filter_map(|member| {
            let value = patch::find(value, &[member]).filter(is_offered)?;
            Some(format!("\"{member}\":{}", if value == "true" { value } else { "{}" }))
        });
        Some(format!("\"{name}\":{{{}}}", members.collect::<Vec<_>>().join(",")))
    };
    format!("{{{}}}", SERVER_REQUESTS.iter().filter_map(capability).collect::<Vec<_>>().join(","))
}
