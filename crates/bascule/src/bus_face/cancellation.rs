//! Ends the calls that an agent does not want any more.
//!
//! Every replica hears every cancellation. One that comes before its request is remembered for a while. No clock of a sender
//! decides: the order of arrival does, and the message id where the cancellation names it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bascule_bus::{BusSubscription, MessageId, ToolCancelRequest};
use tokio_util::sync::CancellationToken;

use super::incoming::MAX_CALL_ID;
use super::{BusFace, next_of_kind};

/// The cancellations that are remembered. The oldest is forgotten first.
const MAX_REMEMBERED: usize = 1024;

/// The calls that can be cancelled.
pub(super) struct Cancellations(Arc<Mutex<State>>);

struct State {
    /// The calls in progress by their `toolCallId`, which an agent may use twice.
    running: HashMap<String, Vec<RunningCall>>,
    remembered: VecDeque<RememberedCancellation>,
    /// A request that comes later than this after its cancellation has expired.
    remembered_for: Duration,
    last_serial: u64,
}

struct RunningCall {
    serial: u64,
    request: MessageId,
    cancelled: CancellationToken,
}

struct RememberedCancellation {
    call: String,
    /// The request that is meant; `None`: the next one with the call's id.
    request: Option<MessageId>,
    since: Instant,
}

/// A registered call.
pub(super) struct CancellableCall {
    pub(super) cancelled: CancellationToken,
    id: String,
    serial: u64,
    calls: Arc<Mutex<State>>,
}

impl BusFace {
    /// Takes the agent's cancellations until the bus is closed.
    pub(super) async fn take_cancellations(self: Arc<Self>, mut messages: BusSubscription) {
        while let Some((_, cancellation)) = next_of_kind::<ToolCancelRequest>(&mut messages).await {
            // No request has a longer id, and what is remembered must be bounded.
            if cancellation.tool_call_id.len() <= MAX_CALL_ID {
                self.cancellations.cancel(cancellation);
            }
        }
    }
}

impl Cancellations {
    /// Remembers cancellations for this time.
    pub(super) fn new(remembered_for: Duration) -> Self {
        let (running, remembered) = (HashMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(State { running, remembered, remembered_for, last_serial: 0 })))
    }

    /// Registers the call of a request. It may have been cancelled before.
    pub(super) fn register(&self, id: &str, request: &MessageId) -> CancellableCall {
        let (mut state, cancelled) = (lock(&self.0), CancellationToken::new());
        if state.is_cancelled(id, request, Instant::now()) {
            cancelled.cancel();
        }
        state.last_serial += 1;
        let serial = state.last_serial;
        let call = RunningCall { serial, request: request.clone(), cancelled: cancelled.clone() };
        state.running.entry(id.to_owned()).or_default().push(call);
        CancellableCall { cancelled, id: id.to_owned(), serial, calls: self.0.clone() }
    }

    fn cancel(&self, cancellation: ToolCancelRequest) {
        lock(&self.0).cancel(cancellation, Instant::now());
    }
}

impl State {
    /// Cancels the calls that are meant, and remembers the cancellation: their requests may be delivered again, another
    /// replica may run the call, or the request may still wait. From here the last two look the same.
    fn cancel(&mut self, cancellation: ToolCancelRequest, now: Instant) {
        let ToolCancelRequest { tool_call_id: call, request_message_id: request } = cancellation;
        let running = self.running.get(&call).into_iter().flatten();
        let meant = running.filter(|call| request.as_ref().is_none_or(|request| call.request == *request));
        let meant: Vec<_> =
            meant.inspect(|call| call.cancelled.cancel()).map(|call| call.request.clone()).collect();
        match (request, meant.is_empty()) {
            (Some(request), _) => self.remember(call, Some(request), now),
            (None, true) => self.remember(call, None, now),
            (None, false) => {
                meant.into_iter().for_each(|request| self.remember(call.clone(), Some(request), now));
            }
        }
    }

