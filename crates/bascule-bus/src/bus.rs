//! The bus between agents and bridges: inside the process, or a broker.

use std::sync::Arc;

use crate::dead_letters::{DeadLetterId, StoredDeadLetter};
use crate::embedded::EmbeddedRequests;
#[cfg(feature = "nats")]
use crate::nats::NatsBus;
#[cfg(feature = "rabbitmq")]
use crate::rabbitmq::RabbitMqBus;
use crate::requests::QueueKind;
use crate::{
    AgentName, BusError, BusKind, BusOptions, EmbeddedBus, Envelope, ReceivedMessage, RequestQueue,
    ResultObject, SubscribeOptions, Subscription, SubscriptionItem, Topic, TopicPattern,
};

/// A connection to a bus. Clones share it.
#[derive(Clone)]
pub struct Bus(BusInner);

#[derive(Clone)]
enum BusInner {
    Embedded(Arc<EmbeddedBus>, Arc<EmbeddedRequests>),
    #[cfg(feature = "nats")]
    Nats(Arc<NatsBus>),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(Arc<RabbitMqBus>),
}

/// The way of a result that is too long for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeResults {
    /// Messages have no limit.
    Inline,
    /// It becomes an object, and the answer names it.
    Objects,
    /// It follows the answer in parts.
    Parts,
}

impl Bus {
    /// Uses a bus inside the process.
    pub fn embedded(bus: Arc<EmbeddedBus>) -> Self {
        Self(BusInner::Embedded(bus, Arc::default()))
    }

    /// Connects to a broker. Fails if it cannot be reached now; a broker that is lost later is reconnected.
    pub async fn connect(options: &BusOptions) -> Result<Self, BusError> {
        match options.url.kind() {
            BusKind::Embedded => Ok(Self::embedded(Arc::default())),
            #[cfg(feature = "nats")]
            BusKind::Nats => Ok(Self(BusInner::Nats(Arc::new(NatsBus::connect(options).await?)))),
            #[cfg(not(feature = "nats"))]
            BusKind::Nats => Err(BusError::NotBuilt { scheme: "nats", feature: "nats" }),
            #[cfg(feature = "rabbitmq")]
            BusKind::RabbitMq => Ok(Self(BusInner::RabbitMq(Arc::new(RabbitMqBus::connect(options).await?)))),
            #[cfg(not(feature = "rabbitmq"))]
            BusKind::RabbitMq => Err(BusError::NotBuilt { scheme: "amqp", feature: "rabbitmq" }),
        }
    }

    /// Publishes a message. Returns once the bus has taken it: a request is then safe, other messages reach those who listen
    /// now. While a broker is lost it waits for it, for a few seconds.
    pub async fn publish(&self, topic: &Topic, envelope: &Envelope) -> Result<(), BusError> {
        match &self.0 {
            BusInner::Embedded(bus, requests) => {
                requests.offer(topic, envelope)?;
                bus.publish(topic, Arc::new(envelope.clone()));
                Ok(())
            }
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.publish(topic, envelope).await,
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.publish(topic, envelope).await,
        }
    }

    /// Publishes a message that is no request, and returns once the broker has handled it: whoever listens now gets it. It is
    /// sent again if the connection was lost meanwhile, so it may come twice.
    pub async fn publish_surely(&self, topic: &Topic, envelope: &Envelope) -> Result<(), BusError> {
        match &self.0 {
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.publish_surely(topic, envelope).await,
            _ => self.publish(topic, envelope).await,
        }
    }

    /// Subscribes to all matching topics. Every subscriber gets every message that is published from now on.
    pub async fn subscribe(&self, pattern: &TopicPattern) -> Result<BusSubscription, BusError> {
        let kind = match &self.0 {
            BusInner::Embedded(bus, _) => {
                SubscriptionKind::Embedded(bus.subscribe(pattern.clone(), SubscribeOptions::default()))
            }
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => SubscriptionKind::Nats(bus.subscribe(pattern).await?),
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => SubscriptionKind::RabbitMq(bus.subscribe(pattern).await?),
        };
        Ok(BusSubscription(kind))
    }

    /// Takes part in the handling of an agent's requests. At most `prefetch` of them are delivered before they are settled.
    /// Creates at the broker what it needs.
    pub async fn requests(&self, agent: &AgentName, prefetch: usize) -> Result<RequestQueue, BusError> {
        let kind = match &self.0 {
            BusInner::Embedded(_, requests) => QueueKind::Embedded(requests.open(agent, prefetch)),
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => QueueKind::Nats(Box::new(bus.requests(agent, prefetch).await?)),
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => QueueKind::RabbitMq(bus.requests(agent, prefetch).await?),
        };
        Ok(RequestQueue(kind))
    }

    /// The largest envelope that one message can hold.
    pub fn max_message_bytes(&self) -> usize {
        match &self.0 {
            BusInner::Embedded(..) => usize::MAX,
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.max_message_bytes(),
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.max_message_bytes(),
        }
    }

    pub fn large_results(&self) -> LargeResults {
        match &self.0 {
            BusInner::Embedded(..) => LargeResults::Inline,
            #[cfg(feature = "nats")]
            BusInner::Nats(_) => LargeResults::Objects,
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(_) => LargeResults::Parts,
        }
    }

    /// Stores a long result. Only for a bus with [`LargeResults::Objects`].
    pub async fn put_result(&self, name: &str, content: &[u8]) -> Result<ResultObject, BusError> {
        match &self.0 {
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.put_result(name, content).await,
            _ => Err(no_objects(content.len(), name)),
        }
    }

