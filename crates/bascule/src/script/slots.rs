//! Decides which script runs next, so that no client waits for all scripts of another one.
//!
//! One client leaves at least one slot free for the others. Of those that wait, the client with the fewest running scripts is
//! next, and of several such the one with the fewest waiting scripts. If too many wait, the client with the most waiting
//! scripts loses its last one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use tokio::sync::oneshot;

use super::denied;
use crate::call_record::Face;
use crate::client::ClientGroup;

/// Number of scripts that may wait for a slot.
const MAX_QUEUED: usize = 256;

/// The caller to which a script's slot is attributed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ScriptOwner {
    /// All scripts of the command line, or of the embedding program.
    Face(Face),
    Client(ClientGroup),
}

pub(super) struct ScriptSlots {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Running scripts of each owner that has some.
    running: HashMap<ScriptOwner, usize>,
    /// In the order of arrival. The callers of some have left.
    waiting: VecDeque<WaitingScript>,
    is_closed: bool,
}

struct WaitingScript {
    owner: ScriptOwner,
    granted: oneshot::Sender<BridgeResult<ScriptSlot>>,
}

/// The right to run one script. Dropping it lets the next one run.
pub(super) struct ScriptSlot {
    slots: Arc<ScriptSlots>,
    owner: ScriptOwner,
}

impl ScriptSlots {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Waits for a slot.
    pub(super) async fn acquire(self: &Arc<Self>, owner: ScriptOwner) -> BridgeResult<ScriptSlot> {
        let (granted, receiver) = oneshot::channel();
        let displaced = self.state().push(WaitingScript { owner, granted })?;
        if let Some(displaced) = displaced {
            let _ = displaced.granted.send(Err(too_many()));
        }
        self.start_next();
        receiver.await.unwrap_or_else(|_| Err(denied("the bridge is shutting down")))
    }

