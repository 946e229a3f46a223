//! The recorded answers of requests, which all replicas of an agent's bridges share.
//!
//! An answer has a subject of its own, made of its request and of its topic. The server takes the first message of a subject
//! alone, and publishes what it takes to the topic: recording and publishing are one step of the server. A replica that was
//! stopped for a while, and answers late, is refused by the server itself.

use std::fmt::Write;

use async_nats::HeaderValue;
use async_nats::jetstream::stream::Republish;
use bytes::Bytes;

use super::claims::key;
use super::jetstream::{JetStream, LastMessage, PublishError};
use super::{streams, to_broker_headers};
use crate::request_identity::RequestIdentity;
use crate::{AgentName, BusError, Envelope};

/// The topics whose answers the server publishes. Those to an inbox are published by the bridge.
const RESULT_TOPICS: &str = "tool.result.";
/// The attempts to store an answer in a stream that somebody removes.
const MAX_ATTEMPTS: usize = 3;

/// The server process that has stored the answer.
const SERVER_HEADER: &str = "Bascule-Server";

/// An answer, and whether the server is known to have published it.
pub(super) struct RecordedAnswer {
    pub(super) answer: Envelope,
    pub(super) is_published: bool,
}

pub(super) struct Answers {
    jetstream: JetStream,
    agent: AgentName,
    max_bytes: usize,
    /// The stream publishes what it stores. One that an operator has made need not do so.
    republishes: bool,
}

impl Answers {
    /// Creates the stream if it is absent.
    pub(super) async fn open(
        jetstream: &JetStream,
        agent: &AgentName,
        max_bytes: usize,
    ) -> Result<Self, BusError> {
        let stream = jetstream.ensure_stream(streams::answers()).await?;
        let republishes = stream.cached_info().config.republish == streams::answers().republish;
        Ok(Self { jetstream: jetstream.clone(), agent: agent.clone(), max_bytes, republishes })
    }

    /// Returns true if the server publishes the recorded answer of this request.
    pub(super) fn are_published(&self, request: &RequestIdentity) -> bool {
        self.republishes && request.answer_topic.as_str().starts_with(RESULT_TOPICS)
    }

    /// Records the answer. Returns false if another one was recorded before.
    pub(super) async fn record(
        &self,
        request: &RequestIdentity,
        answer: &Envelope,
    ) -> Result<bool, BusError> {
        const OPERATION: &str = "record an answer";
        let (subject, payload) = (self.subject(request), Bytes::from(answer.to_bytes()));
        if payload.len() > self.max_bytes {
            return Err(BusError::TooLarge { bytes: payload.len(), limit: self.max_bytes });
        }
        for _ in 0..MAX_ATTEMPTS {
            let mut headers = to_broker_headers(answer);
            if let Some(server) = self.server() {
                headers.insert(SERVER_HEADER, server.as_str());
            }
            let stored =
                self.jetstream.compare_and_store(OPERATION, &subject, 0, headers, payload.clone()).await;
            match stored {
                Ok(_) => return Ok(true),
                Err(PublishError::WrongSequence) => {
                    // It was stored, but the connection was lost before this replica knew. All replicas give the answer to a
                    // request the same id, so the whole answer decides.
                    let recorded = self.read(OPERATION, &subject).await?;
                    return Ok(recorded.is_some_and(|recorded| recorded.payload == payload));
                }
                Err(PublishError::NoStream) => {
                    self.jetstream.ensure_stream(streams::answers()).await?;
                }
                Err(error) => return Err(error.into_bus_error(OPERATION)),
            }
        }
        Err(PublishError::NoStream.into_bus_error(OPERATION))
    }

    /// Returns the recorded answer, if there is one.
    pub(super) async fn find(&self, request: &RequestIdentity) -> Result<Option<RecordedAnswer>, BusError> {
        const OPERATION: &str = "read a recorded answer";
        let Some(stored) = self.read(OPERATION, &self.subject(request)).await? else { return Ok(None) };
        let unreadable = |error: crate::EnvelopeError| BusError::Refused {
            operation: OPERATION,
            reason: error.to_string(),
        };
        let answer = Envelope::parse(&stored.payload).map_err(unreadable)?;
        let server = stored.headers.get(SERVER_HEADER).map(HeaderValue::as_str);
        let is_same_server = server.is_some() && server == self.server().as_deref();
        Ok(Some(RecordedAnswer { answer, is_published: is_same_server && self.are_published(request) }))
    }

    async fn read(&self, operation: &'static str, subject: &str) -> Result<Option<LastMessage>, BusError> {
        self.jetstream.read_last(operation, streams::ANSWERS, subject).await
    }

    /// The id of the server process, if it stores and publishes by itself. A server that is killed may have stored an answer
    /// and not published it; in a cluster that server need not be the one at the other end.
    fn server(&self) -> Option<String> {
        let info = self.jetstream.connection().client().server_info();
        info.cluster.is_none().then_some(info.server_id)
    }

    /// The subject of the answer. The digest is in it, so that a message with a used id and another body never gets the
    /// answer of another request.
    fn subject(&self, request: &RequestIdentity) -> String {
        let (agent, key, digest) = (&self.agent, key(&request.id), &request.digest);
        let (class, topic) = match request.answer_topic.as_str().strip_prefix(RESULT_TOPICS) {
            Some(topic) => ("answer", topic),
            None => ("record", request.answer_topic.as_str()),
        };
        let mut subject = String::with_capacity(64 + key.len() + topic.len());
        let _ = write!(subject, "bascule.{class}.{agent}.{key}.{digest}.{topic}");
        subject
    }
}

/// `bascule.answer.AGENT.ID.DIGEST.TOPIC` is published to `tool.result.TOPIC`.
pub(super) fn republish() -> Republish {
    Republish {
        source: "bascule.answer.*.*.*.>".into(),
        destination: format!("{RESULT_TOPICS}>"),
        headers_only: false,
    }
}
