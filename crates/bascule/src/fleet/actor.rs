//! Keeps one server up: starts it, notices its loss, brings it back, gives it up (BR-08, BR-09).
//!
//! It alone owns the server's connection and writes its status. When to try again is `restart_policy`'s to decide.

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
use super::restart_policy::{Loss, RestartPolicy, Turn};
use super::status::{ServerState, Status};
use super::tools::{changes, discovered, filtered};
use super::upstream::ToolListing;
use crate::config::ServerSettings;
use crate::in_flight::ServerSignals;
use crate::normalise;

/// A server that says that its tools have changed often says so several times in a row.
const SETTLING: Duration = Duration::from_millis(100);
/// A server that says so without end is asked less and less often, down to this.
const SELDOM: Duration = Duration::from_secs(30);
/// How long a start has its turn.
const TURN: Duration = Duration::from_secs(2);
/// How long an idle server may take to answer a ping.
const PONG_WITHIN: Duration = Duration::from_secs(5);
/// So many cancellations in a row may be ignored before the server is restarted.
const PATIENCE_WITH_DEAFNESS: u32 = 2;

/// What others ask of an actor.
pub(crate) enum ActorCommand {
    /// List the tools again; or, of a server that is down, start it now.
    Refresh(oneshot::Sender<BridgeResult<()>>),
    /// A call could not reach it: is it still there?
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
    /// When its tools were last listed at its own wish, and how long that was put off.
    pub(crate) listed_at: Instant,
    pub(crate) pause: Duration,
    /// Those who wait for the start that is under way.
    pub(crate) waiting: Vec<oneshot::Sender<BridgeResult<()>>>,
}

/// Why a server is no longer kept.
enum End {
    Stopped,
    Lost(Loss, String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("it was stopped"),
            Self::Lost(_, why) => f.write_str(why),
        }
    }
}

impl Actor {
    /// Lives until it is told to stop, or nobody knows the server any more.
    pub(crate) async fn run(mut self) {
        while let Some((loss, why, since)) = self.live().await {
            let Some(()) = self.bide(loss, why, since).await else { break };
        }
        self.fleet.in_flight.remove_server(self.serial);
        self.enter(ServerState::Stopped);
    }

    /// From a start to the loss of what was started. None when it is over for good.
    async fn live(&mut self) -> Option<(Loss, Arc<BridgeError>, Instant)> {
        let started = self.start().await;
        let answer = started.as_ref().map(|_| ()).map_err(Clone::clone);
        self.waiting.drain(..).for_each(|asker| drop(asker.send(answer.clone())));
        let backend = match started {
            Ok(backend) => backend,
            Err(_) if self.stop.is_cancelled() => return None,
            Err(error) => return Some((Loss::Fault, self.still_down(error), Instant::now())),
        };
        let end = self.keep(&backend).await;
        self.fleet.in_flight.remove_all_abandoned(self.serial);
        self.observed(|observer| observer.on_lost());
        let End::Lost(loss, why) = end else {
            backend.stop().await;
            return None;
        };
        let since = Instant::now();
        let error = Arc::new(backend.unavailable(&why, &self.settings).as_ref().clone());
        // Nobody may find it healthy while it is being ended.
        self.enter(ServerState::Degraded {
            attempt: self.restart_policy.attempts(),
            next: Instant::now(),
            why: error.clone(),
        });
        self.tell(Event::Disconnected { server: self.settings.name.clone(), cause: why });
        backend.stop().await;
        Some((loss, error, since))
    }

    async fn start(&mut self) -> BridgeResult<Arc<Backend>> {
        let (backend, listed) = self.start_in_turn().await?;
        let backend = Arc::new(backend);
        self.restart_policy.up(Instant::now());
        // At somebody's wish it comes back without an attempt of our own.
        let (attempts, was_there) = (self.restart_policy.attempts(), self.status.borrow().tools.is_some());
        let returns = attempts > 0 || was_there;
        self.take(listed);
        self.status.send_modify(|status| status.restarts += u32::from(returns));
        self.enter(ServerState::Healthy(backend.clone()));
        if returns {
            let attempts = attempts.max(1);
            self.tell(Event::Reconnected { server: self.settings.name.clone(), attempts });
            self.observed(|observer| observer.on_reconnected());
        }
        Ok(backend)
    }

