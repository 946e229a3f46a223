//! The bridge as an MCP server (GW-01): clients begin sessions, and what they say reaches the right server.
//!
//! Reading order: [`session`] is one client; [`upstream_session`] is one server as one profile sees it, and routes what that
//! server says of itself; [`passthrough`] answers for a single server, [`aggregate`] for all of them; [`reply`] spells
//! answers and errors. How bytes come and go is `bascule_mcp`'s feature `server`. Calls take the one road there is, `call`.

mod aggregate;
mod code;
mod passthrough;
mod reply;
mod session;
mod upstream_session;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_bus::{EmbeddedBus, SubscribeOptions, TopicPattern};
use bascule_mcp::{ClientMessage, Endpoint, Host, ResponseStream};
use bascule_mcp::{Message, ProtocolVersion, patch, with_extras};
use bascule_model::{BridgeResult, ServerName};
use serde_json::value::RawValue;
use tracing::{debug, info};

use crate::McpBridgeAdapter;
use crate::config::{Isolation, ServerSettings, SessionSharing, ToolView};
use crate::fleet::request::ExtraMembers;
use crate::fleet::server::Server;
use aggregate::ToolNames;
use session::{Session, SharingKey};
use upstream_session::{GatewayTasks, UpstreamSession};

/// How often at least it is looked whether clients are gone.
const ROUND: Duration = Duration::from_secs(20);
/// How much may wait for a client on the stream for what is said unasked.
const UNASKED: usize = 64 << 20;
/// Where there is no room for more clients, one that has been silent for so long makes some.
const SILENT: Duration = Duration::from_secs(60);
/// How many clients there may be.
const MOST_SESSIONS: usize = 10_000;

/// All clients.
pub(crate) struct Gateway {
    bridge: Arc<McpBridgeAdapter>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    upstreams: Mutex<HashMap<(ServerName, SharingKey), Arc<UpstreamSession>>>,
    /// The names under which all tools are shown aggregate.
    names: Mutex<HashMap<SharingKey, Arc<ToolNames>>>,
    tasks: GatewayTasks,
    /// A client that has said nothing for so long is taken to be gone.
    idle: Duration,
    /// How long calls may take to finish where they began when their server is configured anew.
    grace: Duration,
    /// What clients see.
    show: ToolView,
}

impl Gateway {
    /// Opens it; what the bridge tells on the bus reaches the clients it concerns.
    pub(crate) fn open(
        bridge: Arc<McpBridgeAdapter>,
        bus: &EmbeddedBus,
        idle: Duration,
        grace: Duration,
        show: ToolView,
    ) -> Arc<Self> {
        let gateway = Arc::new(Self {
            bridge,
            sessions: Mutex::default(),
            upstreams: Mutex::default(),
            names: Mutex::default(),
            tasks: GatewayTasks::default(),
            idle,
            grace,
            show,
        });
        let pattern = TopicPattern::parse("provider.mcp.tools.available").expect("it is a pattern");
        let reloads = bus.subscribe(pattern, SubscribeOptions::default());
        gateway.tasks.tasks.spawn(gateway.clone().follow_reloads(reloads));
        gateway.tasks.tasks.spawn(gateway.clone().go_round());
        gateway
    }

    /// Ends all sessions, and returns when nothing of them is left.
    pub(crate) async fn close(&self) {
        self.tasks.stop.cancel();
        let ended: Vec<String> = self.sessions().keys().cloned().collect();
        ended.iter().for_each(|id| drop(self.dismiss(id)));
        self.tasks.tasks.close();
        self.tasks.tasks.wait().await;
    }

    /// The server as this client is to see it: shared with all who can do the same for it, or its own.
    fn upstream(&self, session: &Arc<Session>, name: &str) -> BridgeResult<Arc<UpstreamSession>> {
        let snapshot = self.bridge.fleet.snapshot.load();
        let base = snapshot.servers.get(name).ok_or_else(|| {
            let server = crate::normalise::no_server(&snapshot.settings, name);
            crate::normalise::missing(server)
        })?;
        let endpoint = (base.settings.name.clone(), sharing_key(&base.settings, session));
        let is_stale = match self.upstreams().get(&endpoint) {
            Some(upstream) if upstream.serves(base) => {
                upstream.attach(session);
                return Ok(upstream.clone());
            }
            known => known.is_some(),
        };
        if is_stale {
            self.renew();
        }
        let (upstream, is_new) = self.upstream_for(&mut self.upstreams(), session, base)?;
        if is_new {
            upstream.remind();
        }
        Ok(upstream)
    }

