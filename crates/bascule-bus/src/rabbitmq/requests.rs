//! The requests of one agent: takes them from the queue, and settles them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel, Consumer};
use tokio::sync::mpsc;

use super::claim_log::{ClaimLog, ClaimResult};
use super::link::{BrokerConnection, BrokerHandle};
use super::publisher::{OutgoingMessage, RequestPublisher, json_properties};
use super::{shared_requests, topology};
use crate::request_identity::RequestIdentity;
use crate::requests::DeliveryKind;
use crate::{
    AgentName, BusError, Claim, ClaimTicket, Envelope, MessageId, ReceivedMessage, RequestDelivery,
    SharedTopics, Topic, UnreadableMessage,
};

/// The most unsettled requests of one replica.
const MAX_PREFETCH: usize = 2_000;
/// The pause before a queue whose consumer ended is read again.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The topic and the earlier attempts of a returned request.
const TOPIC_HEADER: &str = "bascule-topic";
pub(super) const ATTEMPTS_HEADER: &str = "bascule-attempts";

/// The requests of one agent at this replica.
pub(super) struct AgentRequests {
    agent: AgentName,
    pub(super) link: BrokerHandle,
    pub(super) publisher: Arc<RequestPublisher>,
    log: ClaimLog,
    in_flight: Mutex<HashMap<MessageId, HandledRequest>>,
}

/// A request that this replica handles.
struct HandledRequest {
    identity: RequestIdentity,
    settlement: Arc<Settlement>,
}

/// The right to settle a delivery. After a lost connection it is replaced by that of the next delivery.
struct Settlement(Mutex<Option<OpenDelivery>>);

struct OpenDelivery {
    acker: Acker,
    generation: u64,
    /// The channel is open as long as one of its deliveries is unsettled.
    _channel: Channel,
}

impl AgentRequests {
    /// Declares the agent's queues, and reads its claims.
    pub(super) async fn open(
        link: BrokerHandle,
        publisher: Arc<RequestPublisher>,
        agent: AgentName,
    ) -> Result<Self, BusError> {
        let name = &agent;
        let declare = |connection: Arc<BrokerConnection>| async move {
            topology::declare_agent(&connection.channel().await?, name).await
        };
        link.run("declare the agent's queues", declare).await?;
        let log = ClaimLog::open(link.clone(), agent.clone()).await?;
        Ok(Self { agent, link, publisher, log, in_flight: Mutex::default() })
    }

