//! Carries frames to one client, in order, without ever making the sender wait.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::body::unanswered;

/// Frames to a client, in order. Pushing never waits; a client too slow to take them is cut off.
///
/// Clones are the same lane. When the last of them is dropped, the lane is closed.
pub struct ResponseStream(Arc<Inner>);

/// One message on a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The message, a line of JSON.
    pub bytes: Vec<u8>,
    /// Whether it is the answer, after which nothing comes; on a lane that others lead onto, the answer of one of them.
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
    /// How much is on it that is no answer. Of answers there are no more than were asked for.
    unasked: usize,
    answers: usize,
    end: Option<End>,
    reader: Option<Waker>,
    /// The lane that this one leads onto, and the request that it is for, if it is for one.
    onto: Option<(ResponseStream, Option<Box<str>>)>,
    branches: usize,
}

/// How a lane ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Finished,
    Closed,
    /// Nobody is left who could push.
    Dropped,
    Overflown,
}

impl ResponseStream {
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

    /// A lane of its own for one request, whose frames go onto this one in the order of their pushing. If it is
    /// dropped and neither finished nor closed, the request is answered by an error.
    pub(super) fn branch(&self, id: &str) -> ResponseStream {
        let branch = ResponseStream::new(self.0.limit);
        self.0.lock().branches += 1;
        branch.0.lock().onto = Some((self.clone(), Some(id.into())));
        branch
    }

    /// From now on whatever is pushed here is pushed there, after what had been pushed here before.
    pub(super) fn lead_onto(&self, other: &ResponseStream) {
        let mut state = self.0.lock();
        while let Some(frame) = state.pop() {
            other.0.carry(frame);
        }
        if state.end.is_none() {
            state.onto = Some((other.clone(), None));
        }
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Returns when no more is on it than its limit, answers included, or nobody will read them. Who waits for this
    /// before it lets a client ask for more keeps a client that does not read from piling up answers.
    pub(super) async fn has_room(&self) {
        loop {
            let changed = self.0.changed.notified();
            let has_room = {
                let state = self.0.lock();
                state.bytes() <= self.0.limit || state.end.is_some()
            };
            if has_room {
                return;
            }
            changed.await;
        }
    }

    /// Whether it was closed because a frame did not fit.
    pub(super) fn has_overflown(&self) -> bool {
        self.0.lock().end == Some(End::Overflown)
    }

    /// Returns when every branch has ended, or could not be heard any more.
    pub(super) async fn settled(&self) {
        loop {
            let changed = self.0.changed.notified();
            let is_settled = {
                let state = self.0.lock();
                state.branches == 0 || state.end.is_some()
            };
            if is_settled {
                return;
            }
            changed.await;
        }
    }
}

impl Clone for ResponseStream {
    fn clone(&self) -> Self {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.end(End::Dropped, false);
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
        self.0.pop(&mut self.0.lock())
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
            Some((other, _)) => other.0.carry(frame),
            None => state.take(frame, self.limit),
        };
        let end = if !taken { Some(End::Overflown) } else { last.then_some(End::Finished) };
        self.settle(state, end);
        taken
    }

