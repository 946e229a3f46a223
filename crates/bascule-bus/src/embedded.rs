//! The bus inside the process. Publishing never waits; a slow subscriber loses its oldest messages and learns
//! how many.
//!
//! One lock orders all messages, so every subscriber sees them in the same order. The bus holds it while it
//! appends to the queues, but not while it wakes a reader: a waker may run code that calls the bus again.

mod replay;
mod requests;

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::task::Waker;

use self::replay::ReplayBuffer;
pub(crate) use self::requests::{EmbeddedDelivery, EmbeddedQueue, EmbeddedRequests};
use crate::subscriber_queue::{QueueItem, SubscriberQueue};
use crate::{Envelope, Topic, TopicPattern};

/// A bus for one process. Dropping it closes it.
pub struct EmbeddedBus {
    shared: Arc<SharedEmbeddedBus>,
}

/// The limits of the replay buffer, which keeps recent messages for later subscribers. Both apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayLimits {
    pub messages: usize,
    pub bytes: usize,
}

impl ReplayLimits {
    /// Keeps nothing. A message without a subscriber then costs nothing.
    pub const NONE: Self = Self { messages: 0, bytes: 0 };
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self { messages: 1_000, bytes: 4 << 20 }
    }
}

/// The queue limits of a subscriber and its replay. A full queue drops its oldest messages but always keeps the
/// newest one, even if that one alone exceeds `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// The number of messages in the queue.
    pub capacity: usize,
    /// The memory of all messages in the queue.
    pub bytes: usize,
    /// The maximum number of recent messages to receive first.
    pub replay: usize,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { capacity: 1_000, bytes: 16 << 20, replay: 0 }
    }
}

/// An item of a subscription.
#[derive(Debug, Clone)]
pub enum SubscriptionItem {
    /// The next message.
    Message(BusMessage),
    /// The full queue dropped this many messages at this point.
    Lost(u64),
}

/// A published message with its topic. Clones share the envelope.
#[derive(Debug, Clone)]
pub struct BusMessage {
    pub topic: Topic,
    pub envelope: Arc<LazyEnvelope>,
    /// Approximate memory in bytes.
    size: usize,
}

/// An envelope that is built when it is first read. Most messages in the replay buffer are never read.
pub type LazyEnvelope = LazyLock<Envelope, BuildEnvelope>;
pub type BuildEnvelope = Box<dyn FnOnce() -> Envelope + Send>;

impl Default for EmbeddedBus {
    fn default() -> Self {
        Self::new(ReplayLimits::default())
    }
}

impl EmbeddedBus {
    pub fn new(limits: ReplayLimits) -> Self {
        let state = State { replay: ReplayBuffer::new(limits), subscribers: Vec::new(), closed: false };
        Self { shared: Arc::new(SharedEmbeddedBus { limits, state: Mutex::new(state) }) }
    }

    /// Queues a message for every matching subscriber and returns their number. Never waits. Does nothing after
    /// `close`.
    pub fn publish(&self, topic: &Topic, envelope: Arc<Envelope>) -> usize {
        self.publish_lazily(topic, envelope.memory_size(), Box::new(move || Arc::unwrap_or_clone(envelope)))
    }

    /// Like [`publish`](Self::publish), but builds the envelope when it is first read. `size` is its approximate memory.
    pub fn publish_lazily(&self, topic: &Topic, size: usize, build: BuildEnvelope) -> usize {
        let size = size_of::<BusMessage>() + topic.as_str().len() + size;
        let envelope = Arc::new(LazyLock::new(build));
        let (count, wakers) = self.shared.publish(BusMessage { topic: topic.clone(), envelope, size });
        wakers.into_iter().for_each(Waker::wake);
        count
    }

    /// Returns true if a subscriber or the replay buffer would keep a message on this topic. Publishers can skip
    /// building a message otherwise.
    pub fn has_receiver(&self, topic: &Topic) -> bool {
        self.shared.limits != ReplayLimits::NONE || self.shared.lock().matching(topic).next().is_some()
    }

    /// Subscribes to all matching topics. Replayed messages come first; between them and the next published
    /// message nothing is missing and nothing is repeated.
    pub fn subscribe(&self, pattern: TopicPattern, options: SubscribeOptions) -> Subscription {
        let queue = Arc::new(SubscriberQueue::new(options.capacity, options.bytes));
        self.shared.lock().add_subscriber(pattern, &queue, options.replay);
        Subscription { shared: self.shared.clone(), queue }
    }

    /// Ends every subscription after its queued messages.
    pub fn close(&self) {
        let wakers = self.shared.lock().close();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for EmbeddedBus {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reading end of a subscriber's queue. Dropping it unsubscribes.
pub struct Subscription {
    shared: Arc<SharedEmbeddedBus>,
    queue: Arc<SubscriberQueue<BusMessage>>,
}

impl Subscription {
    /// Waits for the next item. Returns `None` after the bus is closed and the queue is empty. Cancel safe.
    pub async fn next(&mut self) -> Option<SubscriptionItem> {
        match poll_fn(|context| self.queue.poll_next(context)).await? {
            QueueItem::Message(message) => Some(SubscriptionItem::Message(message)),
            QueueItem::Lost(count) => Some(SubscriptionItem::Lost(count)),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Bound to a name so that the lock is released before the pattern and the queue are freed.
        let _removed = self.shared.lock().remove_subscriber(&self.queue);
    }
}

struct SharedEmbeddedBus {
    limits: ReplayLimits,
    state: Mutex<State>,
}

struct State {
    replay: ReplayBuffer,
    subscribers: Vec<Subscriber>,
    closed: bool,
}

struct Subscriber {
    pattern: TopicPattern,
    queue: Arc<SubscriberQueue<BusMessage>>,
}

impl SharedEmbeddedBus {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }

    /// Returns the number of receivers and the readers to wake after the lock is released.
    fn publish(&self, message: BusMessage) -> (usize, Vec<Waker>) {
        let (mut count, mut wakers) = (0, Vec::new());
        let mut state = self.lock();
        if !state.closed {
            for subscriber in state.matching(&message.topic) {
                wakers.extend(subscriber.queue.push(message.clone(), message.size));
                count += 1;
            }
            state.replay.push(message);
        }
        (count, wakers)
    }
}

impl State {
    fn matching<'a>(&'a self, topic: &'a Topic) -> impl Iterator<Item = &'a Subscriber> {
        self.subscribers.iter().filter(|subscriber| subscriber.pattern.matches(topic))
    }

    /// The replay passes through the queue, so a queue that is too small for it reports the lost messages.
    fn add_subscriber(
        &mut self,
        pattern: TopicPattern,
        queue: &Arc<SubscriberQueue<BusMessage>>,
        replay: usize,
    ) {
        for message in self.replay.recent(&pattern, replay) {
            let size = message.size;
            queue.push(message, size);
        }
        match self.closed {
            true => drop(queue.close()),
            false => self.subscribers.push(Subscriber { pattern, queue: queue.clone() }),
        }
    }

    fn remove_subscriber(&mut self, queue: &Arc<SubscriberQueue<BusMessage>>) -> Option<Subscriber> {
        let index = self.subscribers.iter().position(|subscriber| Arc::ptr_eq(&subscriber.queue, queue))?;
        Some(self.subscribers.swap_remove(index))
    }

    fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.subscribers.drain(..).filter_map(|subscriber| subscriber.queue.close()).collect()
    }
}

impl fmt::Debug for EmbeddedBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBus").field("replay", &self.shared.limits).finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
