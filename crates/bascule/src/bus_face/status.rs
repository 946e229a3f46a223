//! The state of a bridge's bus, for `bascule status`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bascule_bus::{AgentName, Bus};
use serde::{Deserialize, Serialize};

use crate::McpBridgeAdapter;

/// The bus of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BusStatus {
    pub(crate) agent: AgentName,
    /// The address without user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    pub(crate) connected: bool,
    /// The reason why there is no connection yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    /// The requests that are being handled.
    pub(crate) requests: usize,
    /// The events that were not published: the broker took them too slowly, or not at all.
    pub(crate) dropped_events: u64,
}

/// Collects the state of a bus.
pub(crate) struct BusMonitor {
    agent: AgentName,
    state: Mutex<ConnectionState>,
    requests: AtomicUsize,
    dropped_events: AtomicU64,
}

#[derive(Default)]
struct ConnectionState {
    url: Option<String>,
    bus: Option<Bus>,
    cause: Option<String>,
}

/// Counts a request for as long as it exists.
pub(super) struct CountedRequest(Arc<BusMonitor>);

impl BusMonitor {
    /// Returns the monitor of a bridge. A bridge has one.
    pub(crate) fn of_bridge(bridge: &McpBridgeAdapter, agent: &AgentName) -> Arc<Self> {
        let new = || {
            let (requests, dropped_events) = (AtomicUsize::new(0), AtomicU64::new(0));
            Arc::new(Self { agent: agent.clone(), state: Mutex::default(), requests, dropped_events })
        };
        bridge.bus.get_or_init(new).clone()
    }

    pub(crate) fn set_url(&self, url: String) {
        self.lock().url = Some(url);
    }

    pub(crate) fn set_failure(&self, cause: String) {
        self.lock().cause = Some(cause);
    }

    pub(super) fn set_connected(&self, bus: Bus) {
        let mut state = self.lock();
        (state.bus, state.cause) = (Some(bus), None);
    }

    pub(super) fn count_request(self: &Arc<Self>) -> CountedRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        CountedRequest(self.clone())
    }

    /// Returns the number of all dropped events.
    pub(super) fn count_dropped_events(&self, count: u64) -> u64 {
        self.dropped_events.fetch_add(count, Ordering::Relaxed) + count
    }

    pub(crate) fn status(&self) -> BusStatus {
        let state = self.lock();
        BusStatus {
            agent: self.agent.clone(),
            url: state.url.clone(),
            connected: state.bus.as_ref().is_some_and(Bus::is_connected),
            cause: state.cause.clone(),
            requests: self.requests.load(Ordering::Relaxed),
            dropped_events: self.dropped_events.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
