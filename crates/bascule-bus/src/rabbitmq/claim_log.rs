//! The claims stream of one agent: appends entries, and reads all of them in their order.
//!
//! A *claim* is the entry by which a replica takes a request; the first one of a message id wins. Its *holder* is the number of
//! that entry. The *window* is the time for which claims are remembered (`CLAIM_WINDOW`): reading begins that long ago. The *seed*
//! is the number of a delivery from which the entry of its answer gets its own, so that the same answer has the same number.
//!
//! An entry takes effect when this replica reads it back. All replicas read the same order, so they agree who was first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::AMQPValue;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::batched_consumer::{BatchedConsumer, PREFETCH};
use super::claim_entry::{ClaimEntry, EntryContent, RequestMark};
use super::ledger::{ClaimState, EntryEffect, Ledger, Likeness, StoredAnswer};
use super::link::{BrokerConnection, BrokerHandle, OPERATION_TIMEOUT, random_u64};
use super::publisher::OutgoingMessage;
use super::topology::{self, DEFAULT_EXCHANGE};
use crate::request_identity::RequestIdentity;
use crate::requests::CLAIM_WINDOW;
use crate::{AgentName, BusError, Envelope, MessageId};

/// The entries of the whole window are read before the first request.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// A longer answer is written in parts. With the prefetch this bounds the memory for unread entries.
const MAX_ENTRY_BYTES: usize = 64 * 1024;
/// The claims that are remembered as never begun.
const MAX_GIVEN_UP: usize = 1_000;
/// The pause before a stream that ended is read again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The pause before an entry that was not read back is written again, for each of [`REWRITE_MESSAGES`]. It doubles.
const FIRST_REWRITE: Duration = Duration::from_secs(1);
/// The messages of a long answer that are written and read in that time: 2 MiB.
const REWRITE_MESSAGES: usize = 32;
/// The longest first pause: one repetition is always in time.
const LONGEST_FIRST_REWRITE: Duration = Duration::from_secs(OPERATION_TIMEOUT.as_secs() / 2);
/// A reader that gets no entry for so long, although one was written, looks at the whole window again: the stream may be
/// another one.
const REREAD_AFTER: Duration = Duration::from_secs(2);

/// The claims of one agent's requests. Dropping it ends the reading.
pub(super) struct ClaimLog {
    shared: Arc<SharedLog>,
    reader: AbortHandle,
}

struct SharedLog {
    link: BrokerHandle,
    agent: AgentName,
    next_nonce: AtomicU64,
    state: Mutex<LogState>,
    /// Lets the reader begin at the window again.
    reread: Notify,
}

struct LogState {
    ledger: Ledger,
    /// The tasks that wait for their own entry, by its number.
    waiters: HashMap<u64, oneshot::Sender<EntryEffect>>,
    /// Claims whose waiter gave up: if one was written after all, its request has not begun.
    given_up: VecDeque<u64>,
    /// The time of the last entry, or of the last decision to begin at the window again.
    last_read: Instant,
}

/// The result of a claim.
pub(super) enum ClaimResult {
    Won {
        holder: u64,
    },
    /// Another replica holds it.
    Held {
        holder: u64,
    },
    /// A replica holds another message with its id, which names another topic for the answer.
    InProgress,
    /// The id belongs to a request with another body.
    Reused,
    Answered(StoredAnswer),
}

impl ClaimResult {
    /// Tells what the state of a request means for a claim of it that has not won.
    fn of(state: ClaimState, likeness: Likeness) -> Self {
        match (state, likeness) {
            (_, Likeness::OtherBody) => Self::Reused,
            (ClaimState::Answered(answer), _) => Self::Answered(answer),
            (ClaimState::Held { .. }, Likeness::OtherTopic) => Self::InProgress,
            (ClaimState::Held { holder }, Likeness::Same) => Self::Held { holder },
        }
    }
}

impl ClaimLog {
    /// Begins to read, and returns once all entries of the window are known. The stream exists.
    pub(super) async fn open(link: BrokerHandle, agent: AgentName) -> Result<Self, BusError> {
        let (next_nonce, state) = (AtomicU64::new(random_u64()), Mutex::new(LogState::new()));
        let shared = Arc::new(SharedLog { link, agent, next_nonce, state, reread: Notify::new() });
        let reader = tokio::spawn(shared.clone().read_until_closed()).abort_handle();
        let log = Self { shared, reader };
        log.append(log.next_nonce(), EntryContent::Sync, "read the claims", CATCH_UP_TIMEOUT).await?;
        Ok(log)
    }