    /// Refuses all scripts that wait, and all later ones.
    pub(super) fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }

    /// Returns the number of running scripts, and of waiting ones.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.waiting.iter().filter(|script| !script.granted.is_closed());
        (state.running.values().sum(), waiting.count())
    }

    /// Grants free slots. A slot whose receiver has left is dropped, which returns it.
    fn start_next(self: &Arc<Self>) {
        loop {
            let next = self.state().take_next(self.max);
            let Some(WaitingScript { owner, granted }) = next else { return };
            let _ = granted.send(Ok(ScriptSlot { slots: self.clone(), owner }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl Drop for ScriptSlot {
    fn drop(&mut self) {
        self.slots.state().remove_running(&self.owner);
        self.slots.start_next();
    }
}

impl State {
    /// Adds a script. Returns the one that it displaces, if too many wait.
    fn push(&mut self, script: WaitingScript) -> BridgeResult<Option<WaitingScript>> {
        if self.is_closed {
            return Err(denied("the bridge is shutting down"));
        }
        self.waiting.retain(|waiting| !waiting.granted.is_closed());
        let displaced = match self.waiting.len() >= MAX_QUEUED {
            true => Some(self.remove_last_of_largest(&script.owner).ok_or_else(too_many)?),
            false => None,
        };
        self.waiting.push_back(script);
        Ok(displaced)
    }

    /// Removes the last script of the owner with the most waiting ones. Returns `None` if `newcomer` has as many.
    fn remove_last_of_largest(&mut self, newcomer: &ScriptOwner) -> Option<WaitingScript> {
        let counts = self.count_waiting();
        let own = counts.get(newcomer).copied().unwrap_or(0);
        let most = counts.values().copied().max().filter(|most| *most > own + 1)?;
        let last = self.waiting.iter().rposition(|script| counts[&script.owner] == most)?;
        self.waiting.remove(last)
    }

    fn count_waiting(&self) -> HashMap<&ScriptOwner, usize> {
        let mut counts = HashMap::new();
        self.waiting.iter().for_each(|script| *counts.entry(&script.owner).or_default() += 1);
        counts
    }

    /// Takes the script that runs next.
    fn take_next(&mut self, max: usize) -> Option<WaitingScript> {
        if self.waiting.is_empty() || self.running.values().sum::<usize>() >= max {
            return None;
        }
        let (most_of_one, waiting) = (max.saturating_sub(1).max(1), self.count_waiting());
        let candidates = self.waiting.iter().enumerate().map(|(place, WaitingScript { owner, .. })| {
            (self.running.get(owner).copied().unwrap_or(0), waiting[owner], place)
        });
        let (.., place) = candidates.filter(|(running, ..)| *running < most_of_one).min()?;
        let script = self.waiting.remove(place)?;
        *self.running.entry(script.owner.clone()).or_default() += 1;
        Some(script)
    }

    fn remove_running(&mut self, owner: &ScriptOwner) {
        if let Some(running) = self.running.get_mut(owner) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(owner);
            }
        }
    }
}

fn too_many() -> Box<BridgeError> {
    let message = format!("too many scripts: {MAX_QUEUED} are waiting already");
    BridgeError::new(ErrorCode::RateLimited, Delivery::NotSent, message)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ONE: ScriptOwner = ScriptOwner::Face(Face::Cli);
    const OTHER: ScriptOwner = ScriptOwner::Face(Face::Library);

    type Acquiring = Pin<Box<dyn Future<Output = BridgeResult<ScriptSlot>>>>;

    fn acquire(slots: &Arc<ScriptSlots>, owner: ScriptOwner) -> Acquiring {
        let slots = slots.clone();
        let mut acquiring: Acquiring = Box::pin(async move { slots.acquire(owner).await });
        // The first poll puts the script into the queue, and a later one tells the result.
        match poll(&mut acquiring) {
            Some(result) => Box::pin(std::future::ready(result)),
            None => acquiring,
        }
    }

    fn poll(acquiring: &mut Acquiring) -> Option<BridgeResult<ScriptSlot>> {
        match acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    // req: CM-01
    #[test]
    fn one_owner_leaves_a_slot_free() {
        let slots = ScriptSlots::new(3);
        let mut loops: Vec<_> = (0..40).map(|_| acquire(&slots, ONE)).collect();
        let running: Vec<_> = loops.iter_mut().map_while(poll).collect();
        assert_eq!(running.len(), 2);
        let first = poll(&mut acquire(&slots, OTHER)).expect("a slot is free").unwrap();
        let mut second = acquire(&slots, OTHER);
        assert!(poll(&mut second).is_none());
        drop(running);
        assert!(poll(&mut second).is_some(), "the owner with fewer running scripts is next");
        drop(first);
        let single = ScriptSlots::new(1);
        assert!(poll(&mut acquire(&single, ONE)).is_some());
    }

    // req: CM-01
    #[test]
    fn full_queue_displaces_script_of_the_largest_owner() {
        let slots = ScriptSlots::new(1);
        let _running = poll(&mut acquire(&slots, ONE)).expect("the slot is free");
        let mut waiting: Vec<_> = (0..MAX_QUEUED).map(|_| acquire(&slots, ONE)).collect();
        let refused = poll(&mut acquire(&slots, ONE)).expect("refused at once");
        assert!(refused.is_err_and(|error| error.code == ErrorCode::RateLimited));
        let mut other = acquire(&slots, OTHER);
        assert!(poll(&mut other).is_none());
        let displaced = poll(waiting.last_mut().unwrap()).expect("displaced");
        assert!(displaced.is_err_and(|error| error.code == ErrorCode::RateLimited));
    }

    // req: CM-01
    #[test]
    fn slot_of_caller_that_left_is_used_by_the_next() {
        let slots = ScriptSlots::new(1);
        let running = poll(&mut acquire(&slots, ONE)).expect("the slot is free");
        let [gone, unread] = [acquire(&slots, ONE), acquire(&slots, ONE)];
        let mut last = acquire(&slots, ONE);
        drop(gone);
        drop(running);
        assert!(poll(&mut last).is_none(), "the slot was granted to one that has not seen it");
        drop(unread);
        assert!(poll(&mut last).is_some_and(|slot| slot.is_ok()));
        slots.close();
        assert!(poll(&mut acquire(&slots, ONE)).is_some_and(|slot| slot.is_err()));
    }
}
