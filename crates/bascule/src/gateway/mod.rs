//! The bridge as an MCP server (GW-01): clients begin sessions, and what they say reaches the right server.
//!
//! Reading order: [`session`] is one client; [`desk`] is one server as one audience sees it, and routes what that
//! server says of itself; [`alone`] answers for a single server, [`together`] for all of them; [`wire`] spells
//! answers and errors. How bytes come and go is `bascule_mcp`'s feature `server`. Calls take the one road there is, `call`.

mod alone;
mod code;
mod desk;
mod session;
mod together;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_bus::{EmbeddedBus, SubscribeOptions, TopicPattern};
use bascule_client::{Message, ProtocolVersion, patch, with_more};
use bascule_mcp::{Host, Lane, Place, Said};
use bascule_model::{BridgeResult, ServerName};
use serde_json::value::RawValue;
use tracing::{debug, info};

use crate::McpBridgeAdapter;
use crate::config::{Isolation, ServerSettings, Session as Sharing, Show};
use crate::fleet::errand::Beside;
use crate::fleet::server::Server;
use desk::{Desk, Surroundings};
use session::{Key, Session};
use together::ToolNames;

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
    desks: Mutex<HashMap<(ServerName, Key), Arc<Desk>>>,
    /// The names under which all tools are shown together.
    names: Mutex<HashMap<Key, Arc<ToolNames>>>,
    around: Surroundings,
    /// A client that has said nothing for so long is taken to be gone.
    idle: Duration,
    /// How long calls may take to finish where they began when their server is configured anew.
    grace: Duration,
    /// What clients see.
    show: Show,
}

impl Gateway {
    /// Opens it; what the bridge tells on the bus reaches the clients it concerns.
    pub(crate) fn open(
        bridge: Arc<McpBridgeAdapter>,
        bus: &EmbeddedBus,
        idle: Duration,
        grace: Duration,
        show: Show,
    ) -> Arc<Self> {
        let gateway = Arc::new(Self {
            bridge,
            sessions: Mutex::default(),
            desks: Mutex::default(),
            names: Mutex::default(),
            around: Surroundings::default(),
            idle,
            grace,
            show,
        });
        let pattern = TopicPattern::parse("provider.mcp.tools.available").expect("it is a pattern");
        let reloads = bus.subscribe(pattern, SubscribeOptions::default());
        gateway.around.tasks.spawn(gateway.clone().follow_reloads(reloads));
        gateway.around.tasks.spawn(gateway.clone().go_round());
        gateway
    }

    /// Ends all sessions, and returns when nothing of them is left.
    pub(crate) async fn close(&self) {
        self.around.stop.cancel();
        let ended: Vec<String> = self.sessions().keys().cloned().collect();
        ended.iter().for_each(|id| drop(self.dismiss(id)));
        self.around.tasks.close();
        self.around.tasks.wait().await;
    }

    fn session(&self, place: &Place, id: &str) -> Option<Arc<Session>> {
        self.sessions().get(id).filter(|session| session.place == *place).cloned()
    }

    /// The server as this client is to see it: shared with all who can do the same for it, or its own.
    fn desk(&self, session: &Arc<Session>, name: &str) -> BridgeResult<Arc<Desk>> {
        let world = self.bridge.common.world.load();
        let base = world.servers.get(name).ok_or_else(|| {
            let server = crate::normalise::no_server(&world.settings, name);
            crate::normalise::missing(server)
        })?;
        let place = (base.settings.name.clone(), key_for(&base.settings, session));
        let is_stale = match self.desks().get(&place) {
            Some(desk) if desk.serves(base) => {
                desk.seat(session);
                return Ok(desk.clone());
            }
            known => known.is_some(),
        };
        if is_stale {
            self.renew();
        }
        let (desk, is_new) = self.desk_at(&mut self.desks(), session, base)?;
        if is_new {
            desk.remind();
        }
        Ok(desk)
    }

    /// The same, and whether it was opened for that.
    fn desk_at(
        &self,
        desks: &mut HashMap<(ServerName, Key), Arc<Desk>>,
        session: &Arc<Session>,
        base: &Arc<Server>,
    ) -> BridgeResult<(Arc<Desk>, bool)> {
        let key = key_for(&base.settings, session);
        let place = (base.settings.name.clone(), key.clone());
        let known = desks.get(&place).cloned();
        let is_new = known.is_none();
        let desk = match known {
            Some(desk) => desk,
            None if session.has_ended() => {
                return Err(crate::normalise::down(&base.settings.name, "the session has ended"));
            }
            None => {
                self.check_room(desks, base, &key)?;
                let desk = Desk::open(base, &key, &session.capabilities, &self.bridge.common, &self.around);
                desks.insert(place, desk.clone());
                desk
            }
        };
        desk.seat(session);
        Ok((desk, is_new))
    }

