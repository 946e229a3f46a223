//! A server as calls see it: its availability, its limits on calls, and the retries of a failed call.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bascule_catalog::{Catalog, CatalogTool, ServerTools};
use bascule_mcp::{Id, error_response};
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode, ServerHealth, ToolId};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Fleet;
use super::actor::{Actor, ActorCommand};
use super::backend::Backend;
use super::client_profile::ClientProfile;
use super::gate::{Gate, GatePermit};
use super::request::UpstreamRequest;
use super::restart_policy::RestartPolicy;
use super::server_log::ServerLog;
use super::status::{ServerPhase, Status};
use crate::call_record::CallMeter;
use crate::config::{Isolation, RetryPolicy, ServerSettings};
use crate::deadline::Deadline;
use crate::in_flight::{InFlight, InFlightRegistry, Origin, ServerNotifiers};
use crate::metrics::{Counted, ServerLoad};
use crate::normalise::unknown_tool;
use crate::observation_store::StoredObservations;

/// The most times that one call is sent. A call that kills its server twice will do so again.
const MAX_SENDS: u32 = 3;
/// The most attempts at one call, those that never left included.
const MAX_ATTEMPTS: u32 = 10;
/// The pause before the second attempt. Later attempts wait longer.
const PAUSE: Duration = Duration::from_millis(10);
/// The most commands that wait for the actor; the next sender waits.
const MAILBOX: usize = 16;
/// A call may be repeated after this time if an attempt at reconnecting is in progress.
const IN_PROGRESS: Duration = Duration::from_millis(100);
/// An abandoned request counts as in flight for at least this long. A server need not respond to a cancelled request, and
/// nobody can see when it has stopped working on one.
const MIN_ABANDONED: Duration = Duration::from_secs(60);

/// A handle on a server. The actor behind it ends when the last handle is dropped.
pub(crate) struct Server {
    pub(crate) settings: Arc<ServerSettings>,
    /// Distinguishes this server from earlier and later ones of the same name.
    pub(crate) serial: u64,
    pub(crate) profile: ClientProfile,
    in_flight: Arc<InFlightRegistry>,
    load: Arc<ServerLoad>,
    status: watch::Receiver<Status>,
    commands: mpsc::Sender<ActorCommand>,
    notifiers: Arc<ServerNotifiers>,
    gate: Gate,
    /// The gates of tools that have limits of their own.
    tool_gates: HashMap<String, Gate>,
    stop: CancellationToken,
}

/// The response to a call, and how often the call was sent.
pub(crate) struct CallResponse {
    pub(crate) raw: Box<RawValue>,
    pub(crate) sends: u32,
}

/// A call that waits at the gates. Its wait is recorded also if it is cancelled there.
struct WaitingCall<'a> {
    meter: &'a CallMeter,
    arrived: Instant,
    _counted: Counted<'a>,
}

impl<'a> WaitingCall<'a> {
    fn new(meter: &'a CallMeter, load: &'a ServerLoad) -> Self {
        Self { meter, arrived: Instant::now(), _counted: load.count_waiting() }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.meter.add_wait(self.arrived.elapsed());
    }
}

impl Server {
    /// Spawns the actor, which starts the server.
    pub(crate) fn spawn(
        settings: Arc<ServerSettings>,
        profile: ClientProfile,
        fleet: &Arc<Fleet>,
    ) -> Arc<Self> {
        let (status, watched) = watch::channel(Status::default());
        let (commands, received) = mpsc::channel(MAILBOX);
        let (serial, stop) = (fleet.serials.fetch_add(1, Ordering::Relaxed), fleet.stop.child_token());
        let notifiers = fleet.in_flight.add_server(serial);
        let actor = Actor {
            serial,
            settings: settings.clone(),
            fleet: fleet.clone(),
            status,
            commands: received,
            notifiers: notifiers.clone(),
            profile: profile.clone(),
            stop: stop.clone(),
            restart_policy: RestartPolicy::new(&settings, fleet.reconnect),
            listed_at: Instant::now(),
            pause: Duration::ZERO,
            waiting: Vec::new(),
            log: ServerLog::default(),
            is_start_on_demand: false,
            observations: StoredObservations::default(),
        };
        fleet.actors.spawn(actor.run());
        let gate = Gate::new(&settings.limits);
        let limited = settings.tools.iter().filter(|(_, tool)| tool.limits != settings.limits);
        let tool_gates = limited.map(|(name, tool)| (name.clone(), Gate::new(&tool.limits))).collect();
        let (in_flight, status) = (fleet.in_flight.clone(), watched);
        let load = fleet.metrics.server(&settings.name);
        Arc::new(Self {
            settings,
            serial,
            profile,
            in_flight,
            load,
            status,
            commands,
            notifiers,
            gate,
            tool_gates,
            stop,
        })
    }