    /// Reads a stored result. Refuses one that is longer than `limit`.
    pub async fn get_result(&self, object: &ResultObject, limit: usize) -> Result<Vec<u8>, BusError> {
        match &self.0 {
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.get_result(object, limit).await,
            _ => Err(no_objects(limit, &object.name)),
        }
    }

    /// Lists the dead letters that the broker keeps, oldest first, at most `limit`. The embedded bus keeps none.
    pub async fn dead_letters(&self, limit: usize) -> Result<Vec<StoredDeadLetter>, BusError> {
        match &self.0 {
            BusInner::Embedded(..) => {
                let _ = limit;
                Ok(Vec::new())
            }
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.dead_letters(limit).await,
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.dead_letters(limit).await,
        }
    }

    /// Removes a dead letter. Returns false if there is none with this id.
    pub async fn remove_dead_letter(&self, id: &DeadLetterId) -> Result<bool, BusError> {
        match &self.0 {
            BusInner::Embedded(..) => {
                let _ = id;
                Ok(false)
            }
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.remove_dead_letter(id).await,
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.remove_dead_letter(id).await,
        }
    }

    /// Publishes bytes as they are: a dead letter that is queued again.
    pub async fn publish_bytes(&self, topic: &Topic, payload: &[u8]) -> Result<(), BusError> {
        match &self.0 {
            BusInner::Embedded(..) => match Envelope::parse(payload) {
                Ok(envelope) => self.publish(topic, &envelope).await,
                Err(error) => Err(BusError::Refused { operation: "publish", reason: error.to_string() }),
            },
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.publish_bytes(topic, payload).await,
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.publish_bytes(topic, payload).await,
        }
    }

    /// Returns false while a lost broker is being reconnected.
    pub fn is_connected(&self) -> bool {
        match &self.0 {
            BusInner::Embedded(..) => true,
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.is_connected(),
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.is_connected(),
        }
    }

    /// Tells of the connections to the broker after the present one, or after the lost one. Each caller hears of every loss.
    pub fn reconnections(&self) -> BusReconnections {
        BusReconnections(match &self.0 {
            BusInner::Embedded(..) => ReconnectionsKind::Embedded,
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => ReconnectionsKind::Nats(bus.reconnections()),
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => ReconnectionsKind::RabbitMq(bus.reconnections()),
        })
    }

    /// Sends what is pending and closes the connection. Subscriptions and queues end.
    pub async fn close(&self) {
        match &self.0 {
            BusInner::Embedded(bus, requests) => {
                bus.close();
                requests.close();
            }
            #[cfg(feature = "nats")]
            BusInner::Nats(bus) => bus.close().await,
            #[cfg(feature = "rabbitmq")]
            BusInner::RabbitMq(bus) => bus.close().await,
        }
    }
}

fn no_objects(bytes: usize, name: &str) -> BusError {
    let reason = format!("the bus has no object store for `{name}` ({bytes} bytes)");
    BusError::Refused { operation: "use the object store", reason }
}

/// The reconnections of a bus that one task has not heard of.
pub struct BusReconnections(ReconnectionsKind);

enum ReconnectionsKind {
    Embedded,
    #[cfg(feature = "nats")]
    Nats(crate::nats::NatsReconnections),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(crate::rabbitmq::RabbitMqReconnections),
}

impl BusReconnections {
    /// Waits until the broker is connected again after a loss. Returns at once if that happened since the last call; several
    /// losses count as one. Never returns for the embedded bus. Cancel safe.
    pub async fn next(&mut self) {
        match &mut self.0 {
            ReconnectionsKind::Embedded => std::future::pending().await,
            #[cfg(feature = "nats")]
            ReconnectionsKind::Nats(reconnections) => reconnections.next().await,
            #[cfg(feature = "rabbitmq")]
            ReconnectionsKind::RabbitMq(reconnections) => reconnections.next().await,
        }
    }
}

/// The messages of matching topics. Dropping it unsubscribes.
pub struct BusSubscription(SubscriptionKind);

enum SubscriptionKind {
    Embedded(Subscription),
    #[cfg(feature = "nats")]
    Nats(crate::nats::NatsSubscription),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(crate::rabbitmq::RabbitMqSubscription),
}

/// An item of a subscription.
#[derive(Debug, Clone)]
pub enum ReceivedItem {
    Message(ReceivedMessage),
    /// This many messages were dropped at this point, because the subscriber is slow. On RabbitMQ one also stands for all that
    /// came while the subscription was interrupted.
    Lost(u64),
}

impl BusSubscription {
    /// Waits for the next item. Returns `None` once the bus is closed. A lost broker is waited for; messages that are
    /// published meanwhile are missed. Cancel safe.
    pub async fn next(&mut self) -> Option<ReceivedItem> {
        match &mut self.0 {
            SubscriptionKind::Embedded(subscription) => match subscription.next().await? {
                SubscriptionItem::Lost(count) => Some(ReceivedItem::Lost(count)),
                SubscriptionItem::Message(message) => {
                    let content = Ok(Arc::new(Envelope::clone(&message.envelope)));
                    Some(ReceivedItem::Message(ReceivedMessage { topic: message.topic, content }))
                }
            },
            #[cfg(feature = "nats")]
            SubscriptionKind::Nats(subscription) => subscription.next().await,
            #[cfg(feature = "rabbitmq")]
            SubscriptionKind::RabbitMq(subscription) => subscription.next().await,
        }
    }
}
