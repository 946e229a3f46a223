//! Dead letters, as the stream of dead letters keeps them.

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DeleteMessageErrorKind, LastRawMessageErrorKind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::connection::{refused, within};
use super::jetstream::JetStream;
use super::streams;
use crate::{BusError, DeadLetter, DeadLetterId, Envelope, SharedTopics, StoredDeadLetter, Timestamp};

impl JetStream {
    /// Lists the oldest dead letters.
    pub(super) async fn list_dead_letters(&self, limit: usize) -> Result<Vec<StoredDeadLetter>, BusError> {
        const OPERATION: &str = "list dead letters";
        let stream = self.ensure_stream(streams::dead_letters()).await?;
        let (mut letters, mut sequence) = (Vec::new(), 1);
        while letters.len() < limit {
            let next = stream.raw_message_builder().sequence(sequence);
            let next = next.next_by_subject(SharedTopics::DEAD_LETTERS).send();
            match within(OPERATION, next).await? {
                Ok(message) => {
                    sequence = message.sequence + 1;
                    letters.push(to_dead_letter(&message));
                }
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => break,
                Err(error) => return Err(refused(OPERATION, &error)),
            }
        }
        Ok(letters)
    }

    /// Removes a dead letter. Ids are sequences of the stream.
    pub(super) async fn remove_dead_letter(&self, id: &DeadLetterId) -> Result<bool, BusError> {
        const OPERATION: &str = "remove a dead letter";
        let Ok(sequence) = id.0.parse() else { return Ok(false) };
        let stream = self.ensure_stream(streams::dead_letters()).await?;
        match within(OPERATION, stream.delete_message(sequence)).await? {
            Ok(is_removed) => Ok(is_removed),
            // The server has one error for all failures of a deletion; that there is no such message is the usual one.
            Err(error) if matches!(error.kind(), DeleteMessageErrorKind::JetStream(_)) => Ok(false),
            Err(error) => Err(refused(OPERATION, &error)),
        }
    }
}

/// Anybody may publish to the topic, so a letter need not have the form of one.
fn to_dead_letter(message: &StreamMessage) -> StoredDeadLetter {
    let letter = Envelope::parse(&message.payload).ok();
    let letter = letter.and_then(|envelope| serde_json::from_str(envelope.body.get()).ok());
    let millis = message.time.unix_timestamp_nanos() / 1_000_000;
    StoredDeadLetter {
        id: DeadLetterId(message.sequence.to_string()),
        time: Timestamp::from_unix_millis(u64::try_from(millis).unwrap_or(0)),
        letter: letter.unwrap_or_else(|| unreadable(&message.payload)),
    }
}

fn unreadable(payload: &[u8]) -> DeadLetter {
    let text = std::str::from_utf8(payload);
    DeadLetter {
        reason: "the message on the topic of dead letters is none".into(),
        topic: SharedTopics::DEAD_LETTERS.into(),
        message: text.map_or_else(|_| BASE64_STANDARD.encode(payload), str::to_owned),
        base64: text.is_err(),
        original_bytes: None,
    }
}