    /// Registers a request. A reload lets the server run until the request has ended. `name` is that of the tool, or of
    /// the method.
    pub(crate) fn begin_request(&self, name: &str, origin: Origin) -> InFlight {
        let abandoned_for = match self.settings.isolation {
            Isolation::Shared => self.settings.limits_for(name).max_execution.max(MIN_ABANDONED),
            // The process ends with its one call.
            Isolation::PerCall => Duration::ZERO,
        };
        self.in_flight.begin_upstream_request(self.serial, origin, abandoned_for)
    }

    /// Returns true if a caller waits for a response.
    pub(crate) fn has_requests(&self) -> bool {
        self.in_flight.has_requests_to(self.serial)
    }

    /// Sends a registered request, as often as that is safe, until the deadline. Dropping the future cancels the request.
    pub(crate) async fn run(
        &self,
        in_flight: InFlight,
        request: &UpstreamRequest<'_>,
        is_idempotent: bool,
        deadline: &Deadline,
    ) -> BridgeResult<CallResponse> {
        let meter = request.meter;
        let _permits = self.enter_or_wait(request, deadline).await?;
        let _counted = meter.map(|_| self.load.count_in_flight());
        let (mut backend, mut sends) = (self.ready_backend(deadline).await?, 0);
        for attempt in 1.. {
            meter.iter().for_each(|meter| meter.set_attempts(sends + 1));
            let mut error = match backend.run(request, &in_flight, deadline.clone()).await {
                Ok(raw) => {
                    in_flight.complete();
                    return Ok(CallResponse { raw, sends: sends + 1 });
                }
                Err(error) => error,
            };
            if !may_still_work(&backend, &error) {
                in_flight.mark_not_sent();
            }
            sends += u32::from(error.delivery != Delivery::NotSent);
            error.attempts = Some(sends);
            meter.iter().for_each(|meter| meter.set_attempts(sends));
            let may_retry =
                attempt < MAX_ATTEMPTS && self.may_retry(request.name(), is_idempotent, &error, sends);
            if !may_retry || !self.wait_for_recovery(&backend, &in_flight, deadline).await {
                error.retry_after_ms = self.next_attempt().filter(|_| error.retryable);
                return Err(error);
            }
            sleep(PAUSE * attempt).await;
            backend = self.ready_backend(deadline).await.map_err(|_| error)?;
        }
        unreachable!("the last attempt returns")
    }

    /// Passes the gates. A call that has to wait there is counted, and its wait recorded.
    async fn enter_or_wait(
        &self,
        request: &UpstreamRequest<'_>,
        deadline: &Deadline,
    ) -> BridgeResult<(Option<GatePermit<'_>>, GatePermit<'_>)> {
        let mut entered = pin!(self.enter(request.name(), deadline));
        if let Poll::Ready(permits) = futures_util::poll!(&mut entered) {
            return permits;
        }
        let _waiting = request.meter.map(|meter| WaitingCall::new(meter, &self.load));
        entered.await
    }

    async fn enter(
        &self,
        tool: &str,
        deadline: &Deadline,
    ) -> BridgeResult<(Option<GatePermit<'_>>, GatePermit<'_>)> {
        let own = match self.tool_gates.get(tool) {
            Some(gate) => Some(gate.enter(deadline).await?),
            None => None,
        };
        Ok((own, self.gate.enter(deadline).await?))
    }

