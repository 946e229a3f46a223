//! The bus inside the process: publishing never waits, and whoever is too slow loses the oldest and is told.
//!
//! One lock orders all messages, so every subscriber sees them in the same order. It is held while a message is
//! handed to the queues, never while anyone is woken: a waker may run code that comes back here.

mod past;
mod queue;

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use self::past::Past;
use self::queue::Queue;
use crate::{Envelope, Topic, TopicPattern};

/// A bus for one process. Dropping it closes it.
pub struct EmbeddedBus {
    core: Arc<Core>,
}

/// How much of the recent past a bus remembers for those who come later. Both limits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recall {
    /// How many messages.
    pub messages: usize,
    /// How many bytes they may weigh together.
    pub bytes: usize,
}

impl Recall {
    /// Remembers nothing: a message that nobody wants costs nothing.
    pub const NOTHING: Self = Self { messages: 0, bytes: 0 };
}

impl Default for Recall {
    fn default() -> Self {
        Self { messages: 1_000, bytes: 4 << 20 }
    }
}

/// What a subscriber asks for. When its queue would exceed a limit it loses the oldest messages; the newest one
/// always stays, however heavy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// How many messages may wait.
    pub capacity: usize,
    /// How many bytes they may weigh together.
    pub bytes: usize,
    /// How many messages of the recent past to begin with, at most.
    pub replay: usize,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { capacity: 1_000, bytes: 16 << 20, replay: 0 }
    }
}

/// What a subscriber gets.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// The next message.
    Message(Message),
    /// So many messages that should have stood here are lost, because the queue was full.
    Lost(u64),
}

/// A message and where it was published. Copies share the envelope.
#[derive(Debug, Clone)]
pub struct Message {
    /// Where it was published.
    pub topic: Topic,
    /// What was published.
    pub envelope: Arc<Envelope>,
    weight: usize,
}

impl EmbeddedBus {
    /// An open bus without subscribers.
    pub fn new(recall: Recall) -> Self {
        let state = State { past: Past::new(recall), subscribers: Vec::new(), closed: false };
        Self { core: Arc::new(Core { recall, state: Mutex::new(state) }) }
    }

    /// Hands a message to everyone who wants it, and says to how many. Never waits. After `close` nobody gets it.
    pub fn publish(&self, topic: &Topic, envelope: Arc<Envelope>) -> usize {
        let weight = size_of::<Message>() + topic.as_str().len() + envelope.weight();
        let (reached, sleepers) = self.core.publish(Message { topic: topic.clone(), envelope, weight });
        sleepers.into_iter().for_each(Waker::wake);
        reached
    }

    /// Whether a message on this topic would go anywhere. A publisher may ask before it makes one.
    pub fn wants(&self, topic: &Topic) -> bool {
        self.core.recall != Recall::NOTHING || self.core.lock().wanting(topic).next().is_some()
    }

    /// Everything on matching topics from now on, and if asked for the most recent before: nothing is left out
    /// in between, and nothing comes twice.
    pub fn subscribe(&self, pattern: TopicPattern, options: SubscribeOptions) -> Subscription {
        let queue = Arc::new(Queue::new(options.capacity, options.bytes));
        self.core.lock().admit(pattern, &queue, options.replay);
        Subscription { core: self.core.clone(), queue }
    }

    /// Ends every subscription once what waits in its queue is taken.
    pub fn close(&self) {
        let sleepers = self.core.lock().close();
        sleepers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for EmbeddedBus {
    fn drop(&mut self) {
        self.close();
    }
}

/// A subscriber's end of its queue. Dropping it unsubscribes.
pub struct Subscription {
    core: Arc<Core>,
    queue: Arc<Queue>,
}

impl Subscription {
    /// The next delivery; `None` after the bus was closed and all was taken. Nothing is lost if this is dropped
    /// before it is done.
    pub async fn next(&mut self) -> Option<Delivery> {
        poll_fn(|context| self.queue.poll(context)).await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Held until the lock is free again: a pattern and a queue are not freed under it.
        let _gone = self.core.lock().dismiss(&self.queue);
    }
}

struct Core {
    recall: Recall,
    state: Mutex<State>,
}

struct State {
    past: Past,
    subscribers: Vec<Subscriber>,
    closed: bool,
}

struct Subscriber {
    pattern: TopicPattern,
    queue: Arc<Queue>,
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }

    /// To how many it went, and who is to be woken now that the lock is free.
    fn publish(&self, message: Message) -> (usize, Vec<Waker>) {
        let (mut reached, mut sleepers) = (0, Vec::new());
        let mut state = self.lock();
        if !state.closed {
            for subscriber in state.wanting(&message.topic) {
                sleepers.extend(subscriber.queue.push(message.clone()));
                reached += 1;
            }
            state.past.push(message);
        }
        (reached, sleepers)
    }
}

impl State {
    fn wanting<'a>(&'a self, topic: &'a Topic) -> impl Iterator<Item = &'a Subscriber> {
        self.subscribers.iter().filter(|subscriber| subscriber.pattern.matches(topic))
    }

    /// The replay goes through the queue like everything else, so a queue too small for it says what it lost.
    fn admit(&mut self, pattern: TopicPattern, queue: &Arc<Queue>, replay: usize) {
        for message in self.past.recent(&pattern, replay) {
            queue.push(message);
        }
        match self.closed {
            true => drop(queue.close()),
            false => self.subscribers.push(Subscriber { pattern, queue: queue.clone() }),
        }
    }

    fn dismiss(&mut self, queue: &Arc<Queue>) -> Option<Subscriber> {
        let at = self.subscribers.iter().position(|subscriber| Arc::ptr_eq(&subscriber.queue, queue))?;
        Some(self.subscribers.swap_remove(at))
    }

    fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.subscribers.drain(..).filter_map(|subscriber| subscriber.queue.close()).collect()
    }
}

impl fmt::Debug for EmbeddedBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBus").field("recall", &self.core.recall).finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
