//! The claims and answers of an agent's requests, as all replicas read them from one stream in one order.
//!
//! The first claim of a request wins, and the first answer. No I/O: `claim_log` reads and writes the stream.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::time::Instant;

use super::claim_entry::{ClaimEntry, EntryContent, RequestMark};
use crate::MessageId;
use crate::requests::CLAIM_WINDOW;

/// The requests that are remembered, about 130 bytes each. The oldest are forgotten first: with more than 800 requests a
/// second this is shorter than the window.
const MAX_CLAIMS: usize = 500_000;
/// The long answers of which only the first parts have been read. The oldest make room: their writers have ended.
const MAX_OPEN_ANSWERS: usize = 1_000;

pub(super) struct Ledger {
    claims: HashMap<IdHash, RememberedClaim>,
    /// The claims in the order of their times.
    order: VecDeque<(Seconds, IdHash)>,
    /// The unfinished answers by their numbers.
    open_answers: HashMap<u64, OpenAnswer>,
    hashers: [RandomState; 2],
    started: Instant,
}

/// The time since the start of the ledger.
type Seconds = u32;

/// 128 bits instead of the id: ids are long, and senders choose them.
type IdHash = (u64, u64);

/// A claim in 32 bytes: there are many of them.
struct RememberedClaim {
    /// The number of the claim, or that of the answer.
    nonce: u64,
    answer: Option<AnswerSpan>,
    /// `None` if it began without one: with the claim of an earlier build, or with an answer whose claim is forgotten.
    mark: Option<MarkHash>,
    since: Seconds,
}

/// The place of an answer in the stream. No stream has room for four billion entries.
#[derive(Clone, Copy)]
#[repr(Rust, packed(4))]
struct AnswerSpan {
    first_offset: u64,
    entries: NonZeroU32,
}

impl AnswerSpan {
    fn of(answer: StoredAnswer) -> Self {
        let entries = answer.last_offset.saturating_sub(answer.first_offset).saturating_add(1);
        let entries = u32::try_from(entries).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        Self { first_offset: answer.first_offset, entries }
    }

    fn last_offset(self) -> u64 {
        self.first_offset + u64::from(self.entries.get() - 1)
    }
}

/// 32 bits of each are enough: nobody can choose them, and a wrong guess only treats another request as a repetition.
#[derive(Debug, Clone, Copy)]
struct MarkHash {
    digest: NonZeroU32,
    answer_topic: u32,
}

/// A request beside the claimed one with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Likeness {
    Same,
    OtherTopic,
    OtherBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimState {
    Held { holder: u64 },
    Answered(StoredAnswer),
}

/// The place of an answer in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredAnswer {
    pub(super) nonce: u64,
    pub(super) first_offset: u64,
    pub(super) last_offset: u64,
}

/// A long answer of which the first parts have been read.
struct OpenAnswer {
    first_offset: u64,
    /// All parts before this one have been read.
    next_index: u32,
}

