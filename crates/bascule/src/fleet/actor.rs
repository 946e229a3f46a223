//! Keeps one server up: starts it, notices its loss, restarts it, gives it up.
//!
//! The actor alone owns the server's backend and writes its status. `restart_policy` decides when to try again; `on_demand`
//! has the parts for servers that are not always running.

use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::ServerTools;
use bascule_mcp::TransportError;
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Fleet;
use super::backend::Backend;
use super::client_profile::{ClientProfile, UpstreamObserver};
use super::on_demand::OnDemandReason;
use super::restart_policy::{Loss, NextStep, RestartPolicy};
use super::server_log::{INSTALLS, OPERATIONS, ServerLog, UpServer};
use super::start_clock::InstallProgress;
use super::status::{ServerPhase, Status};
use super::tools::{changes, discovered, is_empty_change, tool_filter};
use super::upstream::ToolListing;
use crate::config::ServerSettings;
use crate::in_flight::{AbandonedRequests, ServerNotifiers};
use crate::normalise;
use crate::observation_store::StoredObservations;
use crate::post_mortem::redact;

/// Servers often announce changed tools several times in a row: the listing waits this long for the last one.
const SETTLING: Duration = Duration::from_millis(100);
/// The longest pause between listings of a server that announces changes without end.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A start that takes longer no longer counts against the number of concurrent starts.
const START_SLOT: Duration = Duration::from_secs(2);
/// The time in which a server must respond to a ping.
const PONG_WITHIN: Duration = Duration::from_secs(5);
/// The load of messages without a request, during a ping, that may delay its response.
const FLOOD: Duration = Duration::from_millis(500);
/// A server that ignores this many consecutive cancellations is restarted.
const MAX_IGNORED: u32 = 2;

/// A command to an actor.
pub(crate) enum ActorCommand {
    /// List the tools again, or start a server that is down.
    Refresh(oneshot::Sender<BridgeResult<()>>),
    /// Start a server that is not running until its next call.
    Start,
    /// Check a server that a call could not reach.
    Check(oneshot::Sender<bool>),
}

pub(crate) struct Actor {
    pub(crate) serial: u64,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) commands: mpsc::Receiver<ActorCommand>,
    pub(crate) notifiers: Arc<ServerNotifiers>,
    pub(crate) profile: ClientProfile,
    pub(crate) stop: CancellationToken,
    pub(crate) restart_policy: RestartPolicy,
    /// The time of the last listing that the server asked for, and the pause before it.
    pub(crate) listed_at: Instant,
    pub(crate) pause: Duration,
    /// The senders of refresh commands that wait for the current start.
    pub(crate) waiting: Vec<oneshot::Sender<BridgeResult<()>>>,
    pub(crate) log: ServerLog,
    /// The current start follows a wait for a call, not a loss.
    pub(crate) is_start_on_demand: bool,
    /// The types of the answers in earlier runs.
    pub(crate) observations: StoredObservations,
}

/// A server that was lost, or could not be started.
struct Down {
    loss: Loss,
    cause: Arc<BridgeError>,
    since: Instant,
    was_up: bool,
}

/// The reason for which a server is no longer up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    #[error("it was stopped")]
    Stopped,
    #[error("{0}")]
    Idle(OnDemandReason),
    #[error("{1}")]
    Lost(Loss, String),
}

impl Actor {
    /// Runs until the server is stopped, or its last handle is dropped.
    pub(crate) async fn run(mut self) {
        if self.prepare().await.is_some() {
            while let Some(down) = self.start_and_keep().await {
                let Some(()) = self.wait_for_restart(down).await else { break };
            }
        }
        self.fleet.in_flight.remove_server(self.serial);
        self.set_state(ServerPhase::Stopped);
    }

    /// Starts the server and keeps it until it is lost. In between it may be stopped for want of calls. Returns `None` once it
    /// is stopped.
    async fn start_and_keep(&mut self) -> Option<Down> {
        loop {
            match self.start_and_keep_once().await {
                RunEnd::Stopped => return None,
                RunEnd::Idle(reason) => self.wait_for_call(reason).await?,
                RunEnd::Lost(down) => return Some(down),
            }
        }
    }

