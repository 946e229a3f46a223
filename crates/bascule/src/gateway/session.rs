//! One client: what it can do, what it waits for, and what waits for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_client::patch;
use bascule_mcp::{Lane, Place};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::desk::Desk;
use super::wire::Level;

/// Who shares a server with whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// All clients that can do the same for it, which is this.
    Capabilities(String),
    /// One client alone.
    Client(String),
}

/// What a server may ask of a client, and has to know of from the beginning.
const ASKABLE: [&str; 3] = ["roots", "sampling", "elicitation"];
/// How much is kept for a client that does not listen yet: so many messages, of so many bytes together.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 1 << 20;

pub(super) struct Session {
    pub(super) id: String,
    pub(super) place: Place,
    pub(super) key: Key,
    /// What servers are told that it can do: the JSON text of an object.
    pub(super) capabilities: String,
    state: Mutex<State>,
    next_ask: AtomicU64,
}

struct State {
    seen: Instant,
    /// The stream for what is said unasked, while the client listens.
    lane: Option<Lane>,
    /// What was said unasked before it listened.
    kept: VecDeque<Vec<u8>>,
    /// Its requests, by their id as it is spelled.
    requests: HashMap<String, CancellationToken>,
    /// What servers have asked of it, by our id.
    asked: HashMap<String, Question>,
    level: Option<Level>,
    /// The resources it wants to hear of, by server and URI, and how it calls them.
    subscriptions: HashMap<(String, String), String>,
    /// The servers it has had to do with.
    servers: HashSet<String>,
    ended: bool,
}

/// What a server has asked of a client.
struct Question {
    desk: Arc<Desk>,
    /// Its id at the server.
    id: String,
    /// Under which the server hears how the answer comes along, if it wants to. The client has our id instead.
    token: Option<String>,
}

impl Session {
    /// A client that says this in its `initialize`.
    pub(super) fn new(id: String, place: Place, params: &str) -> Self {
        let offered = patch::find(params, &["capabilities"]).unwrap_or("{}");
        let askable = ASKABLE.iter().filter_map(|name| Some((*name, patch::find(offered, &[name])?)));
        let members: Vec<String> = askable.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let capabilities = format!("{{{}}}", members.join(","));
        let key = Key::Capabilities(capabilities.clone());
        let state = State {
            seen: Instant::now(),
            lane: None,
            kept: VecDeque::new(),
            requests: HashMap::new(),
            asked: HashMap::new(),
            level: None,
            subscriptions: HashMap::new(),
            servers: HashSet::new(),
            ended: false,
        };
        Self { id, place, key, capabilities, state: Mutex::new(state), next_ask: AtomicU64::new(1) }
    }

    /// It has said something.
    pub(super) fn touch(&self) {
        self.state().seen = Instant::now();
    }

    /// Whether it has been silent for so long, and takes nothing either.
    pub(super) fn is_idle(&self, limit: Duration) -> bool {
        let state = self.state();
        let listens = state.lane.as_ref().is_some_and(|lane| !lane.is_closed());
        state.requests.is_empty() && !listens && state.seen.elapsed() >= limit
    }

    /// It has made a request. What is given back fires when it no longer wants the answer.
    pub(super) fn take_up(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        self.state().requests.insert(id.to_owned(), token.clone());
        token
    }

    pub(super) fn put_down(&self, id: &str) {
        let mut state = self.state();
        state.requests.remove(id);
        state.seen = Instant::now();
    }

    pub(super) fn cancel(&self, id: &str) {
        self.state().requests.get(id).into_iter().for_each(CancellationToken::cancel);
    }

    /// It listens from now on; who listened before, does no longer.
    pub(super) fn listen(&self, limit: usize) -> Lane {
        let lane = Lane::new(limit);
        let mut state = self.state();
        std::mem::take(&mut state.kept).into_iter().for_each(|frame| _ = lane.push(frame));
        if let Some(old) = state.lane.replace(lane.clone()) {
            old.close();
        }
        lane
    }

    /// Says something that belongs to no request of its.
    pub(super) fn tell_unasked(&self, frame: Vec<u8>) {
        let mut state = self.state();
        match &state.lane {
            Some(lane) if !lane.is_closed() => _ = lane.push(frame),
            // The oldest are the least worth keeping.
            _ => {
                state.kept.push_back(frame);
                let mut bytes: usize = state.kept.iter().map(Vec::len).sum();
                while state.kept.len() > KEPT || bytes > KEPT_BYTES {
                    bytes -= state.kept.pop_front().map_or(bytes, |oldest| oldest.len());
                }
            }
        }
    }

