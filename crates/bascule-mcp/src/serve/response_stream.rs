//! An ordered stream of frames to one client. Sending never waits.
//!
//! A stream can forward its frames to another stream, its *target*. A *branch* is a stream for one request that forwards to
//! the stream of the whole connection. Over stdio all messages to a client share one stream in this way.
//!
//! Two invariants hold. A target does not forward itself, so there is one level of forwarding. The lock of a branch is taken
//! before that of its target, never after it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::response_body::missing_response_error;

/// The sending side of a stream of frames to a client. If the client reads too slowly, the stream closes and discards its
/// frames.
///
/// Clones share the stream. Dropping the last one closes it.
pub struct ResponseStream(Arc<Inner>);

/// One message on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseFrame {
    /// The message, one line of JSON.
    pub(super) bytes: Vec<u8>,
    /// True for the response to the request of the stream. Other frames are notifications and requests to the client.
    /// The response is the last frame, except on a target, which takes the responses of many requests.
    pub(super) is_response: bool,
}

/// The receiving side. Dropping it closes the stream: the client has disconnected.
pub(super) struct FrameReceiver(Arc<Inner>);

/// A weak handle that closes a stream.
pub(super) struct StreamCloser(Weak<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Notified when the stream ends, its queue shrinks to the limit, a forward begins, or a branch ends.
    changed: Notify,
    sender_count: AtomicUsize,
    /// The most queued bytes of frames that are not responses.
    limit: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<ResponseFrame>,
    /// The queued bytes of frames that are not responses. Only these are limited: there is one response for each request.
    non_response_bytes: usize,
    response_bytes: usize,
    end: Option<StreamEnd>,
    /// Wakes the task that waits for the next frame.
    receiver_waker: Option<Waker>,
    forward: Option<Forward>,
    /// The number of open branches that forward to this stream.
    branches: usize,
}

/// The stream that takes all frames of this one.
struct Forward {
    to: ResponseStream,
    /// The id of the branch's request; `None` if the stream is no branch.
    request_id: Option<Box<str>>,
}

/// The reason for which a stream takes no more frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// The response was sent.
    Finished,
    /// The `Host` or the serving side closed the stream, its receiver was dropped, or the target of its forward has ended.
    Closed,
    /// All senders were dropped before the response was sent.
    Dropped,
    /// A frame did not fit into this stream or the target of its forward. The queued frames were discarded.
    Overflowed,
}

