//! Claims of requests, which all replicas of an agent's bridge share.
//!
//! A claim is an entry of a key-value bucket. The server stores an entry only if the one before is the expected one, so one
//! replica alone creates it. A full bucket refuses new claims: one that is forgotten would let its request run twice.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::answers::{Answers, RecordedAnswer};
use super::delivery::Position;
use super::jetstream::{JetStream, PublishError};
use super::streams::{self, CLAIMS, CLAIMS_STREAM};
use crate::request_identity::RequestIdentity;
use crate::{AgentName, BusError, CLAIM_WINDOW, Claim, ClaimTicket, MessageId, Topic};

/// The attempts to change an entry that others change too.
const MAX_ATTEMPTS: usize = 5;

pub(super) struct Claims {
    jetstream: JetStream,
    pub(super) answers: Answers,
    /// `$KV.BUCKET.AGENT`
    subject_prefix: String,
    /// Unique among all replicas.
    replica: String,
}

/// The value of an entry.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimEntry {
    /// The sequence of the request in its stream.
    sequence: u64,
    /// The delivery that made the claim.
    delivery: String,
    /// The digest of the body, and the topic of the answer.
    digest: String,
    topic: String,
    /// The claim was given back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_released: bool,
}

impl Claims {
    pub(super) fn new(jetstream: JetStream, agent: &AgentName, answers: Answers) -> Self {
        let inbox = jetstream.connection().client().new_inbox();
        let replica = inbox.rsplit('.').next().unwrap_or_default().to_owned();
        let subject_prefix = format!("$KV.{CLAIMS}.{agent}");
        Self { jetstream, answers, subject_prefix, replica }
    }

    pub(super) async fn claim(
        &self,
        request: &RequestIdentity,
        position: &Position,
        delivery: u64,
    ) -> Result<Claim, BusError> {
        const OPERATION: &str = "claim a request";
        let subject = self.subject(&request.id);
        let mine = self.entry(request, position, delivery);
        let mut expected = 0;
        for _ in 0..MAX_ATTEMPTS {
            match self.store(OPERATION, &subject, expected, &mine).await {
                Ok(revision) => return self.new_claim(request, revision, position).await,
                Err(PublishError::WrongSequence) => {}
                Err(PublishError::NoStream) => {
                    self.jetstream.ensure_stream(streams::claims()).await?;
                    continue;
                }
                Err(error) => return Err(error.into_bus_error(OPERATION)),
            }
            let Some((revision, entry)) = self.read(OPERATION, &subject).await? else {
                // It has aged out meanwhile.
                expected = 0;
                continue;
            };
            match self.judge(request, revision, &entry, &mine).await? {
                Some(claim) => return Ok(claim),
                None => expected = revision,
            }
        }
        Err(BusError::Refused { operation: OPERATION, reason: "other replicas keep changing it".into() })
    }

    /// A request that is delivered again may have been answered though its claim is gone: it was removed, or never arrived.
    async fn new_claim(
        &self,
        request: &RequestIdentity,
        revision: u64,
        position: &Position,
    ) -> Result<Claim, BusError> {
        let answer = match position.attempt {
            1 => None,
            _ => self.answers.find(request).await?,
        };
        let claim = || new_claim(&request.id, revision, position);
        Ok(answer.map_or_else(claim, |found| Claim::Answered(Box::new(found.answer))))
    }

    fn entry(&self, request: &RequestIdentity, position: &Position, delivery: u64) -> ClaimEntry {
        ClaimEntry {
            sequence: position.stream_sequence,
            // Not the server's number of the delivery: a server that was killed may give it again.
            delivery: format!("{}-{delivery}", self.replica),
            digest: request.digest.to_string(),
            topic: request.answer_topic.to_string(),
            is_released: false,
        }
    }

    /// Tells what another claim means for this delivery; `None`: it was given back.
    async fn judge(
        &self,
        request: &RequestIdentity,
        revision: u64,
        entry: &ClaimEntry,
        mine: &ClaimEntry,
    ) -> Result<Option<Claim>, BusError> {
        let ticket = ClaimTicket { message_id: request.id.clone(), revision };
        if entry.digest != request.digest.as_str() {
            return Ok((!entry.is_released).then_some(Claim::Reused));
        }
        // Also of a released claim: a replica that was taken for dead may give back what another one has answered.
        if let Some(RecordedAnswer { answer, is_published }) = self.find_answer(request, entry).await? {
            let is_out = is_published && entry.sequence == mine.sequence && entry.topic == mine.topic;
            return Ok(Some(if is_out { Claim::Published } else { Claim::Answered(Box::new(answer)) }));
        }
        Ok(match entry {
            entry if entry.is_released => None,
            // It was stored, but the connection was lost before this replica knew.
            entry if entry.delivery == mine.delivery => Some(Claim::Won(ticket)),
            entry if entry.sequence == mine.sequence => Some(Claim::Abandoned(ticket)),
            entry if entry.topic == mine.topic => Some(Claim::Duplicate),
            _ => Some(Claim::InProgress),
        })
    }

    async fn find_answer(
        &self,
        request: &RequestIdentity,
        entry: &ClaimEntry,
    ) -> Result<Option<RecordedAnswer>, BusError> {
        let Ok(answer_topic) = Topic::parse(&entry.topic) else { return Ok(None) };
        self.answers.find(&RequestIdentity { answer_topic, ..request.clone() }).await
    }

    pub(super) async fn release(
        &self,
        request: &RequestIdentity,
        ticket: &ClaimTicket,
    ) -> Result<(), BusError> {
        const OPERATION: &str = "release a request";
        let released = ClaimEntry {
            digest: request.digest.to_string(),
            topic: request.answer_topic.to_string(),
            is_released: true,
            ..ClaimEntry::default()
        };
        match self.store(OPERATION, &self.subject(&ticket.message_id), ticket.revision, &released).await {
            // The claim has aged out, or was given back and is another replica's.
            Ok(_) | Err(PublishError::WrongSequence) => Ok(()),
            Err(error) => Err(error.into_bus_error(OPERATION)),
        }
    }

    /// Replaces an entry. Returns its new revision.
    async fn store(
        &self,
        operation: &'static str,
        subject: &str,
        expected: u64,
        entry: &ClaimEntry,
    ) -> Result<u64, PublishError> {
        let payload = serde_json::to_vec(entry).expect("all keys of an entry are strings").into();
        let headers = HeaderMap::new();
        let stored = self.jetstream.compare_and_store(operation, subject, expected, headers, payload).await?;
        Ok(stored.sequence)
    }

    async fn read(
        &self,
        operation: &'static str,
        subject: &str,
    ) -> Result<Option<(u64, ClaimEntry)>, BusError> {
        let Some(last) = self.jetstream.read_last(operation, CLAIMS_STREAM, subject).await? else {
            return Ok(None);
        };
        let entry = serde_json::from_slice(&last.payload);
        let entry = entry.map_err(|error| BusError::Refused { operation, reason: error.to_string() })?;
        Ok(Some((last.sequence, entry)))
    }

    fn subject(&self, id: &MessageId) -> String {
        let mut subject = self.subject_prefix.clone();
        let _ = write!(subject, ".{}", key(id));
        subject
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
pub(super) fn key(id: &MessageId) -> String {
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