    async fn start_and_keep_once(&mut self) -> RunEnd {
        let started = self.start().await;
        let result = started.as_ref().map(|_| ()).map_err(Clone::clone);
        self.waiting.drain(..).for_each(|reply| drop(reply.send(result.clone())));
        let backend = match started {
            Ok(backend) => backend,
            Err(_) if self.stop.is_cancelled() => return RunEnd::Stopped,
            Err(error) => {
                self.status.send_modify(|status| status.failed_starts += 1);
                let (loss, cause) = (Loss::Fault, self.start_error(error));
                return RunEnd::Lost(Down { loss, cause, since: Instant::now(), was_up: false });
            }
        };
        let end = self.keep(&backend).await;
        self.fleet.in_flight.remove_all_abandoned(self.serial);
        self.notify_observer(|observer| observer.on_lost());
        let end = match end {
            Ending::Stopped => RunEnd::Stopped,
            Ending::Idle(reason) => RunEnd::Idle(reason),
            Ending::Lost(loss, reason) => RunEnd::Lost(self.on_lost(&backend, loss, reason)),
        };
        backend.stop().await;
        end
    }

    /// Reports the loss of a server, whose process may still run.
    fn on_lost(&mut self, backend: &Backend, loss: Loss, reason: String) -> Down {
        let since = Instant::now();
        let cause = Arc::new(backend.unavailable(&reason, &self.settings).as_ref().clone());
        // The status must not say healthy while the process is being ended.
        self.set_state(ServerPhase::Degraded {
            attempt: self.restart_policy.attempts(),
            next: Instant::now(),
            cause: cause.clone(),
        });
        self.publish(Event::Disconnected { server: self.settings.name.clone(), cause: reason });
        Down { loss, cause, since, was_up: true }
    }

    async fn start(&mut self) -> BridgeResult<Arc<Backend>> {
        let began = Instant::now();
        let (backend, listed) = self.start_in_slot().await?;
        let (backend, now) = (Arc::new(backend), Instant::now());
        self.restart_policy.on_up(now);
        // A refresh command restarts a server without an attempt being counted.
        let (attempts, was_up) = (self.restart_policy.attempts(), self.status.borrow().was_up);
        let is_on_demand = std::mem::take(&mut self.is_start_on_demand);
        let returns = attempts > 0 || (was_up && !is_on_demand);
        self.status.send_modify(|status| status.info = Some(backend.info().raw.get().into()));
        self.publish_tools(listed);
        self.status.send_modify(|status| {
            status.restarts += u32::from(returns);
            status.failed_starts = 0;
            status.was_up = true;
        });
        if returns && self.is_current() {
            self.fleet.metrics.server(&self.settings.name).count_restart();
        }
        self.set_state(ServerPhase::Healthy(backend.clone()));
        let tools = self.status.borrow().tools.as_ref().map_or(0, |tools| tools.tools().len());
        let up = UpServer { tools, pid: backend.pid(), took: now - began };
        let line = self.log.on_up(&self.settings.name, &up, now);
        if self.is_current() {
            info!(target: OPERATIONS, "{line}");
        }
        if returns {
            let attempts = attempts.max(1);
            self.publish(Event::Reconnected { server: self.settings.name.clone(), attempts });
        }
        self.notify_observer(|observer| observer.on_connected());
        Ok(backend)
    }

