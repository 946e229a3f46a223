//! A session towards one server that clients with equal capabilities share.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bascule_catalog::ServerTools;
use bascule_model::{BridgeError, BridgeResult};
use foldhash::HashMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::aggregate;
use super::listing_requests::ServerItems;
use super::listings::Listing;
use super::routing::ListChange;
use crate::client::{ClientContext, SharingKey};
use crate::deadline::Deadline;
use crate::fleet::Fleet;
use crate::fleet::backend::Backend;
use crate::fleet::client_profile::{ClientProfile, UpstreamObserver};
use crate::fleet::request::UpstreamRequest;
use crate::fleet::server::Server;
use crate::fleet::status::ServerPhase;
use crate::in_flight::{InFlightRegistry, Origin};
use crate::logging_level::LoggingLevel;

/// A longer listing is not kept.
const MAX_KEPT_BYTES: usize = 1 << 20;

pub(super) struct UpstreamSession {
    pub(super) server: Arc<Server>,
    pub(super) in_flight: Arc<InFlightRegistry>,
    /// The session has a server of its own, which stops with it. Otherwise it uses the bridge's.
    owns_server: bool,
    /// One client has the session alone.
    is_exclusive: bool,
    state: Mutex<State>,
    /// Clients were shown the tools of the bridge's server, because this session's server had not listed its own.
    has_served_base_tools: AtomicBool,
    pub(super) tasks: GatewayTasks,
    /// A handle on itself, for tasks.
    pub(super) this: Weak<Self>,
}

#[derive(Default)]
struct State {
    /// The attached clients, by serial number.
    clients: HashMap<u64, Weak<ClientContext>>,
    /// Changed listings that are about to be announced, by the method of their notification.
    list_changes: BTreeMap<String, ListChange>,
    /// The last items of each listing, by its method, and the listings that the server has not sent in time.
    items: HashMap<&'static str, ServerItems>,
    late: HashSet<&'static str>,
}

/// The tasks of the gateway.
#[derive(Clone, Default)]
pub(super) struct GatewayTasks {
    pub(super) tracker: TaskTracker,
    pub(super) stop: CancellationToken,
    /// Counts changes of the tools that upstream sessions show. The names that clients see are made again after a change
    /// (`listings`).
    pub(super) tool_changes: Arc<AtomicU64>,
}

impl GatewayTasks {
    /// Spawns a task that is dropped when the gateway closes.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move { _ = stop.run_until_cancelled(work).await });
    }
}

impl UpstreamSession {
    pub(super) fn open(
        base: &Arc<Server>,
        key: &SharingKey,
        capabilities: &Arc<str>,
        fleet: &Arc<Fleet>,
        tasks: &GatewayTasks,
    ) -> Arc<Self> {
        let owns_server = !key.has_no_capabilities();
        let server = match owns_server {
            true => Server::spawn(base.settings.clone(), ClientProfile::new(capabilities.clone()), fleet),
            false => base.clone(),
        };
        let upstream = Arc::new_cyclic(|this| Self {
            server,
            in_flight: fleet.in_flight.clone(),
            owns_server,
            is_exclusive: matches!(key, SharingKey::Client(_)),
            state: Mutex::default(),
            has_served_base_tools: AtomicBool::new(false),
            tasks: tasks.clone(),
            this: this.clone(),
        });
        upstream.server.profile.observe(Arc::downgrade(&upstream) as Weak<dyn UpstreamObserver>);
        tasks.tool_changes.fetch_add(1, Ordering::AcqRel);
        upstream
    }

    /// Returns the server's tools. Until they are listed, returns those of the bridge's server.
    pub(super) fn tools(&self, base: &Server) -> Option<Arc<ServerTools>> {
        self.server.tools().or_else(|| {
            self.has_served_base_tools.store(true, Ordering::Release);
            self.server.tools().or_else(|| base.tools())
        })
    }

    /// Returns true if clients were shown the tools of the bridge's server since the last call. They may differ from those of
    /// this session's server.
    pub(super) fn take_has_served_base_tools(&self) -> bool {
        self.has_served_base_tools.swap(false, Ordering::AcqRel)
    }

