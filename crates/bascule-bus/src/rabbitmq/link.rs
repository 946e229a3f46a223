//! The connection to the broker, which is opened again for ever when it is lost.
//!
//! One task owns it. Everybody else takes the current connection, and waits for the next one after a failure.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Confirmation, Connection, Event};
use tokio::sync::{Notify, watch};
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

/// A handle of the connection. The connection ends with the last handle.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
}

struct Shared {
    state: watch::Sender<LinkState>,
    address: BrokerAddress,
    /// The last generation that [`Link::reconnected`] has told of.
    announced: AtomicU64,
}

#[derive(Clone)]
enum LinkState {
    Up(Arc<BrokerConnection>),
    Down,
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
    publisher: Channel,
    /// Confirms nothing: its user sees the message in a stream.
    appender: Channel,
    has_failed: Notify,
}

impl Link {
    /// Connects, and keeps the connection from now on.
    pub(super) async fn open(address: BrokerAddress) -> Result<Self, BusError> {
        let connection = Arc::new(BrokerConnection::open(&address, 1).await?);
        let (state, _) = watch::channel(LinkState::Up(connection.clone()));
        let shared = Arc::new(Shared { state, address, announced: AtomicU64::new(1) });
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
                LinkState::Up(_) | LinkState::Down => {}
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

    /// Waits until a lost connection is back. Returns at once if it came back since the last call.
    pub(super) async fn reconnected(&self) {
        let announced = self.shared.announced.load(Ordering::Relaxed);
        match self.connection_after(announced).await {
            Ok(connection) => {
                self.shared.announced.fetch_max(connection.generation, Ordering::Relaxed);
            }
            // A closed bus never comes back.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) async fn close(&self) {
        self.keeper.0.abort();
        if let LinkState::Up(connection) = self.shared.state.send_replace(LinkState::Closed) {
            connection.close().await;
        }
    }
}

impl Shared {
    async fn keep(self: Arc<Self>, mut connection: Arc<BrokerConnection>) {
        let url = self.address.url();
        loop {
            let reason = connection.lost().await;
            warn!(%url, %reason, "lost the broker, connecting again");
            if !self.change(LinkState::Down) {
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
            LinkState::Up(_) | LinkState::Down => {
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

/// Returns between half and all of the delay: the clients of a lost broker must not come back at the same moment.
fn with_jitter(delay: Duration) -> Duration {
    let half = delay / 2;
    half + half.mul_f64((random_u64() % 1024) as f64 / 1024.0)
}

/// A random number from the standard library's source of hash keys.
pub(super) fn random_u64() -> u64 {
    RandomState::new().hash_one(0)
}

impl BrokerConnection {
    async fn open(address: &BrokerAddress, generation: u64) -> Result<Self, BusError> {
        let connection = address.connect().await?;
        let refuse = |error| BusError::Connect { url: address.url().clone(), reason: describe(&error) };
        let publisher = set_up(&connection).await.map_err(refuse)?;
        let appender = connection.create_channel().await.map_err(refuse)?;
        Ok(Self { generation, connection, publisher, appender, has_failed: Notify::new() })
    }

    pub(super) async fn channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// Opens a channel that confirms.
    pub(super) async fn confirming_channel(&self) -> lapin::Result<Channel> {
        let channel = self.channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Publishes a message and waits until the broker has taken it. Returns false if a queue is full.
    pub(super) async fn publish(&self, message: &OutgoingMessage) -> lapin::Result<bool> {
        let confirm = message.publish(&self.publisher, BasicPublishOptions::default()).await?;
        Ok(!matches!(confirm.await?, Confirmation::Nack(_)))
    }

    /// Sends a message whose arrival the caller sees itself.
    pub(super) async fn append(&self, message: &OutgoingMessage) -> lapin::Result<()> {
        message.publish(&self.appender, BasicPublishOptions::default()).await.map(|_| ())
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
                    Some(Event::Error(error)) if !self.connection.status().connected() => return describe(&error),
                    Some(Event::ConnectionBlocked(reason)) => warn!(%reason, "the broker takes no messages"),
                    Some(_) => {}
                    None => return "the connection has ended".to_owned(),
                },
                () = self.has_failed.notified() => return "an operation has failed".to_owned(),
                _ = look.tick() => {
                    if !self.connection.status().connected() {
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

/// Declares the exchange and returns the channel for messages.
async fn set_up(connection: &Connection) -> lapin::Result<Channel> {
    let channel = connection.create_channel().await?;
    topology::declare_exchange(&channel).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}
