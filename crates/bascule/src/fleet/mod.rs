//! The servers of a bridge, each kept up by an actor of its own.
//!
//! Reading order: [`snapshot`] holds settings, servers and catalog at one moment. [`server`] is one server as calls see it,
//! behind its [`gate`]. [`actor`] keeps it up, as [`restart_policy`] decides. [`backend`] carries requests to it: over one
//! connection ([`upstream`]), or in a process for each call ([`pool`]). [`client_profile`] describes the clients behind a
//! connection, [`request`] is one request to a server.

pub(crate) mod actor;
pub(crate) mod backend;
pub(crate) mod client_profile;
pub(crate) mod gate;
pub(crate) mod pool;
pub(crate) mod request;
pub(crate) mod restart_policy;
pub(crate) mod server;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod tools;
pub(crate) mod upstream;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use bascule_model::{BridgeResult, EventSink, ServerName};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ServerSettings;
use crate::in_flight::{AbandonedRequests, InFlightRegistry};
use backend::Backend;
use client_profile::ClientProfile;
use snapshot::Snapshot;
use upstream::ToolListing;

/// Starts a server, until the token cancels the start.
pub(crate) type Start = Box<
    dyn Fn(
            Arc<ServerSettings>,
            ClientProfile,
            AbandonedRequests,
            CancellationToken,
        ) -> BoxFuture<'static, BridgeResult<(Backend, ToolListing)>>
        + Send
        + Sync,
>;

/// Hears of changes to the fleet as a whole.
pub(crate) trait FleetObserver: Send + Sync {
    /// A reload has replaced the snapshot: servers may be new, changed or gone.
    fn on_reloaded(&self);
}

/// The state that all servers of a bridge share.
pub(crate) struct Fleet {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) in_flight: Arc<InFlightRegistry>,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) start: Start,
    /// Returns a random number from 0 up to 1.
    pub(crate) random: fn() -> f64,
    /// Servers that were lost are reconnected.
    pub(crate) reconnect: bool,
    /// Bounds the servers that start at the same time.
    pub(crate) starting: Semaphore,
    pub(crate) actors: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) serials: AtomicU64,
    pub(crate) observer: OnceLock<Weak<dyn FleetObserver>>,
}

impl Fleet {
    pub(crate) fn notify_reloaded(&self) {
        if let Some(observer) = self.observer.get().and_then(Weak::upgrade) {
            observer.on_reloaded();
        }
    }

    /// Adds the tools that servers have listed while the current snapshot was being made.
    pub(crate) fn catch_up(&self) {
        for server in self.snapshot.load_full().in_order() {
            self.publish(&server.settings.name, server.serial);
        }
    }

    /// Puts the tools that a server has listed into the catalog, if the server is part of the snapshot.
    pub(crate) fn publish(&self, name: &ServerName, serial: u64) {
        self.snapshot.rcu(|snapshot| match snapshot.with_tools_of(name, serial) {
            Some(changed) => Arc::new(changed),
            None => snapshot.clone(),
        });
    }
}