impl ResponseStream {
    /// Creates a stream that holds up to `limit_bytes` of unread frames. One frame always fits, and so does the response. Any
    /// other frame beyond the limit closes the stream and discards its frames.
    pub fn new(limit_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            changed: Notify::new(),
            sender_count: AtomicUsize::new(1),
            limit: limit_bytes,
        }))
    }

    /// Adds a frame. Returns false if the stream is closed, or was closed because the frame did not fit.
    pub fn push(&self, frame: Vec<u8>) -> bool {
        self.0.send(ResponseFrame { bytes: frame, is_response: false })
    }

    /// Adds the response and closes the stream. Queued frames can still be received.
    pub fn finish(&self, response: Vec<u8>) {
        self.0.send(ResponseFrame { bytes: response, is_response: true });
    }

    /// Closes the stream. Queued frames can still be received.
    pub fn close(&self) {
        self.0.end(StreamEnd::Closed);
    }

    /// Returns true if nothing can be pushed any more, for any reason.
    pub fn is_closed(&self) -> bool {
        let state = self.0.lock();
        state.end.is_some() || state.forward.as_ref().is_some_and(|forward| forward.to.is_closed())
    }

    /// Waits until the stream is closed or its receiver is dropped.
    pub async fn closed(&self) {
        loop {
            let changed = self.0.changed.notified();
            let target = {
                let state = self.0.lock();
                if state.end.is_some() {
                    return;
                }
                state.forward.as_ref().map(|forward| forward.to.clone())
            };
            match target {
                None => changed.await,
                // The target of a forward is never forwarded itself.
                Some(target) => {
                    let target_changed = target.0.changed.notified();
                    if target.is_closed() {
                        return;
                    }
                    tokio::select! { () = changed => {} () = target_changed => {} }
                }
            }
        }
    }

    /// Receives the next frame, or `None` after the last one.
    #[cfg(test)]
    async fn next(&self) -> Option<ResponseFrame> {
        poll_fn(|cx| self.0.poll_next(cx)).await
    }

    /// Returns the receiving side. To be called once: dropping any receiver closes the stream.
    pub(super) fn receiver(&self) -> FrameReceiver {
        FrameReceiver(self.0.clone())
    }

    pub(super) fn closer(&self) -> StreamCloser {
        StreamCloser(Arc::downgrade(&self.0))
    }

    /// Creates a branch: a stream for one request that forwards its frames to this one. If it is dropped before it is
    /// finished or closed, the request gets an error response.
    pub(super) fn branch(&self, request_id: &str) -> ResponseStream {
        let branch = ResponseStream::new(self.0.limit);
        self.0.lock().branches += 1;
        branch.0.lock().forward = Some(Forward { to: self.clone(), request_id: Some(request_id.into()) });
        branch
    }

    /// Moves the queued frames to another stream, and forwards all later ones to it.
    pub(super) fn forward_to(&self, target: &ResponseStream) {
        let mut state = self.0.lock();
        while let Some(frame) = state.pop() {
            // A target that has ended takes no frame: nobody would read it.
            let _ = target.0.send_forwarded(frame);
        }
        if state.end.is_none() {
            state.forward = Some(Forward { to: target.clone(), request_id: None });
        }
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Waits until the queue, responses included, is within the limit, or the stream has ended. A server that waits for
    /// this before it reads the next request limits the responses that a client leaves unread.
    pub(super) async fn wait_for_room(&self) {
        self.0.wait_until(|state| state.queued_bytes() <= self.0.limit).await;
    }

    /// Waits until every branch has ended, or the stream has.
    pub(super) async fn wait_for_branches(&self) {
        self.0.wait_until(|state| state.branches == 0).await;
    }

    /// Returns true if the stream was closed because a frame did not fit.
    pub(super) fn has_overflowed(&self) -> bool {
        self.0.has_overflowed()
    }
}

impl Clone for ResponseStream {
    fn clone(&self) -> Self {
        self.0.sender_count.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if self.0.sender_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.end(StreamEnd::Dropped);
        }
    }
}

impl FrameReceiver {
    pub(super) async fn next(&self) -> Option<ResponseFrame> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<ResponseFrame>> {
        self.0.poll_next(cx)
    }

    pub(super) fn try_next(&self) -> Option<ResponseFrame> {
        self.0.pop(&mut self.0.lock())
    }

    pub(super) fn has_overflowed(&self) -> bool {
        self.0.has_overflowed()
    }
}

impl Drop for FrameReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.clear();
        self.0.end_locked(state, StreamEnd::Closed);
    }
}

impl StreamCloser {
    pub(super) fn close(&self) {
        if let Some(stream) = self.0.upgrade() {
            stream.end(StreamEnd::Closed);
        }
    }
}

