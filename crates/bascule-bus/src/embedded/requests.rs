//! Requests on the bus inside the process: a bounded queue for each agent, with claims.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::request_identity::RequestIdentity;
use crate::requests::{CLAIM_WINDOW, DeliveryKind};
use crate::{
    AgentName, BusError, Claim, ClaimTicket, Envelope, MessageId, ReceivedMessage, RequestDelivery,
    SharedTopics, Topic, UnreadableMessage,
};

/// The requests that wait in one queue. More are refused.
const MAX_WAITING: usize = 10_000;
/// The claims that one queue remembers. The oldest are forgotten first.
const MAX_CLAIMS: usize = 100_000;

/// The queues of all agents.
#[derive(Default)]
pub(crate) struct EmbeddedRequests {
    queues: Mutex<HashMap<AgentName, Arc<AgentQueue>>>,
}

/// The requests of one agent. Replicas share it.
#[derive(Default)]
struct AgentQueue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    claims: HashMap<MessageId, EmbeddedClaim>,
    /// The claims in the order of their times.
    claimed: VecDeque<(Instant, MessageId)>,
    last_serial: u64,
    closed: bool,
}

struct EmbeddedClaim {
    /// The message that was claimed.
    serial: u64,
    request: RequestIdentity,
    answer: Option<Box<Envelope>>,
}

struct Waiting {
    message: ReceivedMessage,
    /// Different for each message. 0: it has none yet.
    serial: u64,
    attempt: u32,
    not_before: Instant,
}

impl EmbeddedRequests {
    /// Queues the message if its topic is one of requests.
    pub(crate) fn offer(&self, topic: &Topic, envelope: &Envelope) -> Result<(), BusError> {
        let agent = match topic.as_str().strip_prefix(SharedTopics::REQUESTS) {
            Some("") => &*envelope.source,
            Some(agent) => agent.strip_prefix('.').unwrap_or_default(),
            None => return Ok(()),
        };
        let (queue, content) = match AgentName::parse(agent) {
            Ok(agent) => (self.queue(&agent), Ok(Arc::new(envelope.clone()))),
            Err(error) if topic.as_str() == SharedTopics::REQUESTS => {
                let reason = format!("`source` names no agent: {error}");
                let operation = "publish the request";
                let refused = || BusError::Refused { operation, reason: reason.clone() };
                // Whoever takes the request reports it.
                let (queue, payload) = (self.any_queue().ok_or_else(refused)?, envelope.to_bytes().into());
                (queue, Err(UnreadableMessage { reason, payload }))
            }
            // Nobody can be the agent of any other name.
            Err(_) => return Ok(()),
        };
        let message = ReceivedMessage { topic: topic.clone(), content };
        queue.push(Waiting { message, serial: 0, attempt: 1, not_before: Instant::now() })
    }

    /// Returns a queue that somebody reads.
    fn any_queue(&self) -> Option<Arc<AgentQueue>> {
        let queues = lock(&self.queues);
        queues.values().find(|queue| Arc::strong_count(queue) > 1).cloned()
    }

    pub(crate) fn open(&self, agent: &AgentName, prefetch: usize) -> EmbeddedQueue {
        let unsettled = Arc::new(Semaphore::new(prefetch.max(1)));
        EmbeddedQueue { agent: agent.clone(), queue: self.queue(agent), unsettled }
    }

    pub(crate) fn close(&self) {
        for queue in lock(&self.queues).values() {
            queue.lock().closed = true;
            queue.changed.notify_waiters();
        }
    }

    fn queue(&self, agent: &AgentName) -> Arc<AgentQueue> {
        lock(&self.queues).entry(agent.clone()).or_default().clone()
    }
}

impl AgentQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn push(&self, mut request: Waiting) -> Result<(), BusError> {
        let mut state = self.lock();
        state.last_serial += 1;
        request.serial = state.last_serial;
        match (state.closed, state.waiting.len() < MAX_WAITING) {
            (true, _) => return Err(BusError::Closed),
            (false, false) => return Err(BusError::Full),
            (false, true) => state.waiting.push_back(request),
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the first request whose time has come, or returns the time of the next one.
    fn take(&self) -> Result<Waiting, TakeLater> {
        let mut state = self.lock();
        if state.closed {
            return Err(TakeLater::Never);
        }
        let now = Instant::now();
        match state.waiting.iter().position(|request| request.not_before <= now) {
            Some(at) => Ok(state.waiting.remove(at).expect("it was found")),
            None => Err(TakeLater::At(state.waiting.iter().map(|request| request.not_before).min())),
        }
    }
}

enum TakeLater {
    /// At this time, or when the queue changes.
    At(Option<Instant>),
    Never,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds the lock")
}

/// The end of a queue that one replica reads.
pub(crate) struct EmbeddedQueue {
    agent: AgentName,
    queue: Arc<AgentQueue>,
    unsettled: Arc<Semaphore>,
}

impl EmbeddedQueue {
    pub(crate) async fn next(&mut self) -> Option<RequestDelivery> {
        let permit = self.unsettled.clone().acquire_owned().await.ok()?;
        loop {
            let changed = self.queue.changed.notified();
            tokio::pin!(changed);
            // Before the look: a request that comes after it wakes this reader.
            changed.as_mut().enable();
            match self.queue.take() {
                Ok(request) => return Some(self.deliver(request, permit)),
                Err(TakeLater::Never) => return None,
                Err(TakeLater::At(Some(time))) => {
                    let _ = tokio::time::timeout_at(time, changed).await;
                }
                Err(TakeLater::At(None)) => changed.await,
            }
        }
    }

