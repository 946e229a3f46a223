//! The queue of one subscriber: bounded in messages and bytes, it loses the oldest and counts them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::{Delivery, Message};

/// One writer at a time, under the bus's lock, and one reader.
pub(super) struct Queue {
    capacity: usize,
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    /// What the messages weigh together.
    weight: usize,
    /// How many are lost that stood before the first.
    lost: u64,
    closed: bool,
    reader: Option<Waker>,
}

impl Queue {
    pub(super) fn new(capacity: usize, bytes: usize) -> Self {
        Self { capacity, bytes, state: Mutex::default() }
    }

    /// Appends a message, makes room for it, and says who is to be woken.
    pub(super) fn push(&self, message: Message) -> Option<Waker> {
        let mut state = self.lock();
        state.weight += message.weight;
        state.messages.push_back(message);
        while state.messages.len() > 1 && self.is_exceeded(&state) {
            state.take();
            state.lost += 1;
        }
        state.reader.take()
    }

    /// The last message was pushed. Says who is to be woken.
    pub(super) fn close(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.closed = true;
        state.reader.take()
    }

    /// Takes the next delivery, or remembers whom to wake when there is one.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.lock();
        if state.lost > 0 {
            return Poll::Ready(Some(Delivery::Lost(std::mem::take(&mut state.lost))));
        }
        match state.take() {
            Some(message) => Poll::Ready(Some(Delivery::Message(message))),
            None if state.closed => Poll::Ready(None),
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_exceeded(&self, state: &State) -> bool {
        state.messages.len() > self.capacity || state.weight > self.bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

impl State {
    fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.weight -= message.weight;
        Some(message)
    }
}