    /// Returns true if the session still fits the configured server.
    pub(super) fn serves(&self, base: &Arc<Server>) -> bool {
        if !self.owns_server {
            return Arc::ptr_eq(&self.server, base);
        }
        // A server that was given up is replaced when the bridge's own is up.
        let is_given_up = matches!(self.server.state(), ServerPhase::Unavailable { .. });
        (Arc::ptr_eq(&self.server.settings, &base.settings) || self.server.settings == base.settings)
            && !self.server.is_stopped()
            && !(is_given_up && base.backend().is_ok())
    }

    pub(super) fn attach(&self, client: &Arc<ClientContext>) {
        if self.state().clients.contains_key(&client.serial) {
            return;
        }
        client.add_server(self.server.settings.name.as_str());
        // A closed client has been detached, and nobody would detach it again.
        if !client.is_closed() {
            self.state().clients.insert(client.serial, Arc::downgrade(client));
        }
    }

    /// Detaches a client. Returns false if it was not attached.
    pub(super) fn detach(&self, client: &ClientContext) -> bool {
        self.state().clients.remove(&client.serial).is_some()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.state().clients.is_empty()
    }

    pub(super) fn clients(&self) -> Vec<Arc<ClientContext>> {
        let clients: Vec<_> = self.state().clients.values().filter_map(Weak::upgrade).collect();
        clients.into_iter().filter(|client| !client.is_closed()).collect()
    }

    pub(super) async fn close(&self) {
        self.in_flight.remove_abandoned_of_clients(self.server.serial);
        if self.owns_server {
            self.server.stop().await;
        }
    }

    /// Closes the session after its requests in flight. A server of the bridge is stopped by the reload that replaced it;
    /// until then the session observes it, so that clients learn of its end.
    pub(super) async fn retire(&self, grace: Duration) {
        if !self.owns_server {
            self.tasks.stop.run_until_cancelled(self.server.wait_for_stop()).await;
        } else if self.tasks.stop.run_until_cancelled(self.server.retire(grace)).await.is_none() {
            self.server.stop().await;
        }
    }

    /// Waits for the server's start, and returns its backend.
    pub(super) async fn ready_backend(&self) -> BridgeResult<Arc<Backend>> {
        let settings = &self.server.settings;
        self.server.start_and_wait(Instant::now() + settings.start_timeout + settings.install_timeout).await;
        self.server.backend().map_err(|error| self.redacted(error))
    }

    /// Removes the server's stderr from an error: it may be about the calls of other clients.
    pub(super) fn redacted(&self, mut error: Box<BridgeError>) -> Box<BridgeError> {
        if !self.is_exclusive {
            error.stderr = None;
        }
        error
    }

