//! Routes requests from the shared topic `tool.invoke.mcp` to the topic of the agent that is their `source`.
//!
//! The bridges of all agents share one consumer of the shared topic, and whichever takes a request stores it under its agent's own
//! topic. So it waits for its agent like any other request, and no bridge sees the requests of another one as its own. A bridge
//! that ends after storing and before acknowledging leaves the request to another bridge: both stored copies have one message id,
//! so the claim recognises the second one as a duplicate.

use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::delivery::PulledMessage;
use super::jetstream::JetStream;
use super::puller::Puller;
use super::queue::consumer;
use super::without_nats_headers;
use crate::{AgentName, BusError, Envelope, SharedTopics};

/// The most requests of one router that are not acknowledged.
pub(super) const SHARED_PREFETCH: usize = 32;
const CONSUMER: &str = "shared";
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A request whose `source` is no agent's name, and the reason. The receiver makes it a dead letter.
pub(super) struct UnroutableRequest {
    pub(super) message: PulledMessage,
    pub(super) reason: String,
}

/// Routes requests until the bus is closed.
pub(super) async fn route(jetstream: JetStream, unroutable: mpsc::Sender<UnroutableRequest>) {
    let Some(mut puller) = open(&jetstream).await else { return };
    while let Some(message) = puller.next().await {
        match agent_of(&message) {
            Ok(agent) => {
                if let Err(error) = forward(&jetstream, &agent, &message).await {
                    warn!(%error, %agent, "cannot route a request from the shared topic; trying again");
                    let _ = message.settlement.return_after(RETRY_DELAY).await;
                }
            }
            // A full channel waits; a closed one gives the request to another bridge.
            Err(reason) => drop(unroutable.send(UnroutableRequest { message, reason }).await),
        }
    }
}

/// Opens the consumer, and tries again until the bus is closed. A stream that somebody else made without the shared topic
/// refuses the consumer each time; this is logged once.
async fn open(jetstream: &JetStream) -> Option<Puller> {
    let mut link = jetstream.connection().watch();
    let mut was_reported = false;
    while !link.borrow().is_closed {
        match Puller::open(jetstream, consumer(CONSUMER, SharedTopics::REQUESTS), SHARED_PREFETCH).await {
            Ok(puller) => return Some(puller),
            Err(error) if !was_reported => warn!(%error, "cannot take requests from the shared topic"),
            Err(_) => {}
        }
        was_reported = true;
        let _ = tokio::time::timeout(RETRY_DELAY, link.wait_for(|state| state.is_closed)).await;
    }
    None
}

fn agent_of(message: &PulledMessage) -> Result<AgentName, String> {
    let (envelope, _mistake) =
        Envelope::parse_leniently(&message.payload).map_err(|error| error.to_string())?;
    AgentName::parse(&envelope.source).map_err(|error| format!("`source` names no agent: {error}"))
}

async fn forward(jetstream: &JetStream, agent: &AgentName, message: &PulledMessage) -> Result<(), BusError> {
    const OPERATION: &str = "route a request";
    // Without an id for the stream's duplicate check: another agent could have used it before.
    let headers = without_nats_headers(&message.headers);
    let (topic, payload) = (agent.request_topic(), message.payload.clone());
    let stored = jetstream.store(OPERATION, topic.as_str(), headers, payload).await;
    stored.map_err(|error| error.into_bus_error(OPERATION))?;
    message.settlement.acknowledge().await
}