/// The effect of an entry, for its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryEffect {
    /// The state of the request after a claim of it, and the request that was claimed first beside this one.
    Claim(ClaimState, Likeness),
    /// The answer was read; `is_first` if no other one was before it.
    Answer {
        is_first: bool,
    },
    Other,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            claims: HashMap::new(),
            order: VecDeque::new(),
            open_answers: HashMap::new(),
            hashers: [RandomState::new(), RandomState::new()],
            started: Instant::now(),
        }
    }

    /// Returns the state of the request with this id, and that request beside the one with the mark.
    pub(super) fn find(&self, id: &MessageId, mark: RequestMark<'_>) -> Option<(ClaimState, Likeness)> {
        let claim = self.claims.get(&self.hash(id))?;
        Some((claim.state(), claim.likeness(Some(self.hash_mark(mark)))))
    }

    /// Takes note of the next entry of the stream. Returns `None` for an entry without an effect of its own: a part of an
    /// answer, or the end of an answer whose parts are not all there.
    pub(super) fn apply(&mut self, entry: &ClaimEntry<'_>, offset: u64, now: Instant) -> Option<EntryEffect> {
        let nonce = entry.nonce;
        match &entry.content {
            EntryContent::Claim { id, mark } => {
                let mark = mark.map(|mark| self.hash_mark(mark));
                let claim = self.claim_or_insert(id, nonce, mark, now);
                Some(EntryEffect::Claim(claim.state(), claim.likeness(mark)))
            }
            EntryContent::Release { id, holder } => {
                let hash = self.hash(id);
                let held = ClaimState::Held { holder: *holder };
                if self.claims.get(&hash).is_some_and(|claim| claim.state() == held) {
                    self.claims.remove(&hash);
                }
                Some(EntryEffect::Other)
            }
            EntryContent::AnswerPart { index, .. } => {
                self.note_part(nonce, *index, offset);
                None
            }
            EntryContent::Answer { id, parts, .. } => {
                let open = self.open_answers.remove(&nonce);
                let first_offset = match open {
                    _ if *parts == 0 => offset,
                    Some(open) if open.next_index == *parts => open.first_offset,
                    Some(_) | None => return None,
                };
                let answer = StoredAnswer { nonce, first_offset, last_offset: offset };
                Some(EntryEffect::Answer { is_first: self.answer(id, answer, now) })
            }
            EntryContent::Sync => Some(EntryEffect::Other),
        }
    }

    /// Parts may be missing, or come twice: a broker that has just started drops some of them, and the writer repeats all.
    fn note_part(&mut self, nonce: u64, index: u32, offset: u64) {
        match self.open_answers.get_mut(&nonce) {
            Some(open) if index == open.next_index => open.next_index += 1,
            Some(_) | None if index > 0 => {}
            Some(_) | None => {
                self.forget_oldest_open_answer();
                self.open_answers.insert(nonce, OpenAnswer { first_offset: offset, next_index: 1 });
            }
        }
    }

    fn forget_oldest_open_answer(&mut self) {
        if self.open_answers.len() >= MAX_OPEN_ANSWERS {
            let oldest = self.open_answers.iter().min_by_key(|(_, open)| open.first_offset);
            let oldest = oldest.map(|(nonce, _)| *nonce);
            oldest.map(|nonce| self.open_answers.remove(&nonce));
        }
    }

    /// Returns true if it is the first answer, or the same one again: its writer could not know that it had arrived.
    fn answer(&mut self, id: &MessageId, answer: StoredAnswer, now: Instant) -> bool {
        let claim = self.claim_or_insert(id, answer.nonce, None, now);
        match claim.state() {
            ClaimState::Answered(recorded) => recorded.nonce == answer.nonce,
            ClaimState::Held { .. } => {
                (claim.nonce, claim.answer) = (answer.nonce, Some(AnswerSpan::of(answer)));
                true
            }
        }
    }

    /// Returns the claim of the request, which has the given number if there was none.
    fn claim_or_insert(
        &mut self,
        id: &MessageId,
        nonce: u64,
        mark: Option<MarkHash>,
        now: Instant,
    ) -> &mut RememberedClaim {
        let (hash, now) = (self.hash(id), self.seconds(now));
        if !self.claims.contains_key(&hash) {
            self.order.push_back((now, hash));
            self.forget_old_claims(now);
        }
        self.claims.entry(hash).or_insert(RememberedClaim { nonce, answer: None, mark, since: now })
    }

    fn seconds(&self, now: Instant) -> Seconds {
        let seconds = now.saturating_duration_since(self.started).as_secs();
        Seconds::try_from(seconds).unwrap_or(Seconds::MAX)
    }

    fn forget_old_claims(&mut self, now: Seconds) {
        while let Some((time, hash)) = self.order.front().copied() {
            // Up to a second is cut off from an age.
            let is_recent = u64::from(now.saturating_sub(time)) <= CLAIM_WINDOW.as_secs();
            if is_recent && self.order.len() <= MAX_CLAIMS {
                return;
            }
            self.order.pop_front();
            // A released request may have been claimed again, later. Within a second that makes no difference.
            if self.claims.get(&hash).is_some_and(|claim| claim.since == time) {
                self.claims.remove(&hash);
            }
        }
    }

    fn hash(&self, id: &MessageId) -> IdHash {
        (self.hashers[0].hash_one(id), self.hashers[1].hash_one(id))
    }

    fn hash_mark(&self, mark: RequestMark<'_>) -> MarkHash {
        let hash = |text: &str| self.hashers[0].hash_one(text) as u32;
        let digest = NonZeroU32::new(hash(mark.digest)).unwrap_or(NonZeroU32::MIN);
        MarkHash { digest, answer_topic: hash(mark.answer_topic) }
    }
}

