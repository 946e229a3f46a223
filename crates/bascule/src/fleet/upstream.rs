//! One connection to a server, with the server's process where the bridge starts one.
//!
//! A connection is started once. After a loss the server's actor starts another one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bascule_client::{ClientOptions, McpClient, OpenedClient, ServerInfo};
use bascule_mcp::{
    Failure, PendingEvent, PendingRequest, ServerMessage, Transport, TransportError, Unsolicited,
};
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode, ToolDefinition};
use bascule_sandbox::{Confinement, LockedFolder, Policy, TraceLog, TreeLimits};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::blocking::run_blocking;
use crate::config::{Isolation, ServerSettings, TransportSettings};
use crate::deadline::{Deadline, TimedOut};
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::open_transport::open_transport;
use crate::fleet::request::UpstreamRequest;
use crate::fleet::server_output::ServerOutput;
use crate::fleet::start_clock::{ProgressSender, StartClock};
use crate::fleet::stray_output::{LoggedLines, StrayOutput};
use crate::in_flight::{AbandonedRequests, InFlight};
use crate::launch::ConfinedProcess;
use crate::post_mortem::{explain, explain_quickly};
use crate::start_hints::explain_output;
use crate::trace_recorder::TraceRecorder;
use crate::{launch, normalise, relay};

/// A connected server.
pub(crate) struct Upstream {
    settings: Arc<ServerSettings>,
    client: McpClient,
    /// `None` if the server has no process in a jail.
    confined: Option<ConfinedProcess>,
    /// Notified each time the server announces changed tools.
    tools_changed: Arc<Notify>,
    pid: Option<u32>,
}

/// The inputs of a start that are not settings of the server.
#[derive(Clone)]
pub(crate) struct StartContext {
    /// The longest message that is accepted.
    pub(crate) message_limit: usize,
    /// The caller's limit on the start.
    pub(crate) timeout: Option<Duration>,
    /// The program that starts servers in a sandbox.
    pub(crate) jailer: Option<PathBuf>,
    /// Cancels the start.
    pub(crate) stop: CancellationToken,
    /// The capabilities that the server is told of, and the observer of its messages.
    pub(crate) profile: ClientProfile,
    /// Requests that no caller waits for. The server's late response ends one.
    pub(crate) abandoned: AbandonedRequests,
    /// Receives the progress of an installation.
    pub(crate) progress: ProgressSender,
    /// Records the operations that the sandbox refuses to the server.
    pub(crate) trace: Option<Arc<TraceLog>>,
    /// The stray output of all servers that the log has.
    pub(crate) logged: Arc<LoggedLines>,
    /// Records the server's stderr and its log messages.
    pub(crate) traces: Option<Arc<TraceRecorder>>,
}

/// The tools of a server, and warnings about the listing.
pub(crate) struct ToolListing {
    pub(crate) tools: Vec<ToolDefinition>,
    pub(crate) warnings: Vec<String>,
}

impl Upstream {
    /// Connects and lists the tools within the start timeout. A failed start leaves no process behind.
    pub(crate) async fn start(
        settings: Arc<ServerSettings>,
        context: &StartContext,
    ) -> BridgeResult<(Self, ToolListing)> {
        let mut clock = StartClock::start(&settings, context);
        let upstream = Self::connect_within(&mut clock, settings, context).await?;
        let failed = tokio::select! {
            biased;
            listed = context.stop.run_until_cancelled(upstream.list_tools()) => match listed {
                Some(Ok(listed)) => return Ok((upstream, listed)),
                Some(Err(error)) => error,
                None => normalise::start_error(&upstream.settings.name, "the start was cancelled"),
            },
            expiry = clock.expire(upstream.pid, || upstream.client.stderr()) => {
                let error = clock.error(&expiry, "list its tools", upstream.client.stderr());
                upstream.explain(error).await
            }
        };
        upstream.stop().await;
        Err(failed)
    }

    /// Connects without listing the tools.
    pub(crate) async fn connect(settings: Arc<ServerSettings>, context: &StartContext) -> BridgeResult<Self> {
        Self::connect_within(&mut StartClock::start(&settings, context), settings, context).await
    }