    pub(super) async fn claim(&self, request: &RequestIdentity) -> Result<ClaimResult, BusError> {
        // An answer is final. Anything else may have changed since this replica read the stream.
        if let Some((state @ ClaimState::Answered(_), likeness)) = self.find(request) {
            return Ok(ClaimResult::of(state, likeness));
        }
        let mark = Some(RequestMark::of(request));
        let (nonce, content) = (self.next_nonce(), EntryContent::Claim { id: request.id.clone(), mark });
        match self.append(nonce, content, "claim the request", OPERATION_TIMEOUT).await? {
            EntryEffect::Claim(state, likeness) => Ok(self.shared.lock().judge(state, likeness, nonce)),
            EntryEffect::Answer { .. } | EntryEffect::Other => unreachable!("the entry is a claim"),
        }
    }

    /// Returns what this replica has read of a request that it handles, for a repetition of it. `None`: its claim is under way.
    pub(super) fn find_claim(&self, request: &RequestIdentity) -> Option<ClaimResult> {
        self.find(request).map(|(state, likeness)| ClaimResult::of(state, likeness))
    }

    fn find(&self, request: &RequestIdentity) -> Option<(ClaimState, Likeness)> {
        self.shared.lock().ledger.find(&request.id, RequestMark::of(request))
    }

    pub(super) async fn release(&self, id: &MessageId, holder: u64) -> Result<(), BusError> {
        let content = EntryContent::Release { id: id.clone(), holder };
        self.append(self.next_nonce(), content, "give the request back", OPERATION_TIMEOUT).await.map(|_| ())
    }

    /// Records an answer. Returns false if there is another one. The same answer with the same seed has the same number: it may
    /// be recorded again because nobody knew that it had arrived.
    pub(super) async fn record_answer(
        &self,
        seed: u64,
        id: &MessageId,
        answer: &Envelope,
    ) -> Result<bool, BusError> {
        let bytes = answer.to_bytes();
        let nonce = BuildHasherDefault::<DefaultHasher>::new().hash_one((seed, &bytes));
        let content = EntryContent::Answer { id: id.clone(), parts: 0, bytes: &bytes };
        let effect = self.append(nonce, content, "record the answer", OPERATION_TIMEOUT).await?;
        Ok(effect == EntryEffect::Answer { is_first: true })
    }

    /// Returns a number that no other entry has.
    pub(super) fn next_nonce(&self) -> u64 {
        self.shared.next_nonce.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes an entry and waits until it is read back.
    async fn append(
        &self,
        nonce: u64,
        content: EntryContent<'_>,
        operation: &'static str,
        timeout: Duration,
    ) -> Result<EntryEffect, BusError> {
        let messages = self.shared.messages(nonce, content);
        let mut waiter = Waiter::new(&self.shared, nonce);
        let effect = self.shared.write_until_read(&messages, &mut waiter);
        let expired = |_| Err(BusError::Timeout { operation, seconds: timeout.as_secs() });
        let effect = tokio::time::timeout(timeout, effect).await.unwrap_or_else(expired)?;
        waiter.is_resolved = true;
        Ok(effect)
    }

    /// Reads an answer from the stream. Returns `None` if the stream has dropped it.
    pub(super) async fn read_answer(&self, answer: StoredAnswer) -> Result<Option<Envelope>, BusError> {
        let shared = &self.shared;
        let read =
            |connection: Arc<BrokerConnection>| async move { shared.read_answer(&connection, answer).await };
        let bytes = shared.link.run("read the recorded answer", read).await?;
        Ok(bytes.and_then(|bytes| Envelope::parse(&bytes).ok()))
    }
}

impl Drop for ClaimLog {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn write(connection: &BrokerConnection, messages: &[OutgoingMessage]) -> lapin::Result<()> {
    for message in messages {
        connection.append(message).await?;
    }
    Ok(())
}

/// A wait for an entry.
struct Waiter<'a> {
    log: &'a SharedLog,
    nonce: u64,
    effect: oneshot::Receiver<EntryEffect>,
    is_resolved: bool,
}

impl<'a> Waiter<'a> {
    fn new(log: &'a SharedLog, nonce: u64) -> Self {
        let (sender, effect) = oneshot::channel();
        log.lock().waiters.insert(nonce, sender);
        Self { log, nonce, effect, is_resolved: false }
    }

    async fn effect(&mut self) -> Result<EntryEffect, BusError> {
        (&mut self.effect).await.map_err(|_| BusError::Closed)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.is_resolved {
            self.log.lock().give_up(self.nonce);
        }
    }
}

impl LogState {
    fn new() -> Self {
        let (waiters, given_up) = (HashMap::new(), VecDeque::new());
        Self { ledger: Ledger::new(), waiters, given_up, last_read: Instant::now() }
    }