    /// A server has only so many sessions for clients.
    fn check_room(
        &self,
        desks: &HashMap<(ServerName, Key), Arc<Desk>>,
        base: &Server,
        key: &Key,
    ) -> BridgeResult<()> {
        let (name, most) = (&base.settings.name, base.settings.max_sessions);
        let own = desks.keys().filter(|(other, key)| other == name && !key.is_unable()).count();
        match key.is_unable() || own < most {
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
        match key_for(&base.settings, session).is_unable() {
            true => Ok(base.clone()),
            false => Ok(self.desk(session, base.settings.name.as_str())?.server.clone()),
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
        self.names().remove(&Key::Client(id.to_owned()));
        self.unseat(&session).iter().for_each(|desk| desk.release(&session));
        self.clear_desks();
        debug!(session = %session.id, "a client has left");
        Some(session)
    }

    /// A client gets up wherever it sits.
    fn unseat(&self, session: &Session) -> Vec<Arc<Desk>> {
        self.desks().values().filter(|desk| desk.unseat(session)).cloned().collect()
    }

    /// What nobody sits at any more is closed.
    fn clear_desks(&self) {
        let mut desks = self.desks();
        let empty: Vec<_> =
            desks.iter().filter(|(_, desk)| desk.is_empty()).map(|(place, _)| place.clone()).collect();
        for desk in empty.iter().filter_map(|place| desks.remove(place)) {
            self.around.tasks.spawn(async move { desk.close().await });
        }
    }

    /// Sessions end by idleness too.
    async fn go_round(self: Arc<Self>) {
        let round = ROUND.min(self.idle / 4);
        while self.around.stop.run_until_cancelled(tokio::time::sleep(round)).await.is_some() {
            let sessions = self.all_sessions();
            let gone = sessions.iter().filter(|session| session.is_gone(self.idle));
            gone.for_each(|session| drop(self.dismiss(&session.id)));
        }
    }

    /// The configuration was taken over anew: the servers may be others, and everybody hears that their tools are.
    async fn follow_reloads(self: Arc<Self>, mut reloads: bascule_bus::Subscription) {
        while let Some(Some(_)) = self.around.stop.run_until_cancelled(reloads.next()).await {
            self.renew();
            for session in self.all_sessions().iter().filter(|session| session.has_begun()) {
                session.tell_unasked(bascule_client::notification("notifications/tools/list_changed", None));
            }
        }
    }

    /// Clients whose servers are no longer what is configured move to those that are.
    fn renew(&self) {
        let (world, mut desks) = (self.bridge.common.world.load_full(), self.desks());
        let is_stale = |(name, _): &(ServerName, Key), desk: &mut Arc<Desk>| {
            world.servers.get(name).is_none_or(|base| !desk.serves(base))
        };
        let stale: Vec<Arc<Desk>> = desks.extract_if(is_stale).map(|(_, desk)| desk).collect();
        let mut opened = Vec::new();
        for (desk, session) in
            stale.iter().flat_map(|desk| desk.sessions().into_iter().map(move |s| (desk, s)))
        {
            if let Some(base) = world.servers.get(&desk.server.settings.name) {
                opened.extend(self.desk_at(&mut desks, &session, base).ok().filter(|(_, is_new)| *is_new));
            }
        }
        drop(desks);
        opened.iter().for_each(|(desk, _)| desk.remind());
        for desk in stale {
            let grace = self.grace;
            self.around.tasks.spawn(async move { desk.retire(grace).await });
        }
        let sessions = self.all_sessions();
        sessions
            .iter()
            .filter(|session| session.place == Place::Together)
            .for_each(|session| self.seat(session));
    }

    /// A client of all servers has to do with each of them from the beginning: it is told when they change.
    fn seat(&self, session: &Arc<Session>) {
        let world = self.bridge.common.world.load_full();
        world.in_order().for_each(|base| drop(self.desk(session, base.settings.name.as_str())));
    }

    fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions().values().cloned().collect()
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Key, Arc<ToolNames>>> {
        self.names.lock().expect("nothing panics while holding it")
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().expect("nothing panics while holding it")
    }

    fn desks(&self) -> MutexGuard<'_, HashMap<(ServerName, Key), Arc<Desk>>> {
        self.desks.lock().expect("nothing panics while holding it")
    }

    /// One request of a client's, to its answer.
    async fn answer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        params: Option<Box<RawValue>>,
        lane: &Lane,
        beside: &Arc<Beside>,
    ) -> wire::Outcome {
        match &session.place {
            _ if method == "ping" => Ok("{}".to_owned()),
            Place::Alone(name) => self.answer_alone(session, name, method, params, lane, beside).await,
            Place::Together => self.answer_together(session, method, params, lane, beside).await,
        }
    }
}