    /// Returns true if sending the call again is safe, or the configuration allows it.
    fn may_retry(&self, tool: &str, is_idempotent: bool, error: &BridgeError, sends: u32) -> bool {
        let is_broken = matches!(
            error.code,
            ErrorCode::ProviderCrashed | ErrorCode::ProviderUnavailable | ErrorCode::OutcomeUnknown
        );
        is_broken
            && match (self.settings.retry_for(tool), error.delivery) {
                (RetryPolicy::Never, _) | (_, Delivery::Answered) => false,
                (_, Delivery::NotSent) => true,
                (_, Delivery::Unknown) => sends < MAX_SENDS && self.may_repeat(tool, is_idempotent),
            }
    }

    /// Returns true if a call that may have run can run again.
    pub(crate) fn may_repeat(&self, tool: &str, is_idempotent: bool) -> bool {
        match self.settings.retry_for(tool) {
            RetryPolicy::Never => false,
            RetryPolicy::Safe => is_idempotent,
            RetryPolicy::Always => true,
        }
    }

    /// Waits for the server to be up again after a failed request. Returns false if it is not up before the deadline, or
    /// after its first restart: nobody promises a return.
    async fn wait_for_recovery(
        &self,
        broken: &Arc<Backend>,
        in_flight: &InFlight,
        deadline: &Deadline,
    ) -> bool {
        // The connection may have outlived the failed request: then the actor checks the server.
        if broken.close_reason().is_none() && self.passes_check(deadline).await {
            return true;
        }
        // A caller that leaves during the wait has abandoned nothing: the next process has not seen the request.
        in_flight.mark_not_sent();
        let mut status = self.status.clone();
        let settled = status.wait_for(|status| match &status.state {
            ServerPhase::Healthy(backend) => !Arc::ptr_eq(backend, broken),
            ServerPhase::Degraded { next, .. } => {
                status.failed_starts > 0 || *next > Instant::now() + 2 * self.settings.reconnect_backoff
            }
            state => !state.may_recover(),
        });
        match timeout_at(deadline.next(), settled).await {
            Ok(Ok(status)) => matches!(status.state, ServerPhase::Healthy(_) | ServerPhase::OnDemand(_)),
            _ => false,
        }
    }

    /// Returns true if the actor has checked the server before the deadline and found it healthy.
    async fn passes_check(&self, deadline: &Deadline) -> bool {
        let (reply, result) = oneshot::channel();
        let check = async {
            self.commands.send(ActorCommand::Check(reply)).await.ok()?;
            result.await.ok()
        };
        timeout_at(deadline.next(), check).await.ok().flatten().unwrap_or(false)
    }

