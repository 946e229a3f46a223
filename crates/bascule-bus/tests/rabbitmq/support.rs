//! Connections and messages for the cases.

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

use bascule_bus::{
    AgentName, Bus, BusOptions, BusSubscription, BusUrl, Claim, ClaimTicket, Envelope, ReceivedMessage,
    RequestDelivery, RequestQueue,
};
use bascule_testkit::RabbitMqServer;

pub(crate) use self::common::{id_of, subscribe, topic};

/// A wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn agent() -> AgentName {
    common::agent("a")
}

pub(crate) fn options(url: &str) -> BusOptions {
    BusOptions::new(BusUrl::parse(url).unwrap())
}

pub(crate) async fn connect(url: &str) -> Bus {
    Bus::connect(&options(url)).await.unwrap()
}

/// A virtual host of the shared broker that no other case uses.
pub(crate) fn vhost() -> String {
    RabbitMqServer::shared().vhost_url()
}

pub(crate) fn message(id: &str) -> Envelope {
    common::message(id, "a")
}

pub(crate) async fn request(bus: &Bus, id: &str) {
    bus.publish(&agent().request_topic(), &message(id)).await.unwrap();
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it happens in time")
}

/// Repeats a call while the broker is away.
pub(crate) async fn persistently<T>(work: impl AsyncFn() -> Result<T, bascule_bus::BusError>) -> T {
    within(async {
        loop {
            match work().await {
                Ok(value) => return value,
                Err(error) if error.is_retryable() => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

pub(crate) async fn next(queue: &mut RequestQueue) -> RequestDelivery {
    within(common::next(queue)).await
}

pub(crate) async fn next_message(subscription: &mut BusSubscription) -> ReceivedMessage {
    within(common::next_message(subscription)).await
}

pub(crate) async fn claim(delivery: &RequestDelivery) -> Claim {
    let id = delivery.message.content.as_ref().unwrap().message_id.clone();
    persistently(async || delivery.claim(&id).await).await
}

pub(crate) async fn win(delivery: &RequestDelivery) -> ClaimTicket {
    match claim(delivery).await {
        Claim::Won(ticket) => ticket,
        other => panic!("expected to win: {other:?}"),
    }
}
