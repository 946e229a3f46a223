//! One server as one profile sees it; routes what the server says of itself to the one it concerns (GW-04).
//!
//! MCP does not say for whose call a server commands something of a client, or logs something. Over Streamable HTTP the stream
//! tells. Elsewhere, where only one client has calls under way it is that one's; where several have, it is nobody's: it is
//! never guessed. A call that was given up counts for as long as a call may take, or until the server answers it; so do
//! calls that come by other faces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bascule_catalog::ServerTools;
use bascule_mcp::ResponseStream;
use bascule_mcp::{Id, ServerMessage, error_response, notification, patch, request_with_id, with_extras};
use bascule_model::BridgeError;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::reply::Level;
use super::session::{Session, SharingKey};
use crate::config::Isolation;
use crate::deadline::Deadline;
use crate::fleet::Fleet;
use crate::fleet::client_profile::{ClientProfile, UpstreamObserver};
use crate::fleet::request::UpstreamRequest;
use crate::fleet::server::Server;
use crate::fleet::status::State as Status;

/// Changes that come close aggregate are told once.
const SETTLING: Duration = Duration::from_millis(50);

pub(super) struct UpstreamSession {
    pub(super) server: Arc<Server>,
    /// Whether the server is this profile's own, and ends with it.
    own: bool,
    /// Whether that is one client and no other.
    is_one_clients: bool,
    state: Mutex<State>,
    next_call: AtomicU64,
    /// Whether others' tools were shown in endpoint of its own, before it had listed them.
    anticipated: AtomicBool,
    tasks: GatewayTasks,
    /// Ourselves, for those who ask through us.
    this: Weak<Self>,
}

/// What all upstreams share.
#[derive(Clone, Default)]
pub(super) struct GatewayTasks {
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    /// Counted up whenever some upstream has other tools.
    pub(super) changes: Arc<AtomicU64>,
}

impl GatewayTasks {
    /// Does something that is not worth finishing when all ends.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }
}

#[derive(Default)]
struct State {
    /// By their ids.
    sessions: HashMap<String, Weak<Session>>,
    /// The listings that have changed, which will be told in a moment.
    due: BTreeMap<String, Option<Vec<u8>>>,
    flying: Vec<Flying>,
}

/// A request under way: whose, and where what belongs to it goes.
#[derive(Clone)]
struct Flying {
    number: u64,
    session: Arc<Session>,
    stream: ResponseStream,
    /// Its id at the server, or 0 before it was sent.
    sent: Arc<AtomicU64>,
    /// Till when the server may be at work on it though it was given up.
    until: Option<Instant>,
}

/// A call that was given up is taken to be under way for so long at least: a server need not answer what was cancelled, and
/// nobody can see when it has stopped to work at it.
const LINGERING: Duration = Duration::from_secs(60);

/// The handle of the one who made it. Dropped before it has landed, it is given up: then the server may not know that
/// yet, or not care, and what it says may still belong to it, until it answers or as long as a call may take.
pub(super) struct Flight<'a> {
    upstream: &'a UpstreamSession,
    number: u64,
    abandoned_for: Duration,
    pub(super) sent: Arc<AtomicU64>,
    pub(super) has_landed: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.upstream.state();
        match self.has_landed || self.sent.load(Ordering::Acquire) == 0 {
            true => state.flying.retain(|flying| flying.number != self.number),
            false => {
                let own = state.flying.iter_mut().find(|flying| flying.number == self.number);
                own.into_iter().for_each(|own| own.until = Some(Instant::now() + self.abandoned_for));
            }
        }
    }
}