    /// Starts the server when a start slot is free. A slow start gives its slot back.
    async fn start_in_slot(&mut self) -> BridgeResult<(Backend, ToolListing)> {
        let Some(slot) = self.stop.run_until_cancelled(self.fleet.starting.clone().acquire_owned()).await
        else {
            return Err(normalise::start_error(&self.settings.name, "the start was cancelled"));
        };
        let abandoned = AbandonedRequests::new(&self.fleet.in_flight, self.serial);
        let (settings, profile) = (self.settings.clone(), self.profile.clone());
        let (progress, mut reports) = watch::channel(None);
        let mut starting =
            (self.fleet.start)(settings, profile, abandoned, self.stop.clone(), Arc::new(progress));
        let (mut slot, slot_end) = (Some(slot), Instant::now() + START_SLOT);
        loop {
            tokio::select! {
                biased;
                started = &mut starting => {
                    self.on_install_progress(None);
                    return started;
                }
                Ok(()) = reports.changed() => {
                    let report = reports.borrow_and_update().clone();
                    self.on_install_progress(report);
                }
                () = sleep_until(slot_end), if slot.is_some() => slot = None,
            }
        }
    }

    /// Shows the progress of an installation in the status, and now and then in the log.
    fn on_install_progress(&mut self, mut progress: Option<InstallProgress>) {
        if let Some(progress) = &mut progress {
            redact(&mut progress.output, &self.settings);
            let line = self.log.on_installing(&self.settings.name, progress);
            if let Some(line) = line.filter(|_| self.is_current()) {
                info!(target: INSTALLS, "{line}");
            }
        }
        self.status.send_if_modified(|status| {
            let shown_progress =
                |progress: &Option<InstallProgress>| progress.as_ref().map(ToString::to_string);
            let is_changed = shown_progress(&status.installing) != shown_progress(&progress);
            status.installing = progress;
            is_changed
        });
    }

    /// Returns the error for callers after a failed start: a server that was up before is down.
    fn start_error(&self, error: Box<BridgeError>) -> Arc<BridgeError> {
        let was_up = self.status.borrow().was_up;
        Arc::new(if was_up { as_down(&error, &self.settings) } else { *error })
    }