    async fn connect_within(
        clock: &mut StartClock,
        settings: Arc<ServerSettings>,
        context: &StartContext,
    ) -> BridgeResult<Self> {
        if context.stop.is_cancelled() {
            return Err(normalise::start_error(&settings.name, "the start was cancelled"));
        }
        let (starting, within) = (settings.clone(), context.clone());
        let reached = run_blocking(move || open_transport(&starting, &within)).await;
        let (transport, confined) =
            reached.map_err(|reason| normalise::start_error(&settings.name, reason))?;
        Self::handshake(clock, settings, transport, confined, context).await
    }

    /// Performs the handshake over a transport.
    pub(crate) async fn handshake(
        clock: &mut StartClock,
        settings: Arc<ServerSettings>,
        transport: Transport,
        confined: Option<ConfinedProcess>,
        context: &StartContext,
    ) -> BridgeResult<Self> {
        let tools_changed = Arc::new(Notify::new());
        let output = StrayOutput::new(settings.clone(), context.logged.clone());
        let log = context.traces.as_ref().map(|traces| ServerOutput::new(&settings, traces));
        let transport = with_stderr_sink(transport, log.as_ref());
        let listener = listener(&settings, tools_changed.clone(), output.clone(), log, context);
        let options = ClientOptions {
            listener,
            request_handler: Some(request_handler(context.profile.clone(), output.clone())),
            ..client_options(&settings, context)
        };
        let opened = OpenedClient::open(transport, options);
        let connected = tokio::select! {
            biased;
            connected = opened.handshake() => {
                connected.map_err(|error| normalise::connect_error(&settings.name, &error))
            }
            expiry = clock.expire(opened.pid(), || opened.stderr()) => {
                let error = clock.error(&expiry, "respond to `initialize`", opened.stderr());
                opened.close().await;
                Err(error)
            }
        };
        match connected {
            Ok(client) => {
                let pid = client.pid();
                let mut upstream = Self { settings, client, confined, tools_changed, pid };
                upstream.apply_server_limits().await;
                Ok(upstream)
            }
            Err(error) => {
                let error = explain_output(error, &settings, &output);
                Err(explain(error, confined.as_ref(), &settings).await)
            }
        }
    }

    /// Applies the limits of the server, and finds its process. Until now a package manager may have run.
    async fn apply_server_limits(&mut self) {
        let Some(ConfinedProcess { watch, .. }) = self.confined.clone() else { return };
        let limits = self.limits(None);
        let has_launcher = launch::runs_package_manager(&self.settings);
        let server_pid = run_blocking(move || {
            if has_launcher {
                watch.exempt_launcher();
            }
            watch.set_limits(limits);
            watch.server_pid()
        });
        self.pid = server_pid.await.or(self.pid);
    }

    /// Lists all pages of the tools.
    pub(crate) async fn list_tools(&self) -> BridgeResult<ToolListing> {
        match self.client.list_tools().await {
            Ok((tools, warnings)) => Ok(ToolListing { tools, warnings }),
            Err(error) => {
                let error = normalise::list_error(&self.settings.name, &error, self.client.stderr());
                Err(self.explain(error).await)
            }
        }
    }

    /// Applies the limits of `tool`, or those of the server if it is `None`.
    pub(crate) fn apply_limits(&self, tool: Option<&str>) {
        // Most tools have the limits of their server, which apply already.
        let limits = self.limits(tool);
        let watch = self.confined.as_ref().map(|confined| &confined.watch);
        if let Some(watch) = watch.filter(|watch| watch.limits() != limits) {
            watch.set_limits(limits);
        }
    }

    fn limits(&self, tool: Option<&str>) -> TreeLimits {
        let limits = match tool {
            Some(tool) => self.settings.limits_for(tool).clone(),
            // A process cannot raise its limits again.
            None if self.settings.isolation == Isolation::PerCall => self.settings.largest_limits(),
            None => self.settings.limits.clone(),
        };
        launch::tree_limits(&self.settings, &limits)
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        self.client.info()
    }

    /// Returns the server's own process, not its supervisor.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Pings the server.
    pub(crate) async fn ping(&self, within: Duration) -> Result<(), String> {
        match timeout(within, self.client.ping()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(failure.to_string()),
            Err(_) => Err(format!("it did not respond to a ping within {} ms", within.as_millis())),
        }
    }

    /// Returns the size of all messages that the server sent without a request, as the time to read them.
    pub(crate) fn unsolicited_load(&self) -> Duration {
        self.client.unsolicited_load()
    }

    /// Returns when the connection is closed.
    pub(crate) async fn closed(&self) {
        self.client.closed().await;
    }