    /// Returns the backend, after a start if the server is started on demand.
    async fn ready_backend(&self, deadline: &Deadline) -> BridgeResult<Arc<Backend>> {
        // Boxed: few calls start their server.
        if self.is_on_demand() && !Box::pin(self.start_and_wait(deadline.next())).await {
            let message = format!("server `{}` did not start {}", self.settings.name, deadline.passed());
            return Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message));
        }
        self.backend()
    }

    /// Returns the backend of a server that is up, or the error that a new call gets.
    pub(crate) fn backend(&self) -> BridgeResult<Arc<Backend>> {
        // Every call comes by here: a healthy server's state is not copied.
        let is_up = |backend: &&Arc<Backend>| backend.close_reason().is_none();
        if let Some(backend) = self.status.borrow().state.backend().filter(is_up) {
            return Ok(backend.clone());
        }
        let down = |reason| crate::normalise::unavailable_error(&self.settings.name, reason);
        match self.state() {
            ServerPhase::Healthy(backend) => Ok(backend),
            ServerPhase::Degraded { cause, attempt, next } => {
                Err(reconnecting(&cause, attempt, next, self.settings.reconnect_backoff))
            }
            ServerPhase::Unavailable { cause } => Err(Box::new(cause.as_ref().clone())),
            ServerPhase::Starting => Err(down("it is starting")),
            ServerPhase::OnDemand(_) => Err(down("it is not running")),
            ServerPhase::Stopped => Err(down("it was stopped")),
        }
    }

    /// Sends a frame that has no response: a notification, or the response to a request of the server. A frame for a
    /// server that is down is dropped.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        if let Ok(backend) = self.backend() {
            backend.send(frame);
        }
    }

    /// Responds to a request of the server with an error.
    pub(crate) fn reject_request(&self, id: &str, code: i64, message: &str) {
        if let Some(id) = Id::from_json(id) {
            self.send(error_response(id, code, message));
        }
    }

    /// Waits until the first start has succeeded or failed. Returns false if that takes longer than `by`.
    pub(crate) async fn wait_for_first_start(&self, by: Instant) -> bool {
        if !self.is_starting() {
            return true;
        }
        let mut status = self.status.clone();
        let started = status.wait_for(|status| !matches!(status.state, ServerPhase::Starting));
        timeout_at(by, started).await.is_ok()
    }

    /// Starts a server that is not running until its next call, and waits until it has started or failed. Returns false if that
    /// takes longer than `by`.
    pub(crate) async fn start_and_wait(&self, by: Instant) -> bool {
        let mut status = self.status.clone();
        let starting = async {
            loop {
                let is_on_demand = match status.borrow_and_update().state {
                    ServerPhase::OnDemand(_) => true,
                    ServerPhase::Starting => false,
                    _ => return,
                };
                let is_gone = is_on_demand && self.commands.send(ActorCommand::Start).await.is_err();
                if is_gone || status.changed().await.is_err() {
                    return;
                }
            }
        };
        timeout_at(by, starting).await.is_ok()
    }

    /// Waits until the tools are known, from this run or the last one, or the first start has failed. Returns false if that
    /// takes longer than `by`.
    pub(crate) async fn tools_known(&self, by: Instant) -> bool {
        let mut status = self.status.clone();
        let is_known =
            |status: &Status| status.tools.is_some() || !matches!(status.state, ServerPhase::Starting);
        let known = status.wait_for(is_known);
        timeout_at(by, known).await.is_ok()
    }

    /// Returns true if the server is not running until its next call.
    pub(crate) fn is_on_demand(&self) -> bool {
        matches!(self.status.borrow().state, ServerPhase::OnDemand(_))
    }

    /// Returns true after `stop`. Another server may have taken its place.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.status.borrow().state, ServerPhase::Stopped)
    }

    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.status.borrow().state, ServerPhase::Starting)
    }

    /// Returns true if the server is starting and nothing is known of it.
    pub(crate) fn is_starting_first(&self) -> bool {
        self.is_starting() && self.info().is_none()
    }

    /// Lists the tools again, or starts a server that is down.
    pub(crate) async fn refresh(&self) -> BridgeResult<()> {
        let (reply, result) = oneshot::channel();
        let stopped = || crate::normalise::unavailable_error(&self.settings.name, "it was stopped");
        self.commands.send(ActorCommand::Refresh(reply)).await.map_err(|_| stopped())?;
        result.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Returns one tool of a server that is up, or the error that a call of it gets.
    pub(crate) fn tool(&self, id: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        self.backend()?;
        if let Some(tool) = self.status.borrow().tools.as_ref().and_then(|tools| tools.get(id.tool())) {
            return Ok(tool.clone());
        }
        let catalog: Catalog = self.tools().into_iter().collect();
        catalog.resolve(id).cloned().map_err(|miss| unknown_tool(id, miss))
    }

    /// Returns the id of a tool. That of a listed tool is shared, not made again.
    pub(crate) fn tool_id(&self, name: &str) -> ToolId {
        let status = self.status.borrow();
        let listed = status.tools.as_ref().and_then(|tools| tools.get(name));
        listed.map_or_else(|| ToolId::new(&self.settings.name, name), |tool| tool.id().clone())
    }

    /// Returns a receiver of the changes from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        let mut status = self.status.clone();
        status.mark_unchanged();
        status
    }

    /// Starts a server again that was given up, without waiting for it.
    pub(crate) fn retry_unavailable(&self) {
        if matches!(self.status.borrow().state, ServerPhase::Unavailable { .. }) {
            // A full mailbox holds the same command already.
            let _ = self.commands.try_send(ActorCommand::Refresh(oneshot::channel().0));
        }
    }

    /// Returns the tools of the last listing.
    pub(crate) fn tools(&self) -> Option<Arc<ServerTools>> {
        self.status.borrow().tools.clone()
    }

    /// Returns true if the tools come from an earlier run.
    pub(crate) fn has_tools_of_last_listing(&self) -> bool {
        self.status.borrow().tools.as_ref().is_some_and(|tools| tools.is_from_last_listing())
    }

    /// Returns the `initialize` result of the last start, perhaps in an earlier run.
    pub(crate) fn info(&self) -> Option<Arc<str>> {
        self.status.borrow().info.clone()
    }

    /// Returns the state. A connection that has just ended counts as lost before the actor has noticed it.
    pub(crate) fn state(&self) -> ServerPhase {
        let state = self.status.borrow().state.clone();
        match state.backend().and_then(|backend| Some((backend.clone(), backend.close_reason()?))) {
            Some((backend, reason)) => {
                let cause = Arc::from(backend.unavailable(&reason, &self.settings));
                ServerPhase::Degraded { attempt: 0, next: Instant::now(), cause }
            }
            None => state,
        }
    }

    pub(crate) fn health(&self, tools: usize) -> ServerHealth {
        // One after the other: two readers at once on this thread, and a writer between them, would wait for each other.
        let restarts = self.status.borrow().restarts;
        let state = self.state();
        let attempt = match &state {
            ServerPhase::Degraded { attempt: attempt @ 1.., .. } => Some(*attempt),
            _ => None,
        };
        ServerHealth {
            name: self.settings.name.clone(),
            health: state.health(),
            cause: state.reason(),
            stderr: state.cause().and_then(|error| error.stderr.clone()),
            never_started: state.cause().is_some() && !self.status.borrow().was_up,
            attempt,
            retry_after_ms: attempt.and_then(|_| self.next_attempt()),
            installing: self.installing(),
            pid: state.backend().and_then(|backend| backend.pid()),
            restarts,
            tools,
            from_last_listing: self.has_tools_of_last_listing(),
        }
    }

    /// Returns the error of a call to a server that is down.
    pub(crate) fn failure(&self) -> Option<Arc<BridgeError>> {
        match self.state() {
            ServerPhase::Degraded { cause, attempt, next } => {
                Some(Arc::from(reconnecting(&cause, attempt, next, self.settings.reconnect_backoff)))
            }
            state => state.cause().cloned(),
        }
    }

    /// Returns the time until the next start of a server that is down, in milliseconds; 0 if it is in progress.
    fn next_attempt(&self) -> Option<u64> {
        match self.state() {
            ServerPhase::Degraded { next, .. } => Some(millis_until(next)),
            _ => None,
        }
    }

    /// Describes the package manager that installs the server at the moment.
    pub(crate) fn installing(&self) -> Option<String> {
        self.status.borrow().installing.as_ref().map(ToString::to_string)
    }

    /// Waits for the requests in flight, at most for `grace`, then stops the server.
    pub(crate) async fn retire(&self, grace: Duration) {
        let _ = timeout(grace, self.in_flight.wait_until_idle(self.serial, &self.notifiers)).await;
        self.stop().await;
    }

    /// Stops the server, and returns when its process has ended.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.wait_for_stop().await;
    }

    /// Returns when the server was stopped and its process has ended.
    pub(crate) async fn wait_for_stop(&self) {
        let mut status = self.status.clone();
        let _ = status.wait_for(|status| matches!(status.state, ServerPhase::Stopped)).await;
    }
}

