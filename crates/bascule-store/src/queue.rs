//! The bounded queue between calls and the writer thread.
//!
//! Offering takes a lock that is never held for long, and wakes the writer only if the queue was empty: the writer then waits
//! for a batch.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bascule_graph::CallSession;

use crate::log_line::LogLine;
use crate::observed_call::ObservedCall;
use crate::span::Span;

/// The most entries that wait, and their memory.
const MAX_ENTRIES: usize = 16_384;
const MAX_BYTES: usize = 32 << 20;
/// The memory of the values for the graph. A call beyond it is observed without its values.
const MAX_VALUE_BYTES: usize = 8 << 20;
/// The most ended sessions that wait. The graph forgets those beyond them by their age.
const MAX_ENDED: usize = 4_096;
/// The writer begins at once with this many entries.
const FULL_BATCH: usize = 4_096;
/// The wait for a batch after its first entry.
const BATCH_DELAY: Duration = Duration::from_millis(100);

#[expect(
    clippy::large_enum_variant,
    reason = "nearly all entries are spans, and a box would be one more allocation for each call"
)]
pub(crate) enum QueueEntry {
    /// A span, and the call behind it as the graph observes it.
    Span(Span, Option<ObservedCall>),
    Log(LogLine),
}

impl QueueEntry {
    fn bytes(&self) -> usize {
        match self {
            Self::Span(span, _) => span.bytes() + self.value_bytes(),
            Self::Log(line) => size_of::<LogLine>() + line.text.len(),
        }
    }

    fn value_bytes(&self) -> usize {
        match self {
            Self::Span(_, Some(call)) => call.bytes(),
            _ => 0,
        }
    }

    /// Replaces the content of a span, and its message, by what is stored of them.
    fn capture(&mut self) {
        if let Self::Span(Span { content: Some(content), message, .. }, _) = self {
            message.iter_mut().for_each(|message| *message = content.redact_message(message));
            *content = Arc::new(content.capture());
        }
    }

