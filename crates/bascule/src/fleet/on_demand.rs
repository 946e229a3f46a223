//! Servers that are not running: the tools of their last listing, the wait for their next call, the stop of an idle one.
//!
//! These are parts of the actor. A stop for want of calls is no loss: nothing is reconnected, and the tools stay listed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::ServerTools;
use bascule_model::{Event, ToolDefinition};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{info, warn};

use super::actor::{Actor, ActorCommand, Ending};
use super::server_log::OPERATIONS;
use super::status::ServerPhase;
use super::tools::tool_filter;
use crate::blocking::run_blocking;
use crate::config::StartMode;
use crate::listing_store::{ListingKey, ListingStore, StoredListing};
use crate::observation_store::ObservationStore;

/// The use of the listings that servers gave in earlier runs.
pub(crate) struct ListingStores {
    pub(crate) store: ListingStore,
    /// The types of answers in earlier runs.
    pub(crate) observations: ObservationStore,
    /// Tools of the last listing are shown until a server is up. Otherwise listings are only stored.
    pub(crate) are_shown: bool,
}

/// The reason for which a server is not running until its next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDemandReason {
    NotCalledYet,
    /// There was no call for this time.
    Idle(Duration),
}

impl fmt::Display for OnDemandReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCalledYet => f.write_str("lazy: it starts at its first call"),
            Self::Idle(time) => {
                write!(
                    f,
                    "idle: stopped after {} ms without calls; the next call starts it",
                    time.as_millis()
                )
            }
        }
    }
}

impl Actor {
    /// Takes over the tools of the last listing. A lazy server whose tools are known then waits for its first call. Returns
    /// `None` once the server is stopped.
    pub(super) async fn prepare(&mut self) -> Option<()> {
        self.take_over_observations().await?;
        let has_tools = self.take_over_last_listing().await?;
        // The server for some clients needs no tools of its own: until it has listed them, the bridge's server has them.
        let has_substitute = &*self.profile.capabilities != "{}";
        match self.is_on_demand() && (has_tools || has_substitute) {
            true => self.wait_for_call(OnDemandReason::NotCalledYet).await,
            false => Some(()),
        }
    }

    fn is_on_demand(&self) -> bool {
        self.settings.start == StartMode::Lazy && self.fleet.starts_on_demand
    }

    /// Reads the types that the answers of the server's tools have had. Returns `None` once the server is stopped.
    async fn take_over_observations(&mut self) -> Option<()> {
        // The tools of a server for some clients learn, and the bridge's own tools are shown.
        let is_own = &*self.profile.capabilities == "{}";
        let is_wanted = is_own && self.fleet.learns_result_types();
        let Some(last) = self.fleet.last_listings.as_ref().filter(|_| is_wanted) else { return Some(()) };
        let (store, key) = (last.observations.clone(), self.listing_key());
        self.observations = self.stop.run_until_cancelled(run_blocking(move || store.read(&key))).await?;
        Some(())
    }

    /// Returns true if there was a last listing; `None` once the server is stopped.
    async fn take_over_last_listing(&self) -> Option<bool> {
        let Some(last) = self.fleet.last_listings.as_ref().filter(|last| last.are_shown) else {
            return Some(false);
        };
        let (store, key) = (last.store.clone(), self.listing_key());
        let read = run_blocking(move || {
            let listing = store.read(&key)?;
            let tools =
                listing.parse_tools().inspect_err(|error| warn!("ignoring the last listing: {error}"));
            Some((Arc::from(listing.info.get()), tools.ok()?))
        });
        let Some((info, definitions)) = self.stop.run_until_cancelled(read).await? else {
            return Some(false);
        };
        let (name, filter) = (self.settings.name.clone(), tool_filter(&self.settings));
        let tools = Arc::new(ServerTools::from_last_listing(name, filter, definitions));
        self.observations.restore(&tools);
        self.status.send_modify(|status| (status.tools, status.info) = (Some(tools), Some(info)));
        self.fleet.publish(&self.settings.name, self.serial);
        self.notify_observer(|observer| observer.on_last_listing_read());
        Some(true)
    }

    /// Stores a listing for the next run.
    pub(super) fn store_listing(&self, listed: &[ToolDefinition]) {
        let info = self.status.borrow().info.as_deref().map(str::to_owned);
        let Some((last, info)) = self.fleet.last_listings.as_ref().zip(info) else { return };
        let (store, key, server) = (last.store.clone(), self.listing_key(), self.settings.name.clone());
        let tools: Vec<Box<RawValue>> = listed.iter().map(|tool| tool.raw.clone()).collect();
        let write = move || {
            let info = RawValue::from_string(info)?;
            store.write(&key, StoredListing { info, tools })
        };
        self.fleet.actors.spawn(async move {
            if let Err(error) = run_blocking(write).await {
                warn!(%server, %error, "could not store the listing for the next start");
            }
        });
    }

    fn listing_key(&self) -> ListingKey {
        ListingKey::new(&self.settings, &self.profile.capabilities)
    }

    /// Waits for the next call or refresh. Returns `None` once the server is stopped.
    pub(super) async fn wait_for_call(&mut self, reason: OnDemandReason) -> Option<()> {
        self.set_state(ServerPhase::OnDemand(reason));
        loop {
            let command = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                command = self.commands.recv() => command?,
            };
            match command {
                ActorCommand::Start => break,
                ActorCommand::Refresh(reply) => {
                    self.waiting.push(reply);
                    break;
                }
                // A server that is not running cannot be checked.
                ActorCommand::Check(_) => {}
            }
        }
        self.restart_policy.reset();
        self.is_start_on_demand = true;
        self.set_state(ServerPhase::Starting);
        Some(())
    }

    /// Returns the time at which the server may have been idle for long enough to be stopped.
    pub(super) fn next_idle_check(&self, up_since: Instant) -> Option<Instant> {
        let idle_stop = self.settings.idle_stop.filter(|_| self.is_on_demand())?;
        Some(self.idle_since(up_since).unwrap_or_else(Instant::now) + idle_stop)
    }

    /// Ends a server that is idle for long enough.
    pub(super) fn stop_if_idle(&self, up_since: Instant) -> Result<(), Ending> {
        let Some(idle_stop) = self.settings.idle_stop else { return Ok(()) };
        if self.idle_since(up_since).is_none_or(|since| since.elapsed() < idle_stop) {
            return Ok(());
        }
        let reason = OnDemandReason::Idle(idle_stop);
        let healthy = self.replace_state(ServerPhase::OnDemand(reason));
        // A call is registered before it looks at the state. One that has seen the server healthy is seen here.
        if self.fleet.in_flight.has_requests_to(self.serial) {
            self.replace_state(healthy);
            return Ok(());
        }
        let (server, cause) = (self.settings.name.clone(), Some(reason.to_string()));
        let (from, to) = (healthy.health(), ServerPhase::OnDemand(reason).health());
        if self.is_current() {
            info!(target: OPERATIONS, "server `{server}` is {reason}");
        }
        self.publish(Event::HealthChanged { server, from, to, cause });
        Err(Ending::Idle(reason))
    }

    /// Returns the time since which nobody needs the server; `None` while somebody does.
    fn idle_since(&self, up_since: Instant) -> Option<Instant> {
        // Updates of subscribed resources come only from a running server.
        let is_observed = self.profile.observer().is_some_and(|observer| observer.has_subscribers());
        let since = self.fleet.in_flight.idle_since(self.serial).filter(|_| !is_observed)?;
        Some(since.max(up_since))
    }
}