    /// The same, and whether it was opened for that.
    fn upstream_for(
        &self,
        upstreams: &mut HashMap<(ServerName, SharingKey), Arc<UpstreamSession>>,
        session: &Arc<Session>,
        base: &Arc<Server>,
    ) -> BridgeResult<(Arc<UpstreamSession>, bool)> {
        let key = sharing_key(&base.settings, session);
        let endpoint = (base.settings.name.clone(), key.clone());
        let known = upstreams.get(&endpoint).cloned();
        let is_new = known.is_none();
        let upstream = match known {
            Some(upstream) => upstream,
            None if session.has_ended() => {
                return Err(crate::normalise::down(&base.settings.name, "the session has ended"));
            }
            None => {
                self.check_room(upstreams, base, &key)?;
                let upstream =
                    UpstreamSession::open(base, &key, &session.capabilities, &self.bridge.fleet, &self.tasks);
                upstreams.insert(endpoint, upstream.clone());
                upstream
            }
        };
        upstream.attach(session);
        Ok((upstream, is_new))
    }

    /// A server has only so many sessions for clients.
    fn check_room(
        &self,
        upstreams: &HashMap<(ServerName, SharingKey), Arc<UpstreamSession>>,
        base: &Server,
        key: &SharingKey,
    ) -> BridgeResult<()> {
        let (name, most) = (&base.settings.name, base.settings.max_sessions);
        let own = upstreams.keys().filter(|(other, key)| other == name && !key.has_no_capabilities()).count();
        match key.has_no_capabilities() || own < most {
            true => Ok(()),
            false => {
                let why =
                    format!("{most} sessions of it are open for clients, and no more may be (`maxSessions`)");
                Err(crate::normalise::down(name, why))
            }
        }
    }

    /// The server that works for this client: the bridge's own, or one that belongs to the client's like.
    fn server_for(&self, session: &Arc<Session>, base: &Arc<Server>) -> BridgeResult<Arc<Server>> {
        match sharing_key(&base.settings, session).has_no_capabilities() {
            true => Ok(base.clone()),
            false => Ok(self.upstream(session, base.settings.name.as_str())?.server.clone()),
        }
    }

    /// Whether there is room for one more client. If need be, the one goes that has been silent for longest: one that is
    /// still there begins anew.
    fn has_room(&self) -> bool {
        let longest = {
            let sessions = self.sessions();
            if sessions.len() < MOST_SESSIONS {
                return true;
            }
            let silent = sessions.values().filter_map(|session| Some((session.silent_since()?, &session.id)));
            silent.min().filter(|(since, _)| since.elapsed() > SILENT).map(|(_, id)| id.clone())
        };
        longest.is_some_and(|id| self.dismiss(&id).is_some())
    }

    fn dismiss(&self, id: &str) -> Option<Arc<Session>> {
        let session = self.sessions().remove(id)?;
        session.end();
        self.names().remove(&SharingKey::Client(id.to_owned()));
        self.detach(&session).iter().for_each(|upstream| upstream.release(&session));
        self.close_unused_upstreams();
        debug!(session = %session.id, "a client has left");
        Some(session)
    }

    /// A client gets up wherever it sits.
    fn detach(&self, session: &Session) -> Vec<Arc<UpstreamSession>> {
        self.upstreams().values().filter(|upstream| upstream.detach(session)).cloned().collect()
    }

    /// What nobody sits at any more is closed.
    fn close_unused_upstreams(&self) {
        let mut upstreams = self.upstreams();
        let empty: Vec<_> = upstreams
            .iter()
            .filter(|(_, upstream)| upstream.is_empty())
            .map(|(endpoint, _)| endpoint.clone())
            .collect();
        for upstream in empty.iter().filter_map(|endpoint| upstreams.remove(endpoint)) {
            self.tasks.tasks.spawn(async move { upstream.close().await });
        }
    }

    /// Sessions end by idleness too.
    async fn go_round(self: Arc<Self>) {
        let round = ROUND.min(self.idle / 4);
        while self.tasks.stop.run_until_cancelled(tokio::time::sleep(round)).await.is_some() {
            let sessions = self.all_sessions();
            let gone = sessions.iter().filter(|session| session.is_gone(self.idle));
            gone.for_each(|session| drop(self.dismiss(&session.id)));
        }
    }

    /// The configuration was taken over anew: the servers may be others, and everybody hears that their tools are.
    async fn follow_reloads(self: Arc<Self>, mut reloads: bascule_bus::Subscription) {
        while let Some(Some(_)) = self.tasks.stop.run_until_cancelled(reloads.next()).await {
            self.renew();
            for session in self.all_sessions().iter().filter(|session| session.has_begun()) {
                session.tell_unasked(bascule_mcp::notification("notifications/tools/list_changed", None));
            }
        }
    }