    /// Returns the deadline of a request other than a tool call.
    pub(super) fn deadline(&self) -> Deadline {
        let settings = &self.server.settings;
        Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution)
    }

    /// Sends a request of the bridge's own. A failure is logged. A server that is not running has nothing to be told.
    async fn send_own(&self, method: &str, params: &str) {
        if self.server.is_on_demand() {
            return;
        }
        let deadline = self.deadline();
        let sent = self.send_request(method, Some(params), &Origin::Bridge, &deadline).await;
        if let Err(error) = sent {
            debug!(server = %self.server.settings.name, method, %error, "request of the bridge failed");
        }
    }

    /// Sends a request with fixed parameters.
    pub(super) async fn send_request(
        &self,
        method: &str,
        params: Option<&str>,
        origin: &Origin,
        deadline: &Deadline,
    ) -> BridgeResult<String> {
        let in_flight = self.server.begin_request(method, origin.clone());
        let params = |_| params.map(str::to_owned);
        let request = UpstreamRequest {
            method,
            tool: None,
            params: &params,
            progress: None,
            extra_members: None,
            meter: None,
        };
        let response = self.server.run(in_flight, &request, true, deadline).await?;
        Ok(super::reply::into_text(response.raw))
    }

    /// Returns true if the server has declared a capability.
    pub(super) fn declares(&self, capability: &str) -> bool {
        self.server.info().is_some_and(|info| aggregate::declares(&info, capability))
    }

    /// Returns the lowest level that a client has set. Clients that have set none count with the default.
    pub(super) fn logging_level(&self) -> Option<LoggingLevel> {
        let levels: Vec<_> = self.clients().iter().map(|client| client.logging_level()).collect();
        let is_set = levels.iter().any(Option::is_some);
        levels.into_iter().map(|level| level.unwrap_or(LoggingLevel::DEFAULT)).min().filter(|_| is_set)
    }

    pub(super) fn has_subscriber(&self, uri: &str) -> bool {
        let name = self.server.settings.name.as_str();
        self.clients().iter().any(|client| client.is_subscribed(name, uri))
    }

    /// Returns true if the server has accepted a client's subscription.
    pub(super) fn has_confirmed_subscriber(&self, uri: &str) -> bool {
        let name = self.server.settings.name.as_str();
        self.clients().iter().any(|client| client.has_confirmed_subscription(name, uri))
    }

    /// Withdraws the log level and the subscriptions that only a detached client wanted.
    pub(super) fn release(&self, detached: &ClientContext) {
        let Some(upstream) = self.this.upgrade().filter(|one| !one.owns_server || !one.is_unused()) else {
            return;
        };
        let uris = detached.subscriptions(self.server.settings.name.as_str());
        let unwanted: Vec<String> = uris.into_iter().filter(|uri| !self.has_subscriber(uri)).collect();
        let level = detached.logging_level();
        if unwanted.is_empty() && level.is_none() {
            return;
        }
        self.tasks.spawn(async move {
            // Read in the task: of two clients that go at once, the later one must have the last word.
            let others = upstream.logging_level().unwrap_or(LoggingLevel::DEFAULT);
            if level.is_some_and(|level| level < others) {
                upstream.send_own("logging/setLevel", &others.to_params()).await;
            }
            for uri in unwanted {
                upstream.send_own("resources/unsubscribe", &uri_params(&uri)).await;
            }
        });
    }

    /// Restores log level and subscriptions at a server that was up before the session was opened. Another one is told when it
    /// is up (`on_connected`).
    pub(super) fn restore_subscriptions_if_up(&self) {
        if self.server.backend().is_ok() {
            self.spawn_restoring();
        }
    }

    pub(super) fn spawn_restoring(&self) {
        if let Some(upstream) = self.this.upgrade() {
            self.tasks.spawn(async move { upstream.restore_subscriptions().await });
        }
    }

    /// Sends the server the log level and the subscriptions of its clients.
    async fn restore_subscriptions(&self) {
        let name = self.server.settings.name.as_str();
        let uris: BTreeSet<String> =
            self.clients().iter().flat_map(|client| client.subscriptions(name)).collect();
        if let Some(level) = self.logging_level().filter(|_| self.declares("logging")) {
            self.send_own("logging/setLevel", &level.to_params()).await;
        }
        for uri in uris {
            self.send_own("resources/subscribe", &uri_params(&uri)).await;
        }
    }

    /// Queues changed listings to be announced. A change that is queued already keeps the server's notification. Returns
    /// true if an announcement was scheduled before.
    pub(super) fn queue_list_changes(&self, changes: impl IntoIterator<Item = ListChange>) -> bool {
        let mut state = self.state();
        let was_scheduled = !state.list_changes.is_empty();
        for change in changes {
            let is_known = state.list_changes.contains_key(&change.method);
            if change.notification.is_some() || !is_known {
                state.list_changes.insert(change.method.clone(), change);
            }
        }
        was_scheduled
    }

    pub(super) fn take_list_changes(&self) -> Vec<ListChange> {
        std::mem::take(&mut self.state().list_changes).into_values().collect()
    }

    /// Keeps the items of a listing, unless they are too long. Returns true if they have changed.
    pub(super) fn keep_items(&self, listing: Listing, items: &ServerItems) -> bool {
        let mut state = self.state();
        let has_changed = state.items.get(listing.method).map_or(&[][..], |kept| kept) != items.as_slice();
        match items.iter().map(String::len).sum::<usize>() > MAX_KEPT_BYTES {
            true => drop(state.items.remove(listing.method)),
            false => drop(state.items.insert(listing.method, items.clone())),
        }
        has_changed
    }

    pub(super) fn kept_items(&self, listing: Listing) -> Option<ServerItems> {
        self.state().items.get(listing.method).cloned()
    }

    /// Returns true if the server still owes the response to an earlier request of the listing.
    pub(super) fn is_late(&self, listing: Listing) -> bool {
        self.state().late.contains(listing.method)
    }

    pub(super) fn set_late(&self, listing: Listing, is_late: bool) {
        match is_late {
            true => self.state().late.insert(listing.method),
            false => self.state().late.remove(listing.method),
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

fn uri_params(uri: &str) -> String {
    serde_json::json!({ "uri": uri }).to_string()
}