    fn remember(&mut self, call: String, request: Option<MessageId>, since: Instant) {
        if self.remembered.len() == MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(RememberedCancellation { call, request, since });
    }

    /// Ids may be used again: a cancellation that names no request means the first one that comes, and no later one.
    fn is_cancelled(&mut self, call: &str, request: &MessageId, now: Instant) -> bool {
        let is_old = |since: Instant| now.saturating_duration_since(since) > self.remembered_for;
        while self.remembered.front().is_some_and(|first| is_old(first.since)) {
            self.remembered.pop_front();
        }
        let meant = self.remembered.iter_mut().find(|remembered| {
            remembered.call == call && remembered.request.as_ref().is_none_or(|meant| meant == request)
        });
        match meant {
            Some(meant) => {
                meant.request = Some(request.clone());
                true
            }
            None => false,
        }
    }
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        let mut state = lock(&self.calls);
        if let Some(calls) = state.running.get_mut(&self.id) {
            calls.retain(|call| call.serial != self.serial);
            if calls.is_empty() {
                state.running.remove(&self.id);
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no code panics while it holds the lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEMBERED_FOR: Duration = Duration::from_secs(60);

    fn cancellations() -> Cancellations {
        Cancellations::new(REMEMBERED_FOR)
    }

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn cancellation(call: &str, request: Option<&str>) -> ToolCancelRequest {
        ToolCancelRequest { tool_call_id: call.into(), request_message_id: request.map(id) }
    }

    fn is_cancelled(calls: &Cancellations, call: &str, request: &str) -> bool {
        calls.register(call, &id(request)).cancelled.is_cancelled()
    }

    // req: BU-02
    #[test]
    fn cancels_running_and_later_delivered_calls() {
        let calls = cancellations();
        let (running, other) = (calls.register("t", &id("m-1")), calls.register("u", &id("m-2")));
        calls.cancel(cancellation("t", None));
        assert!(running.cancelled.is_cancelled() && !other.cancelled.is_cancelled());
        drop(running);
        assert!(is_cancelled(&calls, "t", "m-1"), "the same request is delivered again");
        calls.cancel(cancellation("v", None));
        assert!(is_cancelled(&calls, "v", "m-3") && is_cancelled(&calls, "v", "m-3"));
    }

    // req: BU-02
    #[test]
    fn reused_id_is_not_cancelled_by_an_earlier_cancellation() {
        let calls = cancellations();
        let running = calls.register("t", &id("m-1"));
        calls.cancel(cancellation("t", None));
        assert!(running.cancelled.is_cancelled() && !is_cancelled(&calls, "t", "m-2"));
        calls.cancel(cancellation("u", None));
        assert!(is_cancelled(&calls, "u", "m-3") && !is_cancelled(&calls, "u", "m-4"));
    }

    // req: BU-02
    #[test]
    fn cancellation_with_a_message_id_means_that_request() {
        let calls = cancellations();
        let running = calls.register("t", &id("m-1"));
        calls.cancel(cancellation("t", Some("m-2")));
        assert!(!running.cancelled.is_cancelled() && is_cancelled(&calls, "t", "m-2"));
        assert!(!is_cancelled(&calls, "t", "m-3"));
        calls.cancel(cancellation("t", Some("m-1")));
        assert!(running.cancelled.is_cancelled());
    }

    #[test]
    fn forgets_ended_calls_and_old_cancellations() {
        let calls = cancellations();
        drop(calls.register("t", &id("m")));
        (0..2 * MAX_REMEMBERED).for_each(|n| calls.cancel(cancellation(&n.to_string(), None)));
        let mut state = lock(&calls.0);
        assert!(state.running.is_empty() && state.remembered.len() == MAX_REMEMBERED);
        let later = Instant::now() + REMEMBERED_FOR + Duration::from_secs(1);
        let last = (2 * MAX_REMEMBERED - 1).to_string();
        assert!(!state.is_cancelled(&last, &id("m"), later) && state.remembered.is_empty());
    }
}