    /// Clients whose servers are no longer what is configured move to those that are.
    fn renew(&self) {
        let (snapshot, mut upstreams) = (self.bridge.fleet.snapshot.load_full(), self.upstreams());
        let is_stale = |(name, _): &(ServerName, SharingKey), upstream: &mut Arc<UpstreamSession>| {
            snapshot.servers.get(name).is_none_or(|base| !upstream.serves(base))
        };
        let stale: Vec<Arc<UpstreamSession>> =
            upstreams.extract_if(is_stale).map(|(_, upstream)| upstream).collect();
        let mut opened = Vec::new();
        for (upstream, session) in
            stale.iter().flat_map(|upstream| upstream.sessions().into_iter().map(move |s| (upstream, s)))
        {
            if let Some(base) = snapshot.servers.get(&upstream.server.settings.name) {
                opened.extend(
                    self.upstream_for(&mut upstreams, &session, base).ok().filter(|(_, is_new)| *is_new),
                );
            }
        }
        drop(upstreams);
        opened.iter().for_each(|(upstream, _)| upstream.remind());
        for upstream in stale {
            let grace = self.grace;
            self.tasks.tasks.spawn(async move { upstream.retire(grace).await });
        }
        let sessions = self.all_sessions();
        sessions
            .iter()
            .filter(|session| session.endpoint == Endpoint::All)
            .for_each(|session| self.attach(session));
    }

    /// A client of all servers has to do with each of them from the beginning: it is told when they change.
    fn attach(&self, session: &Arc<Session>) {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        snapshot.in_order().for_each(|base| drop(self.upstream(session, base.settings.name.as_str())));
    }

    fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions().values().cloned().collect()
    }

    fn names(&self) -> MutexGuard<'_, HashMap<SharingKey, Arc<ToolNames>>> {
        self.names.lock().expect("nothing panics while holding it")
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().expect("nothing panics while holding it")
    }

    fn upstreams(&self) -> MutexGuard<'_, HashMap<(ServerName, SharingKey), Arc<UpstreamSession>>> {
        self.upstreams.lock().expect("nothing panics while holding it")
    }

    /// One request of a client's, to its answer.
    async fn answer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        params: Option<Box<RawValue>>,
        stream: &ResponseStream,
        extra: &Arc<ExtraMembers>,
    ) -> reply::Reply {
        match &session.endpoint {
            _ if method == "ping" => Ok("{}".to_owned()),
            Endpoint::Server(name) => {
                self.answer_passthrough(session, name, method, params, stream, extra).await
            }
            Endpoint::All => self.answer_aggregate(session, method, params, stream, extra).await,
        }
    }
}

/// With whom a client shares a server. A process that is there for one call cannot ask anything, so it need not know
/// whom it works for.
fn sharing_key(settings: &ServerSettings, session: &Session) -> SharingKey {
    match (settings.isolation, settings.session) {
        (Isolation::PerCall, _) => SharingKey::without_capabilities(),
        (_, SessionSharing::PerClient) => SharingKey::Client(session.id.clone()),
        (_, SessionSharing::Shared) => session.key.clone(),
    }
}

/// A client that is about to begin. One that goes away meanwhile, or is refused, leaves nothing behind.
struct Beginning<'a> {
    gateway: &'a Gateway,
    session: &'a Arc<Session>,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if !self.session.has_begun() {
            self.session.end();
            self.gateway.detach(self.session);
            self.gateway.close_unused_upstreams();
        }
    }
}

impl Host for Gateway {
    type Client = Session;

    async fn initialize(
        self: &Arc<Self>,
        endpoint: Endpoint,
        request: Vec<u8>,
        stream: ResponseStream,
    ) -> Option<String> {
        let Ok(Message::Request { id, params, .. }) = Message::parse(&request) else { return None };
        let params = params.map_or("{}", RawValue::get);
        let session = Arc::new(Session::new(crate::call::random_id().to_string(), endpoint, params));
        let _beginning = Beginning { gateway: self, session: &session };
        let begun = match &session.endpoint {
            _ if !self.has_room() => Err(reply::ErrorReply::new(-32000, "there are too many clients")),
            Endpoint::Server(name) => self.initialize_passthrough(&session, name).await,
            Endpoint::All => self.initialize_aggregate(&session).await,
        };
        let asked = patch::find_string(params, &["protocolVersion"]).unwrap_or_default();
        let version = ProtocolVersion::agree(&asked).unwrap_or(ProtocolVersion::LATEST);
        let quoted = format!("\"{version}\"");
        let begun = begun.map(|result| patch::insert(&result, &["protocolVersion"], &quoted));
        let is_begun = begun.is_ok();
        stream.finish(reply::spell(id, begun));
        if !is_begun {
            return None;
        }
        info!(session = %session.id, endpoint = ?session.endpoint, %version, "a client has begun");
        session.begin();
        self.sessions().insert(session.id.clone(), session.clone());
        Some(session.id.clone())
    }