    /// Only so many start at once; but one that takes long to start does not keep others from it.
    async fn start_in_turn(&self) -> BridgeResult<(Backend, ToolListing)> {
        let Some(turn) = self.stop.run_until_cancelled(self.fleet.starting.acquire()).await else {
            return Err(normalise::not_started(&self.settings.name, "the start was called off"));
        };
        let mut starting = (self.fleet.start)(self.settings.clone(), self.profile.clone(), self.stop.clone());
        let started = timeout(TURN, &mut starting).await;
        drop(turn);
        match started {
            Ok(started) => started,
            Err(_) => starting.await,
        }
    }

    /// What callers are told of a start that failed: a server that was once there is down, another never was.
    fn still_down(&self, error: Box<BridgeError>) -> Arc<BridgeError> {
        let known = self.status.borrow().tools.is_some();
        Arc::new(if known { revised(&error, &self.settings) } else { *error })
    }

    /// Watches over a server that is up.
    async fn keep(&mut self, backend: &Arc<Backend>) -> End {
        let mut ignored = 0;
        let mut next_ping = self.next_ping();
        loop {
            let end = tokio::select! {
                biased;
                () = self.stop.cancelled() => return End::Stopped,
                () = backend.closed() => return lost(backend),
                ask = self.commands.recv() => match ask {
                    Some(ask) => self.answer(ask, backend).await,
                    None => return End::Stopped,
                },
                () = backend.tools_changed() => self.list_again(backend).await,
                () = self.signals.abandoned.notified() => self.doubt(backend, &mut ignored).await,
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

    async fn answer(&mut self, ask: ActorCommand, backend: &Arc<Backend>) -> Result<(), End> {
        match ask {
            ActorCommand::Refresh(asker) => {
                let (answer, end) = match self.list(backend).await {
                    Ok(listed) => (listed.map(|listed| self.take(listed)), Ok(())),
                    Err(end) => (Err(normalise::down(&self.settings.name, &end)), Err(end)),
                };
                let _ = asker.send(answer);
                end
            }
            ActorCommand::Check(asker) => {
                let alive = self.ping(backend, PONG_WITHIN).await;
                let _ = asker.send(alive.is_ok());
                alive
            }
        }
    }

    async fn list_again(&mut self, backend: &Arc<Backend>) -> Result<(), End> {
        // Who was asked a moment ago has to wait twice as long as then.
        let calm = self.listed_at.elapsed() > self.pause * 4;
        self.pause = if calm { SETTLING } else { (self.pause * 2).min(SELDOM) };
        self.unless_over(backend, sleep(self.pause)).await?;
        self.listed_at = Instant::now();
        match self.list(backend).await? {
            Ok(listed) => self.take(listed),
            Err(error) => {
                warn!(server = %self.settings.name, %error, "the changed tools could not be listed")
            }
        }
        Ok(())
    }

    /// Its tools, as they are now. Who does not list them in time keeps those it had.
    async fn list(&self, backend: &Arc<Backend>) -> Result<BridgeResult<ToolListing>, End> {
        let ServerSettings { name, start_timeout, .. } = &*self.settings;
        let listed = self.unless_over(backend, timeout(*start_timeout, backend.list_tools())).await?;
        Ok(listed.unwrap_or_else(|_| {
            let said =
                format!("server `{name}` did not list its tools within {} ms", start_timeout.as_millis());
            Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::Unknown, said))
        }))
    }

    /// A call was cancelled. A server that then does not even answer a ping ignores it.
    async fn doubt(&mut self, backend: &Arc<Backend>, ignored: &mut u32) -> Result<(), End> {
        let grace = self.settings.cancel_grace;
        match self.unless_over(backend, backend.ping(grace)).await? {
            Ok(()) => *ignored = 0,
            Err(_) => *ignored += 1,
        }
        if *ignored < PATIENCE_WITH_DEAFNESS {
            return Ok(());
        }
        let why =
            format!("it ignored {ignored} cancellations for {} ms each and is restarted", grace.as_millis());
        Err(End::Lost(Loss::Renewal, why))
    }

    /// Who is busy answering need not prove that it is there.
    async fn ping_if_idle(&self, backend: &Arc<Backend>) -> Result<(), End> {
        match !self.fleet.in_flight.has_requests_to(self.serial) {
            true => self.ping(backend, PONG_WITHIN).await,
            false => Ok(()),
        }
    }

    async fn ping(&self, backend: &Arc<Backend>, within: Duration) -> Result<(), End> {
        let answered = self.unless_over(backend, backend.ping(within)).await?;
        answered.map_err(|why| End::Lost(Loss::Fault, why))
    }

    /// Does something for as long as it makes sense.
    async fn unless_over<T>(&self, backend: &Arc<Backend>, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(End::Stopped),
            () = backend.closed() => Err(lost(backend)),
            done = work => Ok(done),
        }
    }