impl Inner {
    /// Adds a frame. Returns false if the stream has ended, or ends because the frame does not fit.
    fn send(&self, frame: ResponseFrame) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        let is_response = frame.is_response;
        // The lock is held while the frame is forwarded, so that the order is the same on both streams.
        let sent = match &state.forward {
            Some(forward) => forward.to.0.send_forwarded(frame),
            None => state.enqueue(frame, self.limit),
        };
        let end = match sent {
            Ok(()) => is_response.then_some(StreamEnd::Finished),
            Err(end) => Some(end),
        };
        self.unlock_and_wake(state, end);
        sent.is_ok()
    }

    /// Adds a frame of a stream that forwards to this one. The response of that stream does not end this one. Returns the
    /// end of that stream if this one cannot take the frame.
    fn send_forwarded(&self, frame: ResponseFrame) -> Result<(), StreamEnd> {
        let mut state = self.lock();
        match state.end {
            Some(StreamEnd::Overflowed) => return Err(StreamEnd::Overflowed),
            Some(_) => return Err(StreamEnd::Closed),
            None => {}
        }
        let queued = state.enqueue(frame, self.limit);
        self.unlock_and_wake(state, queued.err());
        queued
    }

    fn end(&self, end: StreamEnd) {
        self.end_locked(self.lock(), end);
    }

    /// Ends the stream, unless it has ended before: the first reason stays.
    fn end_locked(&self, state: MutexGuard<'_, State>, end: StreamEnd) {
        let is_open = state.end.is_none();
        self.unlock_and_wake(state, is_open.then_some(end));
    }

    /// Records the end of the stream, if any, unlocks the state, and wakes the tasks that wait for the end or for a frame. The
    /// end of a branch is then reported to its target.
    fn unlock_and_wake(&self, mut state: MutexGuard<'_, State>, end: Option<StreamEnd>) {
        let receiver_waker = state.receiver_waker.take();
        let mut forward = None;
        if end.is_some() {
            state.end = end;
            forward = state.forward.take();
        }
        drop(state);
        if let Some(waker) = receiver_waker {
            waker.wake();
        }
        if end.is_some() {
            self.changed.notify_waiters();
        }
        if let Some(Forward { to, request_id: Some(id) }) = forward {
            if end == Some(StreamEnd::Dropped) {
                let response = ResponseFrame { bytes: missing_response_error(&id), is_response: true };
                // Refused only if the target has ended.
                let _ = to.0.send_forwarded(response);
            }
            to.0.lock().branches -= 1;
            to.0.changed.notify_waiters();
        }
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<ResponseFrame>> {
        let mut state = self.lock();
        if let Some(frame) = self.pop(&mut state) {
            return Poll::Ready(Some(frame));
        }
        if state.end.is_some() {
            return Poll::Ready(None);
        }
        if !state.receiver_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.receiver_waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn pop(&self, state: &mut State) -> Option<ResponseFrame> {
        let before = state.queued_bytes();
        let frame = state.pop()?;
        if before > self.limit && state.queued_bytes() <= self.limit {
            self.changed.notify_waiters();
        }
        Some(frame)
    }

    /// Waits until the condition holds or the stream has ended.
    async fn wait_until(&self, is_met: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            let is_done = {
                let state = self.lock();
                state.end.is_some() || is_met(&state)
            };
            if is_done {
                return;
            }
            changed.await;
        }
    }

    fn has_overflowed(&self) -> bool {
        self.lock().end == Some(StreamEnd::Overflowed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing here panics halfway, so the state is consistent even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Queues a frame. If it does not fit, discards the queue and returns the end of the stream.
    fn enqueue(&mut self, frame: ResponseFrame, limit: usize) -> Result<(), StreamEnd> {
        let length = frame.bytes.len();
        if !frame.is_response && self.non_response_bytes > 0 && self.non_response_bytes + length > limit {
            self.clear();
            return Err(StreamEnd::Overflowed);
        }
        *self.counter(frame.is_response) += length;
        self.queue.push_back(frame);
        Ok(())
    }

    fn pop(&mut self) -> Option<ResponseFrame> {
        let frame = self.queue.pop_front()?;
        *self.counter(frame.is_response) -= frame.bytes.len();
        Some(frame)
    }

    fn clear(&mut self) {
        self.queue.clear();
        (self.non_response_bytes, self.response_bytes) = (0, 0);
    }

    fn counter(&mut self, is_response: bool) -> &mut usize {
        if is_response { &mut self.response_bytes } else { &mut self.non_response_bytes }
    }

    fn queued_bytes(&self) -> usize {
        self.non_response_bytes + self.response_bytes
    }
}

#[cfg(test)]
mod tests;
