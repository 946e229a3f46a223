//! The requests of one agent's bridges.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::claims::Claims;
use super::delivery::{NatsDelivery, PulledMessage};
use super::jetstream::JetStream;
use super::puller::Puller;
use super::shared_requests::{self, SHARED_PREFETCH, UnroutableRequest};
use super::streams;
use crate::requests::DeliveryKind;
use crate::{AgentName, BusError, ReceivedMessage, RequestDelivery, Topic, UnreadableMessage};

/// A replica that is silent for this long has ended; it keeps a request every `KEEP_INTERVAL`.
const ACK_WAIT: Duration = Duration::from_secs(5);
/// An agent that is away for longer loses its consumer, but none of its requests.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The replicas of one agent together handle at most this many requests.
const MAX_UNSETTLED: i64 = 10_000;

/// The end of the queue that one replica reads.
pub(crate) struct NatsQueue {
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
        let consumer = consumer(&format!("agent-{agent}"), agent.request_topic().as_str());
        let puller = Puller::open(jetstream, consumer, prefetch).await?;
        let (sender, unroutable) = mpsc::channel(SHARED_PREFETCH);
        let mut router = JoinSet::new();
        router.spawn(shared_requests::route(jetstream.clone(), sender));
        let claims = Arc::new(Claims::new(jetstream.clone(), agent, max_message_bytes));
        Ok(Self { puller, claims, next_number: 0, unroutable, _router: router })
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
        let PulledMessage { payload, position, settlement, .. } = message;
        let kind =
            NatsDelivery { claims: self.claims.clone(), position, number: self.next_number, settlement };
        self.next_number += 1;
        RequestDelivery {
            message: read(topic, payload, refusal),
            attempt: position.attempt,
            kind: DeliveryKind::Nats(kind),
        }
    }
}

fn read(topic: Topic, payload: Bytes, refusal: Option<String>) -> ReceivedMessage {
    match refusal {
        None => ReceivedMessage::read(topic, payload),
        Some(reason) => ReceivedMessage { topic, content: Err(UnreadableMessage { reason, payload }) },
    }
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
