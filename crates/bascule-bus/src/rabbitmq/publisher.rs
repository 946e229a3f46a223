//! Publishes messages, and requests that must not vanish.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::describe;
use super::link::{BrokerConnection, BrokerHandle, OPERATION_TIMEOUT, random_u64};
use crate::{BusError, Envelope, Topic};

/// The requests that wait to be published. Publishers of more wait for room.
const QUEUED_REQUESTS: usize = 1024;
/// The requests that are published before their confirmations are awaited.
const BATCH: usize = 256;
/// Longer headers stay in the envelope alone: all properties of a message must fit in one frame.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const PERSISTENT: u8 = 2;
const OPERATION: &str = "publish the request";

/// A message for an exchange.
pub(super) struct OutgoingMessage {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) payload: Bytes,
    pub(super) properties: BasicProperties,
}

impl OutgoingMessage {
    pub(super) async fn publish(
        &self,
        channel: &Channel,
        options: BasicPublishOptions,
    ) -> lapin::Result<PublisherConfirm> {
        let (exchange, key) = (self.exchange.clone(), self.routing_key.clone());
        channel.basic_publish(exchange, key, options, &self.payload, self.properties.clone()).await
    }

    /// Returns true if it is the message that came back.
    fn is(&self, returned: &BasicReturnMessage) -> bool {
        self.routing_key == returned.routing_key
            && self.properties.message_id() == returned.properties.message_id()
    }
}

/// Properties of a JSON message that outlives the broker's restart.
pub(super) fn json_properties() -> BasicProperties {
    BasicProperties::default().with_content_type("application/json".into()).with_delivery_mode(PERSISTENT)
}

/// The metadata of an envelope, for brokers and programs that do not read it.
pub(super) fn envelope_properties(envelope: &Envelope) -> BasicProperties {
    let mut properties = json_properties()
        .with_message_id(envelope.message_id.as_str().into())
        .with_timestamp(envelope.timestamp.unix_millis() / 1000);
    let short = |text: &str| (text.len() <= 255).then(|| ShortString::from(text));
    if let Some(kind) = short(&envelope.kind) {
        properties = properties.with_type(kind);
    }
    if let Some(id) = envelope.correlation_id.as_ref().and_then(|id| short(id.as_str())) {
        properties = properties.with_correlation_id(id);
    }
    properties.with_headers(headers(envelope))
}

fn headers(envelope: &Envelope) -> FieldTable {
    let bytes: usize = envelope.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut table = FieldTable::default();
    for (name, value) in
        envelope.headers.iter().filter(|(name, _)| bytes <= MAX_HEADER_BYTES && name.len() <= 255)
    {
        table.insert((&**name).into(), AMQPValue::LongString((&**value).into()));
    }
    table
}

/// Properties of a message that is published as it is.
pub(super) fn raw_properties() -> BasicProperties {
    json_properties().with_message_id(format!("{:016x}", random_u64()).into())
}

/// Publishes requests so that one without a queue comes back.
///
/// The client hands a returned message to any confirmation that arrives with it, not to its own. A task therefore publishes
/// requests in batches, and looks at the returned messages once all of a batch are confirmed.
pub(super) struct RequestPublisher {
    requests: mpsc::Sender<QueuedRequest>,
    task: AbortHandle,
}

struct QueuedRequest {
    message: OutgoingMessage,
    done: oneshot::Sender<RequestFate>,
}

pub(super) enum RequestFate {
    Taken,
    Full,
    /// No queue takes it.
    Returned,
    /// The broker does not take it, now or later.
    Refused(String),
}

impl RequestPublisher {
    pub(super) fn start(link: BrokerHandle) -> Self {
        let (requests, receiver) = mpsc::channel(QUEUED_REQUESTS);
        let task = tokio::spawn(publish_batches(link, receiver)).abort_handle();
        Self { requests, task }
    }

    /// Returns once the broker has queued the request.
    pub(super) async fn publish(&self, topic: &Topic, message: OutgoingMessage) -> Result<(), BusError> {
        let reason = match self.try_publish(message).await? {
            RequestFate::Taken => return Ok(()),
            RequestFate::Full => return Err(BusError::Full),
            RequestFate::Returned => no_queue(topic),
            RequestFate::Refused(reason) => reason,
        };
        Err(BusError::Refused { operation: OPERATION, reason })
    }

    /// Returns once the broker has queued the request, or said that it does not.
    pub(super) async fn try_publish(&self, message: OutgoingMessage) -> Result<RequestFate, BusError> {
        let publish = async {
            let (done, fate) = oneshot::channel();
            self.requests.send(QueuedRequest { message, done }).await.map_err(|_| BusError::Closed)?;
            fate.await.map_err(|_| BusError::Closed)
        };
        let timeout =
            |_| Err(BusError::Timeout { operation: OPERATION, seconds: OPERATION_TIMEOUT.as_secs() });
        tokio::time::timeout(OPERATION_TIMEOUT, publish).await.unwrap_or_else(timeout)
    }

