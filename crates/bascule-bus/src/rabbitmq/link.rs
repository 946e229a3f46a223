//! The connection to the broker, which is opened again for ever when it is lost.
//!
//! One task owns it. Everybody else takes the current connection, and waits for the next one after a failure.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Confirmation, Connection, Event};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::address::BrokerAddress;
use super::publisher::OutgoingMessage;
use super::{describe, topology};
use crate::BusError;

/// The wait for a broker, a lost one included, in every operation.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause while the broker starts its queues.
const START_PAUSE: Duration = Duration::from_millis(200);

/// A handle of the connection. The connection ends with the last handle.
#[derive(Clone)]
pub(super) struct BrokerHandle {
    shared: Arc<SharedLink>,
    keeper: Arc<Keeper>,
}

struct SharedLink {
    state: watch::Sender<LinkState>,
    address: BrokerAddress,
}

#[derive(Clone)]
enum LinkState {
    Up(Arc<BrokerConnection>),
    Down {
        /// The number of the lost connection.
        generation: u64,
    },
    Closed,
}

/// Ends the task that owns the connection.
struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open connection.
pub(super) struct BrokerConnection {
    /// Each connection has the next number.
    pub(super) generation: u64,
    connection: Connection,
    /// Confirms what is published.
    publisher: LastingChannel,
    /// Confirms requests that come again later. Other messages are refused more often, and a refusal ends its channel.
    returner: LastingChannel,
    /// Confirms nothing: its user sees the message in a stream.
    appender: LastingChannel,
    has_failed: Notify,
}

impl BrokerHandle {
    /// Connects, and keeps the connection from now on.
    pub(super) async fn open(address: BrokerAddress) -> Result<Self, BusError> {
        let connection = Arc::new(BrokerConnection::open(&address, 1).await?);
        let (state, _) = watch::channel(LinkState::Up(connection.clone()));
        let shared = Arc::new(SharedLink { state, address });
        let keeper = tokio::spawn(shared.clone().keep(connection)).abort_handle();
        Ok(Self { shared, keeper: Arc::new(Keeper(keeper)) })
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), LinkState::Up(_))
    }

    /// Takes the connection. Waits for it while it is lost; the caller has a deadline.
    pub(super) async fn connection(&self) -> Result<Arc<BrokerConnection>, BusError> {
        self.connection_after(0).await
    }

    /// Takes the connection, or the next one if its generation is not above `generation`.
    pub(super) async fn connection_after(&self, generation: u64) -> Result<Arc<BrokerConnection>, BusError> {
        let mut states = self.shared.state.subscribe();
        loop {
            match &*states.borrow_and_update() {
                LinkState::Up(connection) if connection.generation > generation => {
                    return Ok(connection.clone());
                }
                LinkState::Up(_) | LinkState::Down { .. } => {}
                LinkState::Closed => return Err(BusError::Closed),
            }
            states.changed().await.map_err(|_| BusError::Closed)?;
        }
    }

    /// Runs an operation, and again on the next connection if the connection is lost meanwhile.
    pub(super) async fn run<T, F>(
        &self,
        operation: &'static str,
        work: impl Fn(Arc<BrokerConnection>) -> F,
    ) -> Result<T, BusError>
    where
        F: Future<Output = lapin::Result<T>>,
    {
        let attempts = async {
            let mut generation = 0;
            loop {
                let connection = self.connection_after(generation).await?;
                generation = connection.generation;
                match work(connection.clone()).await {
                    Ok(value) => return Ok(value),
                    Err(error) if is_starting(&error) => {
                        generation = 0;
                        tokio::time::sleep(START_PAUSE).await;
                    }
                    // The broker says no, and would say so again.
                    Err(error) if error.is_amqp_soft_error() => {
                        return Err(BusError::Refused { operation, reason: describe(&error) });
                    }
                    Err(_) => connection.give_up(),
                }
            }
        };
        let timeout = |_| Err(BusError::Timeout { operation, seconds: OPERATION_TIMEOUT.as_secs() });
        tokio::time::timeout(OPERATION_TIMEOUT, attempts).await.unwrap_or_else(timeout)
    }

    /// Tells of the connections after the present or lost one.
    pub(super) fn reconnections(&self) -> RabbitMqReconnections {
        let generation = match &*self.shared.state.borrow() {
            LinkState::Up(connection) => connection.generation,
            LinkState::Down { generation } => *generation,
            LinkState::Closed => u64::MAX,
        };
        RabbitMqReconnections { link: self.clone(), generation }
    }

    pub(super) async fn close(&self) {
        self.keeper.0.abort();
        if let LinkState::Up(connection) = self.shared.state.send_replace(LinkState::Closed) {
            connection.close().await;
        }
    }
}

