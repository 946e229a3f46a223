//! One client: what it can do, what it waits for, and what waits for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_mcp::{Endpoint, QualifiedUris, ResponseStream};
use bascule_mcp::{patch, request_with_id};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reply::Level;
use super::upstream_session::UpstreamSession;

/// Who shares a server with whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SharingKey {
    /// All clients that can do the same for it, which is this.
    Capabilities(String),
    /// One client passthrough.
    Client(String),
}

/// What a server may ask of a client, and has to know of from the beginning; and what there is to know about it.
const ASKABLE: [(&str, &[&str]); 3] =
    [("roots", &["listChanged"]), ("sampling", &["context", "tools"]), ("elicitation", &["form", "url"])];
/// How many questions may be open to a client.
const MOST_QUESTIONS: usize = 256;
/// What servers are told whose questions nobody answers any more.
const LEFT: &str = "the client has left";
/// The id of our own question to a client, whether it is there, and how long it has for the answer.
const PING: &str = "\"bascule-ping\"";
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// How much is kept for a client that does not listen yet: so many messages, of so many bytes aggregate.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 1 << 20;

pub(crate) struct Session {
    pub(super) id: String,
    pub(super) endpoint: Endpoint,
    pub(super) key: SharingKey,
    /// What servers are told that it can do: the JSON text of an object.
    pub(super) capabilities: String,
    state: Mutex<State>,
    next_ask: AtomicU64,
}

struct State {
    seen: Instant,
    /// The stream for what is said unasked, while the client listens.
    stream: Option<ResponseStream>,
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
    uris: Option<Arc<QualifiedUris>>,
    begun: bool,
    ended: bool,
    /// Since when it has owed an answer to our ping.
    pinged: Option<Instant>,
}

/// What a server has asked of a client.
struct Question {
    upstream: Arc<UpstreamSession>,
    /// Its id at the server.
    id: String,
    /// Under which the server hears how the answer comes along, if it wants to. The client has our id instead.
    token: Option<String>,
    /// Where it was put, if that was not the client's own stream.
    stream: Option<ResponseStream>,
}

impl SharingKey {
    /// Those who can do nothing for a server: they share the bridge's own.
    pub(super) fn without_capabilities() -> Self {
        Self::Capabilities("{}".into())
    }

    pub(super) fn has_no_capabilities(&self) -> bool {
        matches!(self, Self::Capabilities(abilities) if abilities == "{}")
    }
}

/// What servers are told of what a client offers: what they may ask, in one spelling. Whatever else stands there makes
/// no difference to them, and must not make a difference between clients: each such set has a process of its own.
fn abilities(offered: &str) -> String {
    let is_there = |value: &&str| value.starts_with('{') || *value == "true";
    let ability = |(name, parts): &(&str, &[&str])| {
        let value = patch::find(offered, &[name]).filter(is_there)?;
        let parts = parts.iter().filter_map(|part| {
            let value = patch::find(value, &[part]).filter(is_there)?;
            Some(format!("\"{part}\":{}", if value == "true" { value } else { "{}" }))
        });
        Some(format!("\"{name}\":{{{}}}", parts.collect::<Vec<_>>().join(",")))
    };
    format!("{{{}}}", ASKABLE.iter().filter_map(ability).collect::<Vec<_>>().join(","))
}

impl Session {
    /// A client that says this in its `initialize`.
    pub(super) fn new(id: String, endpoint: Endpoint, params: &str) -> Self {
        let offered = patch::find(params, &["capabilities"]).unwrap_or("{}");
        let capabilities = abilities(offered);
        let key = SharingKey::Capabilities(capabilities.clone());
        let state = State {
            seen: Instant::now(),
            stream: None,
            kept: VecDeque::new(),
            requests: HashMap::new(),
            asked: HashMap::new(),
            level: None,
            subscriptions: HashMap::new(),
            servers: HashSet::new(),
            uris: None,
            begun: false,
            ended: false,
            pinged: None,
        };
        Self { id, endpoint, key, capabilities, state: Mutex::new(state), next_ask: AtomicU64::new(1) }
    }

    /// It has said something.
    pub(super) fn touch(&self) {
        let mut state = self.state();
        (state.seen, state.pinged) = (Instant::now(), None);
    }