    /// Ends the task. Requests that are not published yet fail.
    pub(super) fn close(&self) {
        self.task.abort();
    }
}

impl Drop for RequestPublisher {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reason why a request came back.
pub(super) fn no_queue(topic: &Topic) -> String {
    format!("no bridge has served `{topic}` at this broker yet, so no queue takes it")
}

async fn publish_batches(link: BrokerHandle, mut requests: mpsc::Receiver<QueuedRequest>) {
    let mut channel = BatchChannel::default();
    let mut batch = Vec::with_capacity(BATCH);
    while requests.recv_many(&mut batch, BATCH).await > 0 {
        // Their publishers have given up.
        batch.retain(|request| !request.done.is_closed());
        let Some(fates) = channel.publish(&link, &batch).await else { return };
        for (request, fate) in batch.drain(..).zip(fates) {
            let _ = request.done.send(fate);
        }
    }
}

/// The reason why a batch was not published.
enum BatchError {
    /// The channel has ended.
    Channel(lapin::Error),
    /// The connection has ended, or does not respond.
    Connection,
}

/// The channel of one connection.
#[derive(Default)]
struct BatchChannel {
    generation: u64,
    channel: OnceCell<Channel>,
}

impl BatchChannel {
    /// Publishes all, again after a loss. Returns `None` once the bus is closed.
    async fn publish(&mut self, link: &BrokerHandle, batch: &[QueuedRequest]) -> Option<Vec<RequestFate>> {
        loop {
            let connection = link.connection_after(0).await.ok()?;
            if connection.generation != self.generation {
                *self = Self { generation: connection.generation, channel: OnceCell::new() };
            }
            match self.publish_on(&connection, batch).await {
                Ok(fates) => return Some(fates),
                Err(_) => {
                    connection.give_up();
                    link.connection_after(connection.generation).await.ok()?;
                }
            }
        }
    }

    /// A request that the broker refuses ends the channel, and the error does not say which one it was. Then each is published
    /// by itself. Those that the broker has taken before come twice, under their ids.
    async fn publish_on(
        &mut self,
        connection: &Arc<BrokerConnection>,
        batch: &[QueuedRequest],
    ) -> Result<Vec<RequestFate>, BatchError> {
        match self.try_publish(connection, batch).await {
            Err(BatchError::Channel(_)) => {}
            published => return published,
        }
        let mut fates = Vec::with_capacity(batch.len());
        for request in batch {
            match self.try_publish(connection, std::slice::from_ref(request)).await {
                Ok(fate) => fates.extend(fate),
                Err(BatchError::Channel(error)) if error.is_amqp_soft_error() => {
                    fates.push(RequestFate::Refused(describe(&error)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(fates)
    }

    async fn try_publish(
        &mut self,
        connection: &Arc<BrokerConnection>,
        batch: &[QueuedRequest],
    ) -> Result<Vec<RequestFate>, BatchError> {
        let publish = self.publish_and_confirm(connection, batch);
        match tokio::time::timeout(OPERATION_TIMEOUT, publish).await {
            Ok(Ok(fates)) => Ok(fates),
            Ok(Err(error)) if connection.is_open() => {
                self.channel = OnceCell::new();
                Err(BatchError::Channel(error))
            }
            Ok(Err(_)) | Err(_) => Err(BatchError::Connection),
        }
    }

    async fn publish_and_confirm(
        &self,
        connection: &Arc<BrokerConnection>,
        batch: &[QueuedRequest],
    ) -> lapin::Result<Vec<RequestFate>> {
        let channel = self.channel.get_or_try_init(|| connection.confirming_channel()).await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let confirms =
            try_join_all(batch.iter().map(|request| request.message.publish(channel, options))).await?;
        let mut is_full = Vec::with_capacity(batch.len());
        let mut returned = Vec::new();
        for confirmation in join_all(confirms).await {
            let confirmation = confirmation?;
            is_full.push(matches!(confirmation, Confirmation::Nack(_)));
            returned.extend(confirmation.take_message());
        }
        let fate = |(request, is_full): (&QueuedRequest, bool)| match returned
            .iter()
            .any(|it| request.message.is(it))
        {
            true => RequestFate::Returned,
            false if is_full => RequestFate::Full,
            false => RequestFate::Taken,
        };
        Ok(batch.iter().zip(is_full).map(fate).collect())
    }
}
