//! The buses under test.

use bascule_bus::{Bus, EmbeddedBus};
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
use bascule_bus::{BusOptions, BusUrl};

/// A bus of its own for each test. It ends when it is dropped.
pub(crate) trait Broker {
    fn start() -> Self;

    /// Connects another replica or agent.
    async fn connect(&self) -> Bus;
}

pub(crate) struct Embedded(Bus);

impl Broker for Embedded {
    fn start() -> Self {
        Self(Bus::embedded(EmbeddedBus::default().into()))
    }

    async fn connect(&self) -> Bus {
        self.0.clone()
    }
}

#[cfg(feature = "nats")]
pub(crate) struct Nats(bascule_testkit::NatsServer);

#[cfg(feature = "nats")]
impl Broker for Nats {
    fn start() -> Self {
        Self(bascule_testkit::NatsServer::start())
    }

    async fn connect(&self) -> Bus {
        Bus::connect(&BusOptions::new(BusUrl::parse(&self.0.url()).unwrap())).await.unwrap()
    }
}

/// A virtual host of a broker that all tests share: RabbitMQ takes seconds to start.
#[cfg(feature = "rabbitmq")]
pub(crate) struct RabbitMq(String);

#[cfg(feature = "rabbitmq")]
impl Broker for RabbitMq {
    fn start() -> Self {
        Self(bascule_testkit::RabbitMqServer::shared().vhost_url())
    }

    async fn connect(&self) -> Bus {
        Bus::connect(&BusOptions::new(BusUrl::parse(&self.0).unwrap())).await.unwrap()
    }
}
