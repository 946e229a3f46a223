//! One server as one audience sees it; routes what the server says of itself to the one it concerns (GW-04).
//!
//! MCP does not say for whose call a server asks something of a client, or logs something. Where only one client
//! has calls under way it is that one's; where several have, or one that is no client of ours (the command line), it is
//! nobody's: it is never guessed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bascule_client::{Id, error_answer, notification, patch, request_as};
use bascule_mcp::Lane;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::session::{Key, Session};
use super::wire::Level;
use crate::deadline::Deadline;
use crate::fleet::Common;
use crate::fleet::audience::{Audience, Ear};
use crate::fleet::errand::Errand;
use crate::fleet::server::Server;

pub(super) struct Desk {
    pub(super) server: Arc<Server>,
    /// Whether the server is this audience's own, and ends with it.
    own: bool,
    state: Mutex<State>,
    next_call: AtomicU64,
    /// The gateway's.
    tasks: TaskTracker,
    /// Ourselves, for those who ask through us.
    this: Weak<Self>,
}

#[derive(Default)]
struct State {
    sessions: Vec<Weak<Session>>,
    /// Calls under way: whose, and where what belongs to them goes.
    flying: Vec<(u64, Arc<Session>, Lane)>,
}

/// A call that is under way.
pub(super) struct Flight<'a> {
    desk: &'a Desk,
    number: u64,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.desk.state().flying.retain(|(number, ..)| *number != self.number);
    }
}

impl Desk {
    /// Opens one. Clients that can do nothing for a server share the one that the bridge itself uses.
    pub(super) fn open(
        base: &Arc<Server>,
        key: &Key,
        capabilities: &str,
        common: &Arc<Common>,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let own = *key != Key::Capabilities("{}".into());
        let server = match own {
            true => Server::spawn(base.settings.clone(), Audience::new(capabilities), common),
            false => base.clone(),
        };
        let desk = Arc::new_cyclic(|this| Self {
            server,
            own,
            state: Mutex::default(),
            next_call: AtomicU64::new(0),
            tasks: tasks.clone(),
            this: this.clone(),
        });
        desk.server.audience.attach(Arc::downgrade(&desk) as Weak<dyn Ear>);
        desk
    }

    /// Whether it is still the right one: the server may have been configured anew.
    pub(super) fn serves(&self, base: &Arc<Server>) -> bool {
        match self.own {
            true => self.server.settings == base.settings && !self.server.is_stopped(),
            false => Arc::ptr_eq(&self.server, base),
        }
    }

    /// This client belongs to it from now on.
    pub(super) fn seat(&self, session: &Arc<Session>) {
        session.meet(self.server.settings.name.as_str());
        if !self.seats(session) {
            let mut state = self.state();
            state.sessions.retain(|seated| seated.strong_count() > 0);
            state.sessions.push(Arc::downgrade(session));
        }
    }

    /// Whether this client belongs to it.
    pub(super) fn seats(&self, session: &Arc<Session>) -> bool {
        self.state().sessions.iter().any(|seated| std::ptr::eq(seated.as_ptr(), Arc::as_ptr(session)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions().is_empty()
    }

    /// Its server ends with it, if it is its own.
    pub(super) async fn close(&self) {
        if self.own {
            self.server.stop().await;
        }
    }

    /// A call begins; what the server says meanwhile may belong to it.
    pub(super) fn fly(&self, session: &Arc<Session>, lane: &Lane) -> Flight<'_> {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        self.state().flying.push((number, session.clone(), lane.clone()));
        Flight { desk: self, number }
    }

    /// Hands on what a client has said, whole. What is said first arrives first.
    pub(super) fn say(&self, frame: Vec<u8>) {
        if let Ok(line) = self.server.line() {
            line.answer(frame);
        }
    }

    /// Answers a server's question in a client's place.
    pub(super) fn refuse(&self, id: &str, code: i64, why: &str) {
        if let (Ok(line), Some(id)) = (self.server.line(), Id::from_json(id)) {
            line.answer(error_answer(id, code, why));
        }
    }

    /// The lowest level that one of its clients wants to hear of.
    pub(super) fn level(&self) -> Option<Level> {
        self.sessions().iter().filter_map(|session| session.level()).min()
    }

    /// Whether one of its clients still wants to hear of a resource.
    pub(super) fn has_subscriber(&self, uri: &str) -> bool {
        let name = self.server.settings.name.as_str();
        self.sessions().iter().any(|session| session.subscribed(name, uri).is_some())
    }

    /// A client has left: what only it wanted to hear of, the server need not tell any more.
    pub(super) fn release(self: &Arc<Self>, left: &Session) {
        if self.own && self.is_empty() {
            return;
        }
        let uris = left.subscriptions(self.server.settings.name.as_str());
        let unwanted: Vec<String> = uris.into_iter().filter(|uri| !self.has_subscriber(uri)).collect();
        let desk = self.clone();
        self.tasks.spawn(async move {
            for uri in unwanted {
                let params = serde_json::json!({ "uri": uri }).to_string();
                desk.settle("resources/unsubscribe", &params).await;
            }
        });
    }

    /// Says something to the server on behalf of no client in particular.
    pub(super) async fn settle(&self, method: &str, params: &str) {
        let settings = &self.server.settings;
        let deadline =
            Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution);
        let spelled = |_| Some(params.to_owned());
        let errand = Errand { method, tool: None, params: &spelled, hear: None };
        if let Err(error) = self.server.run(&errand, true, &deadline).await {
            debug!(server = %settings.name, method, %error, "could not be settled");
        }
    }

