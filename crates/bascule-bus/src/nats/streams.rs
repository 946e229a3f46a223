//! The streams of Bascule at the server. What exists is used as it is; what is absent is created with the limits below.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use tracing::warn;

use super::answers;
use super::connection::{refused, within};
use super::jetstream::JetStream;
use crate::{BusError, CLAIM_WINDOW, SharedTopics};

pub(super) const REQUESTS: &str = "BASCULE_REQUESTS";
pub(super) const DEAD_LETTERS: &str = "BASCULE_DEAD";
pub(super) const EVENTS: &str = "BASCULE_EVENTS";
/// The bucket of claims, and its stream.
pub(super) const CLAIMS: &str = "BASCULE_CLAIMS";
pub(super) const CLAIMS_STREAM: &str = "KV_BASCULE_CLAIMS";
pub(super) const ANSWERS: &str = "BASCULE_ANSWERS";
/// The bucket of long results, and its stream.
pub(super) const RESULTS: &str = "BASCULE_RESULTS";
const RESULTS_STREAM: &str = "OBJ_BASCULE_RESULTS";

const HOUR: Duration = Duration::from_secs(60 * 60);
const MEBIBYTE: i64 = 1 << 20;
/// Storage is reserved when a stream is created. A small server gets smaller streams.
const SHARES: [i64; 4] = [1, 4, 16, 64];

/// Requests that wait. Each is kept until a bridge has acknowledged it: an agent may publish before its bridge has ever run.
/// A work queue allows one consumer for each subject, so an agent's bridges share one, and the bridges of all agents share
/// one for the topic without a name (see `shared_requests`).
///
/// The duplicate window is short: it costs the server's memory, and claims recognise duplicates for longer. Requests have
/// deadlines of a minute or so; those that nobody wants any more must not fill the stream.
pub(super) fn requests() -> Config {
    Config {
        name: REQUESTS.into(),
        description: Some("Bascule: tool calls that wait for a bridge".into()),
        subjects: vec![SharedTopics::REQUESTS.into(), format!("{}.>", SharedTopics::REQUESTS)],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        // A full queue refuses; it never forgets. The number of an agent's requests is bounded; the server cannot bound their
        // bytes by subject, so their sizes are.
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: 10_000,
        max_message_size: 8 << 20,
        max_messages: 1_000_000,
        max_bytes: 1024 * MEBIBYTE,
        max_age: HOUR,
        duplicate_window: Duration::from_secs(2 * 60),
        ..Config::default()
    }
}

/// Claims, in the form of a key-value bucket. A full bucket refuses: a request whose claim is forgotten could run twice.
pub(super) fn claims() -> Config {
    Config {
        name: CLAIMS_STREAM.into(),
        description: Some("Bascule: requests that have begun".into()),
        subjects: vec![format!("$KV.{CLAIMS}.>")],
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        max_messages: 2_000_000,
        max_bytes: 1024 * MEBIBYTE,
        max_age: CLAIM_WINDOW,
        // The server refuses a window that is longer than the age. Claims have no ids for it.
        duplicate_window: Duration::from_secs(1),
        allow_direct: true,
        allow_rollup: true,
        ..Config::default()
    }
}

/// Recorded answers. The oldest go first: without them a repeated request gets no answer, but it still does not run again.
pub(super) fn answers() -> Config {
    Config {
        name: ANSWERS.into(),
        description: Some("Bascule: answers to requests".into()),
        subjects: vec!["bascule.answer.>".into(), "bascule.record.>".into()],
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        max_messages: 2_000_000,
        max_bytes: 1024 * MEBIBYTE,
        max_age: CLAIM_WINDOW,
        duplicate_window: Duration::from_secs(1),
        republish: Some(answers::republish()),
        allow_direct: true,
        ..Config::default()
    }
}

/// Messages that could not be handled.
pub(super) fn dead_letters() -> Config {
    Config {
        name: DEAD_LETTERS.into(),
        description: Some("Bascule: messages that could not be handled".into()),
        subjects: vec![SharedTopics::DEAD_LETTERS.into()],
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        max_messages: 10_000,
        max_bytes: 64 * MEBIBYTE,
        max_age: 7 * 24 * HOUR,
        allow_direct: true,
        ..Config::default()
    }
}

/// The events of bridges.
pub(super) fn events() -> Config {
    Config {
        name: EVENTS.into(),
        description: Some("Bascule: events of bridges".into()),
        subjects: vec!["provider.mcp.>".into()],
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        max_bytes: 256 * MEBIBYTE,
        max_age: 24 * HOUR,
        allow_direct: true,
        ..Config::default()
    }
}

/// Long results, in the form of an object store. A recorded answer may name one for as long as it is kept.
pub(super) fn results() -> Config {
    Config {
        name: RESULTS_STREAM.into(),
        description: Some("Bascule: results that are too long for a message".into()),
        subjects: vec![format!("$O.{RESULTS}.C.>"), format!("$O.{RESULTS}.M.>")],
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_bytes: 1024 * MEBIBYTE,
        max_age: 2 * CLAIM_WINDOW,
        allow_direct: true,
        allow_rollup: true,
        ..Config::default()
    }
}

impl JetStream {
    /// Finds a stream, or creates it.
    pub(super) async fn ensure_stream(&self, config: Config) -> Result<Stream, BusError> {
        const OPERATION: &str = "create a stream of JetStream";
        self.connection().connected(OPERATION).await?;
        for share in SHARES {
            let config = Config { max_bytes: config.max_bytes / share, ..config.clone() };
            match within(OPERATION, self.context().get_or_create_stream(config.clone())).await? {
                Ok(stream) => return Ok(stream),
                Err(error) if is_out_of_storage(&error.kind()) => {
                    warn!(
                        stream = config.name,
                        bytes = config.max_bytes,
                        "the NATS server has no room for a stream"
                    );
                }
                Err(error) => return Err(refused(OPERATION, &error)),
            }
        }
        let reason = format!("the server has no storage for `{}`", config.name);
        Err(BusError::Refused { operation: OPERATION, reason })
    }
}

fn is_out_of_storage(kind: &CreateStreamErrorKind) -> bool {
    let CreateStreamErrorKind::JetStream(error) = kind else { return false };
    let codes = [ErrorCode::STORAGE_RESOURCES_EXCEEDED, ErrorCode::INSUFFICIENT_RESOURCES];
    codes.contains(&error.error_code())
}
