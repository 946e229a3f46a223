//! NATS as a bus.
//!
//! Requests wait in a JetStream stream, claims in a key-value bucket, long results in an object store; recorded answers, dead
//! letters and events have streams of their own. Everything else is core NATS: it reaches those who listen now.

mod answers;
mod claims;
mod connection;
mod dead_letters;
mod delivery;
mod jetstream;
mod puller;
mod queue;
mod results;
mod shared_requests;
mod streams;
mod subscription;

use std::str::FromStr;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::stream::Config;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use tokio::sync::OnceCell;
use tracing::warn;

use self::connection::NatsConnection;
pub(crate) use self::connection::NatsReconnections;
pub(crate) use self::delivery::NatsDelivery;
use self::jetstream::{JetStream, PublishError, StoredMessage};
pub(crate) use self::queue::NatsQueue;
pub(crate) use self::subscription::NatsSubscription;
use crate::{
    AgentName, BusError, BusOptions, DeadLetterId, Envelope, MessageId, ResultObject, SharedTopics,
    StoredDeadLetter, Topic, TopicPattern,
};

/// The part of a message's limit that is left for the broker's own headers.
const HEADER_SPACE: usize = 4096;

/// A connection to NATS.
pub(crate) struct NatsBus {
    connection: NatsConnection,
    jetstream: JetStream,
    max_message_bytes: Option<usize>,
    /// Set once the stream of events was looked for.
    events: OnceCell<()>,
    /// Set once the stream of dead letters exists.
    dead_letters: OnceCell<()>,
}

impl NatsBus {
    pub(crate) async fn connect(options: &BusOptions) -> Result<Self, BusError> {
        let connection = NatsConnection::open(options).await?;
        Ok(Self {
            jetstream: JetStream::new(connection.clone()),
            connection,
            max_message_bytes: options.max_message_bytes,
            events: OnceCell::new(),
            dead_letters: OnceCell::new(),
        })
    }

    pub(crate) async fn publish(&self, topic: &Topic, envelope: &Envelope) -> Result<(), BusError> {
        let (payload, headers) = (envelope.to_bytes(), to_broker_headers(envelope));
        self.check_size(payload.len())?;
        match TopicClass::of(topic) {
            TopicClass::Request => {
                self.publish_request(topic, headers, Some(&envelope.message_id), payload.into()).await
            }
            TopicClass::DeadLetter => {
                self.publish_dead_letter(topic, headers, Some(&envelope.message_id), payload.into()).await
            }
            TopicClass::Event => {
                self.events.get_or_init(|| self.create_event_stream()).await;
                self.connection.publish(topic.as_str(), headers, payload.into()).await
            }
            TopicClass::Other => self.connection.publish(topic.as_str(), headers, payload.into()).await,
        }
    }

    pub(crate) async fn publish_surely(&self, topic: &Topic, envelope: &Envelope) -> Result<(), BusError> {
        let (payload, headers) = (envelope.to_bytes(), to_broker_headers(envelope));
        self.check_size(payload.len())?;
        self.connection.publish_surely(topic.as_str(), headers, payload.into()).await
    }

    pub(crate) async fn publish_bytes(&self, topic: &Topic, payload: &[u8]) -> Result<(), BusError> {
        self.check_size(payload.len())?;
        let (headers, payload) = (HeaderMap::new(), Bytes::copy_from_slice(payload));
        match TopicClass::of(topic) {
            TopicClass::Request => self.publish_request(topic, headers, None, payload).await,
            TopicClass::DeadLetter => self.publish_dead_letter(topic, headers, None, payload).await,
            TopicClass::Event | TopicClass::Other => {
                self.connection.publish(topic.as_str(), headers, payload).await
            }
        }
    }

    pub(crate) async fn subscribe(&self, pattern: &TopicPattern) -> Result<NatsSubscription, BusError> {
        NatsSubscription::open(&self.connection, pattern).await
    }

    pub(crate) async fn requests(&self, agent: &AgentName, prefetch: usize) -> Result<NatsQueue, BusError> {
        NatsQueue::open(&self.jetstream, agent, prefetch, self.max_message_bytes()).await
    }

    pub(crate) fn max_message_bytes(&self) -> usize {
        let limit = self.connection.max_payload().saturating_sub(HEADER_SPACE);
        self.max_message_bytes.unwrap_or(usize::MAX).min(limit)
    }

    pub(crate) async fn put_result(&self, name: &str, content: &[u8]) -> Result<ResultObject, BusError> {
        self.jetstream.put_object(name, content).await
    }

    pub(crate) async fn get_result(&self, object: &ResultObject, limit: usize) -> Result<Vec<u8>, BusError> {
        self.jetstream.get_object(object, limit).await
    }

    pub(crate) async fn dead_letters(&self, limit: usize) -> Result<Vec<StoredDeadLetter>, BusError> {
        self.jetstream.list_dead_letters(limit).await
    }