impl UpstreamSession {
    /// Opens one. Clients that can do nothing for a server share the one that the bridge itself uses.
    pub(super) fn open(
        base: &Arc<Server>,
        key: &SharingKey,
        capabilities: &str,
        fleet: &Arc<Fleet>,
        tasks: &GatewayTasks,
    ) -> Arc<Self> {
        let own = !key.has_no_capabilities();
        let server = match own {
            true => Server::spawn(base.settings.clone(), ClientProfile::new(capabilities), fleet),
            false => base.clone(),
        };
        let upstream = Arc::new_cyclic(|this| Self {
            server,
            own,
            is_one_clients: matches!(key, SharingKey::Client(_)),
            state: Mutex::default(),
            next_call: AtomicU64::new(0),
            anticipated: AtomicBool::new(false),
            tasks: tasks.clone(),
            this: this.clone(),
        });
        upstream.server.profile.attach(Arc::downgrade(&upstream) as Weak<dyn UpstreamObserver>);
        tasks.changes.fetch_add(1, Ordering::AcqRel);
        upstream
    }

    /// The tools of its server; until they are listed, those that it shows to others.
    pub(super) fn tools(&self, base: &Server) -> Option<Arc<ServerTools>> {
        self.server.tools().or_else(|| {
            self.anticipated.store(true, Ordering::Release);
            self.server.tools().or_else(|| base.tools())
        })
    }

    /// Whether it is still the right one: the server may have been configured anew.
    pub(super) fn serves(&self, base: &Arc<Server>) -> bool {
        match self.own {
            // One that was given up has another random_u64 when its like is well.
            true => {
                let is_given_up = matches!(self.server.state(), Status::Unavailable { .. });
                (Arc::ptr_eq(&self.server.settings, &base.settings) || self.server.settings == base.settings)
                    && !self.server.is_stopped()
                    && !(is_given_up && base.backend().is_ok())
            }
            false => Arc::ptr_eq(&self.server, base),
        }
    }

    /// This client belongs to it from now on.
    pub(super) fn attach(&self, session: &Arc<Session>) {
        session.meet(self.server.settings.name.as_str());
        // One that has ended has got up, and nobody would ask it to again.
        let has_ended = session.has_ended();
        let mut state = self.state();
        if !has_ended && !state.sessions.contains_key(&session.id) {
            state.sessions.insert(session.id.clone(), Arc::downgrade(session));
        }
    }

    /// A client gets up, if it sits here. Says whether it did.
    pub(super) fn detach(&self, session: &Session) -> bool {
        self.state().sessions.remove(&session.id).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().sessions.is_empty()
    }

    /// Its server ends with it, if it is its own.
    pub(super) async fn close(&self) {
        self.state().flying.clear();
        if self.own {
            self.server.stop().await;
        }
    }

    /// The same when another takes its endpoint: calls under way may finish.
    pub(super) async fn retire(&self, grace: Duration) {
        if self.own {
            let retired = self.tasks.stop.run_until_cancelled(self.server.retire(grace)).await;
            if retired.is_none() {
                self.server.stop().await;
            }
        }
    }

    /// Tells a server that is new here what its clients want, once it is there.
    pub(super) fn remind(self: &Arc<Self>) {
        let upstream = self.clone();
        self.tasks.spawn(async move {
            upstream.server.first_start(Instant::now() + upstream.server.settings.start_timeout).await;
            upstream.tell_wishes().await;
        });
    }