    /// Waits until it is time to start again. None when it is over for good.
    async fn bide(&mut self, loss: Loss, why: Arc<BridgeError>, since: Instant) -> Option<()> {
        let next = match self.restart_policy.down(loss, since, (self.fleet.random)()) {
            Turn::TryAgain { attempt, at } => {
                info!(server = %self.settings.name, attempt, wait = ?at.saturating_duration_since(Instant::now()), "will be tried again");
                self.enter(ServerState::Degraded { attempt, next: at, why });
                Some(at)
            }
            Turn::GiveUp { attempts } => {
                let (server, cause) = (self.settings.name.clone(), why.message.clone());
                self.enter(ServerState::Unavailable { why });
                self.tell(Event::ReconnectExhausted { server, attempts, cause });
                None
            }
        };
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                ask = self.commands.recv() => match ask? {
                    ActorCommand::Refresh(asker) => {
                        self.restart_policy.pardon();
                        self.waiting.push(asker);
                        return Some(());
                    }
                    ActorCommand::Check(_) => {}
                },
                () = until(next) => return Some(()),
            }
        }
    }

    /// Takes over what the server listed.
    fn take(&self, listed: ToolListing) {
        let old = self.status.borrow().tools.clone();
        let event = discovered(&self.settings.name, &listed.tools);
        let tools = Arc::new(match &old {
            Some(old) => old.with_new_list(filtered(&self.settings), listed.tools),
            None => ServerTools::new(self.settings.name.clone(), filtered(&self.settings), listed.tools),
        });
        info!(server = %self.settings.name, tools = tools.tools().len(), "tools listed");
        for warning in listed.notes.iter().chain(tools.warnings()) {
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
        refreshed.into_iter().for_each(|event| self.tell(event));
    }

    /// The one place where the state changes.
    fn enter(&self, state: ServerState) {
        let (from, to) = (self.status.borrow().state.health(), state.health());
        let cause = state.why().map(|why| why.message.clone());
        self.status.send_modify(|status| status.state = state);
        if from != to {
            info!(server = %self.settings.name, ?from, ?to, cause, "health changed");
            self.tell(Event::HealthChanged { server: self.settings.name.clone(), from, to, cause });
        }
    }

    fn observed(&self, notify: impl FnOnce(&dyn UpstreamObserver)) {
        if let Some(observer) = self.profile.observer() {
            notify(&*observer);
        }
    }

    /// Listeners know a server by its name: while another goes by that, this one has nothing to say of itself.
    fn tell(&self, event: Event) {
        let snapshot = self.fleet.snapshot.load();
        let named = snapshot.servers.get(&self.settings.name);
        if named.is_none_or(|named| named.serial == self.serial) {
            self.fleet.events.offer(event);
        }
    }
}

/// Why a connection is over, and whether a new one would do.
fn lost(backend: &Backend) -> End {
    match backend.ended() {
        Some(why) if matches!(*why, TransportError::SessionLost { .. }) => {
            End::Lost(Loss::Renewal, why.to_string())
        }
        Some(why) => End::Lost(Loss::Fault, why.to_string()),
        None => End::Lost(Loss::Fault, "the connection is over".into()),
    }
}

/// A failed attempt at bringing a server back, as those see it who want to call it.
fn revised(error: &BridgeError, settings: &ServerSettings) -> BridgeError {
    let mut revised = *normalise::down(&settings.name, &error.message);
    revised.stderr.clone_from(&error.stderr);
    revised.exit.clone_from(&error.exit);
    revised.limit.clone_from(&error.limit);
    revised
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
