//! `bascule serve`: runs the bridge until a signal ends it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{BusEventSink, EmbeddedBus, MessageIdGenerator, ReplayLimits};
use bascule_mcp::{AccessPolicy, Endpoint, HttpServer, Router, StdioServer};
use bascule_model::ProviderAdapter;
use bascule_sandbox::{PeerConfinement, check_peer};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::context::{CommandContext, Signals, jailer};
use super::error::{CommandError, CommandResult, error_chain};
use super::printer::Printer;
use crate::config::{BridgeSettings, ConfigError, FileWatch, LoadedConfig, Settings, ToolView};
use crate::control::{ControlServer, SocketPath};
use crate::gateway::Gateway;
use crate::{BridgeConfig, McpBridgeAdapter, api};

/// The time that clients have, after the grace, to receive the errors of abandoned requests.
const FINAL_RESPONSES: Duration = Duration::from_secs(2);

/// Run the servers, and serve their tools to MCP clients and to other commands
///
/// All servers together are at /mcp, each one alone at /servers/NAME/mcp, and a health check at /healthz. A changed
/// configuration file is applied without losing a call, and SIGHUP reloads it too. The first SIGINT or SIGTERM lets calls
/// finish, the second ends them.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Listen for HTTP clients on this address instead of the configured one
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Serve one client on stdin and stdout; opens no port unless --listen is given
    #[arg(long)]
    stdio: bool,
    /// With --stdio: serve only this server, under its own tool names
    #[arg(long, value_name = "NAME", requires = "stdio")]
    server: Option<String>,
    /// Tools that clients see
    #[arg(long, value_enum)]
    show: Option<ToolView>,
    /// Time for calls in flight to finish when the bridge or their server stops
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    grace_ms: u64,
}

/// A running bridge and everything that gives access to it.
struct ServeState {
    bridge: Arc<McpBridgeAdapter>,
    gateway: Arc<Gateway>,
    control: Option<ControlServer>,
    /// The HTTP and stdio servers.
    servers: TaskTracker,
    stop: CancellationToken,
    access: watch::Sender<AccessPolicy>,
    /// The address of the HTTP server.
    address: Option<SocketAddr>,
    /// The settings at the start. Some of them do not change until the next start.
    initial: BridgeSettings,
    path: PathBuf,
    grace: Duration,
}

impl Serve {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let show = self.show.unwrap_or(context.settings.bridge.show);
        let mut signals = Signals::new();
        let hangups = signal(SignalKind::hangup()).map_err(|error| failed("handle SIGHUP", error))?;
        let socket =
            SocketPath::new(&context.path).map_err(|error| failed("locate the control socket", error))?;
        // With --stdio a client starts a bridge of its own, which may run beside another one.
        let claim = match ControlServer::claim(&socket).await {
            Ok(claim) => Some(claim),
            Err(_) if self.stdio => None,
            Err(error) => return Err(failed("open the control socket", error)),
        };
        let file = FileWatch::new(&context.path).map_err(|error| failed("watch the configuration", error))?;
        let server = self.server.as_deref().map(|name| context.server(name)).transpose()?;
        let endpoint = server.map_or(Endpoint::All, |server| Endpoint::Server(server.name.to_string()));
        let listener = self.bind(&context.settings.bridge).await?;

