//! Carries frames to one client, in order, without ever making the sender wait.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// Frames to a client, in order. Pushing never waits; a client too slow to take them is cut off.
///
/// Clones are the same lane. When the last of them is dropped, the lane is closed.
pub struct Lane(Arc<Inner>);

/// One message on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The message, a line of JSON.
    pub bytes: Vec<u8>,
    /// Whether it is the answer, after which nothing comes.
    pub last: bool,
}

/// The face's end of a lane. Dropping it closes the lane, which is how a host learns that the client has gone.
pub(super) struct Reader(Arc<Inner>);

/// Can close a lane, and does not keep it open.
pub(super) struct Closer(Weak<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Told when the lane ends, or begins to lead onto another one.
    changed: Notify,
    handles: AtomicUsize,
    limit: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Frame>,
    bytes: usize,
    end: Option<End>,
    reader: Option<Waker>,
    /// The lane that this one leads onto, and whether that one counts it among its open branches.
    onto: Option<(Lane, bool)>,
    branches: usize,
}

/// How a lane ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Finished,
    Closed,
    Overflown,
}

impl Lane {
    /// A lane that holds so many bytes which nobody has read yet. One frame fits always, and so does the answer;
    /// any other frame beyond the limit closes the lane, and what is on it is lost.
    pub fn new(limit_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            changed: Notify::new(),
            handles: AtomicUsize::new(1),
            limit: limit_bytes,
        }))
    }

    /// Adds a frame. False if the lane is closed, or is now, because the frame did not fit.
    pub fn push(&self, frame: Vec<u8>) -> bool {
        self.0.put(Frame { bytes: frame, last: false })
    }

    /// Adds the answer. The lane is closed from then on, but what is on it will still be read.
    pub fn finish(&self, last: Vec<u8>) {
        self.0.put(Frame { bytes: last, last: true });
    }

    /// Takes no more frames. Those that are on it will still be read.
    pub fn close(&self) {
        self.0.end(End::Closed, false);
    }

    /// Whether nothing can be pushed any more, for whatever reason.
    pub fn is_closed(&self) -> bool {
        let state = self.0.lock();
        state.end.is_some() || state.onto.as_ref().is_some_and(|(other, _)| other.is_closed())
    }

    /// Returns when the lane is closed, or its reader has gone.
    pub async fn closed(&self) {
        loop {
            let changed = self.0.changed.notified();
            let onto = {
                let state = self.0.lock();
                if state.end.is_some() {
                    return;
                }
                state.onto.as_ref().map(|(other, _)| other.clone())
            };
            match onto {
                None => changed.await,
                // A lane that others lead onto leads nowhere itself.
                Some(other) => {
                    let other_changed = other.0.changed.notified();
                    if other.is_closed() {
                        return;
                    }
                    tokio::select! { () = changed => {} () = other_changed => {} }
                }
            }
        }
    }

    /// The next frame, or none after the last. For one reader at a time.
    pub async fn next(&self) -> Option<Frame> {
        poll_fn(|cx| self.0.poll_next(cx)).await
    }

    /// The reader of a lane whose other end is given to a host.
    pub(super) fn reader(&self) -> Reader {
        Reader(self.0.clone())
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.0))
    }

    /// A lane of its own for one request, whose frames go onto this one in the order of their pushing.
    pub(super) fn branch(&self) -> Lane {
        let branch = Lane::new(self.0.limit);
        self.0.lock().branches += 1;
        branch.lead_onto(self, true);
        branch
    }

    /// From now on whatever is pushed here is pushed there, after what had been pushed here before.
    pub(super) fn lead_onto(&self, other: &Lane, counted: bool) {
        let mut state = self.0.lock();
        for frame in std::mem::take(&mut state.queue) {
            other.push(frame.bytes);
        }
        if state.end.is_none() {
            state.onto = Some((other.clone(), counted));
        }
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Returns when every branch has ended.
    pub(super) async fn settled(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.0.lock().branches == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Clone for Lane {
    fn clone(&self) -> Self {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.end(End::Closed, false);
        }
    }
}

impl Reader {
    pub(super) async fn next(&self) -> Option<Frame> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll_next(cx)
    }

    pub(super) fn next_if_there(&self) -> Option<Frame> {
        self.0.lock().pop()
    }

    pub(super) fn has_overflown(&self) -> bool {
        self.0.lock().end == Some(End::Overflown)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.end(End::Closed, true);
    }
}

impl Closer {
    pub(super) fn close(&self) {
        if let Some(lane) = self.0.upgrade() {
            lane.end(End::Closed, false);
        }
    }
}

impl Inner {
    fn put(&self, frame: Frame) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        let last = frame.last;
        // The lock is held meanwhile, so that two who push here are in the same order there.
        let taken = match &state.onto {
            Some((other, _)) => other.push(frame.bytes),
            None => state.take(frame, self.limit),
        };
        let end = if !taken { Some(End::Overflown) } else { last.then_some(End::Finished) };
        self.settle(state, end);
        taken
    }

    fn end(&self, end: End, forget: bool) {
        let mut state = self.lock();
        if forget {
            state.queue.clear();
            state.bytes = 0;
        }
        let end = if state.end.is_none() { Some(end) } else { None };
        self.settle(state, end);
    }

    /// Notes how the lane ended, if it did, and wakes whoever waits for that or for a frame.
    fn settle(&self, mut state: MutexGuard<'_, State>, end: Option<End>) {
        let reader = state.reader.take();
        let mut onto = None;
        if end.is_some() {
            state.end = end;
            onto = state.onto.take();
        }
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        if end.is_some() {
            self.changed.notify_waiters();
        }
        if let Some((other, true)) = onto {
            other.0.lock().branches -= 1;
            other.0.changed.notify_waiters();
        }
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let mut state = self.lock();
        if let Some(frame) = state.pop() {
            return Poll::Ready(Some(frame));
        }
        if state.end.is_some() {
            return Poll::Ready(None);
        }
        if !state.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.reader = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway; whatever happened elsewhere, the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, frame: Frame, limit: usize) -> bool {
        let after = self.bytes + frame.bytes.len();
        if !self.queue.is_empty() && !frame.last && after > limit {
            self.queue.clear();
            self.bytes = 0;
            return false;
        }
        self.bytes = after;
        self.queue.push_back(frame);
        true
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.queue.pop_front()?;
        self.bytes -= frame.bytes.len();
        Some(frame)
    }
}