    fn find_session(&self, endpoint: &Endpoint, session: &str) -> Option<Arc<Session>> {
        self.sessions().get(session).filter(|session| session.endpoint == *endpoint).cloned()
    }

    fn deliver(self: &Arc<Self>, session: Arc<Session>, message: ClientMessage<'_>, stream: ResponseStream) {
        session.touch();
        let ClientMessage { frame, message, more } = message;
        match message {
            Message::Request { id, method, params } => {
                let (id, method, params) =
                    (id.as_json().to_owned(), method.into_owned(), params.map(ToOwned::to_owned));
                let gateway = self.clone();
                let Some(cancelled) = session.take_up(&id) else {
                    let doubled = reply::ErrorReply::new(-32600, "a request with this `id` is under way");
                    reply::finish(&stream, &id, Err(doubled), None);
                    return;
                };
                self.tasks.tasks.spawn(async move {
                    let extra = Arc::new(ExtraMembers { request: more, ..ExtraMembers::default() });
                    // Pinned here, so that there is room for it once and not twice: it is copied with the task.
                    let work = std::pin::pin!(gateway.answer(&session, &method, params, &stream, &extra));
                    let done = cancelled.run_until_cancelled(work).await;
                    session.put_down(&id);
                    match done {
                        Some(outcome) => {
                            reply::finish(&stream, &id, outcome, extra.answer.get().map(String::as_str))
                        }
                        // Nobody waits for the answer to what they have cancelled.
                        None => stream.close(),
                    }
                });
            }
            Message::Notification { method, params } => {
                self.noticed(&session, &method, params, more.as_deref());
            }
            Message::Response { id, .. } => session.answered(id.as_json(), frame),
        }
    }

    fn open_stream(self: &Arc<Self>, session: &Arc<Session>) -> ResponseStream {
        session.touch();
        session.listen(UNASKED)
    }

    fn end_session(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> bool {
        self.find_session(endpoint, session).is_some() && self.dismiss(session).is_some()
    }
}

/// Whether MCP has requests of that family, which are never notifications.
fn is_of_a_request(method: &str) -> bool {
    const FAMILIES: [&str; 8] =
        ["tools", "resources", "prompts", "completion", "logging", "sampling", "elicitation", "roots"];
    let family = method.trim().split('/').next().unwrap_or_default();
    let is_alike = |own: &&str| own.eq_ignore_ascii_case(family);
    FAMILIES.iter().chain(&["tasks", "initialize", "ping"]).any(is_alike)
}

impl Gateway {
    /// A notification of a client's.
    fn noticed(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        params: Option<&RawValue>,
        more: Option<&str>,
    ) {
        match method {
            "notifications/cancelled" => {
                let id = params.and_then(|params| patch::find(params.get(), &["requestId"]));
                id.into_iter().for_each(|id| session.cancel(id));
            }
            "notifications/initialized" => {}
            "notifications/progress" => {
                let token = params.and_then(|params| patch::find(params.get(), &["progressToken"]));
                let asker = token.and_then(|token| session.asker(token));
                if let (Some(params), Some((upstream, token))) = (params, asker) {
                    let params = patch::insert(params.get(), &["progressToken"], &token);
                    upstream.say(with_extras(bascule_mcp::notification(method, Some(&params)), more));
                }
            }
            // A request without an id would be run by some servers, unchecked and unanswered.
            _ if is_of_a_request(method) => {
                debug!(session = %session.id, method, "a request that wants no answer")
            }
            _ => self.pass_on(session, method, params, more),
        }
    }

    /// Servers hear what clients say of themselves: that their roots have changed, or what nobody here knows.
    fn pass_on(&self, session: &Arc<Session>, method: &str, params: Option<&RawValue>, more: Option<&str>) {
        let names: Vec<String> = match &session.endpoint {
            Endpoint::Server(name) => vec![name.clone()],
            Endpoint::All => session.servers(),
        };
        for upstream in names.iter().filter_map(|name| self.upstream(session, name).ok()) {
            upstream.say(with_extras(bascule_mcp::notification(method, params.map(RawValue::get)), more));
        }
    }
}

#[cfg(test)]
mod tests;