    /// Takes a frame of a lane that leads onto this one. The answer there is not the end here.
    fn carry(&self, frame: Frame) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        let taken = state.take(frame, self.limit);
        self.settle(state, (!taken).then_some(End::Overflown));
        taken
    }

    fn end(&self, end: End, forget: bool) {
        let mut state = self.lock();
        if forget {
            state.clear();
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
        if let Some((other, Some(id))) = onto {
            if end == Some(End::Dropped) {
                other.0.carry(Frame { bytes: unanswered(&id), last: true });
            }
            other.0.lock().branches -= 1;
            other.0.changed.notify_waiters();
        }
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let mut state = self.lock();
        if let Some(frame) = self.pop(&mut state) {
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

    fn pop(&self, state: &mut State) -> Option<Frame> {
        let before = state.bytes();
        let frame = state.pop()?;
        if before > self.limit && state.bytes() <= self.limit {
            self.changed.notify_waiters();
        }
        Some(frame)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway; whatever happened elsewhere, the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, frame: Frame, limit: usize) -> bool {
        let length = frame.bytes.len();
        if !frame.last && self.unasked > 0 && self.unasked + length > limit {
            self.clear();
            return false;
        }
        *self.counter(frame.last) += length;
        self.queue.push_back(frame);
        true
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.queue.pop_front()?;
        *self.counter(frame.last) -= frame.bytes.len();
        Some(frame)
    }

    fn clear(&mut self) {
        self.queue.clear();
        (self.unasked, self.answers) = (0, 0);
    }

    fn counter(&mut self, is_answer: bool) -> &mut usize {
        if is_answer { &mut self.answers } else { &mut self.unasked }
    }

    fn bytes(&self) -> usize {
        self.unasked + self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const NOW: Duration = Duration::from_millis(20);
    const SOON: Duration = Duration::from_secs(10);

    async fn rest(lane: &ResponseStream) -> Vec<String> {
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = timeout(NOW, lane.next()).await {
            let mark = if frame.last { "." } else { "" };
            frames.push(format!("{}{mark}", String::from_utf8(frame.bytes).unwrap()));
        }
        frames
    }

    fn say(lane: &ResponseStream, text: &str) -> bool {
        lane.push(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn frames_come_in_order_and_nothing_after_the_answer() {
        let lane = ResponseStream::new(100);
        assert!(say(&lane, "a") && say(&lane, "b") && !lane.is_closed());
        lane.finish(b"c".to_vec());
        assert!(!say(&lane, "d") && lane.is_closed());
        lane.finish(b"e".to_vec());
        assert_eq!(rest(&lane).await, ["a", "b", "c."]);
        assert_eq!(lane.next().await, None);
    }

    #[tokio::test]
    async fn what_does_not_fit_closes_the_lane_for_good() {
        let lane = ResponseStream::new(3);
        assert!(say(&lane, "long enough"), "one frame always fits");
        assert_eq!(rest(&lane).await, ["long enough"]);
        assert!(say(&lane, "ab") && say(&lane, "c") && !say(&lane, "d"));
        assert!(lane.reader().has_overflown());
        assert!(!say(&lane, "") && rest(&lane).await.is_empty());
        let lane = ResponseStream::new(3);
        assert!(say(&lane, "abc"));
        lane.finish(b"the answer always fits".to_vec());
        assert_eq!(rest(&lane).await, ["abc", "the answer always fits."]);
    }

    #[tokio::test]
    async fn whoever_waits_learns_that_the_reader_has_gone() {
        let lane = ResponseStream::new(100);
        let reader = lane.reader();
        say(&lane, "unread");
        let waiting = tokio::spawn({
            let lane = lane.clone();
            async move { lane.closed().await }
        });
        assert!(timeout(NOW, lane.closed()).await.is_err());
        drop(reader);
        timeout(SOON, waiting).await.unwrap().unwrap();
        assert!(lane.is_closed() && !say(&lane, "more"));
    }

    #[tokio::test]
    async fn a_reader_learns_that_nobody_will_push() {
        let lane = ResponseStream::new(100);
        let reader = lane.reader();
        let other = lane.clone();
        say(&other, "a");
        drop(lane);
        assert!(timeout(NOW, reader.next()).await.unwrap().is_some());
        assert!(timeout(NOW, reader.next()).await.is_err());
        drop(other);
        assert_eq!(timeout(SOON, reader.next()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn branches_lead_onto_one_lane_in_the_order_of_pushing() {
        let lane = ResponseStream::new(1000);
        let (one, two, late) = (lane.branch("1"), lane.branch("2"), ResponseStream::new(1000));
        say(&late, "early");
        say(&one, "a");
        late.lead_onto(&lane);
        say(&two, "b");
        say(&late, "c");
        one.finish(b"d".to_vec());
        assert!(!say(&one, "e") && one.is_closed() && !two.is_closed());
        assert!(timeout(NOW, lane.settled()).await.is_err());
        two.close();
        timeout(SOON, lane.settled()).await.unwrap();
        drop(lane.branch("3"));
        let unanswered = r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32000,"message":"the request ended without an answer"}}."#;
        assert_eq!(rest(&lane).await, ["a", "early", "b", "c", "d.", unanswered]);
    }

    // req: GW-03
    #[tokio::test]
    async fn answers_of_all_branches_fit_and_other_frames_only_within_the_limit() {
        let lane = ResponseStream::new(3);
        let branches: Vec<ResponseStream> = (0..4).map(|id| lane.branch(&id.to_string())).collect();
        assert!(say(&branches[3], "ab"));
        branches[..3].iter().for_each(|branch| branch.finish(b"long".to_vec()));
        assert!(say(&branches[3], "c") && !lane.is_closed());
        assert!(timeout(NOW, lane.has_room()).await.is_err());
        assert_eq!(rest(&lane).await, ["ab", "long.", "long.", "long.", "c"]);
        timeout(SOON, lane.has_room()).await.unwrap();
        assert!(say(&branches[3], "abc") && !say(&branches[3], "d") && lane.has_overflown());
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_when_it_is_there_and_when_nobody_will_read() {
        for by_reading in [true, false] {
            let lane = ResponseStream::new(3);
            lane.branch("1").finish(b"long".to_vec());
            let reader = lane.reader();
            let waiting = tokio::spawn({
                let lane = lane.clone();
                async move { lane.has_room().await }
            });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            match by_reading {
                true => drop(reader.next_if_there().unwrap()),
                false => drop(reader),
            }
            timeout(SOON, waiting).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn the_end_of_the_lane_is_the_end_of_its_branches() {
        let lane = ResponseStream::new(1000);
        let (branch, late) = (lane.branch("1"), ResponseStream::new(1000));
        let waiting = tokio::spawn({
            let (branch, late) = (branch.clone(), late.clone());
            async move { tokio::join!(branch.closed(), late.closed()) }
        });
        tokio::task::yield_now().await;
        late.lead_onto(&lane);
        tokio::task::yield_now().await;
        lane.close();
        timeout(SOON, waiting).await.unwrap().unwrap();
        assert!(branch.is_closed() && late.is_closed() && !say(&branch, "x"));
    }
}
