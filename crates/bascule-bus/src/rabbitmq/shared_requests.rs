//! Requests on the topic without an agent's name, which go to the queue of the agent that their `source` names.
//!
//! The bridges of all agents share one queue of that topic, and whichever takes a request publishes it to its agent's own topic. One
//! that names no agent, or an agent without a queue, is reported by the bridge that has it. A bridge that ends between the two
//! steps leaves the request to the next one; the claim of its message id finds the second copy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::link::{BrokerConnection, OPERATION_TIMEOUT};
use super::publisher::{OutgoingMessage, RequestFate, envelope_properties, json_properties, no_queue};
use super::requests::{ATTEMPTS_HEADER, AgentRequests, RETRY_DELAY, attempt_of, return_unread};
use super::topology::{self, SHARED_QUEUE};
use crate::{AgentName, CLAIM_WINDOW, Envelope, RequestDelivery};

/// The requests that one router takes at a time.
const PREFETCH: u16 = 32;
const REQUEUE: BasicNackOptions = BasicNackOptions { requeue: true, multiple: false };
/// The delay of a request that its agent's queue does not take now.
const LATER_DELAY: Duration = Duration::from_secs(2);
/// The attempts to give a request to a queue. They last as long as claims are remembered; nobody waits for the answer then.
const MAX_ATTEMPTS: u64 = CLAIM_WINDOW.as_secs() / LATER_DELAY.as_secs();

/// The reason why a request did not get to its agent's queue.
enum Unrouted {
    /// It has none, or the attempts are over.
    Unroutable(String),
    Later,
}

/// Routes requests until the queue of `unroutable` is dropped, or the bus is closed.
pub(super) async fn route_for_ever(requests: Arc<AgentRequests>, unroutable: mpsc::Sender<RequestDelivery>) {
    while let Ok(connection) = requests.link.connection().await {
        if let Err(error) = route(&requests, &connection, &unroutable).await {
            tracing::debug!(%error, "taking requests from the shared topic again");
        }
        if unroutable.is_closed() {
            return;
        }
        sleep(RETRY_DELAY).await;
    }
}

async fn route(
    requests: &Arc<AgentRequests>,
    connection: &BrokerConnection,
    unroutable: &mpsc::Sender<RequestDelivery>,
) -> lapin::Result<()> {
    let channel = connection.channel().await?;
    let mut consumer = consume(&channel).await?;
    loop {
        let delivery = tokio::select! {
            biased;
            () = unroutable.closed() => return return_unread(&channel, consumer).await,
            delivery = consumer.next() => delivery,
        };
        let Some(delivery) = delivery.transpose()? else { return Ok(()) };
        let unroutable_for = tokio::select! {
            biased;
            () = unroutable.closed() => {
                delivery.acker.nack(REQUEUE).await?;
                return return_unread(&channel, consumer).await;
            }
            reason = settle(requests, connection, &delivery) => reason?,
        };
        if let Some(reason) = unroutable_for {
            let open = (channel.clone(), connection.generation);
            // A queue that is dropped meanwhile drops the request too, which returns it.
            let _ = unroutable.send(requests.unroutable(delivery, open, reason)).await;
        }
    }
}

/// Gives a request to its agent's queue, or lets it come again. Returns the reason why neither can be done, and leaves it unsettled.
async fn settle(
    requests: &AgentRequests,
    connection: &BrokerConnection,
    delivery: &Delivery,
) -> lapin::Result<Option<String>> {
    match forward(requests, delivery).await {
        Ok(()) => drop(delivery.acker.ack(BasicAckOptions::default()).await?),
        Err(Unrouted::Unroutable(reason)) => return Ok(Some(reason)),
        Err(Unrouted::Later) => give_back(connection, delivery).await?,
    }
    Ok(None)
}

async fn consume(channel: &Channel) -> lapin::Result<Consumer> {
    topology::declare_shared(channel).await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let (queue, options) = (SHARED_QUEUE.into(), BasicConsumeOptions::default());
    channel.basic_consume(queue, "".into(), options, FieldTable::default()).await
}

async fn forward(requests: &AgentRequests, delivery: &Delivery) -> Result<(), Unrouted> {
    let (agent, envelope) = agent_of(&delivery.data).map_err(Unrouted::Unroutable)?;
    let topic = agent.request_topic();
    let message = OutgoingMessage {
        exchange: topology::EXCHANGE.into(),
        routing_key: topic.as_str().into(),
        payload: Bytes::copy_from_slice(&delivery.data),
        properties: envelope_properties(&envelope),
    };
    let reason = match requests.publisher.try_publish(message).await {
        Ok(RequestFate::Taken) => return Ok(()),
        Ok(RequestFate::Returned) => return Err(Unrouted::Unroutable(no_queue(&topic))),
        Ok(RequestFate::Full) => "the queue of its agent is full".to_owned(),
        // The bridge of another agent may have the right that this one has not.
        Ok(RequestFate::Refused(reason)) => {
            warn!(%agent, %reason, "may not route a request from the shared topic; leaving it to another bridge");
            reason
        }
        Err(_) => return Err(Unrouted::Later),
    };
    match u64::from(attempt_of(delivery)) < MAX_ATTEMPTS {
        true => Err(Unrouted::Later),
        false => Err(Unrouted::Unroutable(reason)),
    }
}

fn agent_of(payload: &[u8]) -> Result<(AgentName, Envelope), String> {
    let (envelope, _mistake) = Envelope::parse_leniently(payload).map_err(|error| error.to_string())?;
    let agent = AgentName::parse(&envelope.source);
    Ok((agent.map_err(|error| format!("`source` names no agent: {error}"))?, envelope))
}

/// Lets the request come again, later. Those behind it need not wait, unless the queue of the delay is full.
async fn give_back(connection: &BrokerConnection, delivery: &Delivery) -> lapin::Result<()> {
    let attempts = topology::number(i64::from(attempt_of(delivery)));
    let message = OutgoingMessage {
        exchange: topology::delay_exchange(LATER_DELAY).into(),
        routing_key: SHARED_QUEUE.into(),
        payload: Bytes::copy_from_slice(&delivery.data),
        properties: json_properties().with_headers(topology::arguments([(ATTEMPTS_HEADER, attempts)])),
    };
    if let Ok(Ok(true)) = timeout(OPERATION_TIMEOUT, connection.publish_returned(&message)).await {
        return delivery.acker.ack(BasicAckOptions::default()).await.map(drop);
    }
    sleep(RETRY_DELAY).await;
    delivery.acker.nack(REQUEUE).await.map(drop)
}