    /// Removes the values for the graph.
    fn strip(&mut self) {
        if let Self::Span(_, Some(call)) = self {
            call.strip();
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the writer.
    offered: Condvar,
    /// Wakes those that wait for the writer.
    written: Condvar,
}

#[derive(Default)]
struct State {
    entries: Vec<QueueEntry>,
    bytes: usize,
    value_bytes: usize,
    ended_sessions: Vec<CallSession>,
    /// Requests to write everything since the last batch was taken. They count as accepted.
    flushes: u64,
    /// Entries that were accepted, and those of them that the writer is done with.
    accepted: u64,
    done: u64,
    /// Entries that were refused since the last batch was taken.
    dropped: u64,
    /// Calls that lost their values since the last batch was taken.
    stripped: u64,
    /// Somebody waits for the writer: it need not wait for a batch.
    is_urgent: bool,
    is_closed: bool,
    has_ended: bool,
}

/// The entries that the writer has to write.
pub(crate) struct Batch {
    pub(crate) entries: Vec<QueueEntry>,
    /// Entries that were dropped since the batch before.
    pub(crate) dropped: u64,
    /// Calls that lost their values since the batch before.
    pub(crate) stripped: u64,
    pub(crate) ended_sessions: Vec<CallSession>,
    /// The number of callers that wait until everything is written.
    pub(crate) flushes: u64,
}

impl Batch {
    /// Redacts the contents of all spans. That may take long, so no transaction may be open.
    pub(crate) fn capture(&mut self) {
        self.entries.iter_mut().for_each(QueueEntry::capture);
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.ended_sessions.is_empty() && self.flushes == 0
    }

    fn take_batch(&mut self) -> Batch {
        (self.bytes, self.value_bytes) = (0, 0);
        let capacity = self.entries.len().min(FULL_BATCH);
        Batch {
            entries: std::mem::replace(&mut self.entries, Vec::with_capacity(capacity)),
            dropped: std::mem::take(&mut self.dropped),
            stripped: std::mem::take(&mut self.stripped),
            ended_sessions: std::mem::take(&mut self.ended_sessions),
            flushes: std::mem::take(&mut self.flushes),
        }
    }
}

impl Queue {
    /// Adds an entry. Returns false if there is no room.
    pub(crate) fn offer(&self, mut entry: QueueEntry) -> bool {
        let mut state = self.state();
        if state.value_bytes + entry.value_bytes() > MAX_VALUE_BYTES {
            entry.strip();
            state.stripped += 1;
        }
        let (bytes, value_bytes) = (entry.bytes(), entry.value_bytes());
        if state.is_closed || state.entries.len() >= MAX_ENTRIES || state.bytes + bytes > MAX_BYTES {
            state.dropped += 1;
            return false;
        }
        state.entries.push(entry);
        state.bytes += bytes;
        state.value_bytes += value_bytes;
        state.accepted += 1;
        let wakes = matches!(state.entries.len(), 1 | FULL_BATCH);
        drop(state);
        if wakes {
            self.offered.notify_one();
        }
        true
    }

    /// Reports that no further call of a session will come.
    pub(crate) fn end_session(&self, session: CallSession) {
        let mut state = self.state();
        if state.ended_sessions.len() < MAX_ENDED {
            state.ended_sessions.push(session);
            drop(state);
            self.offered.notify_one();
        }
    }

    /// Waits for the next batch. At `wake_at` it may be empty. Returns `None` once the queue is closed and empty.
    pub(crate) fn take(&self, wake_at: Option<Instant>) -> Option<Batch> {
        let mut state = self.wait_for_work(wake_at);
        if state.is_idle() {
            return (!state.is_closed).then(|| state.take_batch());
        }
        let collecting =
            |state: &mut State| state.entries.len() < FULL_BATCH && !state.is_urgent && !state.is_closed;
        let collected = self.offered.wait_timeout_while(state, BATCH_DELAY, collecting);
        (state, _) = collected.unwrap_or_else(PoisonError::into_inner);
        Some(state.take_batch())
    }

    fn wait_for_work(&self, wake_at: Option<Instant>) -> MutexGuard<'_, State> {
        let is_waiting = |state: &mut State| state.is_idle() && !state.is_closed;
        let Some(wake_at) = wake_at else {
            return self.offered.wait_while(self.state(), is_waiting).unwrap_or_else(PoisonError::into_inner);
        };
        let left = wake_at.saturating_duration_since(Instant::now());
        let waited = self.offered.wait_timeout_while(self.state(), left, is_waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reports that the writer is done with a batch.
    pub(crate) fn finish(&self, batch: &Batch) {
        self.state().done += batch.entries.len() as u64 + batch.flushes;
        self.written.notify_all();
    }

    /// Reports that the writer has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        (state.is_closed, state.has_ended) = (true, true);
        drop(state);
        self.written.notify_all();
    }

    /// Waits until the writer is done with all entries that were accepted so far. Returns false if that takes longer.
    pub(crate) fn flush(&self, at_most: Duration) -> bool {
        let mut state = self.state();
        if !state.is_closed {
            state.flushes += 1;
            state.accepted += 1;
        }
        let until = state.accepted;
        state.is_urgent = true;
        self.offered.notify_one();
        let is_done = |state: &State| state.done >= until || state.has_ended;
        let mut state = self.wait(state, at_most, is_done);
        state.is_urgent = false;
        state.done >= until
    }

    /// Accepts no further entries, and waits until the writer has ended. Returns false if that takes longer.
    pub(crate) fn close(&self, at_most: Duration) -> bool {
        let mut state = self.state();
        state.is_closed = true;
        self.offered.notify_one();
        self.wait(state, at_most, |state| state.has_ended).has_ended
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        at_most: Duration,
        is_done: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let end = Instant::now() + at_most;
        while !is_done(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (state, _) = self.written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_line::LogSource;
    use crate::observed_call::MAX_VALUES;

    fn entry(bytes: usize) -> QueueEntry {
        let text = "x".repeat(bytes);
        QueueEntry::Log(LogLine { server: "s".into(), at: 0, source: LogSource::Stderr, level: None, text })
    }

    // req: TR-01
    #[test]
    fn refuses_and_counts_entries_without_room() {
        let queue = Queue::default();
        let accepted = (0..MAX_ENTRIES + 10).filter(|_| queue.offer(entry(1))).count();
        assert_eq!(accepted, MAX_ENTRIES);
        let batch = queue.take(None).unwrap();
        assert_eq!((batch.entries.len(), batch.dropped), (MAX_ENTRIES, 10));
        assert!(queue.offer(entry(1)));
        assert!(!queue.offer(entry(MAX_BYTES)));
    }

    // req: TR-02
    #[test]
    fn keeps_a_span_without_values_if_there_is_little_room() {
        let queue = Queue::default();
        let value = "x".repeat(MAX_VALUE_BYTES);
        for _ in 0..MAX_VALUE_BYTES / MAX_VALUES + 1 {
            let call = ObservedCall::new(CallSession::Client(1), None, Some(&value), None);
            assert!(queue.offer(QueueEntry::Span(Span::testing(), Some(call))));
        }
        let batch = queue.take(None).unwrap();
        let is_stripped = |entry: &&QueueEntry| matches!(entry, QueueEntry::Span(_, Some(call)) if call.arguments().is_empty());
        assert_eq!(batch.entries.iter().filter(is_stripped).count() as u64, batch.stripped);
        assert!((1..40).contains(&batch.stripped), "{}", batch.stripped);
        assert!(queue.offer(entry(1)), "there is room for other entries");
    }

    // req: TR-02
    #[test]
    fn flush_wakes_a_writer_without_entries() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            let flushed = scope.spawn(|| queue.flush(Duration::from_secs(30)));
            let batch = queue.take(None).unwrap();
            assert_eq!((batch.entries.len(), batch.flushes), (0, 1));
            queue.finish(&batch);
            assert!(flushed.join().unwrap());
        });
    }

    // req: TR-01
    #[test]
    fn closed_queue_gives_its_last_batch() {
        let queue = Queue::default();
        queue.offer(entry(1));
        assert!(!queue.close(Duration::ZERO));
        assert!(!queue.offer(entry(1)));
        assert_eq!(queue.take(None).unwrap().entries.len(), 1);
        assert!(queue.take(None).is_none());
        queue.end();
        assert!(queue.close(Duration::ZERO));
    }
}