    /// Watches a server that is up until it is lost or stopped.
    async fn keep(&mut self, backend: &Arc<Backend>) -> Ending {
        let mut ignored = 0;
        let mut next_ping = self.next_ping();
        let up_since = Instant::now();
        let mut idle_check = self.next_idle_check(up_since);
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
                () = self.notifiers.abandoned.notified() => self.check_after_cancel(backend, &mut ignored).await,
                () = until(next_ping) => {
                    next_ping = self.next_ping();
                    self.ping_if_idle(backend).await
                }
                () = until(idle_check) => {
                    let end = self.stop_if_idle(up_since);
                    idle_check = self.next_idle_check(up_since);
                    end
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
            // It has started.
            ActorCommand::Start => Ok(()),
            ActorCommand::Check(reply) => {
                let alive = self.ping(backend).await;
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
            true => self.ping(backend).await,
            false => Ok(()),
        }
    }

    /// Pings a server. A flooding one passes: its response waits behind messages that the bridge reads slowly on purpose.
    async fn ping(&self, backend: &Arc<Backend>) -> Result<(), Ending> {
        let load = backend.unsolicited_load();
        match self.unless_lost(backend, backend.ping(PONG_WITHIN)).await? {
            Err(reason) if backend.unsolicited_load() - load < FLOOD => {
                Err(Ending::Lost(Loss::Fault, reason))
            }
            _ => Ok(()),
        }
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
    async fn wait_for_restart(&mut self, down: Down) -> Option<()> {
        let step = self.restart_policy.on_down(down.loss, down.since, (self.fleet.random)());
        self.log_down(&down, step);
        let cause = down.cause;
        let next = match step {
            NextStep::Retry { attempt, at } => {
                self.set_state(ServerPhase::Degraded { attempt, next: at, cause });
                Some(at)
            }
            NextStep::GiveUp { attempts } => {
                let (server, message) = (self.settings.name.clone(), cause.message.clone());
                let cause = self.given_up(cause);
                self.set_state(ServerPhase::Unavailable { cause });
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
                    ActorCommand::Check(_) | ActorCommand::Start => {}
                },
                () = until(next) => return Some(()),
            }
        }
    }

    fn log_down(&mut self, down: &Down, step: NextStep) {
        let now = Instant::now();
        let line = match down.was_up {
            true => Some(self.log.on_lost(&down.cause, step, now)),
            false => self.log.on_failed(&down.cause, step, now),
        };
        if let Some(line) = line.filter(|_| self.is_current()) {
            warn!(target: OPERATIONS, "{line}");
        }
    }

    /// Returns the error of a server that is not tried again. Only for a bridge that tries each start once is it as
    /// retryable as it was: there the next command tries again.
    fn given_up(&self, cause: Arc<BridgeError>) -> Arc<BridgeError> {
        match cause.code {
            ErrorCode::ProviderInitFailed if self.fleet.reconnect && cause.retryable => {
                Arc::new(BridgeError { retryable: false, ..BridgeError::clone(&cause) })
            }
            _ => cause,
        }
    }

    /// Publishes a new listing.
    fn publish_tools(&self, listed: ToolListing) {
        self.store_listing(&listed.tools);
        let old = self.status.borrow().tools.clone();
        let event = discovered(&self.settings.name, &listed.tools);
        let mut tools = match &old {
            Some(old) => old.with_new_list(tool_filter(&self.settings), listed.tools),
            None => ServerTools::new(self.settings.name.clone(), tool_filter(&self.settings), listed.tools),
        };
        tools.warn_of_unknown_names("tools", self.settings.tools.keys().map(String::as_str));
        self.observations.restore(&tools);
        let tools = Arc::new(tools);
        debug!(server = %self.settings.name, tools = tools.tools().len(), "tools listed");
        for warning in listed.warnings.iter().chain(tools.warnings()) {
            warn!(server = %self.settings.name, "{warning}");
        }
        let is_first = old.as_ref().is_none_or(|old| old.is_from_last_listing());
        let refreshed = old.map(|old| changes(&old, &tools));
        let has_changed = refreshed.as_ref().is_none_or(|event| !is_empty_change(event));
        self.status.send_modify(|status| status.tools = Some(tools));
        self.fleet.publish(&self.settings.name, self.serial);
        if is_first || has_changed {
            self.notify_observer(|observer| observer.on_tools_listed(is_first, has_changed));
        }
        self.fleet.events.offer(event);
        refreshed.into_iter().filter(|_| !is_first || has_changed).for_each(|event| self.publish(event));
    }

    /// Changes the state, and announces a change of health.
    pub(super) fn set_state(&self, state: ServerPhase) {
        let (to, cause) = (state.health(), state.reason());
        let from = self.replace_state(state).health();
        if from != to {
            debug!(server = %self.settings.name, %from, %to, cause, "health changed");
            self.publish(Event::HealthChanged { server: self.settings.name.clone(), from, to, cause });
        }
    }

    /// Changes the state, and returns the old one. Every change goes through here.
    pub(super) fn replace_state(&self, state: ServerPhase) -> ServerPhase {
        let mut old = state;
        self.status.send_modify(|status| std::mem::swap(&mut status.state, &mut old));
        old
    }

    pub(super) fn notify_observer(&self, notify: impl FnOnce(&dyn UpstreamObserver)) {
        if let Some(observer) = self.profile.observer() {
            notify(&*observer);
        }
    }

    /// Publishes an event, unless the name belongs to another server by now.
    pub(super) fn publish(&self, event: Event) {
        if self.is_current() {
            self.fleet.events.offer(event);
        }
    }

    /// Returns false if the name belongs to another server: this one is being replaced, or serves a client of its own.
    pub(super) fn is_current(&self) -> bool {
        let snapshot = self.fleet.snapshot.load();
        snapshot.servers.get(&self.settings.name).is_none_or(|named| named.serial == self.serial)
    }
}

/// The end of one run of a server, or of an attempt at it.
enum RunEnd {
    Stopped,
    /// Stopped until the next call.
    Idle(OnDemandReason),
    Lost(Down),
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
    let reason = normalise::start_reason(&settings.name, &error.message);
    let mut down = *normalise::unavailable_error(&settings.name, format!("its restart failed: {reason}"));
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
