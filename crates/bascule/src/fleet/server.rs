//! A server as calls see it: whether it is there, whether it takes one more, and what to do when it breaks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::{Catalog, CatalogTool, ServerTools};
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode, ServerHealth, ToolId};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Fleet;
use super::actor::{Actor, ActorCommand};
use super::backend::Backend;
use super::client_profile::ClientProfile;
use super::gate::{Gate, GatePermit};
use super::request::UpstreamRequest;
use super::restart_policy::RestartPolicy;
use super::status::{State, Status};
use crate::config::{RetryPolicy, ServerSettings};
use crate::deadline::Deadline;
use crate::normalise::unknown_tool;

/// How often one call is sent at the most, however harmless it is: what kills its server twice will do so again.
const MOST_ATTEMPTS: u32 = 3;
/// How often a call is tried at the most, even if it never left.
const MOST_TRIES: u32 = 10;
/// How long the first of them is put off; the others longer.
const PAUSE: Duration = Duration::from_millis(10);
/// How many may ask something of a server at once; the next one waits.
const MAILBOX: usize = 16;

/// A handle on a server; the actor behind it ends when the last one is dropped.
pub(crate) struct Server {
    pub(crate) settings: Arc<ServerSettings>,
    /// Tells this server from another of the same name, before or after it.
    pub(crate) serial: u64,
    pub(crate) profile: ClientProfile,
    status: watch::Receiver<Status>,
    commands: mpsc::Sender<ActorCommand>,
    calls: Arc<Calls>,
    gate: Gate,
    /// For tools that have limits of their own.
    gates: HashMap<String, Gate>,
    stop: CancellationToken,
}

/// What came of a call, and how often it was sent for that.
pub(crate) struct CallResponse {
    pub(crate) raw: Box<RawValue>,
    pub(crate) attempts: u32,
}

/// What a server's actor wants to know about its calls.
#[derive(Default)]
pub(crate) struct Calls {
    /// Those that are under way.
    pub(crate) flying: TaskTracker,
    /// Told each time one was cancelled after it was sent.
    pub(crate) cancelled: Notify,
}

impl Server {
    /// Starts to start it.
    pub(crate) fn spawn(
        settings: Arc<ServerSettings>,
        profile: ClientProfile,
        fleet: &Arc<Fleet>,
    ) -> Arc<Self> {
        let (status, watched) = watch::channel(Status::default());
        let (commands, asked) = mpsc::channel(MAILBOX);
        let (serial, stop) = (fleet.next_serial(), fleet.stop.child_token());
        let calls = Arc::<Calls>::default();
        let actor = Actor {
            serial,
            settings: settings.clone(),
            fleet: fleet.clone(),
            status,
            commands: asked,
            calls: calls.clone(),
            profile: profile.clone(),
            stop: stop.clone(),
            life: RestartPolicy::new(&settings, fleet.reconnect),
            listed_at: Instant::now(),
            pause: Duration::ZERO,
            waiting: Vec::new(),
        };
        fleet.actors.spawn(actor.run());
        let gate = Gate::new(&settings.limits);
        let own = settings.tools.iter().filter(|(_, tool)| tool.limits != settings.limits);
        let gates = own.map(|(name, tool)| (name.clone(), Gate::new(&tool.limits))).collect();
        Arc::new(Self { settings, serial, profile, status: watched, commands, calls, gate, gates, stop })
    }

    /// Runs one request, as often as that is wise, until the deadline. Dropped, it is cancelled.
    pub(crate) async fn run(
        &self,
        request: &UpstreamRequest<'_>,
        is_harmless: bool,
        deadline: &Deadline,
    ) -> BridgeResult<CallResponse> {
        let _flying = self.calls.flying.token();
        let _inside = self.enter(request.name(), deadline).await?;
        let (mut backend, mut sent) = (self.backend()?, 0);
        for tries in 1.. {
            let mut error = match self.run_once(&backend, request, deadline).await {
                Ok(raw) => return Ok(CallResponse { raw, attempts: sent + 1 }),
                Err(error) => error,
            };
            sent += u32::from(error.delivery != Delivery::NotSent);
            error.attempts = Some(sent);
            let may = tries < MOST_TRIES && self.may_try_again(request.name(), is_harmless, &error, sent);
            if !may || !self.recovered(&backend, deadline).await {
                return Err(error);
            }
            sleep(PAUSE * tries).await;
            backend = self.backend().map_err(|_| error)?;
        }
        unreachable!("the last try returns")
    }

