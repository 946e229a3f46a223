//! One connection to a server, with the server's process where the bridge starts one.
//!
//! A connection is started once. The actor starts another one after a loss.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bascule_client::{ClientOptions, ConnectError, McpClient, ServerInfo};
use bascule_mcp::{
    Failure, HttpEndpoint, PendingEvent, ServerMessage, Transport, TransportError, Unsolicited,
};
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode, Secret, ServerName, ToolDefinition};
use bascule_sandbox::{Confinement, TreeLimits, TreeWatch};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::blocking::run_blocking;
use crate::config::{Isolation, ServerSettings, ServerUrl, TransportSettings};
use crate::deadline::{CALLER, Deadline, TimedOut};
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::request::UpstreamRequest;
use crate::in_flight::{AbandonedRequests, InFlight};
use crate::launch::ServerProgram;
use crate::post_mortem::explain;
use crate::relay::RelayTarget;
use crate::{launch, normalise, relay};

pub(crate) struct Upstream {
    settings: Arc<ServerSettings>,
    client: McpClient,
    watch: Option<Arc<TreeWatch>>,
    /// Notified each time the server announces changed tools.
    changed: Arc<Notify>,
    pid: Option<u32>,
}

/// The context of a start.
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
    pub(crate) profile: ClientProfile,
    /// Late responses end these.
    pub(crate) abandoned: AbandonedRequests,
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
        let start_timeout = StartTimeout::new(settings.start_timeout, context.timeout);
        let deadline = Instant::now() + start_timeout.duration;
        let upstream = Self::connect(settings, context).await?;
        let listing = context.stop.run_until_cancelled(upstream.list_tools());
        let failed = match timeout_at(deadline, listing).await {
            Ok(Some(Ok(listed))) => return Ok((upstream, listed)),
            Ok(Some(Err(error))) => error,
            Ok(None) => normalise::start_error(&upstream.settings.name, "the start was cancelled"),
            Err(_) => {
                start_timeout.error(&upstream.settings.name, "list its tools", upstream.client.stderr())
            }
        };
        upstream.stop().await;
        Err(failed)
    }

    /// Connects without listing the tools.
    pub(crate) async fn connect(settings: Arc<ServerSettings>, context: &StartContext) -> BridgeResult<Self> {
        if context.stop.is_cancelled() {
            return Err(normalise::start_error(&settings.name, "the start was cancelled"));
        }
        let (starting, within) = (settings.clone(), context.clone());
        let reached = run_blocking(move || open_transport(&starting, &within)).await;
        let (transport, watch) = reached.map_err(|reason| normalise::start_error(&settings.name, reason))?;
        Self::handshake(settings, transport, watch, context).await
    }

    /// Performs the handshake over a transport.
    pub(crate) async fn handshake(
        settings: Arc<ServerSettings>,
        transport: Transport,
        watch: Option<Arc<TreeWatch>>,
        context: &StartContext,
    ) -> BridgeResult<Self> {
        let (name, changed) = (&settings.name, Arc::new(Notify::new()));
        let start_timeout = StartTimeout::new(settings.start_timeout, context.timeout);
        let max_bytes = settings.limits.max_output_bytes;
        let options = ClientOptions {
            timeout: start_timeout.duration,
            message_limit: max_bytes.map_or(context.message_limit, |max| max.min(context.message_limit)),
            listener: listener(name.clone(), changed.clone(), context),
            cancel: context.stop.clone(),
            capabilities: context.profile.capabilities.to_string(),
            request_handler: Some(request_handler(context.profile.clone())),
            request_ids: context.profile.request_ids.clone(),
        };
        match McpClient::connect(transport, options).await {
            Ok(client) => {
                let pid = client.pid();
                let mut upstream = Self { settings, client, watch, changed, pid };
                if let Some(watch) = upstream.watch.clone() {
                    // Package managers may have run until here: the server's own limits begin now.
                    let limits = upstream.limits(None);
                    let server_pid = run_blocking(move || {
                        watch.set_limits(limits);
                        watch.server_pid()
                    });
                    upstream.pid = server_pid.await.or(pid);
                }
                Ok(upstream)
            }
            Err(ConnectError::TimedOut { stderr, .. }) => {
                Err(start_timeout.error(name, "respond to `initialize`", stderr))
            }
            Err(error) => Err(explain(normalise::connect_error(name, &error), watch.as_deref(), &settings)),
        }
    }

    /// Lists all pages of the tools.
    pub(crate) async fn list_tools(&self) -> BridgeResult<ToolListing> {
        match self.client.list_tools().await {
            Ok((tools, warnings)) => Ok(ToolListing { tools, warnings }),
            Err(error) => {
                let error = normalise::list_error(&self.settings.name, &error, self.client.stderr());
                Err(explain(error, self.watch.as_deref(), &self.settings))
            }
        }
    }

    /// Applies the limits of the server, or of the one tool that the process will run.
    pub(crate) fn apply_limits(&self, tool: Option<&str>) {
        // Most tools have the limits of their server, which apply already.
        let limits = self.limits(tool);
        if let Some(watch) = self.watch.as_ref().filter(|watch| watch.limits() != limits) {
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

    /// Returns when the connection is closed.
    pub(crate) async fn closed(&self) {
        self.client.closed().await;
    }

    /// Returns when the server has announced changed tools since the last call.
    pub(crate) async fn tools_changed(&self) {
        self.changed.notified().await;
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
        let mut pending = self.client.request(request.method, params, request.on_progress(), extra_members);
        loop {
            tokio::select! {
                biased;
                event = pending.next() => match event {
                    PendingEvent::Finished(result) => {
                        if let (Some(extra_members), Some(response_members)) = (request.extra_members, pending.extra_members()) {
                            let _ = extra_members.response.set(response_members.to_owned());
                        }
                        return result.map_err(|failure| self.call_error(&failure));
                    }
                    PendingEvent::Progress => deadline.on_progress(Instant::now()),
                },
                () = sleep_until(deadline.next()) => {
                    let timed_out = deadline.passed();
                    let delivery = pending.cancel("the deadline has passed");
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
            TransportSettings::Stdio { command, args, env, cwd } => {
                let program =
                    ServerProgram { command, arguments: args, environment: env, folder: cwd.as_deref() };
                Some(launch::confinement(&program, settings))
            }
            _ if settings.isolation == Isolation::PerCall => {
                let program =
                    ServerProgram { command: "bascule", arguments: &[], environment: &[], folder: None };
                Some(launch::confinement(&program, &relay::relay_settings(settings)))
            }
            _ => None,
        }
    }

    /// Returns true if the server's process may write the file.
    pub(crate) fn may_write(settings: &ServerSettings, file: &Path) -> bool {
        let TransportSettings::Stdio { command, args, env, cwd } = &settings.transport else { return false };
        let program = ServerProgram { command, arguments: args, environment: env, folder: cwd.as_deref() };
        launch::may_write(&program, settings, file)
    }

    /// Closes the connection and ends the process.
    pub(crate) async fn stop(&self) {
        self.client.close().await;
        if let Some(watch) = self.watch.clone() {
            run_blocking(move || watch.remove_cgroup()).await;
        }
    }

    /// Returns the error of a new call after the connection was closed.
    pub(crate) fn unavailable(&self, reason: &dyn std::fmt::Display) -> Box<BridgeError> {
        let mut error = normalise::unavailable_error(&self.settings.name, reason);
        error.stderr = normalise::text(self.client.stderr());
        explain(error, self.watch.as_deref(), &self.settings)
    }

    fn call_error(&self, failure: &Failure) -> Box<BridgeError> {
        explain(normalise::call_error(failure, self.client.stderr()), self.watch.as_deref(), &self.settings)
    }

    fn timeout_error(&self, tool: &str, timed_out: &TimedOut, delivery: Delivery) -> Box<BridgeError> {
        let message = format!("`{}:{tool}` gave no response {timed_out}", self.settings.name);
        let mut error = BridgeError::new(ErrorCode::ProviderTimeout, delivery, message);
        error.stderr = normalise::text(self.client.stderr());
        error
    }
}

/// Opens the transport to a server, and starts its process where it has one.
fn open_transport(
    settings: &ServerSettings,
    context: &StartContext,
) -> Result<(Transport, Option<Arc<TreeWatch>>), String> {
    let jailer = context.jailer.as_deref();
    if let (Isolation::PerCall, Some(jailer)) = (settings.isolation, jailer)
        && let Some(target) = RelayTarget::from_settings(settings, context.message_limit)
    {
        return relayed(settings, &target, jailer);
    }
    match &settings.transport {
        TransportSettings::Stdio { command, args, env, cwd } => {
            let program =
                ServerProgram { command, arguments: args, environment: env, folder: cwd.as_deref() };
            launched(&program, settings, jailer)
        }
        TransportSettings::Remote { protocol, url, headers } => {
            Ok((protocol.transport(endpoint(url, headers)?), None))
        }
    }
}

fn launched(
    program: &ServerProgram<'_>,
    settings: &ServerSettings,
    jailer: Option<&Path>,
) -> Result<(Transport, Option<Arc<TreeWatch>>), String> {
    let launched = launch::launch(program, settings, jailer).map_err(|error| error.to_string())?;
    Ok((Transport::Stdio(launched.child), launched.watch))
}

/// Opens a remote server through a sandboxed relay process.
fn relayed(
    settings: &ServerSettings,
    target: &RelayTarget,
    jailer: &Path,
) -> Result<(Transport, Option<Arc<TreeWatch>>), String> {
    let target = serde_json::to_string(target).map_err(|error| error.to_string())?;
    let environment = [(relay::TARGET_VARIABLE.to_owned(), Secret::new(target))];
    let (command, arguments) = (jailer.to_string_lossy(), [String::from("__relay")]);
    let program =
        ServerProgram { command: &command, arguments: &arguments, environment: &environment, folder: None };
    launched(&program, &relay::relay_settings(settings), Some(jailer))
}

fn endpoint(url: &ServerUrl, headers: &[(String, Secret<String>)]) -> Result<HttpEndpoint, String> {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.reveal().as_str()));
    HttpEndpoint::new(url.as_str(), headers).map_err(|error| error.to_string())
}

/// The timeout of a start.
struct StartTimeout {
    duration: Duration,
    /// True for the caller's timeout, false for the server's `startTimeoutMs`.
    is_callers: bool,
}

impl StartTimeout {
    fn new(own: Duration, caller: Option<Duration>) -> Self {
        let is_callers = caller.is_some_and(|caller| caller < own);
        Self { duration: caller.map_or(own, |caller| caller.min(own)), is_callers }
    }

    /// Returns the error of a start that took too long. The start has failed only if it exceeded `startTimeoutMs`.
    fn error(&self, server: &ServerName, action: &str, stderr: String) -> Box<BridgeError> {
        let late = format!("did not {action} within {} ms", self.duration.as_millis());
        let mut error = match self.is_callers {
            true => {
                let message = format!("server `{server}` {late} ({CALLER})");
                BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message)
            }
            false => normalise::start_error(
                server,
                format!("it {late}; if it needs longer, raise its `startTimeoutMs`"),
            ),
        };
        error.server = Some(server.clone());
        error.stderr = normalise::text(stderr);
        error
    }
}