    pub(crate) async fn remove_dead_letter(&self, id: &DeadLetterId) -> Result<bool, BusError> {
        self.jetstream.remove_dead_letter(id).await
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    pub(crate) fn reconnections(&self) -> NatsReconnections {
        self.connection.reconnections()
    }

    pub(crate) async fn close(&self) {
        self.connection.close().await;
    }

    /// Stores a request. Returns once it is safe.
    async fn publish_request(
        &self,
        topic: &Topic,
        headers: HeaderMap,
        id: Option<&MessageId>,
        payload: Bytes,
    ) -> Result<(), BusError> {
        const OPERATION: &str = "publish a request";
        let mut with_id = headers.clone();
        if let Some(id) = id {
            with_id.insert(NATS_MESSAGE_ID, id.as_str());
        }
        let stored = self.store(OPERATION, streams::requests, topic, with_id, payload.clone()).await?;
        // Without a loss the first copy is not ours: somebody asks again, because the answer was missed. A bridge recognises
        // the duplicate and repeats its answer, so the copy must reach one.
        if stored.is_duplicate && !stored.was_repeated {
            self.store(OPERATION, streams::requests, topic, headers, payload).await?;
        }
        Ok(())
    }

    /// The stream is made before the first letter: a listener of the topic would look like a stream that does not respond. A
    /// letter that is published again under its id is kept once.
    async fn publish_dead_letter(
        &self,
        topic: &Topic,
        mut headers: HeaderMap,
        id: Option<&MessageId>,
        payload: Bytes,
    ) -> Result<(), BusError> {
        let ensure = || self.jetstream.ensure_stream(streams::dead_letters());
        self.dead_letters.get_or_try_init(async || ensure().await.map(|_| ())).await?;
        if let Some(id) = id {
            headers.insert(NATS_MESSAGE_ID, id.as_str());
        }
        self.store("publish a dead letter", streams::dead_letters, topic, headers, payload).await.map(|_| ())
    }

    /// Stores a message. Creates the stream if no stream has the topic.
    async fn store(
        &self,
        operation: &'static str,
        stream: fn() -> Config,
        topic: &Topic,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<StoredMessage, BusError> {
        match self.jetstream.store(operation, topic.as_str(), headers.clone(), payload.clone()).await {
            Err(PublishError::NoStream) => self.jetstream.ensure_stream(stream()).await?,
            stored => return stored.map_err(|error| error.into_bus_error(operation)),
        };
        let stored = self.jetstream.store(operation, topic.as_str(), headers, payload).await;
        stored.map_err(|error| error.into_bus_error(operation))
    }

    /// Events also reach those who listen now, so a server without JetStream is no failure.
    async fn create_event_stream(&self) {
        if let Err(error) = self.jetstream.ensure_stream(streams::events()).await {
            warn!(%error, "events are not kept");
        }
    }

    fn check_size(&self, bytes: usize) -> Result<(), BusError> {
        let limit = self.max_message_bytes();
        if bytes > limit { Err(BusError::TooLarge { bytes, limit }) } else { Ok(()) }
    }
}

/// The way of a message, by its topic.
enum TopicClass {
    Request,
    DeadLetter,
    Event,
    Other,
}

impl TopicClass {
    fn of(topic: &Topic) -> Self {
        let is_below =
            |prefix: &str| topic.as_str().strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        match topic.as_str() {
            SharedTopics::REQUESTS => Self::Request,
            SharedTopics::DEAD_LETTERS => Self::DeadLetter,
            _ if is_below(SharedTopics::REQUESTS) => Self::Request,
            _ if is_below("provider.mcp") => Self::Event,
            _ => Self::Other,
        }
    }
}

/// The headers of an envelope as the broker's own. What NATS cannot carry travels in the envelope alone.
fn to_broker_headers(envelope: &Envelope) -> HeaderMap {
    let (mut headers, mut space) = (HeaderMap::new(), HEADER_SPACE / 2);
    for (name, value) in &envelope.headers {
        let size = name.len() + value.len() + ": \r\n".len();
        let (Ok(key), Ok(value)) = (HeaderName::from_str(name), HeaderValue::from_str(value)) else {
            continue;
        };
        if size <= space && !name.is_empty() && !is_reserved(name) {
            headers.insert(key, value);
            space -= size;
        }
    }
    headers
}

/// Returns the headers without those of NATS itself: a message keeps them when it is stored again.
fn without_nats_headers(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| !is_reserved(name.as_ref()));
    kept.flat_map(|(name, values)| values.iter().map(move |value| (name.clone(), value.clone()))).collect()
}

/// JetStream acts on headers with these names.
fn is_reserved(name: &str) -> bool {
    name.get(..5).is_some_and(|prefix| prefix.eq_ignore_ascii_case("nats-"))
}
