//! The queue of one subscriber: bounded in messages and bytes, drops the oldest messages and counts them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::{BusMessage, SubscriptionItem};

/// Has one writer at a time, which holds the lock of the bus, and one reader.
pub(super) struct SubscriberQueue {
    capacity: usize,
    max_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<BusMessage>,
    bytes: usize,
    /// The number of dropped messages before the first one.
    lost: u64,
    closed: bool,
    reader: Option<Waker>,
}

impl SubscriberQueue {
    pub(super) fn new(capacity: usize, max_bytes: usize) -> Self {
        Self { capacity, max_bytes, state: Mutex::default() }
    }

    /// Appends a message, drops the oldest ones over the limit, and returns the reader to wake.
    pub(super) fn push(&self, message: BusMessage) -> Option<Waker> {
        let mut state = self.lock();
        state.bytes += message.size;
        state.messages.push_back(message);
        while state.messages.len() > 1 && self.is_exceeded(&state) {
            state.take();
            state.lost += 1;
        }
        state.reader.take()
    }

    /// Ends the queue after the messages in it. Returns the reader to wake.
    pub(super) fn close(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.closed = true;
        state.reader.take()
    }

    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<SubscriptionItem>> {
        let mut state = self.lock();
        if state.lost > 0 {
            return Poll::Ready(Some(SubscriptionItem::Lost(std::mem::take(&mut state.lost))));
        }
        match state.take() {
            Some(message) => Poll::Ready(Some(SubscriptionItem::Message(message))),
            None if state.closed => Poll::Ready(None),
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_exceeded(&self, state: &State) -> bool {
        state.messages.len() > self.capacity || state.bytes > self.max_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl State {
    fn take(&mut self) -> Option<BusMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.size;
        Some(message)
    }
}