/// Maximum number of invalid lines of a server that are logged.
const MAX_INVALID_LOGGED: usize = 5;

fn request_handler(profile: ClientProfile) -> bascule_mcp::RequestHandler {
    Box::new(move |id, message| profile.observer().is_some_and(|observer| observer.on_request(id, message)))
}

/// Logs the unsolicited messages of a server, and passes them to the observer. Contents may hold secrets, so only sizes are
/// logged.
fn listener(server: ServerName, changed: Arc<Notify>, context: &StartContext) -> bascule_mcp::Listener {
    let (profile, abandoned) = (context.profile.clone(), context.abandoned.clone());
    let invalid_lines = AtomicUsize::new(0);
    Box::new(move |received| match received {
        // The connection has passed it to the caller already.
        Unsolicited::Notification(ServerMessage { method: method @ "notifications/progress", .. }) => {
            debug!(%server, method, "received a notification");
        }
        Unsolicited::Notification(message) => {
            if message.method == "notifications/tools/list_changed" {
                changed.notify_one();
            }
            debug!(%server, method = message.method, "received a notification");
            profile.observer().iter().for_each(|observer| observer.on_notification(message));
        }
        // A server may print any number of such lines; the log must not stall the read loop.
        Unsolicited::Invalid { line, reason } => match invalid_lines.fetch_add(1, Ordering::Relaxed) {
            ..MAX_INVALID_LOGGED => {
                warn!(%server, bytes = line.len(), reason, "ignored a line on stdout that is not a valid message")
            }
            MAX_INVALID_LOGGED => {
                warn!(%server, "ignoring further invalid lines without logging them")
            }
            _ => {}
        },
        Unsolicited::Unmatched { id } => {
            debug!(%server, id, "received a response without a pending request");
            abandoned.on_response(id);
        }
        Unsolicited::TooLong { limit } => warn!(%server, limit, "ignored a message longer than the limit"),
    })
}