    /// Since when it has been silent, if it does and hears nothing either.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        let state = self.state();
        let is_busy = !state.requests.is_empty() || state.stream.is_some() || !state.begun;
        (!is_busy).then_some(state.seen)
    }

    /// It knows that it has begun.
    pub(super) fn begin(&self) {
        self.state().begun = true;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.state().begun
    }

    /// Whether it is gone: silent for so long and, if it listens, silent too when asked whether it is there. An open
    /// stream proves nothing: what stands between may keep it open.
    pub(super) fn is_gone(&self, idle: Duration) -> bool {
        let mut state = self.state();
        if !state.requests.is_empty() || state.seen.elapsed() < idle {
            return false;
        }
        let Some(stream) = state.stream.as_ref().filter(|stream| !stream.is_closed()) else { return true };
        match state.pinged {
            Some(pinged) => pinged.elapsed() >= PONG_WITHIN.min(idle),
            None => {
                stream.push(request_with_id(PING, "ping", None));
                state.pinged = Some(Instant::now());
                false
            }
        }
    }

    /// It has made a request. What is given back fires when it no longer wants the answer. None if it waits for an
    /// answer under that id already: nobody could tell the two apart.
    pub(super) fn take_up(&self, id: &str) -> Option<CancellationToken> {
        let (mut state, token) = (self.state(), CancellationToken::new());
        if state.requests.contains_key(id) {
            return None;
        }
        if state.ended {
            token.cancel();
        }
        state.requests.insert(id.to_owned(), token.clone());
        Some(token)
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
    pub(super) fn listen(&self, limit: usize) -> ResponseStream {
        let stream = ResponseStream::new(limit);
        let mut state = self.state();
        std::mem::take(&mut state.kept).into_iter().for_each(|frame| _ = stream.push(frame));
        if let Some(old) = state.stream.replace(stream.clone()) {
            old.close();
        }
        stream
    }

    /// Says something that belongs to no request of its.
    pub(super) fn tell_unasked(&self, frame: Vec<u8>) {
        let mut state = self.state();
        match &state.stream {
            Some(stream) if !stream.is_closed() => _ = stream.push(frame),
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

    /// Says something that belongs to a request of its, if it can still be said there.
    pub(super) fn tell(&self, stream: Option<&ResponseStream>, frame: Vec<u8>) {
        match stream.filter(|stream| !stream.is_closed()) {
            Some(stream) => _ = stream.push(frame),
            None => self.tell_unasked(frame),
        }
    }

    /// A server commands something of it. Gives the id under which it is asked, which is its progress token too; or why it
    /// cannot be asked.
    pub(super) fn ask(
        &self,
        upstream: &Arc<UpstreamSession>,
        id: &str,
        token: Option<&str>,
        stream: Option<&ResponseStream>,
    ) -> Result<String, &'static str> {
        let ours = format!("\"bascule-{}\"", self.next_ask.fetch_add(1, Ordering::Relaxed));
        let (upstream, id, token) = (upstream.clone(), id.to_owned(), token.map(str::to_owned));
        let question = Question { upstream, id, token, stream: stream.cloned() };
        let mut state = self.state();
        if state.ended {
            return Err(LEFT);
        }
        if state.asked.len() >= MOST_QUESTIONS {
            return Err("too many questions are open to this client");
        }
        state.asked.insert(ours.clone(), question);
        Ok(ours)
    }

    /// Who is to hear of the progress that goes by this token of ours, and by what token.
    pub(super) fn asker(&self, token: &str) -> Option<(Arc<UpstreamSession>, String)> {
        let state = self.state();
        let question = state.asked.get(token)?;
        Some((question.upstream.clone(), question.token.clone()?))
    }

    /// Whether it said that it can be asked this, if it is one of those things that a client has to say.
    pub(super) fn can_be_asked(&self, method: &str) -> bool {
        let family = method.split('/').next().unwrap_or_default();
        let is_askable = ASKABLE.iter().any(|(name, _)| *name == family);
        method != "initialize" && (!is_askable || patch::find(&self.capabilities, &[family]).is_some())
    }

    /// Whether it has a stream open for what is said unasked.
    pub(super) fn listens(&self) -> bool {
        self.state().stream.as_ref().is_some_and(|stream| !stream.is_closed())
    }

    /// It has answered something that a server had asked.
    pub(super) fn answered(&self, id: &str, frame: &[u8]) {
        let asked = self.state().asked.remove(id);
        if let (Some(question), Ok(text)) = (asked, std::str::from_utf8(frame)) {
            question.upstream.say(patch::insert(text, &["id"], &question.id).into_bytes());
        }
    }

    /// A server no longer wants to know the answer to one question, or to any. Gives our ids, and where they were put.
    pub(super) fn withdraw(
        &self,
        upstream: &UpstreamSession,
        id: Option<&str>,
    ) -> Vec<(String, Option<ResponseStream>)> {
        let is_it = |question: &Question| {
            std::ptr::eq(&*question.upstream, upstream) && id.is_none_or(|id| question.id == id)
        };
        let withdrawn = self.state().asked.extract_if(|_, question| is_it(question)).collect::<Vec<_>>();
        withdrawn.into_iter().map(|(ours, question)| (ours, question.stream)).collect()
    }

    /// Nothing is sent to it any more, nothing is done for it, and who asked it something learns that.
    pub(super) fn end(&self) {
        let (asked, requests, stream) = {
            let mut state = self.state();
            state.ended = true;
            (std::mem::take(&mut state.asked), std::mem::take(&mut state.requests), state.stream.take())
        };
        requests.values().for_each(CancellationToken::cancel);
        stream.into_iter().for_each(|stream| stream.close());
        asked.into_values().for_each(|question| {
            question.upstream.refuse(&question.id, -32000, LEFT);
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

    /// The same for a part of such a resource.
    pub(super) fn subscribed_above(&self, server: &str, uri: &str) -> Option<String> {
        let state = self.state();
        let mut own = state.subscriptions.iter().filter(|((own, _), _)| own == server);
        own.find_map(|((_, above), shown)| {
            let rest = uri.strip_prefix(above.as_str())?;
            let is_part = above.ends_with('/') || rest.starts_with(['/', '?', '#']);
            is_part.then(|| format!("{shown}{rest}"))
        })
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

    /// How the resources were shown to it that it has last seen listed.
    pub(super) fn uris(&self) -> Option<Arc<QualifiedUris>> {
        self.state().uris.clone()
    }

    pub(super) fn has_seen(&self, uris: Arc<QualifiedUris>) {
        self.state().uris = Some(uris);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}
