//! Routes the messages of a server: responses to the requests that wait for them, the rest to a listener.
//!
//! The transports' read loops call it, so nothing here waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bascule_model::Delivery;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::scan::{Unread, scan};
use crate::{Failure, Id, Message, MessageError, RpcError, TransportError, error_response, success_response};

/// A notification or request that a server sent.
#[derive(Debug, Clone, Copy)]
pub struct ServerMessage<'a> {
    pub method: &'a str,
    pub params: Option<&'a RawValue>,
    /// Members that JSON-RPC does not define, as raw text.
    pub extra_members: Option<&'a str>,
    /// The id of the request whose response stream carried the message; `None` if the transport has no stream for each
    /// request.
    pub stream_request_id: Option<u64>,
}

/// A message that answers no request.
#[derive(Debug)]
pub enum Unsolicited<'a> {
    Notification(ServerMessage<'a>),
    /// A line that is no message: a log line on the wrong stream, or broken JSON.
    Junk {
        line: &'a [u8],
        reason: String,
    },
    /// A response without a pending request: a duplicate, a late one, or one with an unknown id.
    Unmatched {
        id: &'a str,
    },
    /// A notification or request beyond the size limit.
    TooLong {
        limit: usize,
    },
}

/// Receives unsolicited messages. Must return at once: the read loop waits for it.
pub type Listener = Box<dyn Fn(Unsolicited<'_>) + Send + Sync>;

/// Receives requests of the server. Returns true if it accepts one and will respond (see `Connection::respond`). Must
/// return at once.
pub type RequestHandler = Box<dyn Fn(Id<'_>, ServerMessage<'_>) -> bool + Send + Sync>;

/// Receives the raw parameters and the extra members of each progress notification, before the response is delivered.
/// Must return at once.
pub type OnProgress = Box<dyn Fn(&RawValue, Option<&str>) + Send + Sync>;

/// The result of a request, or the reason why there is none.
pub type RequestResult = Result<Box<RawValue>, Failure>;

pub(crate) struct Router {
    state: Mutex<State>,
    listener: Listener,
    on_request: Option<RequestHandler>,
    limit: usize,
    /// Cancelled when the connection has ended.
    closed: CancellationToken,
}

enum State {
    Open(BTreeMap<u64, Waiter>),
    Ended(Arc<TransportError>),
}

struct Waiter {
    response: oneshot::Sender<RequestResult>,
    progress: Arc<Progress>,
}

/// The state that a pending request shares with the router, besides its result.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) seen: Notify,
    pub(crate) on_progress: Option<OnProgress>,
    /// The extra members of the response.
    pub(crate) extra_members: OnceLock<String>,
}

impl Router {
    pub(crate) fn new(limit: usize, listener: Listener, on_request: Option<RequestHandler>) -> Self {
        let state = Mutex::new(State::Open(BTreeMap::new()));
        Self { state, listener, on_request, limit, closed: CancellationToken::new() }
    }

