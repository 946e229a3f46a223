//! The queue of one subscriber: bounded in messages and bytes, drops the oldest messages and counts them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Has one writer at a time and one reader.
pub(crate) struct SubscriberQueue<M> {
    capacity: usize,
    max_bytes: usize,
    state: Mutex<State<M>>,
}

/// An item of a queue.
pub(crate) enum QueueItem<M> {
    Message(M),
    /// This many messages were dropped at this point.
    Lost(u64),
}

struct State<M> {
    /// The messages with their sizes in bytes.
    messages: VecDeque<(M, usize)>,
    bytes: usize,
    /// The number of dropped messages before the first one.
    lost: u64,
    closed: bool,
    reader: Option<Waker>,
}

impl<M> SubscriberQueue<M> {
    pub(crate) fn new(capacity: usize, max_bytes: usize) -> Self {
        let state = State { messages: VecDeque::new(), bytes: 0, lost: 0, closed: false, reader: None };
        Self { capacity, max_bytes, state: Mutex::new(state) }
    }

    /// Appends a message, drops the oldest ones over the limit, and returns the reader to wake.
    pub(crate) fn push(&self, message: M, size: usize) -> Option<Waker> {
        let mut state = self.lock();
        state.bytes += size;
        state.messages.push_back((message, size));
        while state.messages.len() > 1 && self.is_exceeded(&state) {
            state.take();
            state.lost += 1;
        }
        state.reader.take()
    }

    /// Counts a message that never arrived. Returns the reader to wake.
    #[cfg(feature = "rabbitmq")]
    pub(crate) fn note_loss(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.lost += 1;
        state.reader.take()
    }

    /// Ends the queue after the messages in it. Returns the reader to wake.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.closed = true;
        state.reader.take()
    }

    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<QueueItem<M>>> {
        let mut state = self.lock();
        if state.lost > 0 {
            return Poll::Ready(Some(QueueItem::Lost(std::mem::take(&mut state.lost))));
        }
        match state.take() {
            Some(message) => Poll::Ready(Some(QueueItem::Message(message))),
            None if state.closed => Poll::Ready(None),
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_exceeded(&self, state: &State<M>) -> bool {
        state.messages.len() > self.capacity || state.bytes > self.max_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl<M> State<M> {
    fn take(&mut self) -> Option<M> {
        let (message, size) = self.messages.pop_front()?;
        self.bytes -= size;
        Some(message)
    }
}