    fn sessions(&self) -> Vec<Arc<Session>> {
        let all = self.state().sessions.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        all.into_iter().filter(|session| !session.has_ended()).collect()
    }

    /// The one client that the server can mean, and where to reach it: by its only call, else on its own stream.
    fn the_one(&self) -> Result<(Arc<Session>, Option<Lane>), Nobody> {
        if self.server.has_strangers() {
            return Err(Nobody::Several);
        }
        let flying = self.state().flying.clone();
        let mut callers = flying.iter().map(|(_, session, _)| session);
        if let Some(first) = callers.next() {
            if callers.any(|other| !Arc::ptr_eq(other, first)) {
                return Err(Nobody::Several);
            }
            let mut lanes = flying.iter().map(|(_, _, lane)| lane).filter(|lane| !lane.is_closed());
            // Which of several calls it belongs to is not known, but whose they are: any way to that client will do.
            let lane = lanes.next_back().filter(|_| flying.len() == 1 || !first.listens());
            return Ok((first.clone(), lane.cloned()));
        }
        match &self.sessions()[..] {
            [only] => Ok((only.clone(), None)),
            [] => Err(Nobody::None),
            _ => Err(Nobody::Several),
        }
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

impl Ear for Desk {
    fn heard(&self, method: &str, params: Option<&RawValue>) {
        let frame = || notification(method, params.map(RawValue::get));
        let text = |field: &str| params.and_then(|params| patch::text(params.get(), &[field]));
        match method {
            // Told by the bridge, once it has listed them itself.
            "notifications/tools/list_changed" if !self.own => {}
            "notifications/message" => self.logged(text("level").as_deref().and_then(Level::parse), frame()),
            "notifications/resources/updated" => {
                let (name, uri) = (self.server.settings.name.as_str(), text("uri").unwrap_or_default());
                for session in self.sessions() {
                    let shown = session.subscribed(name, &uri);
                    let shown = shown.or_else(|| session.subscribed_to_whole(name, &uri));
                    let Some(shown) = shown else { continue };
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
            method if method.ends_with("/list_changed") => {
                self.sessions().iter().for_each(|session| session.tell_unasked(frame()));
            }
            _ => match self.the_one() {
                Ok((_, Some(lane))) => _ = lane.push(frame()),
                Ok((session, None)) => session.tell_unasked(frame()),
                Err(why) => {
                    debug!(server = %self.server.settings.name, method, ?why, "a notification for nobody")
                }
            },
        }
    }

    fn asked(&self, id: Id<'_>, method: &str, params: Option<&RawValue>) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        match self.the_one() {
            Ok((session, lane)) => {
                let token = params.and_then(|params| patch::find(params.get(), &["_meta", "progressToken"]));
                let ours = session.ask(&this, id.as_json(), token);
                let params = params.map(RawValue::get);
                let own = params.filter(|_| token.is_some());
                let own = own.map(|params| patch::insert(params, &["_meta", "progressToken"], &ours));
                let frame = request_as(&ours, method, own.as_deref().or(params));
                match lane {
                    Some(lane) => _ = lane.push(frame),
                    None => session.tell_unasked(frame),
                }
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

    /// What its clients have told it, it has forgotten with its last connection.
    fn returned(&self) {
        let Some(desk) = self.this.upgrade() else { return };
        let name = self.server.settings.name.as_str();
        let uris: BTreeSet<String> =
            self.sessions().iter().flat_map(|session| session.subscriptions(name)).collect();
        let level = self.level();
        self.tasks.spawn(async move {
            if let Some(level) = level {
                desk.settle("logging/setLevel", &format!(r#"{{"level":"{}"}}"#, level.name())).await;
            }
            for uri in uris {
                let params = serde_json::json!({ "uri": uri }).to_string();
                desk.settle("resources/subscribe", &params).await;
            }
        });
    }
}

impl Desk {
    /// Lines of a server's log go to the one whose call they come with, if it wants them.
    fn logged(&self, level: Option<Level>, frame: Vec<u8>) {
        let wants = |session: &Session| match (session.level(), level) {
            (Some(least), Some(level)) => level >= least,
            _ => true,
        };
        match self.the_one() {
            Ok((session, Some(lane))) if wants(&session) => _ = lane.push(frame),
            Ok((session, None)) if wants(&session) => session.tell_unasked(frame),
            _ => {}
        }
    }

    fn withdrawn(&self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        let Some(id) = patch::find(params.get(), &["requestId"]) else { return };
        for session in self.sessions() {
            if let Some(ours) = session.withdraw(self, id) {
                let params = patch::insert(params.get(), &["requestId"], &ours);
                session.tell_unasked(notification("notifications/cancelled", Some(&params)));
            }
        }
    }
}