    /// Registers a request. After the end of the connection the receiver holds the failure at once.
    pub(crate) fn expect(&self, id: u64, progress: Arc<Progress>) -> oneshot::Receiver<RequestResult> {
        let (response, receiver) = oneshot::channel();
        match &mut *self.state() {
            State::Open(waiting) => drop(waiting.insert(id, Waiter { response, progress })),
            State::Ended(cause) => drop(response.send(Err(Failure::not_sent(cause.clone())))),
        }
        receiver
    }

    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        matches!(&*self.state(), State::Open(waiting) if waiting.contains_key(&id))
    }

    /// Removes a request. Returns true if it was still waiting.
    pub(crate) fn forget(&self, id: u64) -> bool {
        self.take(id).is_some()
    }

    pub(crate) fn fail(&self, id: u64, failure: Failure) {
        if let Some(waiter) = self.take(id) {
            let _ = waiter.response.send(Err(failure));
        }
    }

    /// Ends the connection. Of the requests still waiting, those for which `is_unsent` returns true were not sent.
    pub(crate) fn end(&self, cause: Arc<TransportError>, is_unsent: impl Fn(u64) -> bool) {
        let mut state = self.state();
        // The first reason counts.
        let State::Open(waiting) = &mut *state else { return };
        for (id, waiter) in std::mem::take(waiting) {
            let delivery = if is_unsent(id) { Delivery::NotSent } else { Delivery::Unknown };
            let _ = waiter.response.send(Err(Failure::Broken { delivery, cause: cause.clone() }));
        }
        *state = State::Ended(cause);
        drop(state);
        self.closed.cancel();
    }

    /// Returns when the connection has ended.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// The reason why the connection has ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<Arc<TransportError>> {
        match &*self.state() {
            State::Open(_) => None,
            State::Ended(cause) => Some(cause.clone()),
        }
    }

    /// Routes a message. `stream_request_id` is the id of the request whose response stream carried the message, if that is
    /// known. Returns the response to a request of the server, which the caller sends.
    #[must_use]
    pub(crate) fn deliver(&self, frame: &[u8], stream_request_id: Option<u64>) -> Option<Vec<u8>> {
        match Message::parse_with_extra_members(frame) {
            Ok((Message::Response { id, outcome }, extra_members)) => {
                self.complete(id, outcome, extra_members)
            }
            Ok((Message::Notification { method, params }, extra_members)) => {
                let extra_members = extra_members.as_deref();
                self.notify(ServerMessage { method: &method, params, extra_members, stream_request_id });
            }
            Ok((Message::Request { id, method, params }, extra_members)) => {
                let extra_members = extra_members.as_deref();
                let message = ServerMessage { method: &method, params, extra_members, stream_request_id };
                let is_accepted =
                    method != "ping" && self.on_request.as_ref().is_some_and(|handler| handler(id, message));
                return (!is_accepted).then(|| default_response(id, &method));
            }
            Err(MessageError::Batch) => {
                (self.listener)(Unsolicited::Junk { line: frame, reason: MessageError::Batch.to_string() });
                return Some(error_response(
                    Id::NULL,
                    RpcError::INVALID_REQUEST,
                    "batches are not supported",
                ));
            }
            Err(error) => self.reject(frame, error),
        }
        None
    }

    /// Routes a message beyond the size limit by what a scan of it found.
    pub(crate) fn deliver_unread(&self, unread: Unread) {
        let limit = self.limit;
        match unread {
            Unread::ResponseTo(id) => match Id::from_json(&id).and_then(Id::as_number) {
                Some(id) => self.fail(id, Failure::TooLong { limit, certain: true }),
                None => (self.listener)(Unsolicited::Unmatched { id: &id }),
            },
            Unread::FromPeer(_) => (self.listener)(Unsolicited::TooLong { limit }),
            Unread::Unknown => self.fail_all(|| Failure::TooLong { limit, certain: false }),
        }
    }

    fn complete(&self, id: Id<'_>, outcome: Result<&RawValue, &RawValue>, extra_members: Option<String>) {
        match id.as_number().and_then(|id| self.take(id)) {
            Some(waiter) => {
                if let Some(extra_members) = extra_members {
                    let _ = waiter.progress.extra_members.set(extra_members);
                }
                let result = outcome.map(ToOwned::to_owned);
                let result = result.map_err(|error| Failure::Answered(RpcError::parse(error)));
                let _ = waiter.response.send(result);
            }
            None => (self.listener)(Unsolicited::Unmatched { id: id.as_json() }),
        }
    }

    fn notify(&self, message: ServerMessage<'_>) {
        if message.method == "notifications/progress" {
            self.report_progress(message.params, message.extra_members);
        }
        (self.listener)(Unsolicited::Notification(message));
    }

    fn report_progress(&self, params: Option<&RawValue>, extra_members: Option<&str>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ProgressParams {
            progress_token: u64,
        }
        let Some(params) = params else { return };
        let Ok(ProgressParams { progress_token }) = serde_json::from_str(params.get()) else { return };
        let progress = match &*self.state() {
            State::Open(waiting) => waiting.get(&progress_token).map(|waiter| waiter.progress.clone()),
            State::Ended(_) => None,
        };
        if let Some(progress) = progress {
            progress.on_progress.iter().for_each(|on_progress| on_progress(params, extra_members));
            progress.seen.notify_one();
        }
    }

    /// Fails the request of a broken line that begins like a response: at once rather than at its deadline.
    fn reject(&self, frame: &[u8], error: MessageError) {
        if frame.trim_ascii_start().starts_with(b"{")
            && let Unread::ResponseTo(id) = scan(frame)
            && let Some(id) = Id::from_json(&id).and_then(Id::as_number)
        {
            self.fail(id, Failure::Garbled);
        }
        (self.listener)(Unsolicited::Junk { line: frame, reason: error.to_string() });
    }

    fn fail_all(&self, failure: impl Fn() -> Failure) {
        let State::Open(waiting) = &mut *self.state() else { return };
        for (_, waiter) in std::mem::take(waiting) {
            let _ = waiter.response.send(Err(failure()));
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

/// The response to a request that no handler accepts. Every peer must respond to `ping`.
fn default_response(id: Id<'_>, method: &str) -> Vec<u8> {
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

    /// Delivers frames to a router that waits for 1 and 2: what it reported and replied, and the results of both.
    fn check(frames: &[&str], expected: [&str; 3]) {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let log = reported.clone();
        let listener = move |message: Unsolicited<'_>| {
            log.lock().unwrap().push(match message {
                Unsolicited::Notification(message) => message.method.to_owned(),
                Unsolicited::Junk { .. } => "junk".into(),
                Unsolicited::Unmatched { id } => format!("unmatched {id}"),
                Unsolicited::TooLong { .. } => "too long".into(),
            });
        };
        let router = Router::new(100, Box::new(listener), None);
        let mut responses = [1, 2].map(|id| router.expect(id, Arc::default()));
        let replies: Vec<_> =
            frames.iter().filter_map(|frame| router.deliver(frame.as_bytes(), None)).collect();
        let mut reports = reported.lock().unwrap().clone();
        reports.extend(replies.into_iter().map(|r| String::from_utf8(r).unwrap()));
        let [one, two] = responses.each_mut().map(|response| match response.try_recv() {
            Ok(Ok(result)) => result.get().to_owned(),
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "waiting".into(),
        });
        assert_eq!([reports.join(" | "), one, two], expected.map(str::to_owned));
    }

    #[test]
    fn delivers_responses_in_any_order() {
        check(
            &[
                r#"{"jsonrpc":"2.0","id":2,"result":[ 2 ]}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no"}}"#,
            ],
            ["", "no (JSON-RPC error -5)", "[ 2 ]"],
        );
    }

    #[test]
    fn reports_unmatched_responses() {
        let response = r#"{"jsonrpc":"2.0","id":1,"result":1}"#;
        let stray = r#"{"jsonrpc":"2.0","id":"x","result":1}"#;
        check(&[response, response, stray], ["unmatched 1 | unmatched \"x\"", "1", "waiting"]);
    }

    #[test]
    fn reports_junk() {
        let log = r#"{"level":30,"id":1,"msg":"handling request"}"#;
        check(
            &["[info] hello", "{}", "Traceback:", log],
            ["junk | junk | junk | junk", "waiting", "waiting"],
        );
    }

    #[test]
    fn fails_only_the_request_of_a_broken_response() {
        check(
            &[r#"{"jsonrpc":"2.0","id":1,"result":{"a":}}"#],
            ["junk", "the response is not valid JSON-RPC", "waiting"],
        );
    }

    #[test]
    fn responds_to_server_requests() {
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
    fn fails_the_request_of_an_overlong_response_or_all() {
        let router = Router::new(100, Box::new(|_| {}), None);
        let mut first = router.expect(1, Arc::default());
        let mut second = router.expect(2, Arc::default());
        router.deliver_unread(Unread::ResponseTo("1".into()));
        assert!(matches!(first.try_recv(), Ok(Err(Failure::TooLong { certain: true, .. }))));
        router.deliver_unread(Unread::FromPeer(None));
        assert!(second.try_recv().is_err(), "a message of the server's own is no response");
        router.deliver_unread(Unread::Unknown);
        assert!(matches!(second.try_recv(), Ok(Err(Failure::TooLong { certain: false, .. }))));
        assert!(router.end_reason().is_none(), "the connection goes on");
    }

    #[test]
    fn reports_reason_and_delivery_at_the_end() {
        let router = Router::new(100, Box::new(|_| {}), None);
        let mut responses = [1, 2].map(|id| router.expect(id, Arc::default()));
        router.end(Arc::new(TransportError::OutputClosed), |id| id == 2);
        router.end(Arc::new(TransportError::Closed), |_| false);
        let mut after = router.expect(3, Arc::default());
        let failure_of = |response: &mut oneshot::Receiver<RequestResult>| {
            let failure = response.try_recv().unwrap().unwrap_err();
            (failure.to_string(), failure.delivery())
        };
        let text = "the server closed its output".to_owned();
        assert_eq!(failure_of(&mut responses[0]), (text.clone(), Delivery::Unknown));
        assert_eq!(failure_of(&mut responses[1]), (text.clone(), Delivery::NotSent));
        assert_eq!(failure_of(&mut after), (text, Delivery::NotSent));
    }
}