        let bus = Arc::new(EmbeddedBus::new(ReplayLimits::default()));
        let (path, initial) = (context.path, context.settings.bridge.clone());
        let bridge = Arc::new(start(context.settings, &bus).await?);
        let control =
            claim.map(|claim| ControlServer::start(socket, claim, bridge.clone(), bus.clone())).transpose();
        let control = match control {
            Ok(control) => control,
            Err(error) => {
                bridge.terminate().await;
                return Err(failed("open the control socket", error));
            }
        };
        let grace = Duration::from_millis(self.grace_ms);
        let state = ServeState {
            gateway: Gateway::open(bridge.clone(), initial.session_idle, grace, show),
            bridge,
            control,
            servers: TaskTracker::new(),
            stop: CancellationToken::new(),
            access: watch::Sender::new(access_policy(&initial)),
            address: listener.as_ref().and_then(|listener| listener.local_addr().ok()),
            initial,
            path,
            grace,
        };
        listener.into_iter().for_each(|listener| state.serve_http(listener));
        if self.stdio {
            state.serve_stdio(endpoint);
        }
        printer.print_note(&state.greeting());
        state.run_until_stopped(&mut signals, hangups, file).await;
        if !state.stop.is_cancelled() {
            printer.print_note("stopping: calls in flight may finish; a second signal ends them");
        }
        tokio::select! {
            () = state.shut_down() => {}
            () = signals.recv() => state.bridge.terminate().await,
        }
        bus.close();
        Ok(ExitCode::SUCCESS)
    }

    /// Opens the port for HTTP clients, if one is wanted. Only a loopback address needs no token.
    async fn bind(&self, settings: &BridgeSettings) -> CommandResult<Option<TcpListener>> {
        let address = match (self.listen, self.stdio) {
            (None, true) => return Ok(None),
            (address, _) => address.unwrap_or(settings.listen),
        };
        if lacks_token(address, settings) {
            let message = format!(
                "could not listen on {address}: other machines can reach it, so a token is needed; create one with \
                 `bascule token` and add it to `bascule.tokens` in the configuration"
            );
            return Err(CommandError::Usage(message));
        }
        let bound = TcpListener::bind(address).await;
        let explain =
            |error| failed(&format!("listen on {address} (choose another address with --listen)"), error);
        bound.map(Some).map_err(explain)
    }
}

impl ServeState {
    fn greeting(&self) -> String {
        let url = self.address.map(|address| format!(" at http://{address}/mcp")).unwrap_or_default();
        format!("serving {} (process {}){url}", self.path.display(), std::process::id())
    }

    fn serve_http(&self, listener: TcpListener) {
        let max_message_bytes = self.initial.max_message_bytes;
        let server = HttpServer {
            shutdown_grace: self.grace + FINAL_RESPONSES,
            access: self.access.subscribe(),
            body_limit: max_message_bytes,
            body_budget: body_budget(max_message_bytes),
            stream_limit: max_message_bytes.saturating_mul(2),
            ..HttpServer::default()
        };
        let router = Router::default().mcp(&self.gateway).health_check();
        self.servers.spawn(server.serve(listener, router, self.stop.clone()));
    }

    /// Serves one client on stdin and stdout. The bridge stops with it.
    fn serve_stdio(&self, endpoint: Endpoint) {
        let server = StdioServer {
            message_limit: self.initial.max_message_bytes,
            stream_limit: self.initial.max_message_bytes.saturating_mul(2),
            shutdown_grace: self.grace,
        };
        let (gateway, stop) = (self.gateway.clone(), self.stop.clone());
        self.servers.spawn(async move {
            let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
            server.serve(gateway, endpoint, stdin, stdout, stop.clone()).await;
            stop.cancel();
        });
    }

    /// Reloads the configuration whenever it changes, until a signal or the end of the stdio client.
    async fn run_until_stopped(&self, signals: &mut Signals, mut hangups: Signal, mut file: FileWatch) {
        loop {
            tokio::select! {
                () = signals.recv() => return,
                () = self.stop.cancelled() => return,
                () = file.changed() => {}
                _ = hangups.recv() => {}
            }
            tokio::select! {
                () = self.reload() => {}
                () = signals.recv() => return,
            }
            // The path may be a symbolic link with another target now.
            file = FileWatch::new(&self.path).unwrap_or(file);
        }
    }

    /// Applies the configuration file. A file that cannot be used changes nothing.
    async fn reload(&self) {
        let apply = |loaded: &LoadedConfig| {
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            self.apply_bridge_settings(&loaded.settings.bridge);
        };
        match api::reload(&self.bridge, &self.path, self.grace, apply).await {
            Ok(reloaded) => {
                info!(plan = ?reloaded.plan, refused = ?reloaded.refused, "configuration reloaded");
            }
            Err(ConfigError::Invalid(problems)) => {
                for problem in &problems.0 {
                    warn!("configuration not reloaded: {problem}");
                }
            }
            Err(error) => warn!("configuration not reloaded: {}", error_chain(&error)),
        }
    }

    /// Applies the access settings now. Other settings of the bridge apply from the next start.
    fn apply_bridge_settings(&self, next: &BridgeSettings) {
        let initial = &self.initial;
        let changes = [
            ("listen", next.listen != initial.listen),
            ("show", next.show != initial.show),
            ("sessionIdleMs", next.session_idle != initial.session_idle),
            ("maxMessageBytes", next.max_message_bytes != initial.max_message_bytes),
        ];
        for (name, _) in changes.iter().filter(|(_, has_changed)| *has_changed) {
            warn!("`bascule.{name}` has changed: the new value applies from the next start");
        }
        match self.address.filter(|address| lacks_token(*address, next)) {
            Some(address) => warn!(
                "keeping the previous access settings: other machines can reach {address}, and the new file has no token"
            ),
            None => _ = self.access.send_if_modified(|policy| update_policy(policy, next)),
        }
    }

