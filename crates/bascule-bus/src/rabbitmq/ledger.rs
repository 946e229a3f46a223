//! The claims and answers of an agent's requests, as all replicas read them from one stream in one order.
//!
//! The first claim of a request wins, and the first answer. No I/O: `claim_log` reads and writes the stream.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::claim_entry::{ClaimEntry, EntryContent, RequestMark};
use crate::MessageId;
use crate::requests::CLAIM_WINDOW;

/// The requests that are remembered, about 100 bytes each. The oldest are forgotten first: with more than 800 requests a
/// second this is shorter than the window.
const MAX_CLAIMS: usize = 500_000;
/// The long answers of which only the first parts have been read. The oldest make room: their writers have ended.
const MAX_OPEN_ANSWERS: usize = 1_000;

pub(super) struct Ledger {
    claims: HashMap<IdHash, RememberedClaim>,
    /// The claims in the order of their times.
    order: VecDeque<(Instant, IdHash)>,
    /// The unfinished answers by their numbers.
    open_answers: HashMap<u64, OpenAnswer>,
    hashers: [RandomState; 2],
}

/// 128 bits instead of the id: ids are long, and senders choose them.
type IdHash = (u64, u64);

struct RememberedClaim {
    state: ClaimState,
    /// `None` if it began without one: with the claim of an earlier build, or with an answer whose claim is forgotten.
    mark: Option<MarkHash>,
    since: Instant,
}

/// 32 bits of each are enough: nobody can choose them, and a wrong guess only treats another request as a repetition.
#[derive(Debug, Clone, Copy)]
struct MarkHash {
    digest: u32,
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
        }
    }

    /// Returns the state of the request with this id, and that request beside the one with the mark.
    pub(super) fn find(&self, id: &MessageId, mark: RequestMark<'_>) -> Option<(ClaimState, Likeness)> {
        let claim = self.claims.get(&self.hash(id))?;
        Some((claim.state, claim.likeness(Some(self.hash_mark(mark)))))
    }

    /// Takes note of the next entry of the stream. Returns `None` for an entry without an effect of its own: a part of an
    /// answer, or the end of an answer whose parts are not all there.
    pub(super) fn apply(&mut self, entry: &ClaimEntry<'_>, offset: u64, now: Instant) -> Option<EntryEffect> {
        let nonce = entry.nonce;
        match &entry.content {
            EntryContent::Claim { id, mark } => {
                let (held, mark) =
                    (ClaimState::Held { holder: nonce }, mark.map(|mark| self.hash_mark(mark)));
                let claim = self.claim_or_insert(id, held, mark, now);
                Some(EntryEffect::Claim(claim.state, claim.likeness(mark)))
            }
            EntryContent::Release { id, holder } => {
                let hash = self.hash(id);
                let held = ClaimState::Held { holder: *holder };
                if self.claims.get(&hash).is_some_and(|claim| claim.state == held) {
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
        let claim = self.claim_or_insert(id, ClaimState::Answered(answer), None, now);
        match claim.state {
            ClaimState::Answered(recorded) => recorded.nonce == answer.nonce,
            ClaimState::Held { .. } => {
                claim.state = ClaimState::Answered(answer);
                true
            }
        }
    }

    /// Returns the claim of the request, which has the given state if there was none.
    fn claim_or_insert(
        &mut self,
        id: &MessageId,
        state: ClaimState,
        mark: Option<MarkHash>,
        now: Instant,
    ) -> &mut RememberedClaim {
        let hash = self.hash(id);
        if !self.claims.contains_key(&hash) {
            self.order.push_back((now, hash));
            self.forget_old_claims(now);
        }
        self.claims.entry(hash).or_insert(RememberedClaim { state, mark, since: now })
    }

    fn forget_old_claims(&mut self, now: Instant) {
        while let Some((time, hash)) = self.order.front().copied() {
            let age = now.checked_duration_since(time).unwrap_or(Duration::ZERO);
            if age < CLAIM_WINDOW && self.order.len() <= MAX_CLAIMS {
                return;
            }
            self.order.pop_front();
            // A released request may have been claimed again, later.
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
        MarkHash { digest: hash(mark.digest), answer_topic: hash(mark.answer_topic) }
    }
}

impl RememberedClaim {
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
    fn claim_is_forgotten_after_the_window() {
        let mut stream = Stream::new();
        stream.read("claim 1 m");
        stream.now += CLAIM_WINDOW - Duration::from_secs(1);
        assert_eq!(stream.read("claim 2 m"), held(1));
        stream.now += Duration::from_secs(1);
        stream.read("claim 3 other");
        assert_eq!(stream.read("claim 4 m"), held(4));
    }
}