    /// A server asks something of it. Gives the id under which it is asked, which is its progress token too.
    pub(super) fn ask(&self, desk: &Arc<Desk>, id: &str, token: Option<&str>) -> String {
        let ours = format!("\"bascule-{}\"", self.next_ask.fetch_add(1, Ordering::Relaxed));
        let (desk, id, token) = (desk.clone(), id.to_owned(), token.map(str::to_owned));
        self.state().asked.insert(ours.clone(), Question { desk, id, token });
        ours
    }

    /// Who is to hear of the progress that goes by this token of ours, and by what token.
    pub(super) fn asker(&self, token: &str) -> Option<(Arc<Desk>, String)> {
        let state = self.state();
        let question = state.asked.get(token)?;
        Some((question.desk.clone(), question.token.clone()?))
    }

    /// Whether it has a stream open for what is said unasked.
    pub(super) fn listens(&self) -> bool {
        self.state().lane.as_ref().is_some_and(|lane| !lane.is_closed())
    }

    /// It has answered something that a server had asked.
    pub(super) fn answered(&self, id: &str, frame: &[u8]) {
        let asked = self.state().asked.remove(id);
        if let (Some(question), Ok(text)) = (asked, std::str::from_utf8(frame)) {
            question.desk.say(patch::insert(text, &["id"], &question.id).into_bytes());
        }
    }

    /// A server no longer wants to know. Gives our id of the question.
    pub(super) fn withdraw(&self, desk: &Desk, id: &str) -> Option<String> {
        let mut state = self.state();
        let is_it = |question: &Question| std::ptr::eq(&*question.desk, desk) && question.id == id;
        let ours = state.asked.iter().find(|(_, question)| is_it(question));
        let ours = ours.map(|(ours, _)| ours.clone())?;
        state.asked.remove(&ours);
        Some(ours)
    }

    /// Nothing is sent to it any more, nothing is done for it, and who asked it something learns that.
    pub(super) fn end(&self) {
        let (asked, requests, lane) = {
            let mut state = self.state();
            state.ended = true;
            (std::mem::take(&mut state.asked), std::mem::take(&mut state.requests), state.lane.take())
        };
        requests.values().for_each(CancellationToken::cancel);
        lane.into_iter().for_each(|lane| lane.close());
        asked.into_values().for_each(|question| {
            question.desk.refuse(&question.id, -32000, "the client has left");
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }

    pub(super) fn set_level(&self, level: Level) {
        self.state().level = Some(level);
    }

    pub(super) fn level(&self) -> Option<Level> {
        self.state().level
    }

    /// It wants to hear of a server's resource, which it calls by what is `shown`.
    pub(super) fn subscribe(&self, server: &str, uri: &str, shown: &str) {
        self.state().subscriptions.insert((server.to_owned(), uri.to_owned()), shown.to_owned());
    }

    pub(super) fn unsubscribe(&self, server: &str, uri: &str) {
        self.state().subscriptions.remove(&(server.to_owned(), uri.to_owned()));
    }

    /// What it calls a resource that it wants to hear of.
    pub(super) fn subscribed(&self, server: &str, uri: &str) -> Option<String> {
        self.state().subscriptions.get(&(server.to_owned(), uri.to_owned())).cloned()
    }

    /// What it calls a part of a resource that it wants to hear of: servers tell of parts too.
    pub(super) fn subscribed_to_whole(&self, server: &str, uri: &str) -> Option<String> {
        let state = self.state();
        let wholes = state.subscriptions.iter().filter(|((own, _), _)| own == server);
        let parts = wholes.filter_map(|((_, whole), shown)| {
            let rest = uri.strip_prefix(whole.as_str())?;
            let is_part = whole.ends_with('/') || rest.starts_with(['/', '?', '#']);
            is_part.then(|| (whole.len(), format!("{shown}{rest}")))
        });
        parts.max().map(|(_, shown)| shown)
    }

    /// The URIs of a server's resources that it wants to hear of.
    pub(super) fn subscriptions(&self, server: &str) -> Vec<String> {
        let state = self.state();
        state.subscriptions.keys().filter(|(own, _)| own == server).map(|(_, uri)| uri.clone()).collect()
    }

    /// It has to do with this server from now on.
    pub(super) fn meet(&self, server: &str) {
        let mut state = self.state();
        if !state.servers.contains(server) {
            state.servers.insert(server.to_owned());
        }
    }

    pub(super) fn servers(&self) -> Vec<String> {
        self.state().servers.iter().cloned().collect()
    }

    /// Whether a change of this server's, or of all, concerns it.
    pub(super) fn sees(&self, server: Option<&str>) -> bool {
        match (&self.place, server) {
            (Place::Together, _) | (_, None) => true,
            (Place::Alone(own), Some(server)) => own == server,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}