    async fn shut_down(&self) {
        self.control.iter().for_each(ControlServer::stop_accepting);
        self.stop.cancel();
        self.servers.close();
        let started = Instant::now();
        // Requests that are still in flight after the grace get an error response.
        let _ = timeout(self.grace, self.servers.wait()).await;
        self.gateway.close().await;
        self.servers.wait().await;
        self.bridge.shut_down(self.grace.saturating_sub(started.elapsed())).await;
        if let Some(control) = &self.control {
            control.close().await;
        }
    }
}

async fn start(settings: Settings, bus: &Arc<EmbeddedBus>) -> CommandResult<McpBridgeAdapter> {
    let ids = MessageIdGenerator::new(crate::call::random_u64());
    let events = Arc::new(BusEventSink::new(bus.clone(), "bascule", ids, SystemTime::now));
    let config = BridgeConfig {
        jailer: Some(jailer()),
        events,
        wait_for_servers: false,
        ..BridgeConfig::new(settings)
    };
    Ok(McpBridgeAdapter::init(config).await?)
}

fn failed(operation: &str, error: impl std::fmt::Display) -> CommandError {
    CommandError::Usage(format!("could not {operation}: {error}"))
}

/// Returns true if other machines could connect without a token.
fn lacks_token(address: SocketAddr, settings: &BridgeSettings) -> bool {
    !address.ip().is_loopback() && settings.tokens.is_empty()
}

/// Refuses the servers of this bridge, because a confined one could otherwise use all others. With a token, peers that cannot
/// be identified may connect.
fn access_policy(settings: &BridgeSettings) -> AccessPolicy {
    AccessPolicy {
        hosts: settings.allowed_hosts.clone(),
        origins: settings.allowed_origins.clone(),
        tokens: settings.tokens.clone(),
        peers: Some(match settings.tokens.is_empty() {
            true => |peer, local, asked| check_peer(peer, local, asked) == PeerConfinement::Unconfined,
            false => |peer, local, asked| check_peer(peer, local, asked) != PeerConfinement::Confined,
        }),
    }
}

/// Updates the policy. Returns true if it changed.
fn update_policy(policy: &mut AccessPolicy, next: &BridgeSettings) -> bool {
    let is_same = policy.hosts == next.allowed_hosts
        && policy.origins == next.allowed_origins
        && policy.tokens == next.tokens;
    if !is_same {
        *policy = access_policy(next);
    }
    !is_same
}

/// The default budget, or more if one message of the largest size would not fit.
fn body_budget(max_message_bytes: usize) -> usize {
    HttpServer::default().body_budget.max(max_message_bytes)
}

#[cfg(test)]
mod tests {
    use bascule_model::Secret;

    use super::*;

    // req: GW-03
    #[test]
    fn budget_fits_the_largest_message() {
        assert_eq!(body_budget(1000), HttpServer::default().body_budget);
        assert_eq!(body_budget(4 << 30), 4 << 30);
    }

    // req: GW-07
    #[test]
    fn only_loopback_addresses_need_no_token() {
        let none = BridgeSettings::default();
        let one = BridgeSettings { tokens: vec![Secret::new("t".to_owned())], ..none.clone() };
        for (address, lacks) in
            [("127.0.0.1:1", false), ("[::1]:1", false), ("0.0.0.0:1", true), ("[::]:1", true)]
        {
            let address = address.parse().unwrap();
            assert_eq!(lacks_token(address, &none), lacks, "{address}");
            assert!(!lacks_token(address, &one));
        }
    }

    // req: GW-07
    #[test]
    fn policy_changes_only_with_its_settings() {
        let before = BridgeSettings::default();
        let mut policy = access_policy(&before);
        assert!(!update_policy(&mut policy, &before));
        let after = BridgeSettings { tokens: vec![Secret::new("t".to_owned())], ..before };
        assert!(update_policy(&mut policy, &after) && !update_policy(&mut policy, &after));
        assert_eq!(policy.tokens, after.tokens);
    }
}