/// Returns true if the server may still work on a request that failed with this error.
fn may_still_work(backend: &Backend, error: &BridgeError) -> bool {
    match backend {
        Backend::Shared(upstream) => error.delivery == Delivery::Unknown && upstream.close_reason().is_none(),
        // The process ends with its one call.
        Backend::PerCall(_) => false,
    }
}

/// Returns the error of a call while the next attempt at reconnecting is pending, or in progress. The attempt has no number
/// until the actor has noticed the loss; then it follows the first wait.
fn reconnecting(cause: &BridgeError, attempt: u32, next: Instant, first_wait: Duration) -> Box<BridgeError> {
    let (mut error, wait) = (Box::new(cause.clone()), millis_until(next));
    error.retryable = true;
    match (attempt, wait) {
        (0, _) => {}
        (_, 0) => error.message += &format!("; reconnect attempt {attempt} is in progress"),
        _ => error.message += &format!("; reconnect attempt {attempt} is due in {wait} ms"),
    }
    let unknown = if attempt == 0 { first_wait } else { IN_PROGRESS };
    error.retry_after_ms = Some(if wait == 0 { unknown.as_millis() as u64 } else { wait });
    error
}

fn millis_until(time: Instant) -> u64 {
    time.saturating_duration_since(Instant::now()).as_millis() as u64
}
