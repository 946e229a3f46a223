//! Servers, connections and messages for the tests.

#[path = "../common/mod.rs"]
mod common;

use bascule_bus::{Bus, BusOptions, BusUrl, Claim, ClaimTicket, RequestDelivery};
use bascule_testkit::NatsServer;

pub(crate) use self::common::{agent, id, id_of, message, next, next_message, publish, subscribe, topic};

pub(crate) fn options(server: &NatsServer) -> BusOptions {
    BusOptions::new(BusUrl::parse(&server.url()).unwrap())
}

pub(crate) async fn connect(server: &NatsServer) -> Bus {
    Bus::connect(&options(server)).await.unwrap()
}

/// A client that is not ours.
pub(crate) async fn raw_client(server: &NatsServer) -> async_nats::Client {
    async_nats::connect(server.url()).await.unwrap()
}

pub(crate) fn jetstream(client: &async_nats::Client) -> async_nats::jetstream::Context {
    async_nats::jetstream::new(client.clone())
}

pub(crate) async fn win(delivery: &RequestDelivery, id: &str) -> ClaimTicket {
    match delivery.claim(&self::id(id)).await.unwrap() {
        Claim::Won(ticket) => ticket,
        other => panic!("nobody else has begun it: {other:?}"),
    }
}