    /// A request for a tool, or of a method, begins; what the server says meanwhile may belong to it.
    pub(super) fn fly(&self, session: &Arc<Session>, stream: &ResponseStream, name: &str) -> Flight<'_> {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        let sent = Arc::<AtomicU64>::default();
        let abandoned_for = self.server.settings.limits_for(name).max_execution.max(LINGERING);
        let (session, stream) = (session.clone(), stream.clone());
        self.state().flying.push(Flying { number, session, stream, sent: sent.clone(), until: None });
        Flight { upstream: self, number, abandoned_for, sent, has_landed: false }
    }

    /// What its process wrote to stderr may be about other clients' calls: it is for the operator, unless there are
    /// no others.
    pub(super) fn discreet(&self, mut error: Box<BridgeError>) -> Box<BridgeError> {
        if !self.is_one_clients {
            error.stderr = None;
        }
        error
    }

    /// Hands on what a client has said, whole. What is said first arrives first.
    pub(super) fn say(&self, frame: Vec<u8>) {
        if let Ok(backend) = self.server.backend() {
            backend.answer(frame);
        }
    }

    /// Answers a server's question in a client's endpoint.
    pub(super) fn refuse(&self, id: &str, code: i64, why: &str) {
        if let (Ok(backend), Some(id)) = (self.server.backend(), Id::from_json(id)) {
            backend.answer(error_response(id, code, why));
        }
    }

    /// The lowest level that one of its clients wants to hear of, if one has said so. Who has not, wants the usual.
    pub(super) fn level(&self) -> Option<Level> {
        let levels: Vec<_> = self.sessions().iter().map(|session| session.level()).collect();
        let is_said = levels.iter().any(Option::is_some);
        levels.into_iter().map(|level| level.unwrap_or(Level::USUAL)).min().filter(|_| is_said)
    }

    /// Whether one of its clients still wants to hear of a resource.
    pub(super) fn has_subscriber(&self, uri: &str) -> bool {
        let name = self.server.settings.name.as_str();
        self.sessions().iter().any(|session| session.subscribed(name, uri).is_some())
    }

    /// A client has got up: what only it wanted to hear of, the server need not tell any more.
    pub(super) fn release(self: &Arc<Self>, left: &Session) {
        if self.own && self.is_empty() {
            return;
        }
        let uris = left.subscriptions(self.server.settings.name.as_str());
        let unwanted: Vec<String> = uris.into_iter().filter(|uri| !self.has_subscriber(uri)).collect();
        let (upstream, level) = (self.clone(), left.level());
        if unwanted.is_empty() && level.is_none() {
            return;
        }
        self.tasks.spawn(async move {
            // RequestHandler here, not before: of two who leave at once, the later one must have the last word.
            let others = upstream.level().unwrap_or(Level::USUAL);
            if level.is_some_and(|level| level < others) {
                upstream.settle("logging/setLevel", &others.spelled()).await;
            }
            for uri in unwanted {
                let params = serde_json::json!({ "uri": uri }).to_string();
                upstream.settle("resources/unsubscribe", &params).await;
            }
        });
    }

    /// Says something to the server on behalf of no client in particular.
    pub(super) async fn settle(&self, method: &str, params: &str) {
        let settings = &self.server.settings;
        let deadline =
            Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution);
        let spelled = |_| Some(params.to_owned());
        let errand = UpstreamRequest { method, tool: None, params: &spelled, progress: None, extra: None };
        if let Err(error) = self.server.run(&errand, true, &deadline).await {
            debug!(server = %settings.name, method, %error, "could not be settled");
        }
    }

    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        let all = self.state().sessions.values().filter_map(Weak::upgrade).collect::<Vec<_>>();
        all.into_iter().filter(|session| !session.has_ended()).collect()
    }

    /// The one client that the server can mean, and where to reach it: by the call that it speaks of, if the transport
    /// tells which that is; else by its only call, else on its own stream.
    fn the_one(&self, during: Option<u64>) -> Result<(Arc<Session>, Option<ResponseStream>), Nobody> {
        let flying = self.flying();
        if let Some(id) = during {
            // What belongs to a request of the bridge's own, or to one that is over, is nobody's.
            let meant = flying.iter().find(|flying| flying.sent.load(Ordering::Acquire) == id);
            let reached = |meant: &Flying| {
                (meant.session.clone(), Some(&meant.stream).filter(|stream| !stream.is_closed()).cloned())
            };
            return meant.map(reached).ok_or(Nobody::None);
        }
        if self.server.profile.has_strangers() {
            return Err(Nobody::Several);
        }
        let mut callers = flying.iter().map(|flying| &flying.session);
        if let Some(first) = callers.next() {
            if callers.any(|other| !Arc::ptr_eq(other, first)) {
                return Err(Nobody::Several);
            }
            let mut streams = flying.iter().map(|flying| &flying.stream).filter(|stream| !stream.is_closed());
            // Which of several calls it belongs to is not known, but whose they are: any way to that client will do.
            let stream = streams.next_back().filter(|_| flying.len() == 1 || !first.listens());
            return Ok((first.clone(), stream.cloned()));
        }
        match &self.sessions()[..] {
            [only] => Ok((only.clone(), None)),
            [] => Err(Nobody::None),
            _ => Err(Nobody::Several),
        }
    }

    /// What the server may be at work on.
    fn flying(&self) -> Vec<Flying> {
        let (mut state, now) = (self.state(), Instant::now());
        state.flying.retain(|flying| flying.until.is_none_or(|until| now < until));
        state.flying.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

/// Why there is no one client that is meant.
#[derive(Debug)]
enum Nobody {
    None,
    Several,
}

impl UpstreamObserver for UpstreamSession {
    fn on_notification(&self, ServerMessage { method, params, more, during }: ServerMessage<'_>) {
        let frame = || with_extras(notification(method, params.map(RawValue::get)), more);
        let text = |field: &str| params.and_then(|params| patch::find_string(params.get(), &[field]));
        match method {
            // Told once they are listed: who commands for them must not get the old ones.
            "notifications/tools/list_changed" => {}
            "notifications/message" => {
                self.logged(text("level").as_deref().and_then(Level::parse), frame(), during)
            }
            "notifications/resources/updated" => {
                let (name, uri) = (self.server.settings.name.as_str(), text("uri").unwrap_or_default());
                for session in self.sessions() {
                    let shown = session.subscribed(name, &uri);
                    let Some(shown) = shown.or_else(|| session.subscribed_above(name, &uri)) else {
                        continue;
                    };
                    session.tell_unasked(match (params, shown == uri) {
                        (Some(params), false) => {
                            let shown = serde_json::Value::from(shown).to_string();
                            notification(method, Some(&patch::insert(params.get(), &["uri"], &shown)))
                        }
                        _ => frame(),
                    });
                }
            }
            "notifications/cancelled" => self.withdrawn(params),
            method if method.ends_with("/list_changed") => self.announce([(method, Some(frame()))]),
            _ => match self.the_one(during) {
                Ok((_, Some(stream))) => _ = stream.push(frame()),
                Ok((session, None)) => session.tell_unasked(frame()),
                Err(why) => {
                    debug!(server = %self.server.settings.name, method, ?why, "a notification for nobody")
                }
            },
        }
    }

    fn on_request(
        &self,
        id: Id<'_>,
        ServerMessage { method, params, more, during }: ServerMessage<'_>,
    ) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        // A process that is there for one call would never hear the answer.
        if self.server.settings.isolation == Isolation::PerCall {
            return false;
        }
        match self.the_one(during) {
            Ok((session, _)) if !session.can_be_asked(method) => false,
            Ok((session, stream)) => {
                let token = params.and_then(|params| patch::find(params.get(), &["_meta", "progressToken"]));
                let ours = match session.ask(&this, id.as_json(), token, stream.as_ref()) {
                    Ok(ours) => ours,
                    Err(why) => {
                        self.refuse(id.as_json(), -32000, why);
                        return true;
                    }
                };
                let params = params.map(RawValue::get);
                let own = params.filter(|_| token.is_some());
                let own = own.map(|params| patch::insert(params, &["_meta", "progressToken"], &ours));
                let frame = with_extras(request_with_id(&ours, method, own.as_deref().or(params)), more);
                session.tell(stream.as_ref(), frame);
                true
            }
            Err(Nobody::None) => false,
            Err(Nobody::Several) => {
                let why = format!(
                    "`{method}` may be meant for any of several clients: configure `session: \"per-client\"` for this server"
                );
                self.refuse(id.as_json(), -32600, &why);
                true
            }
        }
    }

    fn on_tools_listed(&self, is_first: bool) {
        self.tasks.changes.fetch_add(1, Ordering::AcqRel);
        let was_anticipated = self.anticipated.swap(false, Ordering::AcqRel);
        match is_first && !was_anticipated {
            false => self.announce([("tools", None)]),
            // It is late: those who have begun without it hear that it is there.
            true => self.announce(["tools", "prompts", "resources"].map(|kind| (kind, None))),
        }
    }

    fn on_late_response(&self, id: &str) {
        let Ok(id) = id.parse::<u64>() else { return };
        let is_it = |flying: &Flying| flying.until.is_some() && flying.sent.load(Ordering::Acquire) == id;
        self.state().flying.retain(|flying| !is_it(flying));
    }

    fn on_lost(&self) {
        self.state().flying.retain(|flying| flying.until.is_none());
        let params = r#"{"requestId":0,"reason":"the server that asked is gone"}"#;
        self.withdraw(None, params);
    }

    /// What its clients have told it, it has forgotten with its last connection.
    fn on_reconnected(&self) {
        let Some(upstream) = self.this.upgrade() else { return };
        self.tasks.spawn(async move { upstream.tell_wishes().await });
    }
}