impl RememberedClaim {
    fn state(&self) -> ClaimState {
        match self.answer {
            None => ClaimState::Held { holder: self.nonce },
            Some(span) => ClaimState::Answered(StoredAnswer {
                nonce: self.nonce,
                first_offset: span.first_offset,
                last_offset: span.last_offset(),
            }),
        }
    }

    /// A request without a mark cannot be told from another one.
    fn likeness(&self, other: Option<MarkHash>) -> Likeness {
        match self.mark.zip(other) {
            Some((mark, other)) if mark.digest != other.digest => Likeness::OtherBody,
            Some((mark, other)) if mark.answer_topic != other.answer_topic => Likeness::OtherTopic,
            Some(_) | None => Likeness::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Stream {
        ledger: Ledger,
        offset: u64,
        now: Instant,
    }

    impl Stream {
        fn new() -> Self {
            Self { ledger: Ledger::new(), offset: 0, now: Instant::now() }
        }

        fn read(&mut self, line: &str) -> EntryEffect {
            self.read_entry(line).unwrap()
        }

        fn read_entry(&mut self, line: &str) -> Option<EntryEffect> {
            let bytes = format!("{line}\n");
            let effect =
                self.ledger.apply(&ClaimEntry::parse(bytes.as_bytes()).unwrap(), self.offset, self.now);
            self.offset += 1;
            effect
        }

        fn answer(&self) -> Option<(u64, u64)> {
            match self.find("d", "t")?.0 {
                ClaimState::Answered(answer) => Some((answer.first_offset, answer.last_offset)),
                ClaimState::Held { .. } => None,
            }
        }

        fn find(&self, digest: &str, answer_topic: &str) -> Option<(ClaimState, Likeness)> {
            self.ledger.find(&MessageId::parse("m").unwrap(), RequestMark { digest, answer_topic })
        }
    }

    fn held(holder: u64) -> EntryEffect {
        EntryEffect::Claim(ClaimState::Held { holder }, Likeness::Same)
    }

    // req: BU-06
    #[test]
    fn first_claim_of_a_request_wins() {
        let mut stream = Stream::new();
        assert_eq!(stream.read("claim 1 m"), held(1));
        assert_eq!(stream.read("claim 2 m"), held(1));
        assert_eq!(stream.read("claim 3 other"), held(3));
        // Its writer sent it again after a lost connection.
        assert_eq!(stream.read("claim 1 m"), held(1));
    }

    // req: BU-09
    #[test]
    fn another_request_with_the_same_id_is_recognised() {
        let mut stream = Stream::new();
        assert_eq!(stream.find("d", "t"), None);
        stream.read("claim 1 m d t");
        let held = ClaimState::Held { holder: 1 };
        for (line, likeness) in [
            ("claim 2 m d t", Likeness::Same),
            ("claim 3 m d other", Likeness::OtherTopic),
            ("claim 4 m other t", Likeness::OtherBody),
            ("claim 5 m", Likeness::Same),
        ] {
            assert_eq!(stream.read(line), EntryEffect::Claim(held, likeness), "{line}");
        }
        stream.read("answer 6 m 0");
        assert!(matches!(stream.find("d", "other"), Some((ClaimState::Answered(_), Likeness::OtherTopic))));
        assert!(matches!(stream.find("other", "t"), Some((ClaimState::Answered(_), Likeness::OtherBody))));
    }

    // req: BU-09
    #[test]
    fn released_request_can_be_claimed_by_another() {
        let mut stream = Stream::new();
        stream.read("claim 1 m");
        stream.read("release 8 m 2");
        assert_eq!(stream.read("claim 3 m"), held(1));
        stream.read("release 9 m 1");
        assert_eq!(stream.read("claim 4 m"), held(4));
    }

    // req: BU-09
    #[test]
    fn first_answer_of_a_request_wins() {
        let mut stream = Stream::new();
        stream.read("claim 1 m");
        assert_eq!(stream.read("answer 2 m 0"), EntryEffect::Answer { is_first: true });
        assert_eq!(stream.read("answer 3 m 0"), EntryEffect::Answer { is_first: false });
        assert_eq!(stream.read("answer 2 m 0"), EntryEffect::Answer { is_first: true });
        // An answered request cannot be given back.
        stream.read("release 4 m 1");
        let answer = StoredAnswer { nonce: 2, first_offset: 1, last_offset: 1 };
        assert_eq!(
            stream.read("claim 5 m"),
            EntryEffect::Claim(ClaimState::Answered(answer), Likeness::Same)
        );
    }

    // req: BU-09
    #[test]
    fn long_answer_lies_between_its_parts() {
        let mut stream = Stream::new();
        for line in ["claim 1 m", "part 2 0", "claim 9 other", "part 2 1", "answer 2 m 2"] {
            stream.read_entry(line);
        }
        assert_eq!(stream.answer(), Some((1, 4)));
        assert!(stream.ledger.open_answers.is_empty());
    }

    // req: BU-09
    #[test]
    fn answer_with_missing_parts_counts_once_it_is_repeated() {
        let mut stream = Stream::new();
        stream.read("claim 1 m");
        for line in ["part 2 1", "part 2 2", "answer 2 m 3", "part 2 0", "part 2 2", "answer 2 m 3"] {
            assert_eq!(stream.read_entry(line), None, "{line}");
        }
        assert_eq!(stream.answer(), None);
        // The end of the first copy is late.
        for line in ["part 2 0", "part 2 1", "part 2 0", "part 2 1", "part 2 1", "part 2 2"] {
            stream.read_entry(line);
        }
        assert_eq!(stream.read("answer 2 m 3"), EntryEffect::Answer { is_first: true });
        assert_eq!(stream.answer(), Some((9, 13)));
        assert_eq!(stream.read("answer 3 m 0"), EntryEffect::Answer { is_first: false });
    }

    // req: BU-09
    #[test]
    fn many_claims_have_the_documented_size() {
        let (mut stream, claims) = (Stream::new(), MAX_CLAIMS as u64 + 1);
        for nonce in 0..claims {
            let id = MessageId::parse(&format!("m-{nonce}")).unwrap();
            let content = EntryContent::Claim { id, mark: None };
            stream.ledger.apply(&ClaimEntry { nonce, content }, nonce, stream.now);
        }
        let Ledger { claims, order, .. } = &stream.ledger;
        assert_eq!(claims.len(), MAX_CLAIMS);
        // The table has one byte more for each place, and an eighth of its places stays free.
        let table =
            (claims.capacity() + claims.capacity() / 7) * (size_of::<(IdHash, RememberedClaim)>() + 1);
        let bytes = table + order.capacity() * size_of::<(Seconds, IdHash)>();
        assert!(bytes / MAX_CLAIMS <= 130, "{bytes} bytes");
    }

    // req: BU-09
    #[test]
    fn claim_is_forgotten_after_the_window() {
        let mut stream = Stream::new();
        stream.read("claim 1 m");
        stream.now += CLAIM_WINDOW - Duration::from_secs(1);
        assert_eq!(stream.read("claim 2 m"), held(1));
        stream.now += Duration::from_secs(2);
        stream.read("claim 3 other");
        assert_eq!(stream.read("claim 4 m"), held(4));
    }
}
