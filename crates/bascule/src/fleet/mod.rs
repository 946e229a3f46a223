//! The servers of a bridge, each kept up by an actor of its own.
//!
//! Reading order: [`snapshot`] is what there is at one moment; [`server`] is one of them as calls see it, and
//! [`gate`] how many of those it takes; [`actor`] keeps it up, as [`life`] decides; [`backend`] is the way to it,
//! which is one connection ([`upstream`]) or a process for each call ([`pool`]). [`profile`] is whom a server works
//! for, [`request`] what is asked of it.

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

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bascule_model::{BridgeResult, EventSink, ServerName};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ServerSettings;
use backend::Backend;
use client_profile::ClientProfile;
use snapshot::Snapshot;
use upstream::ToolListing;

/// Starts a server, unless it is told to stop meanwhile.
pub(crate) type Start = Box<
    dyn Fn(
            Arc<ServerSettings>,
            ClientProfile,
            CancellationToken,
        ) -> BoxFuture<'static, BridgeResult<(Backend, ToolListing)>>
        + Send
        + Sync,
>;

/// What all servers of a bridge share.
pub(crate) struct Fleet {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) start: Start,
    /// A number from 0 up to 1.
    pub(crate) random_u64: fn() -> f64,
    /// Whether a server that was lost is brought back.
    pub(crate) reconnect: bool,
    /// So many may be starting at a time.
    pub(crate) starting: Semaphore,
    pub(crate) actors: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) serials: AtomicU64,
}

impl Fleet {
    pub(crate) fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// A snapshot was made while its servers were at work: what one of them listed meanwhile is taken over.
    pub(crate) fn catch_up(&self) {
        for server in self.snapshot.load_full().in_order() {
            self.publish(&server.settings.name, server.serial);
        }
    }

    /// A server has listed its tools: they are in the catalog from now on, if the server is of this snapshot.
    pub(crate) fn publish(&self, name: &ServerName, serial: u64) {
        self.snapshot.rcu(|snapshot| match snapshot.with_tools_of(name, serial) {
            Some(changed) => Arc::new(changed),
            None => snapshot.clone(),
        });
    }
}