/// The connections that one reader has not heard of.
pub(crate) struct RabbitMqReconnections {
    link: BrokerHandle,
    /// The last connection that it has heard of.
    generation: u64,
}

impl RabbitMqReconnections {
    pub(crate) async fn next(&mut self) {
        match self.link.connection_after(self.generation).await {
            Ok(connection) => self.generation = connection.generation,
            // A closed bus never comes back.
            Err(_) => std::future::pending().await,
        }
    }
}

impl SharedLink {
    async fn keep(self: Arc<Self>, mut connection: Arc<BrokerConnection>) {
        let url = self.address.url();
        loop {
            let reason = connection.lost().await;
            warn!(%url, %reason, "lost the broker, connecting again");
            if !self.change(LinkState::Down { generation: connection.generation }) {
                return;
            }
            connection.close().await;
            connection = Arc::new(self.connect_again(connection.generation + 1).await);
            info!(%url, "connected to the broker again");
            if !self.change(LinkState::Up(connection.clone())) {
                return;
            }
        }
    }

    /// Returns false if the bus is closed.
    fn change(&self, state: LinkState) -> bool {
        self.state.send_if_modified(|current| match current {
            LinkState::Closed => false,
            LinkState::Up(_) | LinkState::Down { .. } => {
                *current = state;
                true
            }
        })
    }

    async fn connect_again(&self, generation: u64) -> BrokerConnection {
        let mut delay = FIRST_DELAY;
        loop {
            match BrokerConnection::open(&self.address, generation).await {
                Ok(connection) => return connection,
                Err(error) => tracing::debug!(%error, "could not connect to the broker"),
            }
            tokio::time::sleep(with_jitter(delay)).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }
}

/// A broker that has just started, and a cluster without the node of a queue, know a queue and cannot use it yet.
fn is_starting(error: &lapin::Error) -> bool {
    error.is_amqp_soft_error() && describe(error).contains("is down or inaccessible")
}

/// Returns between half and all of the delay: the clients of a lost broker must not come back at the same moment.
fn with_jitter(delay: Duration) -> Duration {
    let half = delay / 2;
    half + half.mul_f64((random_u64() % 1024) as f64 / 1024.0)
}

/// A random number from the standard library's source of hash keys.
pub(super) fn random_u64() -> u64 {
    RandomState::new().hash_one(0)
}

/// A channel that is opened again after the broker has ended it.
struct LastingChannel(Mutex<Arc<OnceCell<Channel>>>);

impl LastingChannel {
    fn new(channel: Channel) -> Self {
        Self(Mutex::new(Arc::new(OnceCell::new_with(Some(channel)))))
    }

    /// Returns the channel. If it has ended, one of those that ask opens the next one.
    async fn get<O: Future<Output = lapin::Result<Channel>>>(
        &self,
        open: impl FnOnce() -> O,
    ) -> lapin::Result<Channel> {
        let present = self.present();
        present.get_or_try_init(open).await.cloned()
    }