    fn give_up(&mut self, nonce: u64) {
        self.waiters.remove(&nonce);
        self.given_up.push_back(nonce);
        if self.given_up.len() > MAX_GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    /// Tells what the state of a request means for the claim with the number `nonce`, which was read.
    fn judge(&mut self, state: ClaimState, likeness: Likeness, nonce: u64) -> ClaimResult {
        match (state, likeness) {
            (ClaimState::Held { holder }, Likeness::Same | Likeness::OtherTopic)
                if holder == nonce || self.take_given_up(holder) =>
            {
                ClaimResult::Won { holder }
            }
            _ => ClaimResult::of(state, likeness),
        }
    }

    /// Returns true if a claim was written after its waiter had given up. Its request begins with this call, so it is true once.
    fn take_given_up(&mut self, nonce: u64) -> bool {
        let place = self.given_up.iter().position(|given_up| *given_up == nonce);
        place.and_then(|place| self.given_up.remove(place)).is_some()
    }

    /// Returns true if the reader has to begin at the window again. It gets as much time for that as it had before: writers that
    /// ask for it one after the other would keep it from reading.
    fn needs_reread(&mut self, now: Instant) -> bool {
        let is_silent = now.saturating_duration_since(self.last_read) >= REREAD_AFTER;
        if is_silent {
            self.last_read = now;
        }
        is_silent
    }

    fn apply(&mut self, entry: &ClaimEntry<'_>, offset: u64) {
        self.last_read = Instant::now();
        let Some(effect) = self.ledger.apply(entry, offset, self.last_read) else { return };
        if let Some(waiter) = self.waiters.remove(&entry.nonce) {
            let _ = waiter.send(effect);
        }
    }
}

impl SharedLog {
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().expect("no code panics while it holds the lock")
    }

    /// The messages of an entry: several for a long answer.
    fn messages(&self, nonce: u64, content: EntryContent<'_>) -> Vec<OutgoingMessage> {
        let message = |content| self.message(&ClaimEntry { nonce, content });
        let EntryContent::Answer { id, bytes, .. } = content else { return vec![message(content)] };
        let last = bytes.len().saturating_sub(1) / MAX_ENTRY_BYTES * MAX_ENTRY_BYTES;
        let parts = (0..).zip(bytes[..last].chunks(MAX_ENTRY_BYTES));
        let mut messages: Vec<_> =
            parts.map(|(index, bytes)| message(EntryContent::AnswerPart { index, bytes })).collect();
        let parts = u32::try_from(messages.len()).expect("an answer is shorter than 256 TiB");
        messages.push(message(EntryContent::Answer { id, parts, bytes: &bytes[last..] }));
        messages
    }

    fn message(&self, entry: &ClaimEntry<'_>) -> OutgoingMessage {
        OutgoingMessage {
            exchange: DEFAULT_EXCHANGE.into(),
            routing_key: topology::claims_stream(&self.agent).into(),
            payload: Bytes::from(entry.to_bytes()),
            properties: BasicProperties::default(),
        }
    }

    /// Writes an entry until it is read back. A broker that has just started accepts entries before it has started the stream,
    /// and drops them without a word, also with confirmations. An entry with the same number has no second effect.
    async fn write_until_read(
        &self,
        messages: &[OutgoingMessage],
        waiter: &mut Waiter<'_>,
    ) -> Result<EntryEffect, BusError> {
        let first_pause = first_pause(messages.len());
        let mut pause = first_pause;
        loop {
            let connection = self.link.connection().await?;
            let _ = write(&connection, messages).await;
            tokio::select! {
                effect = waiter.effect() => return effect,
                next = self.link.connection_after(connection.generation) => {
                    next?;
                    pause = first_pause;
                }
                () = tokio::time::sleep(pause) => {
                    if pause >= REREAD_AFTER && self.lock().needs_reread(Instant::now()) {
                        self.reread.notify_one();
                    }
                    pause *= 2;
                }
            }
        }
    }