    /// Returns when the server has announced changed tools since the last call.
    pub(crate) async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Returns the error that closed the connection, or `None` if it is open.
    pub(crate) fn close_reason(&self) -> Option<Arc<TransportError>> {
        self.client.close_reason()
    }

    /// Sends a request and returns its result as raw JSON. Dropping the future cancels the request at the server.
    pub(crate) async fn run(
        &self,
        request: &UpstreamRequest<'_>,
        in_flight: &InFlight,
        mut deadline: Deadline,
    ) -> BridgeResult<Box<RawValue>> {
        let extra_members = request.extra_members.and_then(|extra_members| extra_members.request.as_deref());
        let params = |id| request.params_for(id, in_flight);
        let pending = self.client.request(request.method, params, request.on_progress(), extra_members);
        let mut sent = SentRequest { pending, in_flight };
        loop {
            tokio::select! {
                biased;
                event = sent.pending.next() => match event {
                    PendingEvent::Finished(result) => {
                        if let (Some(extra_members), Some(response_members)) = (request.extra_members, sent.pending.extra_members()) {
                            let _ = extra_members.response.set(response_members.to_owned());
                        }
                        return match result {
                            Ok(raw) => Ok(raw),
                            Err(failure) => Err(self.call_error(&failure).await),
                        };
                    }
                    PendingEvent::Progress => deadline.on_progress(Instant::now()),
                },
                () = sleep_until(deadline.next()) => {
                    let timed_out = deadline.passed();
                    let delivery = sent.pending.cancel("the deadline has passed");
                    return Err(self.timeout_error(request.name(), &timed_out, delivery));
                }
            }
        }
    }

    /// Sends a frame that has no response. A frame is lost only with its connection, whose end the actor notices.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        self.client.send_frame(frame);
    }

    /// Returns the confinement of the server's process, where the bridge starts one.
    pub(crate) fn confinement(settings: &ServerSettings) -> Option<Confinement> {
        match &settings.transport {
            TransportSettings::Stdio { .. } => Some(launch::confinement(settings)),
            TransportSettings::Remote { .. } if settings.isolation == Isolation::PerCall => {
                let relay = relay::relay_settings(settings, Path::new("bascule"), String::new());
                Some(launch::confinement(&relay))
            }
            TransportSettings::Remote { .. } => None,
        }
    }

    /// Returns the writable folders of the server's process in which it can create or remove nothing. May block.
    pub(crate) fn locked_folders(settings: &ServerSettings) -> Vec<LockedFolder> {
        match settings.transport {
            TransportSettings::Stdio { .. } => launch::policy(settings).locked_folders(),
            TransportSettings::Remote { .. } => Vec::new(),
        }
    }

    /// Returns true if the server's process may write the file.
    pub(crate) fn may_write(settings: &ServerSettings, file: &Path) -> bool {
        matches!(settings.transport, TransportSettings::Stdio { .. }) && launch::may_write(settings, file)
    }

    /// Closes the connection and ends the process.
    pub(crate) async fn stop(&self) {
        self.client.close().await;
        if let Some(ConfinedProcess { watch, .. }) = self.confined.clone() {
            run_blocking(move || watch.remove_cgroup()).await;
        }
    }

    /// Returns the error of a new call after the connection was closed.
    pub(crate) fn unavailable(&self, reason: &dyn std::fmt::Display) -> Box<BridgeError> {
        let mut error = normalise::unavailable_error(&self.settings.name, reason);
        error.stderr = normalise::non_empty(self.client.stderr());
        explain_quickly(error, self.confined.as_ref(), &self.settings)
    }

    /// Returns the policy of the server's process, if it is in a jail.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.confined.as_ref().map(|confined| confined.policy.clone())
    }

    /// Returns the number of bytes that the server's process has written to stderr.
    pub(crate) fn stderr_position(&self) -> u64 {
        self.client.stderr_position()
    }

    /// Returns what the server's process has written to stderr after a position, as far as it is kept.
    pub(crate) fn stderr_after(&self, position: u64) -> String {
        self.client.stderr_after(position)
    }

    async fn explain(&self, error: Box<BridgeError>) -> Box<BridgeError> {
        explain(error, self.confined.as_ref(), &self.settings).await
    }

    async fn call_error(&self, failure: &Failure) -> Box<BridgeError> {
        self.explain(normalise::call_error(failure, self.client.stderr())).await
    }

    fn timeout_error(&self, tool: &str, timed_out: &TimedOut, delivery: Delivery) -> Box<BridgeError> {
        let message = format!("`{}:{tool}` gave no response {timed_out}", self.settings.name);
        let mut error = BridgeError::new(ErrorCode::ProviderTimeout, delivery, message);
        error.stderr = normalise::non_empty(self.client.stderr());
        error
    }
}

