//! Ends the calls that an agent does not want any more.
//!
//! Every replica hears every cancellation. One that comes before its request is remembered for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bascule_bus::{BusSubscription, Timestamp, ToolCancelRequest};
use tokio_util::sync::CancellationToken;

use super::incoming::MAX_CALL_ID;
use super::{BusFace, next_of_kind};

/// The cancellations without a request that are remembered. The oldest is forgotten first.
const MAX_EARLY: usize = 1024;

/// The calls that can be cancelled.
#[derive(Default)]
pub(super) struct Cancellations(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The calls in progress by their `toolCallId`, which an agent may use twice.
    running: HashMap<String, Vec<RunningCall>>,
    early: VecDeque<(String, Timestamp)>,
    last_serial: u64,
}

struct RunningCall {
    serial: u64,
    requested: Timestamp,
    cancelled: CancellationToken,
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
        while let Some((envelope, ToolCancelRequest { tool_call_id })) = next_of_kind(&mut messages).await {
            // No request has a longer id, and what is remembered must be bounded.
            if tool_call_id.len() <= MAX_CALL_ID {
                self.cancellations.cancel(&tool_call_id, envelope.timestamp);
            }
        }
    }
}

impl Cancellations {
    /// Registers a call that was requested at this time. It may have been cancelled before.
    pub(super) fn register(&self, id: &str, requested: Timestamp) -> CancellableCall {
        let (mut state, cancelled) = (lock(&self.0), CancellationToken::new());
        if state.early.iter().any(|(early, time)| early == id && requested <= *time) {
            cancelled.cancel();
        }
        state.last_serial += 1;
        let serial = state.last_serial;
        let call = RunningCall { serial, requested, cancelled: cancelled.clone() };
        state.running.entry(id.to_owned()).or_default().push(call);
        CancellableCall { cancelled, id: id.to_owned(), serial, calls: self.0.clone() }
    }

    /// Cancels the calls with this id that were requested before `time`. Ids may be used again, so later ones are not meant.
    fn cancel(&self, id: &str, time: Timestamp) {
        let mut state = lock(&self.0);
        let running = state.running.get(id).into_iter().flatten();
        running.filter(|call| call.requested <= time).for_each(|call| call.cancelled.cancel());
        // Another replica may run the call, or the request may still wait: both look the same from here.
        if state.early.len() == MAX_EARLY {
            state.early.pop_front();
        }
        state.early.push_back((id.to_owned(), time));
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

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    // req: BU-02
    #[test]
    fn cancels_running_and_later_delivered_calls() {
        let calls = Cancellations::default();
        let running = calls.register("t", at(10));
        let other = calls.register("u", at(10));
        calls.cancel("t", at(10));
        assert!(running.cancelled.is_cancelled() && !other.cancelled.is_cancelled());
        assert!(calls.register("t", at(9)).cancelled.is_cancelled());
    }

    // req: BU-02
    #[test]
    fn reused_id_is_not_cancelled_by_an_older_cancellation() {
        let calls = Cancellations::default();
        calls.cancel("t", at(10));
        let later = calls.register("t", at(11));
        assert!(!later.cancelled.is_cancelled());
        calls.cancel("t", at(10));
        assert!(!later.cancelled.is_cancelled());
        calls.cancel("t", at(12));
        assert!(later.cancelled.is_cancelled());
    }

    #[test]
    fn forgets_ended_calls_and_old_cancellations() {
        let calls = Cancellations::default();
        drop(calls.register("t", at(1)));
        (0..2 * MAX_EARLY).for_each(|n| calls.cancel(&n.to_string(), at(1)));
        let state = lock(&calls.0);
        assert!(state.running.is_empty() && state.early.len() == MAX_EARLY);
    }
}
