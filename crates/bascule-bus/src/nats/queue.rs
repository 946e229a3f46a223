//! The requests of one agent's bridges.

use std::sync::Arc;
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::answers::Answers;
use super::claims::Claims;
use super::delivery::{NatsDelivery, PulledMessage};
use super::jetstream::JetStream;
use super::puller::Puller;
use super::shared_requests::{self, SHARED_PREFETCH, UnroutableRequest};
use super::streams;
use crate::request_identity::RequestIdentity;
use crate::requests::DeliveryKind;
use crate::{AgentName, BusError, ReceivedMessage, RequestDelivery, Timestamp, Topic, UnreadableMessage};

/// A replica that is silent for this long has ended; it keeps a request every `KEEP_INTERVAL`.
const ACK_WAIT: Duration = Duration::from_secs(5);
/// An agent that is away for longer loses its consumer, but none of its requests.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The replicas of one agent together handle at most this many requests.
const MAX_UNSETTLED: i64 = 10_000;

/// The end of the queue that one replica reads.
pub(crate) struct NatsQueue {
    agent: AgentName,
    puller: Puller,
    claims: Arc<Claims>,
    next_number: u64,
    /// Requests on the shared topic that name no agent. Whoever takes one reports it.
    unroutable: mpsc::Receiver<UnroutableRequest>,
    _router: JoinSet<()>,
}

impl NatsQueue {
    pub(super) async fn open(
        jetstream: &JetStream,
        agent: &AgentName,
        prefetch: usize,
        max_message_bytes: usize,
    ) -> Result<Self, BusError> {
        jetstream.ensure_stream(streams::claims()).await?;
        let answers = Answers::open(jetstream, agent, max_message_bytes).await?;
        let consumer = consumer(&format!("agent-{agent}"), agent.request_topic().as_str());
        let puller = Puller::open(jetstream, consumer, prefetch).await?;
        let (sender, unroutable) = mpsc::channel(SHARED_PREFETCH);
        let mut router = JoinSet::new();
        router.spawn(shared_requests::route(jetstream.clone(), sender));
        let claims = Arc::new(Claims::new(jetstream.clone(), agent, answers));
        Ok(Self { agent: agent.clone(), puller, claims, next_number: 0, unroutable, _router: router })
    }

    pub(crate) async fn next(&mut self) -> Option<RequestDelivery> {
        loop {
            let (message, refusal) = tokio::select! {
                message = self.puller.next() => (message?, None),
                Some(request) = self.unroutable.recv() => (request.message, Some(request.reason)),
            };
            // The filter of the consumer is a topic.
            if let Ok(topic) = Topic::parse(&message.subject) {
                return Some(self.deliver(topic, message, refusal));
            }
        }
    }

    fn deliver(&mut self, topic: Topic, message: PulledMessage, refusal: Option<String>) -> RequestDelivery {
        let PulledMessage { payload, headers, position, settlement, .. } = message;
        let message = read(topic, payload, refusal);
        let kind = NatsDelivery {
            claims: self.claims.clone(),
            request: RequestIdentity::of_message(&message, &self.agent),
            is_first_copy: position.attempt == 1 && has_own_id(&message, &headers),
            position,
            number: self.next_number,
            settlement,
        };
        self.next_number += 1;
        let stored = Some(Timestamp::from_unix_millis(position.stored_nanos / 1_000_000));
        RequestDelivery { message, attempt: position.attempt, stored, kind: DeliveryKind::Nats(kind) }
    }
}

fn read(topic: Topic, payload: Bytes, refusal: Option<String>) -> ReceivedMessage {
    match refusal {
        None => ReceivedMessage::read(topic, payload),
        Some(reason) => ReceivedMessage { topic, content: Err(UnreadableMessage { reason, payload }) },
    }
}

/// Returns true if the stream has checked that the message id is new. A deliberate repetition has no id for the stream.
fn has_own_id(message: &ReceivedMessage, headers: &HeaderMap) -> bool {
    let checked = headers.get(NATS_MESSAGE_ID).map(HeaderValue::as_str);
    message.content.as_ref().is_ok_and(|envelope| checked == Some(envelope.message_id.as_str()))
}

/// A consumer that gives each message of `subject` to one of its readers until it is acknowledged.
pub(super) fn consumer(name: &str, subject: &str) -> Config {
    Config {
        durable_name: Some(name.into()),
        filter_subject: subject.into(),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: MAX_UNSETTLED,
        inactive_threshold: INACTIVE_THRESHOLD,
        ..Config::default()
    }
}
