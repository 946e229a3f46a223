//! Claims and recorded answers, which all replicas of an agent's bridge share.
//!
//! A claim is an entry of a key-value bucket. The server stores an entry only if the one before is the expected one, so one
//! replica alone creates it, and one answer alone is recorded in it.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::delivery::Position;
use super::jetstream::{JetStream, StoreError};
use super::streams::{self, CLAIMS, CLAIMS_STREAM};
use crate::{AgentName, BusError, CLAIM_WINDOW, Claim, ClaimTicket, Envelope, MessageId, ResultObject};

/// The attempts to change an entry that others change too.
const MAX_ATTEMPTS: usize = 5;
/// The limit of an answer that is too long for an entry. Bridges put longer results into objects themselves.
const MAX_ANSWER_BYTES: usize = 64 << 20;

pub(super) struct Claims {
    jetstream: JetStream,
    /// `$KV.BUCKET.AGENT`
    subject_prefix: String,
    /// Unique among all replicas.
    replica: String,
    max_entry_bytes: usize,
    next_object: AtomicU64,
}

/// The value of an entry.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimEntry {
    /// The sequence of the request in its stream.
    #[serde(default)]
    sequence: u64,
    /// The delivery that made the claim.
    #[serde(default)]
    delivery: String,
    /// The claim was given back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_released: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Box<RawValue>>,
    /// An answer that is too long for an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_object: Option<ResultObject>,
}

impl Claims {
    pub(super) fn new(jetstream: JetStream, agent: &AgentName, max_entry_bytes: usize) -> Self {
        let inbox = jetstream.connection().client().new_inbox();
        let replica = inbox.rsplit('.').next().unwrap_or_default().to_owned();
        let subject_prefix = format!("$KV.{CLAIMS}.{agent}");
        Self { jetstream, subject_prefix, replica, max_entry_bytes, next_object: AtomicU64::new(0) }
    }

    pub(super) async fn claim(
        &self,
        id: &MessageId,
        position: &Position,
        delivery: u64,
    ) -> Result<Claim, BusError> {
        const OPERATION: &str = "claim a request";
        let subject = self.subject(id);
        // Not the server's number of the delivery: a server that was killed may give it again.
        let delivery = format!("{}-{delivery}", self.replica);
        let claim = ClaimEntry { sequence: position.stream_sequence, delivery, ..ClaimEntry::default() };
        let mut expected = 0;
        for _ in 0..MAX_ATTEMPTS {
            match self.jetstream.compare_and_store(OPERATION, &subject, expected, claim.to_bytes()).await {
                Ok(stored) => return Ok(new_claim(id, stored.sequence, position)),
                Err(StoreError::WrongSequence) => {}
                Err(StoreError::NoStream) => {
                    self.create_bucket().await?;
                    continue;
                }
                Err(error) => return Err(error.into_bus_error(OPERATION)),
            }
            expected = match self.read(OPERATION, &subject).await? {
                // It has aged out meanwhile.
                None => 0,
                Some((revision, entry)) if entry.is_released => revision,
                Some((revision, entry)) => return self.judge(id, revision, entry, &claim).await,
            };
        }
        Err(BusError::Refused { operation: OPERATION, reason: "other replicas keep changing it".into() })
    }

    /// Tells what another claim means for this delivery.
    async fn judge(
        &self,
        id: &MessageId,
        revision: u64,
        entry: ClaimEntry,
        mine: &ClaimEntry,
    ) -> Result<Claim, BusError> {
        let ticket = ClaimTicket { message_id: id.clone(), revision };
        if let Some(answer) = self.answer(&entry).await? {
            return Ok(Claim::Answered(Box::new(answer)));
        }
        Ok(match entry {
            // It was stored, but the connection was lost before this replica knew.
            entry if entry.delivery == mine.delivery => Claim::Won(ticket),
            entry if entry.sequence == mine.sequence => Claim::Abandoned(ticket),
            _ => Claim::Duplicate,
        })
    }

    pub(super) async fn release(&self, ticket: ClaimTicket) -> Result<(), BusError> {
        const OPERATION: &str = "release a request";
        let released = ClaimEntry { is_released: true, ..ClaimEntry::default() };
        let subject = self.subject(&ticket.message_id);
        let stored =
            self.jetstream.compare_and_store(OPERATION, &subject, ticket.revision, released.to_bytes()).await;
        match stored {
            // Another replica has answered it, or the claim has aged out.
            Ok(_) | Err(StoreError::WrongSequence) => Ok(()),
            Err(error) => Err(error.into_bus_error(OPERATION)),
        }
    }

