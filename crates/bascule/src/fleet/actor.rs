//! Keeps one server up: starts it, notices its loss, restarts it, gives it up (BR-08, BR-09).
//!
//! The actor alone owns the server's backend and writes its status. `restart_policy` decides when to try again.

use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::ServerTools;
use bascule_mcp::TransportError;
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Fleet;
use super::backend::Backend;
use super::client_profile::{ClientProfile, UpstreamObserver};
use super::restart_policy::{Loss, NextStep, RestartPolicy};
use super::status::{ServerState, Status};
use super::tools::{changes, discovered, tool_filter};
use super::upstream::ToolListing;
use crate::config::ServerSettings;
use crate::in_flight::{AbandonedRequests, ServerSignals};
use crate::normalise;

/// Servers often announce changed tools several times in a row: the listing waits this long for the last one.
const SETTLING: Duration = Duration::from_millis(100);
/// The longest pause between listings of a server that announces changes without end.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A start that takes longer no longer counts against the number of concurrent starts.
const START_SLOT: Duration = Duration::from_secs(2);
/// The time in which a server must respond to a ping.
const PONG_WITHIN: Duration = Duration::from_secs(5);
/// A server that ignores this many consecutive cancellations is restarted.
const MAX_IGNORED: u32 = 2;

/// A command to an actor.
pub(crate) enum ActorCommand {
    /// List the tools again, or start a server that is down.
    Refresh(oneshot::Sender<BridgeResult<()>>),
    /// Check a server that a call could not reach.
    Check(oneshot::Sender<bool>),
}

pub(crate) struct Actor {
    pub(crate) serial: u64,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) commands: mpsc::Receiver<ActorCommand>,
    pub(crate) signals: Arc<ServerSignals>,
    pub(crate) profile: ClientProfile,
    pub(crate) stop: CancellationToken,
    pub(crate) restart_policy: RestartPolicy,
    /// The time of the last listing that the server asked for, and the pause before it.
    pub(crate) listed_at: Instant,
    pub(crate) pause: Duration,
    /// The senders of refresh commands that wait for the current start.
    pub(crate) waiting: Vec<oneshot::Sender<BridgeResult<()>>>,
}

/// The reason for which a server is no longer up.
#[derive(Debug, thiserror::Error)]
enum Ending {
    #[error("it was stopped")]
    Stopped,
    #[error("{1}")]
    Lost(Loss, String),
}

impl Actor {
    /// Runs until the server is stopped, or its last handle is dropped.
    pub(crate) async fn run(mut self) {
        while let Some((loss, cause, since)) = self.start_and_keep().await {
            let Some(()) = self.wait_for_restart(loss, cause, since).await else { break };
        }
        self.fleet.in_flight.remove_server(self.serial);
        self.set_state(ServerState::Stopped);
    }

    /// Starts the server and keeps it until it is lost. Returns `None` once it is stopped.
    async fn start_and_keep(&mut self) -> Option<(Loss, Arc<BridgeError>, Instant)> {
        let started = self.start().await;
        let result = started.as_ref().map(|_| ()).map_err(Clone::clone);
        self.waiting.drain(..).for_each(|reply| drop(reply.send(result.clone())));
        let backend = match started {
            Ok(backend) => backend,
            Err(_) if self.stop.is_cancelled() => return None,
            Err(error) => return Some((Loss::Fault, self.start_error(error), Instant::now())),
        };
        let end = self.keep(&backend).await;
        self.fleet.in_flight.remove_all_abandoned(self.serial);
        self.observed(|observer| observer.on_lost());
        let Ending::Lost(loss, reason) = end else {
            backend.stop().await;
            return None;
        };
        let since = Instant::now();
        let error = Arc::new(backend.unavailable(&reason, &self.settings).as_ref().clone());
        // The status must not say healthy while the process is being ended.
        self.set_state(ServerState::Degraded {
            attempt: self.restart_policy.attempts(),
            next: Instant::now(),
            cause: error.clone(),
        });
        self.publish(Event::Disconnected { server: self.settings.name.clone(), cause: reason });
        backend.stop().await;
        Some((loss, error, since))
    }

    async fn start(&mut self) -> BridgeResult<Arc<Backend>> {
        let (backend, listed) = self.start_in_slot().await?;
        let backend = Arc::new(backend);
        self.restart_policy.on_up(Instant::now());
        // A refresh command restarts a server without an attempt being counted.
        let (attempts, was_there) = (self.restart_policy.attempts(), self.status.borrow().tools.is_some());
        let returns = attempts > 0 || was_there;
        self.publish_tools(listed);
        self.status.send_modify(|status| status.restarts += u32::from(returns));
        self.set_state(ServerState::Healthy(backend.clone()));
        if returns {
            let attempts = attempts.max(1);
            self.publish(Event::Reconnected { server: self.settings.name.clone(), attempts });
            self.observed(|observer| observer.on_reconnected());
        }
        Ok(backend)
    }