    /// Takes requests until the queue is dropped, or the bus is closed.
    async fn take_for_ever(self: Arc<Self>, prefetch: u16, deliveries: mpsc::Sender<RequestDelivery>) {
        while let Ok(connection) = self.link.connection().await {
            if let Err(error) = self.take(&connection, prefetch, &deliveries).await {
                tracing::debug!(agent = %self.agent, %error, "taking requests again");
            }
            if deliveries.is_closed() {
                return;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn take(
        self: &Arc<Self>,
        connection: &BrokerConnection,
        prefetch: u16,
        deliveries: &mpsc::Sender<RequestDelivery>,
    ) -> lapin::Result<()> {
        let channel = connection.channel().await?;
        let mut consumer = self.consume(&channel, prefetch).await?;
        loop {
            tokio::select! {
                biased;
                () = deliveries.closed() => return return_unread(&channel, consumer).await,
                delivery = consumer.next() => {
                    let Some(delivery) = delivery else { return Ok(()) };
                    let open = (channel.clone(), connection.generation);
                    let Some(request) = self.receive(delivery?, open) else { continue };
                    // A queue that is dropped meanwhile drops the request too, which returns it.
                    let _ = deliveries.send(request).await;
                }
            }
        }
    }

    async fn consume(&self, channel: &Channel, prefetch: u16) -> lapin::Result<Consumer> {
        topology::declare_agent(channel, &self.agent).await?;
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let (queue, options) = (topology::requests_queue(&self.agent), BasicConsumeOptions::default());
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await
    }

    /// Reads a delivery. Returns `None` if there is nothing to do for the caller.
    fn receive(self: &Arc<Self>, delivery: Delivery, open: (Channel, u64)) -> Option<RequestDelivery> {
        let (topic, attempt) = (self.topic_of(&delivery)?, attempt_of(&delivery));
        let open = OpenDelivery { acker: delivery.acker, generation: open.1, _channel: open.0 };
        let payload = Bytes::from(delivery.data);
        let mut message = ReceivedMessage::read(topic, payload.clone());
        if self.is_foreign(&message) {
            let reason = "the message names another agent, and could not be given to it".to_owned();
            message.content = Err(UnreadableMessage { reason, payload: payload.clone() });
        }
        let identity = RequestIdentity::of_message(&message, &self.agent);
        let open = match &identity {
            Some(identity) if attempt > 1 => self.adopt(identity, open)?,
            _ => open,
        };
        Some(self.deliver(message, identity, payload, attempt, open))
    }

    /// Makes a delivery of a request on the shared topic that no agent gets. It is reported, not run.
    pub(super) fn unroutable(
        self: &Arc<Self>,
        delivery: Delivery,
        open: (Channel, u64),
        reason: String,
    ) -> RequestDelivery {
        let (topic, attempt) = (Topic::from_static(SharedTopics::REQUESTS), attempt_of(&delivery));
        let open = OpenDelivery { acker: delivery.acker, generation: open.1, _channel: open.0 };
        let payload = Bytes::from(delivery.data);
        let content = Err(UnreadableMessage { reason, payload: payload.clone() });
        self.deliver(ReceivedMessage { topic, content }, None, payload, attempt, open)
    }

    fn deliver(
        self: &Arc<Self>,
        message: ReceivedMessage,
        identity: Option<RequestIdentity>,
        payload: Bytes,
        attempt: u32,
        open: OpenDelivery,
    ) -> RequestDelivery {
        let delivery = RabbitMqDelivery {
            requests: self.clone(),
            settlement: Arc::new(Settlement(Mutex::new(Some(open)))),
            identity,
            is_entered: AtomicBool::new(false),
            topic: message.topic.clone(),
            payload,
            attempt,
            answer_seed: self.log.next_nonce(),
        };
        RequestDelivery { message, attempt, stored: None, kind: DeliveryKind::RabbitMq(delivery) }
    }

    /// A returned request comes from the queue of its delay, through the default exchange.
    fn topic_of(&self, delivery: &Delivery) -> Option<Topic> {
        let own = || Some(self.agent.request_topic());
        match delivery.exchange.as_str() {
            topology::DEFAULT_EXCHANGE => {
                header_text(delivery, TOPIC_HEADER).and_then(|text| Topic::parse(&text).ok()).or_else(own)
            }
            _ => Topic::parse(delivery.routing_key.as_str()).ok().or_else(own),
        }
    }

    /// A request on the shared topic belongs to the agent that it names. One that nobody gets may have been returned here.
    fn is_foreign(&self, message: &ReceivedMessage) -> bool {
        if message.topic.as_str() != SharedTopics::REQUESTS {
            return false;
        }
        match &message.content {
            Ok(envelope) => envelope.source != self.agent.as_str(),
            // The agent that it names is answered. A request without one becomes a dead letter.
            Err(unreadable) => Envelope::parse_leniently(&unreadable.payload)
                .is_ok_and(|(envelope, _)| envelope.source != self.agent.as_str()),
        }
    }

    /// Gives a request that was delivered again to the task that still handles it. Returns it if there is none, or if the answer
    /// is recorded: it may have been published while nobody listened.
    fn adopt(&self, request: &RequestIdentity, open: OpenDelivery) -> Option<OpenDelivery> {
        let in_flight = self.lock();
        match in_flight.get(&request.id).filter(|handled| handled.identity == *request) {
            Some(handled) if !matches!(self.log.find_claim(request), Some(ClaimResult::Answered(_))) => {
                handled.settlement.adopt(open)
            }
            Some(_) | None => Some(open),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, HandledRequest>> {
        self.in_flight.lock().expect("no code panics while it holds the lock")
    }
}

/// Takes no more requests, and returns those that nobody has seen. The channel stays open for those in progress.
pub(super) async fn return_unread(channel: &Channel, mut consumer: Consumer) -> lapin::Result<()> {
    channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await?;
    while let Some(Ok(delivery)) = consumer.next().await {
        delivery.acker.nack(BasicNackOptions { requeue: true, multiple: false }).await?;
    }
    Ok(())
}

/// The number of this delivery. A quorum queue counts; another queue only knows that it is not the first.
pub(super) fn attempt_of(delivery: &Delivery) -> u32 {
    let number = |name| {
        let value = delivery.properties.headers().as_ref()?.inner().get(name)?;
        value.as_long_long_int().and_then(|count| u32::try_from(count).ok())
    };
    let is_returned = delivery.exchange.as_str() == topology::DEFAULT_EXCHANGE;
    let returned = if is_returned { number(ATTEMPTS_HEADER).unwrap_or(0) } else { 0 };
    let delivered = number("x-delivery-count").unwrap_or(u32::from(delivery.redelivered));
    returned.saturating_add(delivered).saturating_add(1)
}

fn header_text(delivery: &Delivery, name: &str) -> Option<String> {
    let value = delivery.properties.headers().as_ref()?.inner().get(name)?;
    value.as_long_string().map(ToString::to_string)
}

impl Settlement {
    fn take(&self) -> Option<OpenDelivery> {
        self.lock().take()
    }

    /// Takes over a later delivery of the same request. Returns it if this one is of the same connection, or settled.
    fn adopt(&self, open: OpenDelivery) -> Option<OpenDelivery> {
        match &mut *self.lock() {
            Some(current) if current.generation < open.generation => {
                *current = open;
                None
            }
            Some(_) | None => Some(open),
        }
    }

    /// Takes over the delivery of another one, if it is later.
    fn adopt_from(&self, other: &Self) {
        let Some(open) = other.take() else { return };
        if let Some(open) = self.adopt(open) {
            *other.lock() = Some(open);
        }
    }

    fn is_usable(&self) -> bool {
        self.lock().as_ref().is_some_and(|open| open.acker.usable())
    }

    fn is_usable_on(&self, connection: &BrokerConnection) -> bool {
        let open = self.lock();
        open.as_ref().is_some_and(|open| open.generation == connection.generation && open.acker.usable())
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpenDelivery>> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

/// The end of a queue that one replica reads.
pub(crate) struct RabbitMqQueue {
    deliveries: mpsc::Receiver<RequestDelivery>,
}

impl RabbitMqQueue {
    pub(super) fn start(requests: Arc<AgentRequests>, prefetch: usize) -> Self {
        let prefetch = prefetch.clamp(1, MAX_PREFETCH);
        // The broker sends no more than this before the first is settled.
        let (sender, deliveries) = mpsc::channel(prefetch);
        let prefetch = u16::try_from(prefetch).expect("the bound is small");
        // The tasks end when the receiver is dropped. They are not aborted, as they have to return what they hold.
        tokio::spawn(requests.clone().take_for_ever(prefetch, sender.clone()));
        tokio::spawn(shared_requests::route_for_ever(requests, sender));
        Self { deliveries }
    }

    pub(crate) async fn next(&mut self) -> Option<RequestDelivery> {
        loop {
            let delivery = self.deliveries.recv().await?;
            // One of a lost connection is delivered again.
            match &delivery.kind {
                DeliveryKind::RabbitMq(request) if !request.settlement.is_usable() => {}
                _ => return Some(delivery),
            }
        }
    }
}

/// A request that is being handled.
pub(crate) struct RabbitMqDelivery {
    requests: Arc<AgentRequests>,
    settlement: Arc<Settlement>,
    /// `None` if nobody can be answered.
    identity: Option<RequestIdentity>,
    /// It is in flight under its id.
    is_entered: AtomicBool,
    topic: Topic,
    payload: Bytes,
    attempt: u32,
    /// The number of the answer's entry follows from it, so that an answer that is recorded again is recognised.
    answer_seed: u64,
}

impl RabbitMqDelivery {
    pub(crate) async fn claim(&self, id: &MessageId) -> Result<Claim, BusError> {
        let wrong_id =
            || BusError::Refused { operation: "claim a request", reason: "it has another id".into() };
        let request = self.identity.as_ref().filter(|request| request.id == *id).ok_or_else(wrong_id)?;
        if let Some(handled) = self.enter(request) {
            return match self.requests.log.find_claim(request) {
                None => Ok(repetition_of(&handled, request)),
                // Its own holder may have ended. That is seen once the other request with its id is settled.
                Some(ClaimResult::Held { .. }) if self.attempt > 1 && handled != *request => {
                    Ok(Claim::InProgress)
                }
                Some(ClaimResult::Held { .. }) => Ok(Claim::Duplicate),
                Some(result) => self.follow(request, result).await,
            };
        }
        let claim = match self.requests.log.claim(request).await {
            Ok(result) => self.follow(request, result).await,
            Err(error) => Err(error),
        };
        if !matches!(claim, Ok(Claim::Won(_) | Claim::Abandoned(_))) {
            self.leave();
        }
        claim
    }

    async fn follow(&self, request: &RequestIdentity, result: ClaimResult) -> Result<Claim, BusError> {
        let ticket = |holder| ClaimTicket { message_id: request.id.clone(), revision: holder };
        Ok(match result {
            ClaimResult::Won { holder } => Claim::Won(ticket(holder)),
            ClaimResult::Held { holder } if self.attempt > 1 => Claim::Abandoned(ticket(holder)),
            ClaimResult::Held { .. } => Claim::Duplicate,
            ClaimResult::InProgress => Claim::InProgress,
            ClaimResult::Reused => Claim::Reused,
            ClaimResult::Answered(answer) => match self.requests.log.read_answer(answer).await? {
                Some(answer) => Claim::Answered(Box::new(answer)),
                None => Claim::Duplicate,
            },
        })
    }

    pub(crate) async fn release(&self, ticket: ClaimTicket) -> Result<(), BusError> {
        self.requests.log.release(&ticket.message_id, ticket.revision).await?;
        self.leave();
        Ok(())
    }

    pub(crate) async fn record_answer(
        &self,
        ticket: &ClaimTicket,
        answer: &Envelope,
    ) -> Result<bool, BusError> {
        self.requests.log.record_answer(self.answer_seed, &ticket.message_id, answer).await
    }

    /// The connection is the proof that the replica lives.
    pub(crate) async fn keep(&self) -> Result<(), BusError> {
        Ok(())
    }

    pub(crate) async fn acknowledge(&self) -> Result<(), BusError> {
        let Some(open) = self.settlement.take() else { return Ok(()) };
        // If the connection is lost, the request is delivered again, and answered from the records.
        let _ = open.acker.ack(BasicAckOptions::default()).await;
        self.leave();
        Ok(())
    }

    pub(crate) async fn return_after(&self, delay: Duration) -> Result<(), BusError> {
        // Dropping it returns it at once. One of a lost connection is in the queue again: a copy would be a second request.
        if delay.is_zero() || !self.settlement.is_usable() {
            return Ok(());
        }
        let message = self.delayed(delay);
        let publish = |connection: Arc<BrokerConnection>| {
            let message = &message;
            async move {
                match self.settlement.is_usable_on(&connection) {
                    true => connection.publish_returned(message).await.map(Some),
                    false => Ok(None),
                }
            }
        };
        match self.requests.link.run("return the request", publish).await? {
            Some(true) => self.acknowledge().await,
            Some(false) => Err(BusError::Full),
            None => Ok(()),
        }
    }

    fn delayed(&self, delay: Duration) -> OutgoingMessage {
        let headers = topology::arguments([
            (TOPIC_HEADER, AMQPValue::LongString(self.topic.as_str().into())),
            (ATTEMPTS_HEADER, topology::number(i64::from(self.attempt))),
        ]);
        OutgoingMessage {
            exchange: topology::delay_exchange(delay).into(),
            routing_key: topology::requests_queue(&self.requests.agent).into(),
            payload: self.payload.clone(),
            properties: json_properties().with_headers(headers),
        }
    }

    /// Begins to handle the request. Returns the one that this replica handles if another delivery with this id was here first.
    fn enter(&self, request: &RequestIdentity) -> Option<RequestIdentity> {
        let mut in_flight = self.requests.lock();
        match in_flight.get(&request.id) {
            Some(handled) if Arc::ptr_eq(&handled.settlement, &self.settlement) => return None,
            Some(handled) => {
                if handled.identity == *request {
                    handled.settlement.adopt_from(&self.settlement);
                }
                return Some(handled.identity.clone());
            }
            None => {}
        }
        let handled = HandledRequest { identity: request.clone(), settlement: self.settlement.clone() };
        in_flight.insert(request.id.clone(), handled);
        self.is_entered.store(true, Ordering::Relaxed);
        None
    }

    /// The request is no longer handled here.
    fn leave(&self) {
        if let Some(request) = &self.identity
            && self.is_entered.swap(false, Ordering::Relaxed)
        {
            self.requests.lock().remove(&request.id);
        }
    }
}

/// Tells what a request means beside the handled one with its id, whose claim is not read back yet.
fn repetition_of(handled: &RequestIdentity, request: &RequestIdentity) -> Claim {
    match handled {
        handled if handled.digest != request.digest => Claim::Reused,
        handled if handled.answer_topic != request.answer_topic => Claim::InProgress,
        _ => Claim::Duplicate,
    }
}

impl Drop for RabbitMqDelivery {
    fn drop(&mut self) {
        self.leave();
        if let Some(open) = self.settlement.take() {
            let options = BasicNackOptions { requeue: true, multiple: false };
            let _ = open.acker.nack(options).now_or_never();
        }
    }
}