    pub(super) async fn record_answer(
        &self,
        ticket: &ClaimTicket,
        answer: &Envelope,
    ) -> Result<bool, BusError> {
        const OPERATION: &str = "record an answer";
        let subject = self.subject(&ticket.message_id);
        let entry = self.answered(answer).await?.to_bytes();
        let mut expected = ticket.revision;
        for _ in 0..MAX_ATTEMPTS {
            match self.jetstream.compare_and_store(OPERATION, &subject, expected, entry.clone()).await {
                Ok(_) => return Ok(true),
                Err(StoreError::WrongSequence) => {}
                Err(StoreError::NoStream) => {
                    self.create_bucket().await?;
                    continue;
                }
                Err(error) => return Err(error.into_bus_error(OPERATION)),
            }
            match self.read(OPERATION, &subject).await? {
                // The claim of a long call has aged out, or somebody has removed the bucket.
                None => expected = 0,
                Some((_, other)) => {
                    // It was stored, but the connection was lost before this replica knew. All replicas give the answer to a
                    // request the same id, so the whole answer decides.
                    let recorded = self.answer(&other).await?;
                    return Ok(recorded.is_some_and(|other| other.to_bytes() == answer.to_bytes()));
                }
            }
        }
        Ok(false)
    }

    async fn create_bucket(&self) -> Result<(), BusError> {
        self.jetstream.ensure_stream(streams::claims()).await.map(|_| ())
    }

    async fn answered(&self, answer: &Envelope) -> Result<ClaimEntry, BusError> {
        let bytes = answer.to_bytes();
        if bytes.len() > self.max_entry_bytes {
            let number = self.next_object.fetch_add(1, Ordering::Relaxed);
            let name = format!("answer-{}-{number}", self.replica);
            let object = self.jetstream.put_object(&name, &bytes).await?;
            return Ok(ClaimEntry { answer_object: Some(object), ..ClaimEntry::default() });
        }
        let text = String::from_utf8(bytes).expect("an envelope is JSON");
        let answer = RawValue::from_string(text).expect("an envelope is JSON");
        Ok(ClaimEntry { answer: Some(answer), ..ClaimEntry::default() })
    }

    /// Returns the recorded answer, if there is one.
    async fn answer(&self, entry: &ClaimEntry) -> Result<Option<Envelope>, BusError> {
        let bytes = match entry {
            ClaimEntry { answer: Some(answer), .. } => answer.get().as_bytes().to_vec(),
            ClaimEntry { answer_object: Some(object), .. } => {
                self.jetstream.get_object(object, MAX_ANSWER_BYTES).await?
            }
            _ => return Ok(None),
        };
        let unreadable = |error: crate::EnvelopeError| BusError::Refused {
            operation: "read a recorded answer",
            reason: error.to_string(),
        };
        Envelope::parse(&bytes).map(Some).map_err(unreadable)
    }

    async fn read(
        &self,
        operation: &'static str,
        subject: &str,
    ) -> Result<Option<(u64, ClaimEntry)>, BusError> {
        let Some((revision, bytes)) = self.jetstream.read_last(operation, CLAIMS_STREAM, subject).await?
        else {
            return Ok(None);
        };
        let entry = serde_json::from_slice(&bytes);
        let entry = entry.map_err(|error| BusError::Refused { operation, reason: error.to_string() })?;
        Ok(Some((revision, entry)))
    }

    fn subject(&self, id: &MessageId) -> String {
        let mut subject = self.subject_prefix.clone();
        let _ = write!(subject, ".{}", key(id));
        subject
    }
}

impl ClaimEntry {
    fn to_bytes(&self) -> bytes::Bytes {
        serde_json::to_vec(self).expect("all keys of an entry are strings").into()
    }
}

/// A request that is delivered again after its claim may have aged out counts as begun.
fn new_claim(id: &MessageId, revision: u64, position: &Position) -> Claim {
    let ticket = ClaimTicket { message_id: id.clone(), revision };
    let stored = SystemTime::UNIX_EPOCH + Duration::from_nanos(position.stored_nanos);
    let is_old = stored.elapsed().is_ok_and(|age| age >= CLAIM_WINDOW);
    if position.attempt > 1 && is_old { Claim::Abandoned(ticket) } else { Claim::Won(ticket) }
}

/// A message id as a key: keys have fewer characters than ids. `=` begins no id that is kept as it is.
fn key(id: &MessageId) -> String {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    match id.as_str().bytes().all(is_plain) {
        true => id.to_string(),
        false => format!("={}", BASE64_URL_SAFE_NO_PAD.encode(id.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-09
    #[test]
    fn different_ids_have_different_keys() {
        let key = |text: &str| super::key(&MessageId::parse(text).unwrap());
        assert_eq!(key("m-1_A"), "m-1_A");
        assert_eq!(key("a.b"), "=YS5i");
        assert_ne!(key("=YS5i"), key("a.b"));
        for text in ["*", ">", "a.>", "$", "\"", "{}"] {
            let is_legal = |c: char| c.is_ascii_alphanumeric() || "-_=".contains(c);
            assert!(key(text).chars().all(is_legal), "{text}");
        }
    }

    // req: BU-09
    #[test]
    fn old_request_that_comes_again_counts_as_begun() {
        let claim = |attempt, stored_nanos| {
            let position = Position { attempt, stream_sequence: 1, stored_nanos };
            new_claim(&MessageId::parse("m").unwrap(), 1, &position)
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!(matches!(claim(1, 0), Claim::Won(_)));
        assert!(matches!(claim(2, now), Claim::Won(_)));
        assert!(matches!(claim(2, 0), Claim::Abandoned(_)));
    }
}
