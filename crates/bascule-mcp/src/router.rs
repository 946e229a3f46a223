//! Routes the messages of a server: responses to the requests that wait for them, the rest to a listener.
//!
//! The read loops of the transports call the router, so none of its functions waits.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bascule_model::Delivery;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::pacer::Pacer;
use crate::scan::{ScannedMessage, scan};
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

/// A message that is not the response to a pending request.
#[derive(Debug)]
pub enum Unsolicited<'a> {
    Notification(ServerMessage<'a>),
    /// A line that is not a valid message: a log line on stdout, or invalid JSON.
    Invalid {
        line: &'a [u8],
        reason: String,
    },
    /// A response without a pending request: a duplicate, a late response, or one with an unknown id.
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

/// Receives requests of the server. Returns true if it accepts the request and will respond (see
/// `Connection::send_frame`). Must return at once.
pub type RequestHandler = Box<dyn Fn(Id<'_>, ServerMessage<'_>) -> bool + Send + Sync>;

/// Receives the raw parameters and the extra members of each progress notification, before the response is delivered.
/// Must return at once.
pub type OnProgress = Box<dyn Fn(&RawValue, Option<&str>) + Send + Sync>;

/// The result of a request, or its failure.
pub type RequestResult = Result<Box<RawValue>, Failure>;

pub(crate) struct MessageRouter {
    state: Mutex<State>,
    listener: Listener,
    on_request: Option<RequestHandler>,
    limit: usize,
    /// Every unsolicited message is charged here.
    pub(crate) pacer: Pacer,
    /// Cancelled when the connection is closed.
    closed: CancellationToken,
}

enum State {
    Open(BTreeMap<u64, PendingResponse>),
    Closed(Arc<TransportError>),
}

struct PendingResponse {
    response: oneshot::Sender<RequestResult>,
    shared: Arc<SharedRequestState>,
}

/// The state that a `PendingRequest` shares with the router, besides its result.
#[derive(Default)]
pub(crate) struct SharedRequestState {
    /// Notified for each progress notification.
    pub(crate) progress_received: Notify,
    pub(crate) on_progress: Option<OnProgress>,
    /// The extra members of the response.
    pub(crate) extra_members: OnceLock<String>,
    /// An HTTP connection has got the request, and may have written some of it.
    pub(crate) is_sent: AtomicBool,
}

impl MessageRouter {
    pub(crate) fn new(limit: usize, listener: Listener, on_request: Option<RequestHandler>) -> Self {
        let state = Mutex::new(State::Open(BTreeMap::new()));
        Self { state, listener, on_request, limit, pacer: Pacer::new(), closed: CancellationToken::new() }
    }

    /// Registers a request that is about to be sent. On a closed connection the receiver holds the failure at once.
    pub(crate) fn register(
        &self,
        id: u64,
        shared: Arc<SharedRequestState>,
    ) -> oneshot::Receiver<RequestResult> {
        let (response, receiver) = oneshot::channel();
        match &mut *self.state() {
            State::Open(pending) => drop(pending.insert(id, PendingResponse { response, shared })),
            State::Closed(cause) => drop(response.send(Err(Failure::not_sent(cause.clone())))),
        }
        receiver
    }

    pub(crate) fn is_pending(&self, id: u64) -> bool {
        matches!(&*self.state(), State::Open(pending) if pending.contains_key(&id))
    }

    /// Removes a request. Returns true if it was pending.
    pub(crate) fn remove(&self, id: u64) -> bool {
        self.take(id).is_some()
    }

    pub(crate) fn fail(&self, id: u64, failure: Failure) {
        if let Some(pending) = self.take(id) {
            let _ = pending.response.send(Err(failure));
        }
    }

    /// Closes the connection and fails the pending requests. Those for which `is_unsent` returns true were not sent.
    pub(crate) fn close(&self, cause: Arc<TransportError>, is_unsent: impl Fn(u64) -> bool) {
        let mut state = self.state();
        // The first cause is kept.
        let State::Open(pending) = &mut *state else { return };
        for (id, pending) in std::mem::take(pending) {
            let delivery = if is_unsent(id) { Delivery::NotSent } else { Delivery::Unknown };
            let _ = pending.response.send(Err(Failure::Transport { delivery, cause: cause.clone() }));
        }
        *state = State::Closed(cause);
        drop(state);
        self.closed.cancel();
    }

    /// Returns when the connection is closed.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Returns the error that closed the connection, or `None` if it is open.
    pub(crate) fn close_reason(&self) -> Option<Arc<TransportError>> {
        match &*self.state() {
            State::Open(_) => None,
            State::Closed(cause) => Some(cause.clone()),
        }
    }

    /// Routes a message. `stream_request_id` is the id of the request whose response stream carried the message, if that is
    /// known. Returns the response to a request of the server, which the caller sends.
    #[must_use]
    pub(crate) fn deliver(&self, frame: &[u8], stream_request_id: Option<u64>) -> Option<Vec<u8>> {
        match Message::parse_with_extra_members(frame) {
            Ok((Message::Response { id, outcome }, extra_members)) => {
                let is_matched = self.complete(id, outcome, extra_members);
                if !is_matched {
                    self.pacer.charge_message(frame.len());
                }
                None
            }
            unsolicited => {
                self.pacer.charge_message(frame.len());
                self.deliver_unsolicited(frame, unsolicited, stream_request_id)
            }
        }
    }

    fn deliver_unsolicited(
        &self,
        frame: &[u8],
        parsed: Result<(Message<'_>, Option<String>), MessageError>,
        stream_request_id: Option<u64>,
    ) -> Option<Vec<u8>> {
        match parsed {
            Ok((Message::Response { .. }, _)) => {}
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
                (self.listener)(Unsolicited::Invalid {
                    line: frame,
                    reason: MessageError::Batch.to_string(),
                });
                return Some(error_response(
                    Id::NULL,
                    RpcError::INVALID_REQUEST,
                    "batches are not supported",
                ));
            }
            Err(error) => self.handle_invalid(frame, error),
        }
        None
    }

    /// Routes a message beyond the size limit, which was scanned and not parsed.
    pub(crate) fn deliver_oversized(&self, message: ScannedMessage) {
        let limit = self.limit;
        if !matches!(message, ScannedMessage::ResponseTo(_)) {
            self.pacer.charge_message(limit);
        }
        match message {
            ScannedMessage::ResponseTo(id) => match Id::from_json(&id).and_then(Id::as_number) {
                Some(id) => self.fail(id, Failure::TooLong { limit, is_matched: true }),
                None => (self.listener)(Unsolicited::Unmatched { id: &id }),
            },
            ScannedMessage::RequestOrNotification(_) => (self.listener)(Unsolicited::TooLong { limit }),
            ScannedMessage::Unknown => self.fail_all(|| Failure::TooLong { limit, is_matched: false }),
        }
    }

    /// Returns false if no request waits for the response.
    fn complete(
        &self,
        id: Id<'_>,
        outcome: Result<&RawValue, &RawValue>,
        extra_members: Option<String>,
    ) -> bool {
        match id.as_number().and_then(|id| self.take(id)) {
            Some(pending) => {
                if let Some(extra_members) = extra_members {
                    let _ = pending.shared.extra_members.set(extra_members);
                }
                let result = outcome.map(ToOwned::to_owned);
                let result = result.map_err(|error| Failure::ErrorResponse(RpcError::parse(error)));
                let _ = pending.response.send(result);
                true
            }
            None => {
                (self.listener)(Unsolicited::Unmatched { id: id.as_json() });
                false
            }
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
        let shared = match &*self.state() {
            State::Open(pending) => pending.get(&progress_token).map(|pending| pending.shared.clone()),
            State::Closed(_) => None,
        };
        if let Some(shared) = shared {
            shared.on_progress.iter().for_each(|on_progress| on_progress(params, extra_members));
            shared.progress_received.notify_one();
        }
    }

    /// Reports an invalid line. If it looks like the response to a request, that request fails at once and not at its
    /// deadline.
    fn handle_invalid(&self, frame: &[u8], error: MessageError) {
        if frame.trim_ascii_start().starts_with(b"{")
            && let ScannedMessage::ResponseTo(id) = scan(frame)
            && let Some(id) = Id::from_json(&id).and_then(Id::as_number)
        {
            self.fail(id, Failure::InvalidResponse);
        }
        (self.listener)(Unsolicited::Invalid { line: frame, reason: error.to_string() });
    }

    fn fail_all(&self, failure: impl Fn() -> Failure) {
        let State::Open(pending) = &mut *self.state() else { return };
        for (_, pending) in std::mem::take(pending) {
            let _ = pending.response.send(Err(failure()));
        }
    }

    fn take(&self, id: u64) -> Option<PendingResponse> {
        match &mut *self.state() {
            State::Open(pending) => pending.remove(&id),
            State::Closed(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

/// Returns the response to a request that no handler accepts. Every peer must respond to `ping`.
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

    /// Delivers frames to a router with the pending requests 1 and 2. Expects its reports and replies, and both results.
    fn check(frames: &[&str], expected: [&str; 3]) {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let log = reported.clone();
        let listener = move |message: Unsolicited<'_>| {
            log.lock().unwrap().push(match message {
                Unsolicited::Notification(message) => message.method.to_owned(),
                Unsolicited::Invalid { .. } => "invalid".into(),
                Unsolicited::Unmatched { id } => format!("unmatched {id}"),
                Unsolicited::TooLong { .. } => "too long".into(),
            });
        };
        let router = MessageRouter::new(100, Box::new(listener), None);
        let mut responses = [1, 2].map(|id| router.register(id, Arc::default()));
        let replies: Vec<_> =
            frames.iter().filter_map(|frame| router.deliver(frame.as_bytes(), None)).collect();
        let mut reports = reported.lock().unwrap().clone();
        reports.extend(replies.into_iter().map(|r| String::from_utf8(r).unwrap()));
        let [one, two] = responses.each_mut().map(|response| match response.try_recv() {
            Ok(Ok(result)) => result.get().to_owned(),
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "pending".into(),
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
        check(&[response, response, stray], ["unmatched 1 | unmatched \"x\"", "1", "pending"]);
    }

    #[test]
    fn reports_invalid_lines() {
        let log = r#"{"level":30,"id":1,"msg":"handling request"}"#;
        check(
            &["[info] hello", "{}", "Traceback:", log],
            ["invalid | invalid | invalid | invalid", "pending", "pending"],
        );
    }

    #[test]
    fn fails_only_the_request_of_a_broken_response() {
        check(
            &[r#"{"jsonrpc":"2.0","id":1,"result":{"a":}}"#],
            ["invalid", "the response is not valid JSON-RPC", "pending"],
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
                "pending",
                "pending",
            ],
        );
        check(
            &[r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#],
            [
                r#"invalid | {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not supported"}}"#,
                "pending",
                "pending",
            ],
        );
    }

    #[test]
    fn fails_the_request_of_an_overlong_response_or_all() {
        let router = MessageRouter::new(100, Box::new(|_| {}), None);
        let mut first = router.register(1, Arc::default());
        let mut second = router.register(2, Arc::default());
        router.deliver_oversized(ScannedMessage::ResponseTo("1".into()));
        assert!(matches!(first.try_recv(), Ok(Err(Failure::TooLong { is_matched: true, .. }))));
        router.deliver_oversized(ScannedMessage::RequestOrNotification(None));
        assert!(second.try_recv().is_err(), "a request or notification is no response");
        router.deliver_oversized(ScannedMessage::Unknown);
        assert!(matches!(second.try_recv(), Ok(Err(Failure::TooLong { is_matched: false, .. }))));
        assert!(router.close_reason().is_none(), "the connection stays open");
    }

    #[test]
    fn reports_reason_and_delivery_at_the_end() {
        let router = MessageRouter::new(100, Box::new(|_| {}), None);
        let mut responses = [1, 2].map(|id| router.register(id, Arc::default()));
        router.close(Arc::new(TransportError::OutputClosed), |id| id == 2);
        router.close(Arc::new(TransportError::Closed), |_| false);
        let mut after = router.register(3, Arc::default());
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