impl UpstreamSession {
    /// Tells the server what its clients want to hear.
    async fn tell_wishes(&self) {
        let name = self.server.settings.name.as_str();
        let uris: BTreeSet<String> =
            self.sessions().iter().flat_map(|session| session.subscriptions(name)).collect();
        if let Some(level) = self.level() {
            self.settle("logging/setLevel", &level.spelled()).await;
        }
        for uri in uris {
            let params = serde_json::json!({ "uri": uri }).to_string();
            self.settle("resources/subscribe", &params).await;
        }
    }

    /// Tells its clients that listings have changed, as the server has said it or, of what it has, in our own words. What
    /// comes close aggregate is told once.
    fn announce<'a>(&self, changes: impl IntoIterator<Item = (&'a str, Option<Vec<u8>>)>) {
        let Some(upstream) = self.this.upgrade() else { return };
        // Who has not begun yet has seen nothing that could have changed.
        if self.sessions().iter().all(|session| !session.has_begun()) {
            return;
        }
        let is_due = {
            let mut state = self.state();
            let is_due = !state.due.is_empty();
            state.due.extend(changes.into_iter().map(|(what, said)| (what.to_owned(), said)));
            is_due
        };
        if !is_due {
            self.tasks.spawn(async move {
                sleep(SETTLING).await;
                let due = std::mem::take(&mut upstream.state().due);
                let frames =
                    due.into_iter().filter_map(|(what, said)| said.or_else(|| upstream.changed(&what)));
                let frames: Vec<Vec<u8>> = frames.collect();
                for session in upstream.sessions().iter().filter(|session| session.has_begun()) {
                    frames.iter().for_each(|frame| session.tell_unasked(frame.clone()));
                }
            });
        }
    }

    /// That the server's tools (or prompts, or resources) have changed, if it has any.
    fn changed(&self, kind: &str) -> Option<Vec<u8>> {
        let backend = self.server.backend().ok()?;
        patch::find(backend.info().raw.get(), &["capabilities", kind])?;
        Some(notification(&format!("notifications/{kind}/list_changed"), None))
    }

    /// Lines of a server's log go to the one whose call they come with, if it wants them.
    fn logged(&self, level: Option<Level>, frame: Vec<u8>, during: Option<u64>) {
        let is_said = self.level().is_some();
        let wants = |session: &Session| {
            let least = session.level().or(is_said.then_some(Level::USUAL));
            level.is_none() || level >= least
        };
        match self.the_one(during) {
            Ok((session, Some(stream))) if wants(&session) => _ = stream.push(frame),
            Ok((session, None)) if wants(&session) => session.tell_unasked(frame),
            _ => {}
        }
    }

    fn withdrawn(&self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        let Some(id) = patch::find(params.get(), &["requestId"]) else { return };
        self.withdraw(Some(id), params.get());
    }

    fn withdraw(&self, id: Option<&str>, params: &str) {
        for session in self.sessions() {
            for (ours, stream) in session.withdraw(self, id) {
                let params = patch::insert(params, &["requestId"], &ours);
                session.tell(stream.as_ref(), notification("notifications/cancelled", Some(&params)));
            }
        }
    }
}