    async fn run_once(
        &self,
        backend: &Backend,
        request: &UpstreamRequest<'_>,
        deadline: &Deadline,
    ) -> BridgeResult<Box<RawValue>> {
        let mut cancellation = Cancellation { calls: &self.calls, is_due: true };
        let ended = backend.run(request, deadline.clone()).await;
        cancellation.is_due = matches!(&ended, Err(error) if was_given_up(error));
        ended
    }

    async fn enter(
        &self,
        tool: &str,
        deadline: &Deadline,
    ) -> BridgeResult<(Option<GatePermit<'_>>, GatePermit<'_>)> {
        let own = match self.gates.get(tool) {
            Some(gate) => Some(gate.enter(deadline).await?),
            None => None,
        };
        Ok((own, self.gate.enter(deadline).await?))
    }

    /// Whether sending the call again can do no harm, or none that was not asked for.
    fn may_try_again(&self, tool: &str, is_harmless: bool, error: &BridgeError, sent: u32) -> bool {
        let broke = matches!(
            error.code,
            ErrorCode::ProviderCrashed | ErrorCode::ProviderUnavailable | ErrorCode::OutcomeUnknown
        );
        broke
            && match (self.settings.retry_for(tool), error.delivery) {
                (RetryPolicy::Never, _) | (_, Delivery::Answered) => false,
                (_, Delivery::NotSent) => true,
                (retry, Delivery::Unknown) => {
                    sent < MOST_ATTEMPTS && (is_harmless || retry == RetryPolicy::Always)
                }
            }
    }

    /// Waits for the server to be there again; false if that will not be in time.
    async fn recovered(&self, broken: &Arc<Backend>, deadline: &Deadline) -> bool {
        // Where the connection as such is not over, its owner finds out whether the server is.
        if broken.ended().is_none() && self.still_answers(deadline).await {
            return true;
        }
        let mut status = self.status.clone();
        let again = status.wait_for(|status| match &status.state {
            State::Healthy(backend) => !Arc::ptr_eq(backend, broken),
            state => !state.may_recover(),
        });
        match timeout_at(deadline.next(), again).await {
            Ok(Ok(status)) => status.state.backend().is_some(),
            _ => false,
        }
    }

    async fn still_answers(&self, deadline: &Deadline) -> bool {
        let (asker, answer) = oneshot::channel();
        let asking = async {
            self.commands.send(ActorCommand::Check(asker)).await.ok()?;
            answer.await.ok()
        };
        timeout_at(deadline.next(), asking).await.ok().flatten().unwrap_or(false)
    }

    /// The way to it, or why there is none.
    pub(crate) fn backend(&self) -> BridgeResult<Arc<Backend>> {
        // Without a copy of the state where there is nothing wrong with it: every call comes by here.
        if let Some(backend) =
            self.status.borrow().state.backend().filter(|backend| backend.ended().is_none())
        {
            return Ok(backend.clone());
        }
        let down = |why| crate::normalise::down(&self.settings.name, why);
        match self.state() {
            State::Healthy(backend) => Ok(backend),
            State::Degraded { why, attempt, next } => Err(waiting(&why, attempt, next)),
            State::Unavailable { why } => Err(Box::new(why.as_ref().clone())),
            State::Starting => Err(down("it is starting")),
            State::Stopped => Err(down("it was stopped")),
        }
    }

