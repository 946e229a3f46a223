//! The servers of a bridge, each kept up by an actor of its own.
//!
//! Reading order: [`snapshot`] holds settings, servers and catalog at one moment. [`server`] is one server as calls see it,
//! behind its [`gate`]. [`actor`] keeps it up, as [`restart_policy`] decides, starts and stops it [`on_demand`], and tells
//! [`server_log`]. [`backend`] carries requests to it: over one connection ([`upstream`], over what `open_transport` opens), or in a process for each call
//! ([`pool`]). [`start_clock`] bounds a start. [`client_profile`] describes the clients behind a connection, [`request`] is
//! one request to a server, [`stray_output`] its output that is no MCP, [`server_output`] its stderr and its log messages.

pub(crate) mod actor;
pub(crate) mod backend;
pub(crate) mod client_profile;
pub(crate) mod gate;
pub(crate) mod on_demand;
mod open_transport;
pub(crate) mod pool;
pub(crate) mod request;
pub(crate) mod restart_policy;
pub(crate) mod server;
pub(crate) mod server_log;
pub(crate) mod server_output;
pub(crate) mod snapshot;
pub(crate) mod start_clock;
pub(crate) mod status;
pub(crate) mod stray_output;
pub(crate) mod tools;
pub(crate) mod upstream;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use bascule_model::{BridgeResult, EventSink, ServerName};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::config::ServerSettings;
use crate::in_flight::{AbandonedRequests, InFlightRegistry};
use crate::metrics::CallMetrics;
use crate::trace_recorder::TraceRecorder;
use backend::Backend;
use client_profile::ClientProfile;
use on_demand::ListingStores;
use snapshot::Snapshot;
use start_clock::ProgressSender;
use upstream::ToolListing;

/// Starts a server, until the token cancels the start.
pub(crate) type Start = Box<
    dyn Fn(
            Arc<ServerSettings>,
            ClientProfile,
            AbandonedRequests,
            CancellationToken,
            ProgressSender,
        ) -> BoxFuture<'static, BridgeResult<(Backend, ToolListing)>>
        + Send
        + Sync,
>;

/// Is notified of changes to the fleet as a whole.
pub(crate) trait FleetObserver: Send + Sync {
    /// A reload is about to replace the snapshot. `on_reloaded` follows, once the added servers have started.
    fn on_reload_started(&self) {}

    /// A reload has replaced the snapshot: servers may be new, changed or gone.
    fn on_reloaded(&self);
}

/// The state that all servers of a bridge share.
pub(crate) struct Fleet {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) in_flight: Arc<InFlightRegistry>,
    pub(crate) events: Arc<dyn EventSink>,
    /// Records calls and the logs of servers.
    pub(crate) traces: Option<Arc<TraceRecorder>>,
    /// The audit log, without which no call is sent if it is configured.
    pub(crate) audit: Option<AuditLog>,
    pub(crate) metrics: CallMetrics,
    pub(crate) start: Start,
    /// Returns a random number from 0 up to 1.
    pub(crate) random: fn() -> f64,
    /// Servers that were lost are reconnected.
    pub(crate) reconnect: bool,
    /// Lazy servers start at their first call. Otherwise all servers start at once.
    pub(crate) starts_on_demand: bool,
    pub(crate) last_listings: Option<ListingStores>,
    /// Bounds the servers that start at the same time.
    pub(crate) starting: Arc<Semaphore>,
    pub(crate) actors: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) serials: AtomicU64,
    pub(crate) observers: Mutex<Vec<Weak<dyn FleetObserver>>>,
}

impl Fleet {
    /// Returns true if types of results are learned from answers.
    pub(crate) fn learns_result_types(&self) -> bool {
        self.snapshot.load().settings.bridge.learns_result_types
    }

    /// Adds an observer. It observes for as long as it exists.
    pub(crate) fn observe(&self, observer: Weak<dyn FleetObserver>) {
        self.observers.lock().expect("no code panics while it holds the lock").push(observer);
    }

    pub(crate) fn notify(&self, notify: impl Fn(&dyn FleetObserver)) {
        let mut observers = self.observers.lock().expect("no code panics while it holds the lock");
        observers.retain(|observer| observer.strong_count() > 0);
        let present: Vec<_> = observers.iter().filter_map(Weak::upgrade).collect();
        drop(observers);
        present.iter().for_each(|observer| notify(&**observer));
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