    fn deliver(&self, request: Waiting, permit: OwnedSemaphorePermit) -> RequestDelivery {
        let Waiting { message, serial, attempt, .. } = request;
        let kind = EmbeddedDelivery {
            queue: Arc::downgrade(&self.queue),
            serial,
            identity: RequestIdentity::of_message(&message, &self.agent),
            request: Mutex::new(Some((message.clone(), attempt))),
            _permit: permit,
        };
        RequestDelivery { message, attempt, stored: None, kind: DeliveryKind::Embedded(kind) }
    }
}

impl EmbeddedClaim {
    /// Tells what this claim means for a delivery of the message `serial`.
    fn judge(&self, serial: u64, request: &RequestIdentity) -> Claim {
        if self.request.digest != request.digest {
            return Claim::Reused;
        }
        match &self.answer {
            Some(answer) => Claim::Answered(answer.clone()),
            None if self.serial == serial => {
                Claim::Abandoned(ClaimTicket { message_id: request.id.clone(), revision: 0 })
            }
            None if self.request.answer_topic == request.answer_topic => Claim::Duplicate,
            None => Claim::InProgress,
        }
    }
}

/// A request that is being handled.
pub(crate) struct EmbeddedDelivery {
    queue: Weak<AgentQueue>,
    serial: u64,
    identity: Option<RequestIdentity>,
    /// `None` once it is settled.
    request: Mutex<Option<(ReceivedMessage, u32)>>,
    _permit: OwnedSemaphorePermit,
}

impl EmbeddedDelivery {
    pub(crate) async fn claim(&self, id: &MessageId) -> Result<Claim, BusError> {
        let unreadable = || BusError::Refused { operation: "claim a request", reason: "it has no id".into() };
        let request = self.identity.as_ref().ok_or_else(unreadable)?;
        let queue = self.queue.upgrade().ok_or(BusError::Closed)?;
        let mut state = queue.lock();
        if let Some(claim) = state.claims.get(id) {
            return Ok(claim.judge(self.serial, request));
        }
        let claim = EmbeddedClaim { serial: self.serial, request: request.clone(), answer: None };
        state.claims.insert(id.clone(), claim);
        state.claimed.push_back((Instant::now(), id.clone()));
        state.forget_old_claims();
        Ok(Claim::Won(ClaimTicket { message_id: id.clone(), revision: 0 }))
    }

    pub(crate) async fn release(&self, ticket: ClaimTicket) -> Result<(), BusError> {
        let queue = self.queue.upgrade().ok_or(BusError::Closed)?;
        let mut state = queue.lock();
        if state.claims.get(&ticket.message_id).is_some_and(|claim| claim.answer.is_none()) {
            state.claims.remove(&ticket.message_id);
        }
        Ok(())
    }

    pub(crate) async fn record_answer(
        &self,
        ticket: &ClaimTicket,
        answer: &Envelope,
    ) -> Result<bool, BusError> {
        let queue = self.queue.upgrade().ok_or(BusError::Closed)?;
        let mut state = queue.lock();
        // The claim of a long call may have been forgotten.
        let Some(claim) = state.claims.get_mut(&ticket.message_id) else { return Ok(true) };
        Ok(claim.answer.is_none() && claim.answer.replace(Box::new(answer.clone())).is_none())
    }

    pub(crate) async fn keep(&self) -> Result<(), BusError> {
        Ok(())
    }

    pub(crate) async fn acknowledge(&self) -> Result<(), BusError> {
        lock(&self.request).take();
        Ok(())
    }

    pub(crate) async fn return_after(&self, delay: Duration) -> Result<(), BusError> {
        self.give_back(delay);
        Ok(())
    }

    fn give_back(&self, delay: Duration) {
        let request = lock(&self.request).take();
        let (Some((message, attempt)), Some(queue)) = (request, self.queue.upgrade()) else { return };
        let (serial, not_before) = (self.serial, Instant::now() + delay);
        let request = Waiting { message, serial, attempt: attempt + 1, not_before };
        // It has been accepted before, so there is room for it.
        queue.lock().waiting.push_back(request);
        queue.changed.notify_one();
    }
}

impl Drop for EmbeddedDelivery {
    fn drop(&mut self) {
        self.give_back(Duration::ZERO);
    }
}

impl State {
    fn forget_old_claims(&mut self) {
        let now = Instant::now();
        while let Some((time, _)) = self.claimed.front() {
            if now - *time < CLAIM_WINDOW && self.claimed.len() <= MAX_CLAIMS {
                return;
            }
            if let Some((_, id)) = self.claimed.pop_front() {
                self.claims.remove(&id);
            }
        }
    }
}