    /// Starts the server when a start slot is free. A slow start gives its slot back.
    async fn start_in_slot(&self) -> BridgeResult<(Backend, ToolListing)> {
        let Some(slot) = self.stop.run_until_cancelled(self.fleet.starting.acquire()).await else {
            return Err(normalise::start_error(&self.settings.name, "the start was cancelled"));
        };
        let abandoned = AbandonedRequests::new(&self.fleet.in_flight, self.serial);
        let (settings, profile) = (self.settings.clone(), self.profile.clone());
        let mut starting = (self.fleet.start)(settings, profile, abandoned, self.stop.clone());
        let started = timeout(START_SLOT, &mut starting).await;
        drop(slot);
        match started {
            Ok(started) => started,
            Err(_) => starting.await,
        }
    }

    /// Returns the error for callers after a failed start: a server that was up before is down.
    fn start_error(&self, error: Box<BridgeError>) -> Arc<BridgeError> {
        let known = self.status.borrow().tools.is_some();
        Arc::new(if known { as_down(&error, &self.settings) } else { *error })
    }

    /// Watches a server that is up until it is lost or stopped.
    async fn keep(&mut self, backend: &Arc<Backend>) -> Ending {
        let mut ignored = 0;
        let mut next_ping = self.next_ping();
        loop {
            let end = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ending::Stopped,
                () = backend.closed() => return lost(backend),
                command = self.commands.recv() => match command {
                    Some(command) => self.handle_command(command, backend).await,
                    None => return Ending::Stopped,
                },
                () = backend.tools_changed() => self.list_again(backend).await,
                () = self.signals.abandoned.notified() => self.check_after_cancel(backend, &mut ignored).await,
                () = until(next_ping) => {
                    next_ping = self.next_ping();
                    self.ping_if_idle(backend).await
                }
            };
            if let Err(end) = end {
                return end;
            }
        }
    }

    fn next_ping(&self) -> Option<Instant> {
        self.settings.keep_alive.map(|every| Instant::now() + every)
    }

    async fn handle_command(&mut self, command: ActorCommand, backend: &Arc<Backend>) -> Result<(), Ending> {
        match command {
            ActorCommand::Refresh(reply) => {
                let (result, end) = match self.list(backend).await {
                    Ok(listed) => (listed.map(|listed| self.publish_tools(listed)), Ok(())),
                    Err(end) => (Err(normalise::unavailable_error(&self.settings.name, &end)), Err(end)),
                };
                let _ = reply.send(result);
                end
            }
            ActorCommand::Check(reply) => {
                let alive = self.ping(backend, PONG_WITHIN).await;
                let _ = reply.send(alive.is_ok());
                alive
            }
        }
    }

    async fn list_again(&mut self, backend: &Arc<Backend>) -> Result<(), Ending> {
        // A server that was listed a moment ago waits twice as long as then.
        let calm = self.listed_at.elapsed() > self.pause * 4;
        self.pause = if calm { SETTLING } else { (self.pause * 2).min(MAX_PAUSE) };
        self.unless_lost(backend, sleep(self.pause)).await?;
        self.listed_at = Instant::now();
        match self.list(backend).await? {
            Ok(listed) => self.publish_tools(listed),
            Err(error) => {
                warn!(server = %self.settings.name, %error, "could not list the changed tools")
            }
        }
        Ok(())
    }

    /// Lists the tools. A server that does not respond in time keeps its old tools.
    async fn list(&self, backend: &Arc<Backend>) -> Result<BridgeResult<ToolListing>, Ending> {
        let ServerSettings { name, start_timeout, .. } = &*self.settings;
        let listed = self.unless_lost(backend, timeout(*start_timeout, backend.list_tools())).await?;
        Ok(listed.unwrap_or_else(|_| {
            let message =
                format!("server `{name}` did not list its tools within {} ms", start_timeout.as_millis());
            Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::Unknown, message))
        }))
    }

    /// Checks a server after a cancelled call: one that does not respond to a ping ignores cancellations.
    async fn check_after_cancel(&mut self, backend: &Arc<Backend>, ignored: &mut u32) -> Result<(), Ending> {
        let grace = self.settings.cancel_grace;
        match self.unless_lost(backend, backend.ping(grace)).await? {
            Ok(()) => *ignored = 0,
            Err(_) => *ignored += 1,
        }
        if *ignored < MAX_IGNORED {
            return Ok(());
        }
        let reason =
            format!("it ignored {ignored} cancellations for {} ms each and is restarted", grace.as_millis());
        Err(Ending::Lost(Loss::Renewal, reason))
    }

    /// Pings an idle server. Responses show that a busy one is alive.
    async fn ping_if_idle(&self, backend: &Arc<Backend>) -> Result<(), Ending> {
        match !self.fleet.in_flight.has_requests_to(self.serial) {
            true => self.ping(backend, PONG_WITHIN).await,
            false => Ok(()),
        }
    }

    async fn ping(&self, backend: &Arc<Backend>, within: Duration) -> Result<(), Ending> {
        let result = self.unless_lost(backend, backend.ping(within)).await?;
        result.map_err(|reason| Ending::Lost(Loss::Fault, reason))
    }

    /// Runs work until the server is lost or stopped.
    async fn unless_lost<T>(
        &self,
        backend: &Arc<Backend>,
        work: impl Future<Output = T>,
    ) -> Result<T, Ending> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Ending::Stopped),
            () = backend.closed() => Err(lost(backend)),
            done = work => Ok(done),
        }
    }

    /// Waits for the next start. Returns `None` once the server is stopped.
    async fn wait_for_restart(&mut self, loss: Loss, cause: Arc<BridgeError>, since: Instant) -> Option<()> {
        let next = match self.restart_policy.on_down(loss, since, (self.fleet.random)()) {
            NextStep::Retry { attempt, at } => {
                info!(server = %self.settings.name, attempt, wait = ?at.saturating_duration_since(Instant::now()), "reconnecting");
                self.set_state(ServerState::Degraded { attempt, next: at, cause });
                Some(at)
            }
            NextStep::GiveUp { attempts } => {
                let (server, message) = (self.settings.name.clone(), cause.message.clone());
                self.set_state(ServerState::Unavailable { cause });
                self.publish(Event::ReconnectExhausted { server, attempts, cause: message });
                None
            }
        };
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                command = self.commands.recv() => match command? {
                    ActorCommand::Refresh(reply) => {
                        self.restart_policy.reset();
                        self.waiting.push(reply);
                        return Some(());
                    }
                    ActorCommand::Check(_) => {}
                },
                () = until(next) => return Some(()),
            }
        }
    }

    /// Publishes a new listing.
    fn publish_tools(&self, listed: ToolListing) {
        let old = self.status.borrow().tools.clone();
        let event = discovered(&self.settings.name, &listed.tools);
        let tools = Arc::new(match &old {
            Some(old) => old.with_new_list(tool_filter(&self.settings), listed.tools),
            None => ServerTools::new(self.settings.name.clone(), tool_filter(&self.settings), listed.tools),
        });
        info!(server = %self.settings.name, tools = tools.tools().len(), "tools listed");
        for warning in listed.warnings.iter().chain(tools.warnings()) {
            warn!(server = %self.settings.name, "{warning}");
        }
        let refreshed = old.map(|old| changes(&old, &tools));
        self.status.send_modify(|status| status.tools = Some(tools));
        self.fleet.publish(&self.settings.name, self.serial);
        match &refreshed {
            None => self.observed(|observer| observer.on_tools_listed(true)),
            Some(Event::ToolsRefreshed { added, removed, .. }) if added.is_empty() && removed.is_empty() => {}
            Some(_) => self.observed(|observer| observer.on_tools_listed(false)),
        }
        self.fleet.events.offer(event);
        refreshed.into_iter().for_each(|event| self.publish(event));
    }

    /// Changes the state. Every change goes through here.
    fn set_state(&self, state: ServerState) {
        let (from, to) = (self.status.borrow().state.health(), state.health());
        let cause = state.cause().map(|error| error.message.clone());
        self.status.send_modify(|status| status.state = state);
        if from != to {
            info!(server = %self.settings.name, ?from, ?to, cause, "health changed");
            self.publish(Event::HealthChanged { server: self.settings.name.clone(), from, to, cause });
        }
    }

    fn observed(&self, notify: impl FnOnce(&dyn UpstreamObserver)) {
        if let Some(observer) = self.profile.observer() {
            notify(&*observer);
        }
    }

    /// Publishes an event, unless the name belongs to another server by now.
    fn publish(&self, event: Event) {
        let snapshot = self.fleet.snapshot.load();
        let named = snapshot.servers.get(&self.settings.name);
        if named.is_none_or(|named| named.serial == self.serial) {
            self.fleet.events.offer(event);
        }
    }
}

/// Returns the reason for which the connection ended.
fn lost(backend: &Backend) -> Ending {
    match backend.close_reason() {
        Some(cause) if matches!(*cause, TransportError::SessionExpired { .. }) => {
            Ending::Lost(Loss::Renewal, cause.to_string())
        }
        Some(cause) => Ending::Lost(Loss::Fault, cause.to_string()),
        None => Ending::Lost(Loss::Fault, "the connection is over".into()),
    }
}

/// Converts the error of a failed restart into that of a server that is down.
fn as_down(error: &BridgeError, settings: &ServerSettings) -> BridgeError {
    let mut down = *normalise::unavailable_error(&settings.name, &error.message);
    down.stderr.clone_from(&error.stderr);
    down.exit.clone_from(&error.exit);
    down.limit.clone_from(&error.limit);
    down
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