    /// Waits until its first start has ended, well or badly. Says whether it has.
    pub(crate) async fn first_start(&self, by: Instant) -> bool {
        let mut status = self.status.clone();
        let started = status.wait_for(|status| !matches!(status.state, State::Starting));
        timeout_at(by, started).await.is_ok()
    }

    /// Whether it was ended on purpose, and another may have taken its place.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.status.borrow().state, State::Stopped)
    }

    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.status.borrow().state, State::Starting)
    }

    /// Lists its tools again, or starts it if it is down.
    pub(crate) async fn refresh(&self) -> BridgeResult<()> {
        let (asker, answer) = oneshot::channel();
        let stopped = || crate::normalise::down(&self.settings.name, "it was stopped");
        self.commands.send(ActorCommand::Refresh(asker)).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// One of its tools, or why it cannot be used.
    pub(crate) fn tool(&self, id: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        self.backend()?;
        if let Some(tool) = self.status.borrow().tools.as_ref().and_then(|tools| tools.get(id.tool())) {
            return Ok(tool.clone());
        }
        let catalog: Catalog = self.tools().into_iter().collect();
        catalog.resolve(id).cloned().map_err(|miss| unknown_tool(id, miss))
    }

    /// Its status as it changes.
    #[cfg(test)]
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Has it started again, if it was given up. Nobody waits for it.
    pub(crate) fn give_another_chance(&self) {
        if matches!(self.status.borrow().state, State::Unavailable { .. }) {
            // A full mailbox means that others have asked for the same.
            let _ = self.commands.try_send(ActorCommand::Refresh(oneshot::channel().0));
        }
    }

    /// What it listed last.
    pub(crate) fn tools(&self) -> Option<Arc<ServerTools>> {
        self.status.borrow().tools.clone()
    }

    /// Its state, which may be news to its actor.
    pub(crate) fn state(&self) -> State {
        let state = self.status.borrow().state.clone();
        match state.backend().and_then(|backend| Some((backend.clone(), backend.ended()?))) {
            Some((backend, why)) => {
                let why = Arc::from(backend.unavailable(&why, &self.settings));
                State::Degraded { attempt: 0, next: Instant::now(), why }
            }
            None => state,
        }
    }

    pub(crate) fn health(&self, tools: usize) -> ServerHealth {
        let (restarts, state) = (self.status.borrow().restarts, self.state());
        ServerHealth {
            name: self.settings.name.clone(),
            health: state.health(),
            cause: state.why().map(|why| why.message.clone()),
            pid: state.backend().and_then(|backend| backend.pid()),
            restarts,
            tools,
        }
    }

    /// Waits for its calls to end, as long as that may take, and ends it.
    pub(crate) async fn retire(&self, grace: Duration) {
        self.calls.flying.close();
        let _ = timeout(grace, self.calls.flying.wait()).await;
        self.stop().await;
    }

    /// Ends it, and returns when nothing of it is left.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let mut status = self.status.clone();
        let _ = status.wait_for(|status| matches!(status.state, State::Stopped)).await;
    }
}

/// What to say while the next attempt is being waited for.
fn waiting(why: &BridgeError, attempt: u32, next: Instant) -> Box<BridgeError> {
    let mut error = Box::new(why.clone());
    if attempt == 0 {
        return error;
    }
    let wait = next.saturating_duration_since(Instant::now()).as_millis() as u64;
    error.message = format!("{}; attempt {attempt} at bringing it back is due in {wait} ms", error.message);
    error.retry_after_ms = Some(wait);
    error
}

/// Whether the server may still be working at a call that nobody waits for.
pub(crate) fn was_given_up(error: &BridgeError) -> bool {
    error.code == ErrorCode::ProviderTimeout && error.delivery == Delivery::Unknown
}

/// Tells the actor of a call that was given up: by its deadline, or by a caller who left.
struct Cancellation<'a> {
    calls: &'a Calls,
    is_due: bool,
}

impl Drop for Cancellation<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.calls.cancelled.notify_one();
        }
    }
}