/// With whom a client shares a server. A process that is there for one call cannot ask anything, so it need not know
/// whom it works for.
fn key_for(settings: &ServerSettings, session: &Session) -> Key {
    match (settings.isolation, settings.session) {
        (Isolation::PerCall, _) => Key::unable(),
        (_, Sharing::PerClient) => Key::Client(session.id.clone()),
        (_, Sharing::Shared) => session.key.clone(),
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
            self.gateway.unseat(self.session);
            self.gateway.clear_desks();
        }
    }
}

impl Host for Gateway {
    async fn begin(self: &Arc<Self>, place: Place, frame: Vec<u8>, lane: Lane) -> Option<String> {
        let Ok(Message::Request { id, params, .. }) = Message::parse(&frame) else { return None };
        let params = params.map_or("{}", RawValue::get);
        let session = Arc::new(Session::new(crate::call::fresh_id().to_string(), place, params));
        let _beginning = Beginning { gateway: self, session: &session };
        let begun = match &session.place {
            _ if !self.has_room() => Err(wire::Refusal::new(-32000, "there are too many clients")),
            Place::Alone(name) => self.begin_alone(&session, name).await,
            Place::Together => self.begin_together(&session).await,
        };
        let asked = patch::text(params, &["protocolVersion"]).unwrap_or_default();
        let version = ProtocolVersion::agree(&asked).unwrap_or(ProtocolVersion::LATEST);
        let quoted = format!("\"{version}\"");
        let begun = begun.map(|result| patch::insert(&result, &["protocolVersion"], &quoted));
        let is_begun = begun.is_ok();
        lane.finish(wire::spell(id, begun));
        if !is_begun {
            return None;
        }
        info!(session = %session.id, place = ?session.place, %version, "a client has begun");
        session.begin();
        self.sessions().insert(session.id.clone(), session.clone());
        Some(session.id.clone())
    }

    fn deliver(self: &Arc<Self>, place: &Place, session: &str, said: Said<'_>, lane: Lane) -> bool {
        let Some(session) = self.session(place, session) else { return false };
        session.touch();
        let Said { frame, message, more } = said;
        match message {
            Message::Request { id, method, params } => {
                let (id, method, params) =
                    (id.as_json().to_owned(), method.into_owned(), params.map(ToOwned::to_owned));
                let gateway = self.clone();
                let Some(cancelled) = session.take_up(&id) else {
                    let doubled = wire::Refusal::new(-32600, "a request with this `id` is under way");
                    wire::finish(&lane, &id, Err(doubled), None);
                    return true;
                };
                self.around.tasks.spawn(async move {
                    let beside = Arc::new(Beside { request: more, ..Beside::default() });
                    // Pinned here, so that there is room for it once and not twice: it is copied with the task.
                    let work = std::pin::pin!(gateway.answer(&session, &method, params, &lane, &beside));
                    let done = cancelled.run_until_cancelled(work).await;
                    session.put_down(&id);
                    match done {
                        Some(outcome) => {
                            wire::finish(&lane, &id, outcome, beside.answer.get().map(String::as_str))
                        }
                        // Nobody waits for the answer to what they have cancelled.
                        None => lane.close(),
                    }
                });
            }
            Message::Notification { method, params } => {
                self.noticed(&session, &method, params, more.as_deref());
            }
            Message::Answer { id, .. } => session.answered(id.as_json(), frame),
        }
        true
    }

    fn listen(self: &Arc<Self>, place: &Place, session: &str) -> Option<Lane> {
        let session = self.session(place, session)?;
        session.touch();
        Some(session.listen(UNASKED))
    }

    fn end(self: &Arc<Self>, place: &Place, session: &str) -> bool {
        self.session(place, session).is_some() && self.dismiss(session).is_some()
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
                if let (Some(params), Some((desk, token))) = (params, asker) {
                    let params = patch::insert(params.get(), &["progressToken"], &token);
                    desk.say(with_more(bascule_client::notification(method, Some(&params)), more));
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
        let names: Vec<String> = match &session.place {
            Place::Alone(name) => vec![name.clone()],
            Place::Together => session.servers(),
        };
        for desk in names.iter().filter_map(|name| self.desk(session, name).ok()) {
            desk.say(with_more(bascule_client::notification(method, params.map(RawValue::get)), more));
        }
    }
}

#[cfg(test)]
mod tests;