/// A request that is registered as sent. Dropping it before any byte was written registers it as not sent.
struct SentRequest<'a> {
    pending: PendingRequest,
    in_flight: &'a InFlight,
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if self.pending.cancel("the caller left") == Delivery::NotSent {
            self.in_flight.mark_not_sent();
        }
    }
}

/// Lets the log of the server have its stderr.
fn with_stderr_sink(transport: Transport, log: Option<&Arc<ServerOutput>>) -> Transport {
    match (transport, log) {
        (Transport::Stdio(child), Some(log)) => {
            Transport::Stdio(child.with_stderr_sink(Some(log.stderr_sink())))
        }
        (transport, _) => transport,
    }
}

fn client_options(settings: &ServerSettings, context: &StartContext) -> ClientOptions {
    let max_bytes = settings.limits.max_output_bytes;
    ClientOptions {
        message_limit: max_bytes.map_or(context.message_limit, |max| max.min(context.message_limit)),
        cancel: context.stop.clone(),
        capabilities: context.profile.capabilities.to_string(),
        request_ids: context.profile.request_ids.clone(),
        ..ClientOptions::default()
    }
}

fn request_handler(profile: ClientProfile, output: Arc<StrayOutput>) -> bascule_mcp::RequestHandler {
    Box::new(move |id, message| {
        output.on_request(message.method);
        profile.observer().is_some_and(|observer| observer.on_request(id, message))
    })
}

/// Logs the unsolicited messages of a server, and passes them to the observer. Contents may hold secrets, so only sizes are
/// logged.
fn listener(
    settings: &ServerSettings,
    tools_changed: Arc<Notify>,
    output: Arc<StrayOutput>,
    log: Option<Arc<ServerOutput>>,
    context: &StartContext,
) -> bascule_mcp::Listener {
    let (profile, abandoned) = (context.profile.clone(), context.abandoned.clone());
    let server = settings.name.clone();
    Box::new(move |received| match received {
        // The connection has passed it to the caller already.
        Unsolicited::Notification(ServerMessage { method: method @ "notifications/progress", .. }) => {
            debug!(%server, method, "received a notification");
        }
        Unsolicited::Notification(message) => {
            if message.method == "notifications/tools/list_changed" {
                tools_changed.notify_one();
            }
            if let ("notifications/message", Some(log), Some(params)) = (message.method, &log, message.params)
            {
                log.on_message(params.get());
            }
            debug!(%server, method = message.method, "received a notification");
            profile.observer().iter().for_each(|observer| observer.on_notification(message));
        }
        Unsolicited::Invalid { line, reason } => output.add(line, &reason),
        Unsolicited::Unmatched { id } => {
            debug!(%server, id, "received a response without a pending request");
            abandoned.on_response(id);
        }
        Unsolicited::TooLong { limit } => warn!(%server, limit, "ignored a message longer than the limit"),
    })
}

#[cfg(test)]
mod tests {
    use bascule_mcp::{Connection, HttpEndpoint};

    use super::*;
    use crate::in_flight::{InFlightRegistry, Origin};

    // req: GW-04, BR-05
    #[tokio::test]
    async fn dropped_request_that_was_not_sent_is_not_abandoned() {
        const SERVER: u64 = 7;
        let registry = Arc::new(InFlightRegistry::default());
        registry.add_server(SERVER);
        let in_flight = registry.begin_upstream_request(SERVER, Origin::Detached, Duration::from_secs(60));
        let endpoint = HttpEndpoint::new("http://127.0.0.1:1/", []).unwrap();
        let connection = Connection::open(Transport::Http(endpoint), 1000, Box::new(|_| {}), None);
        // Over HTTP nothing is sent before the first poll.
        let pending = connection.request("tools/call", |id| {
            in_flight.mark_sent(id);
            None
        });
        assert_eq!(registry.origins(SERVER).len(), 1);
        drop(SentRequest { pending, in_flight: &in_flight });
        drop(in_flight);
        assert_eq!(registry.origins(SERVER).len(), 0);
    }
}