    fn present(&self) -> Arc<OnceCell<Channel>> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if present.get().is_some_and(|channel| !channel.status().connected()) {
            *present = Arc::default();
        }
        present.clone()
    }
}

impl BrokerConnection {
    async fn open(address: &BrokerAddress, generation: u64) -> Result<Self, BusError> {
        let connection = address.connect().await?;
        let refuse = |error| BusError::Connect { url: address.url().clone(), reason: describe(&error) };
        let publisher = LastingChannel::new(open_publisher(&connection).await.map_err(refuse)?);
        let returner = LastingChannel::new(open_publisher(&connection).await.map_err(refuse)?);
        let appender = LastingChannel::new(connection.create_channel().await.map_err(refuse)?);
        Ok(Self { generation, connection, publisher, returner, appender, has_failed: Notify::new() })
    }

    pub(super) async fn channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// Opens a channel that confirms.
    pub(super) async fn confirming_channel(&self) -> lapin::Result<Channel> {
        open_publisher(&self.connection).await
    }

    /// Returns false once the connection is lost. A channel may end without it: the broker ends one with each refusal.
    pub(super) fn is_open(&self) -> bool {
        self.connection.status().connected()
    }

    /// Publishes a message and waits until the broker has taken it. Returns false if a queue is full.
    pub(super) async fn publish(&self, message: &OutgoingMessage) -> lapin::Result<bool> {
        self.publish_on(&self.publisher, message).await
    }

    /// Like [`Self::publish`], for a request that comes again later. Two copies would look like two deliveries to two replicas.
    pub(super) async fn publish_returned(&self, message: &OutgoingMessage) -> lapin::Result<bool> {
        self.publish_on(&self.returner, message).await
    }

    async fn publish_on(&self, channel: &LastingChannel, message: &OutgoingMessage) -> lapin::Result<bool> {
        let channel = channel.get(|| self.confirming_channel()).await?;
        match publish_and_confirm(&channel, message).await {
            // Another message may be the one that was refused. On a channel of its own this one gets its own result.
            Err(_) if self.is_open() => publish_and_confirm(&self.confirming_channel().await?, message).await,
            published => published,
        }
    }

    /// Sends a message whose arrival the caller sees itself.
    pub(super) async fn append(&self, message: &OutgoingMessage) -> lapin::Result<()> {
        let channel = self.appender.get(|| self.channel()).await?;
        message.publish(&channel, BasicPublishOptions::default()).await.map(|_| ())
    }

    /// Asks for another connection in the place of this one.
    pub(super) fn give_up(&self) {
        self.has_failed.notify_one();
    }

    /// Waits for the end of the connection, and returns its reason.
    async fn lost(&self) -> String {
        let mut events = self.connection.events_listener();
        // A loss before the listener was there is seen in the status.
        let mut look = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                event = events.next() => match event {
                    // The error of a channel is an event too.
                    Some(Event::Error(error)) if !self.is_open() => return describe(&error),
                    Some(Event::ConnectionBlocked(reason)) => warn!(%reason, "the broker takes no messages"),
                    Some(_) => {}
                    None => return "the connection has ended".to_owned(),
                },
                () = self.has_failed.notified() => return "an operation has failed".to_owned(),
                _ = look.tick() => {
                    if !self.is_open() {
                        return "the connection has ended".to_owned();
                    }
                }
            }
        }
    }

    async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.connection.close(200, "OK".into())).await;
    }
}

/// Opens a channel that confirms. The exchange is there.
async fn open_publisher(connection: &Connection) -> lapin::Result<Channel> {
    let channel = connection.create_channel().await?;
    topology::declare_exchange(&channel).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

async fn publish_and_confirm(channel: &Channel, message: &OutgoingMessage) -> lapin::Result<bool> {
    let confirm = message.publish(channel, BasicPublishOptions::default()).await?;
    Ok(!matches!(confirm.await?, Confirmation::Nack(_)))
}
