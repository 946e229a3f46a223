//! Matches what comes in to what is waited for.
//!
//! Called from the transports' read loops, so nothing here waits: answers wake their callers, everything else
//! is told to the listener.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bascule_model::Delivery;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::scan::{Unread, scan};
use crate::{Failure, Id, Message, MessageError, RpcError, TransportError, error_response, success_response};

/// What a server says of its own accord: a notification, or a request.
#[derive(Debug, Clone, Copy)]
pub struct ServerMessage<'a> {
    /// What it is about.
    pub method: &'a str,
    /// What it says.
    pub params: Option<&'a RawValue>,
    /// What stands in it besides, as it is spelled.
    pub more: Option<&'a str>,
    /// The request of ours in whose answer it came, where the transport keeps them apart, as Streamable HTTP does.
    pub during: Option<u64>,
}

/// What a server said that answers nothing of ours.
#[derive(Debug)]
pub enum Unsolicited<'a> {
    /// A notification.
    Notification(ServerMessage<'a>),
    /// A line that is no message: a log line on the wrong stream, or broken JSON.
    Junk { line: &'a [u8], why: String },
    /// An answer nobody waits for: a second one, one that came too late, or one to nothing.
    Unmatched { id: &'a str },
    /// A message of the server's own that was too long to be read.
    TooLong { limit: usize },
}

/// Hears it. Must return at once: the read loop waits for it.
pub type Listener = Box<dyn Fn(Unsolicited<'_>) + Send + Sync>;

/// Takes a request of the server's, if it wants to: then it owes the answer (see `Connection::answer`). Must return
/// at once.
pub type RequestHandler = Box<dyn Fn(Id<'_>, ServerMessage<'_>) -> bool + Send + Sync>;

/// Hears each report of progress, as it came, and what stands in it besides, before the answer is given. Must return
/// at once.
pub type OnProgress = Box<dyn Fn(&RawValue, Option<&str>) + Send + Sync>;

/// What a request comes to.
pub type RequestResult = Result<Box<RawValue>, Failure>;

pub(crate) struct Router {
    state: Mutex<State>,
    listener: Listener,
    asked: Option<RequestHandler>,
    limit: usize,
    /// Cancelled when the connection has ended.
    over: CancellationToken,
}

/// Either requests may be waited for, or we know why not.
enum State {
    Open(HashMap<u64, Waiter>),
    Ended(Arc<TransportError>),
}

struct Waiter {
    answer: oneshot::Sender<RequestResult>,
    progress: Arc<Progress>,
}

/// Where signs of life go.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) seen: Notify,
    pub(crate) hear: Option<OnProgress>,
    /// What stood in the answer besides.
    pub(crate) more: OnceLock<String>,
}

impl Router {
    pub(crate) fn new(limit: usize, listener: Listener, asked: Option<RequestHandler>) -> Self {
        let state = Mutex::new(State::Open(HashMap::new()));
        Self { state, listener, asked, limit, over: CancellationToken::new() }
    }

    /// Awaits an answer under this id. On a connection that has ended it is there at once, and nothing may be
    /// sent any more.
    pub(crate) fn expect(&self, id: u64, progress: Arc<Progress>) -> oneshot::Receiver<RequestResult> {
        let (answer, receiver) = oneshot::channel();
        match &mut *self.state() {
            State::Open(waiting) => drop(waiting.insert(id, Waiter { answer, progress })),
            State::Ended(why) => drop(answer.send(Err(Failure::not_sent(why.clone())))),
        }
        receiver
    }

    /// Whether somebody waits for this answer.
    pub(crate) fn awaits(&self, id: u64) -> bool {
        matches!(&*self.state(), State::Open(waiting) if waiting.contains_key(&id))
    }

    /// Nobody waits for this answer any more. Says whether somebody did.
    pub(crate) fn forget(&self, id: u64) -> bool {
        self.take(id).is_some()
    }

    /// This request failed on its way.
    pub(crate) fn fail(&self, id: u64, failure: Failure) {
        if let Some(waiter) = self.take(id) {
            let _ = waiter.answer.send(Err(failure));
        }
    }

    /// The connection is over. Of the requests still waiting, those that are `unsent` had surely not left.
    pub(crate) fn end(&self, why: Arc<TransportError>, unsent: impl Fn(u64) -> bool) {
        let mut state = self.state();
        // The first reason is the true one.
        let State::Open(waiting) = &mut *state else { return };
        for (id, waiter) in waiting.drain() {
            let delivery = if unsent(id) { Delivery::NotSent } else { Delivery::Unknown };
            let _ = waiter.answer.send(Err(Failure::Broken { delivery, why: why.clone() }));
        }
        *state = State::Ended(why);
        drop(state);
        self.over.cancel();
    }

    /// Returns when the connection is over.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Why the connection is over, if it is.
    pub(crate) fn ended(&self) -> Option<Arc<TransportError>> {
        match &*self.state() {
            State::Open(_) => None,
            State::Ended(why) => Some(why.clone()),
        }
    }

    /// Takes a message, which came in the answer to one request of ours if it is known to which. What it gives back is to
    /// be sent at once: the answer to a request of the server's.
    #[must_use]
    pub(crate) fn deliver(&self, frame: &[u8], during: Option<u64>) -> Option<Vec<u8>> {
        match Message::parse_with_extras(frame) {
            Ok((Message::Response { id, outcome }, more)) => self.settle(id, outcome, more),
            Ok((Message::Notification { method, params }, more)) => {
                self.notified(ServerMessage { method: &method, params, more: more.as_deref(), during })
            }
            Ok((Message::Request { id, method, params }, more)) => {
                let remark = ServerMessage { method: &method, params, more: more.as_deref(), during };
                let taken = method != "ping" && self.asked.as_ref().is_some_and(|asked| asked(id, remark));
                return (!taken).then(|| answer_server(id, &method));
            }
            Err(MessageError::Batch) => {
                (self.listener)(Unsolicited::Junk { line: frame, why: MessageError::Batch.to_string() });
                return Some(error_response(
                    Id::NULL,
                    RpcError::INVALID_REQUEST,
                    "batches are not supported",
                ));
            }
            Err(error) => self.unreadable(frame, error),
        }
        None
    }

    /// Takes what could be seen of a message that was too long.
    pub(crate) fn deliver_unread(&self, unread: Unread) {
        let limit = self.limit;
        match unread {
            Unread::AnswerTo(id) => match Id::from_json(&id).and_then(Id::as_number) {
                Some(id) => self.fail(id, Failure::TooLong { limit, certain: true }),
                None => (self.listener)(Unsolicited::Unmatched { id: &id }),
            },
            Unread::Theirs(_) => (self.listener)(Unsolicited::TooLong { limit }),
            Unread::Unknown => self.fail_all(|| Failure::TooLong { limit, certain: false }),
        }
    }

    fn settle(&self, id: Id<'_>, outcome: Result<&RawValue, &RawValue>, more: Option<String>) {
        match id.as_number().and_then(|id| self.take(id)) {
            Some(waiter) => {
                more.into_iter().for_each(|more| drop(waiter.progress.more.set(more)));
                let answer = outcome.map(ToOwned::to_owned);
                let _ = waiter.answer.send(answer.map_err(|error| Failure::Answered(RpcError::parse(error))));
            }
            None => (self.listener)(Unsolicited::Unmatched { id: id.as_json() }),
        }
    }

    fn notified(&self, remark: ServerMessage<'_>) {
        if remark.method == "notifications/progress" {
            self.progressed(remark.params, remark.more);
        }
        (self.listener)(Unsolicited::Notification(remark));
    }

    fn progressed(&self, params: Option<&RawValue>, more: Option<&str>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Told {
            progress_token: u64,
        }
        let Some((params, Ok(told))) = params.map(|p| (p, serde_json::from_str::<Told>(p.get()))) else {
            return;
        };
        let progress = match &*self.state() {
            State::Open(waiting) => waiting.get(&told.progress_token).map(|waiter| waiter.progress.clone()),
            State::Ended(_) => None,
        };
        if let Some(progress) = progress {
            progress.hear.iter().for_each(|hear| hear(params, more));
            progress.seen.notify_one();
        }
    }

    /// A broken line that begins like an answer fails its call now rather than at the deadline.
    fn unreadable(&self, frame: &[u8], error: MessageError) {
        if frame.trim_ascii_start().starts_with(b"{")
            && let Unread::AnswerTo(id) = scan(frame)
            && let Some(id) = Id::from_json(&id).and_then(Id::as_number)
        {
            self.fail(id, Failure::Garbled);
        }
        (self.listener)(Unsolicited::Junk { line: frame, why: error.to_string() });
    }

    fn fail_all(&self, failure: impl Fn() -> Failure) {
        let State::Open(waiting) = &mut *self.state() else { return };
        for (_, waiter) in waiting.drain() {
            let _ = waiter.answer.send(Err(failure()));
        }
    }

    fn take(&self, id: u64) -> Option<Waiter> {
        match &mut *self.state() {
            State::Open(waiting) => waiting.remove(&id),
            State::Ended(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

/// A server may ask whether we live; of the rest we offered nothing.
fn answer_server(id: Id<'_>, method: &str) -> Vec<u8> {
    match method {
        "ping" => success_response(id, "{}"),
        _ => {
            error_response(id, RpcError::METHOD_NOT_FOUND, &format!("this client does not offer `{method}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A router that expects 1 and 2, what it heard, and what came of the two.
    fn check(frames: &[&str], expected: [&str; 3]) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = heard.clone();
        let listener = move |said: Unsolicited<'_>| {
            log.lock().unwrap().push(match said {
                Unsolicited::Notification(remark) => remark.method.to_owned(),
                Unsolicited::Junk { .. } => "junk".into(),
                Unsolicited::Unmatched { id } => format!("unmatched {id}"),
                Unsolicited::TooLong { .. } => "too long".into(),
            });
        };
        let router = Router::new(100, Box::new(listener), None);
        let mut answers = [1, 2].map(|id| router.expect(id, Arc::default()));
        let replies: Vec<_> =
            frames.iter().filter_map(|frame| router.deliver(frame.as_bytes(), None)).collect();
        let mut said = heard.lock().unwrap().clone();
        said.extend(replies.into_iter().map(|r| String::from_utf8(r).unwrap()));
        let [one, two] = answers.each_mut().map(|answer| match answer.try_recv() {
            Ok(Ok(result)) => result.get().to_owned(),
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "waiting".into(),
        });
        assert_eq!([said.join(" | "), one, two], expected.map(str::to_owned));
    }

    #[test]
    fn answers_reach_their_callers_in_any_order() {
        check(
            &[
                r#"{"jsonrpc":"2.0","id":2,"result":[ 2 ]}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no"}}"#,
            ],
            ["", "no (JSON-RPC error -5)", "[ 2 ]"],
        );
    }

    #[test]
    fn second_and_foreign_answers_disturb_nobody() {
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":1}"#;
        let stray = r#"{"jsonrpc":"2.0","id":"x","result":1}"#;
        check(&[answer, answer, stray], ["unmatched 1 | unmatched \"x\"", "1", "waiting"]);
    }

    #[test]
    fn junk_is_told_and_passed_over() {
        let log = r#"{"level":30,"id":1,"msg":"handling request"}"#;
        check(
            &["[info] hello", "{}", "Traceback:", log],
            ["junk | junk | junk | junk", "waiting", "waiting"],
        );
    }

    #[test]
    fn a_broken_answer_fails_its_call_alone() {
        check(
            &[r#"{"jsonrpc":"2.0","id":1,"result":{"a":}}"#],
            ["junk", "the answer is not valid JSON-RPC", "waiting"],
        );
    }

    #[test]
    fn a_server_is_answered_politely() {
        check(
            &[
                r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#,
            ],
            [
                r#"{"jsonrpc":"2.0","id":"p","result":{}} | {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"this client does not offer `roots/list`"}}"#,
                "waiting",
                "waiting",
            ],
        );
        check(
            &[r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#],
            [
                r#"junk | {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not supported"}}"#,
                "waiting",
                "waiting",
            ],
        );
    }

    #[test]
    fn an_overlong_answer_fails_the_one_it_names_or_else_all() {
        let router = Router::new(100, Box::new(|_| {}), None);
        let mut first = router.expect(1, Arc::default());
        let mut second = router.expect(2, Arc::default());
        router.deliver_unread(Unread::AnswerTo("1".into()));
        assert!(matches!(first.try_recv(), Ok(Err(Failure::TooLong { certain: true, .. }))));
        router.deliver_unread(Unread::Theirs(None));
        assert!(second.try_recv().is_err(), "a message of the server's own is nobody's answer");
        router.deliver_unread(Unread::Unknown);
        assert!(matches!(second.try_recv(), Ok(Err(Failure::TooLong { certain: false, .. }))));
        assert!(router.ended().is_none(), "the connection goes on");
    }

    #[test]
    fn at_the_end_everyone_learns_why_and_how_far_they_got() {
        let router = Router::new(100, Box::new(|_| {}), None);
        let mut answers = [1, 2].map(|id| router.expect(id, Arc::default()));
        router.end(Arc::new(TransportError::OutputClosed), |id| id == 2);
        router.end(Arc::new(TransportError::Closed), |_| false);
        let mut after = router.expect(3, Arc::default());
        let told = |answer: &mut oneshot::Receiver<RequestResult>| {
            let failure = answer.try_recv().unwrap().unwrap_err();
            (failure.to_string(), failure.delivery())
        };
        let said = "the server closed its output".to_owned();
        assert_eq!(told(&mut answers[0]), (said.clone(), Delivery::Unknown));
        assert_eq!(told(&mut answers[1]), (said.clone(), Delivery::NotSent));
        assert_eq!(told(&mut after), (said, Delivery::NotSent));
    }
}
