//! RabbitMQ as a bus.
//!
//! Topics are routing keys of one topic exchange (`topology`). `link` keeps the connection; `publisher` and `subscription`
//! are messages for everybody; `requests` is the queue of an agent. RabbitMQ has no store that replicas could compare and
//! set, so claims and answers are entries of a stream that all replicas read in the same order (`claim_log`, `ledger`).

mod address;
mod batched_consumer;
mod claim_entry;
mod claim_log;
mod dead_letters;
mod ledger;
mod link;
mod publisher;
mod requests;
mod shared_requests;
mod subscription;
mod topology;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use lapin::{BasicProperties, ErrorKind};
use tokio::sync::OnceCell;

use self::address::BrokerAddress;
pub(crate) use self::link::RabbitMqReconnections;
use self::link::{BrokerConnection, BrokerHandle};
use self::publisher::{OutgoingMessage, RequestPublisher};
use self::requests::AgentRequests;
pub(crate) use self::requests::{RabbitMqDelivery, RabbitMqQueue};
pub(crate) use self::subscription::RabbitMqSubscription;
use crate::{
    AgentName, BusError, BusOptions, DeadLetterId, Envelope, SharedTopics, StoredDeadLetter, Topic,
    TopicPattern,
};

/// The largest message unless it is configured. A broker does not tell its limit, which is 16 to 512 MiB by version.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// A connection to a RabbitMQ broker.
pub(crate) struct RabbitMqBus {
    link: BrokerHandle,
    request_publisher: Arc<RequestPublisher>,
    max_message_bytes: usize,
    /// The agents whose requests are taken here. Queues of one agent share its claims.
    agents: Mutex<HashMap<AgentName, Arc<OpenedRequests>>>,
}

/// The requests of an agent, once they are open, and for as long as a queue uses them.
type OpenedRequests = OnceCell<Weak<AgentRequests>>;

impl RabbitMqBus {
    pub(crate) async fn connect(options: &BusOptions) -> Result<Self, BusError> {
        let link = BrokerHandle::open(BrokerAddress::new(options)?).await?;
        Ok(Self {
            request_publisher: Arc::new(RequestPublisher::start(link.clone())),
            link,
            max_message_bytes: options.max_message_bytes.unwrap_or(MAX_MESSAGE_BYTES),
            agents: Mutex::default(),
        })
    }

    pub(crate) async fn publish(&self, topic: &Topic, envelope: &Envelope) -> Result<(), BusError> {
        self.send(topic, envelope.to_bytes().into(), publisher::envelope_properties(envelope)).await
    }

    pub(crate) async fn publish_bytes(&self, topic: &Topic, payload: &[u8]) -> Result<(), BusError> {
        self.send(topic, Bytes::copy_from_slice(payload), publisher::raw_properties()).await
    }

    async fn send(&self, topic: &Topic, payload: Bytes, properties: BasicProperties) -> Result<(), BusError> {
        let (bytes, limit) = (payload.len(), self.max_message_bytes);
        if bytes > limit {
            return Err(BusError::TooLarge { bytes, limit });
        }
        let (exchange, routing_key) = (topology::EXCHANGE.into(), topic.as_str().into());
        let message = OutgoingMessage { exchange, routing_key, payload, properties };
        match is_request(topic) {
            true => self.request_publisher.publish(topic, message).await,
            false => self.send_to_all(message).await,
        }
    }

    async fn send_to_all(&self, message: OutgoingMessage) -> Result<(), BusError> {
        let publish = |connection: Arc<BrokerConnection>| {
            let message = &message;
            async move { connection.publish(message).await }
        };
        match self.link.run("publish", publish).await? {
            true => Ok(()),
            false => Err(BusError::Full),
        }
    }

    pub(crate) async fn subscribe(&self, pattern: &TopicPattern) -> Result<RabbitMqSubscription, BusError> {
        RabbitMqSubscription::open(self.link.clone(), pattern).await
    }

    pub(crate) async fn requests(
        &self,
        agent: &AgentName,
        prefetch: usize,
    ) -> Result<RabbitMqQueue, BusError> {
        Ok(RabbitMqQueue::start(self.agent_requests(agent).await?, prefetch))
    }

    /// Opens the requests of an agent. Two queues that are opened at the same time find the same claims.
    async fn agent_requests(&self, agent: &AgentName) -> Result<Arc<AgentRequests>, BusError> {
        loop {
            let mut opened = None;
            let present = self.opened_requests(agent);
            let open = async || {
                let publisher = self.request_publisher.clone();
                let requests = AgentRequests::open(self.link.clone(), publisher, agent.clone()).await?;
                Ok(Arc::downgrade(opened.insert(Arc::new(requests))))
            };
            let found = present.get_or_try_init(open).await?.upgrade();
            // Another task may have opened and left them meanwhile.
            if let Some(requests) = found {
                return Ok(requests);
            }
        }
    }

    fn opened_requests(&self, agent: &AgentName) -> Arc<OpenedRequests> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|_, requests| requests.get().is_none_or(|requests| requests.strong_count() > 0));
        agents.entry(agent.clone()).or_default().clone()
    }

    pub(crate) fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    pub(crate) async fn dead_letters(&self, limit: usize) -> Result<Vec<StoredDeadLetter>, BusError> {
        let list =
            |connection: Arc<BrokerConnection>| async move { dead_letters::list(&connection, limit).await };
        self.link.run("list the dead letters", list).await
    }

    pub(crate) async fn remove_dead_letter(&self, id: &DeadLetterId) -> Result<bool, BusError> {
        let remove =
            |connection: Arc<BrokerConnection>| async move { dead_letters::remove(&connection, id).await };
        self.link.run("remove the dead letter", remove).await
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    pub(crate) fn reconnections(&self) -> RabbitMqReconnections {
        self.link.reconnections()
    }

    pub(crate) async fn close(&self) {
        self.request_publisher.close();
        self.link.close().await;
    }
}

/// Checks the options without a connection.
pub(crate) fn check(options: &BusOptions) -> Result<(), BusError> {
    BrokerAddress::new(options).map(drop)
}

/// Requests and dead letters have queues. Without one they would vanish.
fn is_request(topic: &Topic) -> bool {
    let topic = topic.as_str();
    let is_invocation = topic
        .strip_prefix(SharedTopics::REQUESTS)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    is_invocation || topic == SharedTopics::DEAD_LETTERS
}

/// The cause of a failure. The broker's own words, where it has said something.
fn describe(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_message().to_string(),
        ErrorKind::IOError(error) => error.to_string(),
        // A port of another program. The parser's own words name its internals.
        ErrorKind::ParsingError(_) => "the program at this address does not speak AMQP 0-9-1".to_owned(),
        _ => error.to_string(),
    }
}
