//! The queue of requests to the bridges of one agent.
//!
//! Each request is delivered to one replica, which acknowledges it after its answer. A request that its replica did not
//! acknowledge is delivered again. A replica *claims* a request before it begins: the claim is known to all replicas, so a
//! request runs once, whatever is delivered twice.

use std::time::Duration;

use crate::embedded::{EmbeddedDelivery, EmbeddedQueue};
#[cfg(feature = "nats")]
use crate::nats::{NatsDelivery, NatsQueue};
#[cfg(feature = "rabbitmq")]
use crate::rabbitmq::{RabbitMqDelivery, RabbitMqQueue};
use crate::{BusError, Envelope, MessageId, ReceivedMessage, Timestamp};

/// A claim is remembered for at least this long. A message with the same id is a duplicate until then.
pub const CLAIM_WINDOW: Duration = Duration::from_secs(10 * 60);

/// The requests to the bridges of one agent: from its own topic, and those from the shared topic that name it.
pub struct RequestQueue(pub(crate) QueueKind);

pub(crate) enum QueueKind {
    Embedded(EmbeddedQueue),
    #[cfg(feature = "nats")]
    Nats(Box<NatsQueue>),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(RabbitMqQueue),
}

impl RequestQueue {
    /// Waits for the next request. Returns `None` once the bus is closed. A lost broker is waited for. Cancel safe.
    pub async fn next(&mut self) -> Option<RequestDelivery> {
        match &mut self.0 {
            QueueKind::Embedded(queue) => queue.next().await,
            #[cfg(feature = "nats")]
            QueueKind::Nats(queue) => queue.next().await,
            #[cfg(feature = "rabbitmq")]
            QueueKind::RabbitMq(queue) => queue.next().await,
        }
    }
}

/// A delivered request. Dropped before it is settled, it is delivered again.
pub struct RequestDelivery {
    pub message: ReceivedMessage,
    /// 1 at the first delivery.
    pub attempt: u32,
    /// The time at which the broker took the request, by its own clock. `None`: the broker does not tell.
    pub stored: Option<Timestamp>,
    pub(crate) kind: DeliveryKind,
}

pub(crate) enum DeliveryKind {
    Embedded(EmbeddedDelivery),
    #[cfg(feature = "nats")]
    Nats(NatsDelivery),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(RabbitMqDelivery),
}

/// The result of an attempt to claim a request.
#[derive(Debug)]
pub enum Claim {
    /// No replica has begun the request.
    Won(ClaimTicket),
    /// A replica has begun this very message and has not acknowledged it: it has ended, or it has lost the broker. The
    /// request may have run.
    Abandoned(ClaimTicket),
    /// Another message with this id was delivered to a replica, which will answer it at the topic that this one names.
    Duplicate,
    /// Another message with this id was delivered to a replica, which will answer it at another topic: look again later.
    InProgress,
    /// The id belongs to a request with another body.
    Reused,
    /// The request was answered with this message.
    Answered(Box<Envelope>),
    /// This very message was answered, and the broker has published the answer: only its acknowledgement is missing.
    Published,
}

/// The right to record the answer of a claimed request.
#[derive(Debug)]
pub struct ClaimTicket {
    pub message_id: MessageId,
    /// The version of the claim, for brokers that compare it.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))]
    pub(crate) revision: u64,
}

macro_rules! dispatch {
    ($self:ident, $delivery:ident => $call:expr) => {
        match &$self.kind {
            DeliveryKind::Embedded($delivery) => $call,
            #[cfg(feature = "nats")]
            DeliveryKind::Nats($delivery) => $call,
            #[cfg(feature = "rabbitmq")]
            DeliveryKind::RabbitMq($delivery) => $call,
        }
    };
}

impl RequestDelivery {
    /// Claims the request for this replica.
    pub async fn claim(&self, id: &MessageId) -> Result<Claim, BusError> {
        dispatch!(self, delivery => delivery.claim(id).await)
    }

    /// Gives a claim back: the request has not begun after all.
    pub async fn release(&self, ticket: ClaimTicket) -> Result<(), BusError> {
        dispatch!(self, delivery => delivery.release(ticket).await)
    }

    /// Returns a ticket for the answer of a request that begins before its claim is known, or `None` where that makes no sense:
    /// the broker must have checked that this message is the first with its id, and deliver it for the first time. That is no
    /// proof (a broker that was killed may have forgotten a delivery), so only a call that may run twice begins so early. Its
    /// answer is the only one all the same.
    pub fn early_ticket(&self, id: &MessageId) -> Option<ClaimTicket> {
        match &self.kind {
            #[cfg(feature = "nats")]
            DeliveryKind::Nats(delivery) => delivery.early_ticket(id),
            _ => {
                let _ = id;
                None
            }
        }
    }

    /// Returns true if the broker publishes a recorded answer by itself, to the topic that the request names.
    pub fn publishes_recorded_answer(&self) -> bool {
        match &self.kind {
            #[cfg(feature = "nats")]
            DeliveryKind::Nats(delivery) => delivery.publishes_recorded_answer(),
            _ => false,
        }
    }

    /// Records the answer. It is published afterwards, unless the broker does so (`publishes_recorded_answer`). Returns false
    /// if another replica has recorded one: then this one must not be published.
    pub async fn record_answer(&self, ticket: &ClaimTicket, answer: &Envelope) -> Result<bool, BusError> {
        dispatch!(self, delivery => delivery.record_answer(ticket, answer).await)
    }

    /// Tells the broker that the request is still being handled. Callers do so every [`KEEP_INTERVAL`].
    pub async fn keep(&self) -> Result<(), BusError> {
        dispatch!(self, delivery => delivery.keep().await)
    }

    /// Removes the request from the queue.
    pub async fn acknowledge(self) -> Result<(), BusError> {
        dispatch!(self, delivery => delivery.acknowledge().await)
    }

    /// Lets the request be delivered again after `delay`.
    pub async fn return_after(self, delay: Duration) -> Result<(), BusError> {
        dispatch!(self, delivery => delivery.return_after(delay).await)
    }
}

/// The interval of [`RequestDelivery::keep`].
pub const KEEP_INTERVAL: Duration = Duration::from_millis(1500);