    async fn read_until_closed(self: Arc<Self>) {
        let mut next_offset = None;
        while let Ok(connection) = self.link.connection().await {
            tokio::select! {
                ended = self.read(&connection, &mut next_offset) => if let Err(error) = ended {
                    tracing::debug!(agent = %self.agent, %error, "reading the claims again");
                },
                // Offsets begin anew in a stream that was lost and made again.
                () = self.reread.notified() => next_offset = None,
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Reads until the connection ends.
    async fn read(&self, connection: &BrokerConnection, next_offset: &mut Option<u64>) -> lapin::Result<()> {
        let start = match *next_offset {
            Some(offset) => offset_value(offset),
            None => AMQPValue::Timestamp(window_start()),
        };
        let mut entries = self.consume(connection, start).await?;
        while let Some(delivery) = entries.next().await {
            let delivery = delivery?;
            let offset = offset_of(&delivery).unwrap_or_default();
            // A stream begins with the whole chunk that contains the offset.
            if next_offset.is_none_or(|next| offset >= next) {
                *next_offset = Some(offset + 1);
                if let Some(entry) = ClaimEntry::parse(&delivery.data) {
                    self.lock().apply(&entry, offset);
                }
            }
        }
        Ok(())
    }

    async fn read_answer(
        &self,
        connection: &BrokerConnection,
        answer: StoredAnswer,
    ) -> lapin::Result<Option<Vec<u8>>> {
        let mut entries = self.consume(connection, offset_value(answer.first_offset)).await?;
        let (mut bytes, mut next_index) = (Vec::new(), 0);
        while let Some(delivery) = entries.next().await {
            let delivery = delivery?;
            if offset_of(&delivery).unwrap_or_default() > answer.last_offset {
                return Ok(None);
            }
            let entry = ClaimEntry::parse(&delivery.data).filter(|entry| entry.nonce == answer.nonce);
            match entry.map(|entry| entry.content) {
                // A part may be there twice.
                Some(EntryContent::AnswerPart { index, bytes: part }) if index == next_index => {
                    bytes.extend_from_slice(part);
                    next_index += 1;
                }
                Some(EntryContent::Answer { parts, bytes: last, .. }) if parts == next_index => {
                    bytes.extend_from_slice(last);
                    return Ok(Some(bytes));
                }
                Some(_) | None => {}
            }
        }
        Ok(None)
    }

    async fn consume(
        &self,
        connection: &BrokerConnection,
        start: AMQPValue,
    ) -> lapin::Result<BatchedConsumer> {
        let channel = connection.channel().await?;
        topology::declare_claims(&channel, &self.agent).await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let (stream, arguments) =
            (topology::claims_stream(&self.agent), topology::arguments([("x-stream-offset", start)]));
        let options = BasicConsumeOptions::default();
        let entries = channel.basic_consume(stream.into(), "".into(), options, arguments).await?;
        Ok(BatchedConsumer::new(entries))
    }
}

/// Returns the pause before an entry of so many messages is written again.
fn first_pause(messages: usize) -> Duration {
    let steps = u32::try_from(messages.div_ceil(REWRITE_MESSAGES)).unwrap_or(u32::MAX);
    FIRST_REWRITE.saturating_mul(steps.max(1)).min(LONGEST_FIRST_REWRITE)
}

fn offset_value(offset: u64) -> AMQPValue {
    topology::number(i64::try_from(offset).unwrap_or(i64::MAX))
}

fn offset_of(delivery: &Delivery) -> Option<u64> {
    let headers = delivery.properties.headers().as_ref()?;
    headers.inner().get("x-stream-offset")?.as_long_long_int().and_then(|offset| u64::try_from(offset).ok())
}

/// The beginning of the window in seconds of the Unix time.
fn window_start() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(CLAIM_WINDOW).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: u64) -> ClaimState {
        ClaimState::Held { holder }
    }

    // req: BU-09
    #[test]
    fn claim_that_was_given_up_wins_once() {
        let mut state = LogState::new();
        let is_won = |result| matches!(result, ClaimResult::Won { holder: 5 });
        assert!(!is_won(state.judge(held(5), Likeness::Same, 6)), "another replica holds it");
        state.give_up(5);
        assert!(!is_won(state.judge(held(5), Likeness::OtherBody, 6)), "it is another request");
        assert!(is_won(state.judge(held(5), Likeness::OtherTopic, 6)));
        // The request may have run since then.
        assert!(!is_won(state.judge(held(5), Likeness::Same, 7)));
        assert!(is_won(state.judge(held(5), Likeness::Same, 5)), "its own entry, read again");
    }

    // req: BU-09
    #[test]
    fn writers_that_wait_let_a_silent_reader_begin_again_once_in_a_while() {
        let mut state = LogState::new();
        let start = state.last_read;
        // A writer every tenth of a second finds that its entry was not read back.
        let restarts =
            (0..100).filter(|tenth| state.needs_reread(start + Duration::from_millis(100 * tenth)));
        let restarts: Vec<_> = restarts.collect();
        assert_eq!(restarts, [20, 40, 60, 80]);
    }

    // req: BU-09
    #[test]
    fn long_answer_gets_more_time_before_it_is_written_again() {
        let seconds = |messages| first_pause(messages).as_secs();
        assert_eq!([1, 32, 33, 128, 10_000].map(seconds), [1, 1, 2, 4, 5]);
    }
}
