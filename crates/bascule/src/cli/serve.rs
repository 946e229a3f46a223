//! `bascule serve`: runs the bridge until a signal ends it.

mod bus_connector;
mod control_socket;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{AgentName, BusEventSink, BusOptions, EmbeddedBus, MessageIdGenerator, ReplayLimits};
use bascule_mcp::{AccessPolicy, Endpoint, HttpServer, Router, StdioServer};
use bascule_model::ProviderAdapter;
use bascule_model::Secret;
use bascule_sandbox::{is_trusted_peer, raise_open_files};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::bus_connector::BusConnector;
use self::control_socket::{ControlParts, ControlSocket, SocketRight};
use super::bus_options::{BusArguments, read_agent};
use super::context::{CommandContext, Signals, find_server, jailer, otlp_settings, trace_file};
use super::error::{CommandError, CommandResult};
use super::operator_pages::{health_pages, metrics_page};
use super::printer::Printer;
use crate::config::{
    Authentication, BridgeSettings, ConfigError, ConfigLocation, ConfigOrigin, FileWatch, LoadedConfig,
    Settings, StartMode, ToolView, parse_listen_address,
};
use crate::control::{ControlServer, SocketPath};
use crate::fleet::server_log::{OPERATIONS, format_count};
use crate::gateway::Gateway;
use crate::normalise::error_chain;
use crate::otlp::MetricExporter;
use crate::{
    BridgeConfig, BusServiceOptions, LastListings, McpBridgeAdapter, OtlpSettings, api, token, trust_store,
};

/// The time that clients have, after the grace, to receive the errors of abandoned requests.
const FINAL_RESPONSES: Duration = Duration::from_secs(2);

/// The most connections at a time to the pages for operators, if they have a port of their own.
const MAX_OPERATORS: usize = 32;

const TOKEN_HINT: &str =
    "HTTP clients send the header `Authorization: Bearer TOKEN`; `bascule token` shows the token";

/// Run the servers, and serve their tools to MCP clients and to other commands
///
/// All servers together are at /mcp, each one alone at /servers/NAME/mcp, a health check at /healthz, readiness at
/// /readyz, and Prometheus metrics at /metrics, or at the address `bascule.metrics.listen` of the configuration. A changed
/// configuration file is applied without losing a call, and SIGHUP reloads it too. The first SIGINT or SIGTERM lets calls
/// finish, the second ends them.
///
/// With --agent the bridge is a service on a message bus: it takes the agent's requests from there. Several bridges with the
/// same agent share the work.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Listen for HTTP clients on this address instead of the configured one: 8080, localhost:8080 or IP:PORT
    #[arg(long, value_name = "ADDR", value_parser = read_listen_address)]
    listen: Option<SocketAddr>,
    /// Serve one client on stdin and stdout; opens no port unless --listen is given
    #[arg(long)]
    stdio: bool,
    /// With --stdio: serve only this server, under its own tool names
    #[arg(long, value_name = "NAME", requires = "stdio")]
    server: Option<String>,
    /// Serve this agent on the bus; opens no port unless --listen is given or configured
    #[arg(long, value_name = "NAME", value_parser = read_agent)]
    agent: Option<AgentName>,
    #[command(flatten)]
    bus: BusArguments,
    /// Tools that clients see
    #[arg(long, value_enum)]
    show: Option<ToolView>,
    /// Authentication of HTTP clients
    #[arg(long, value_enum)]
    auth: Option<AuthOption>,
    /// Time for calls in flight to finish when the bridge or their server stops
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    grace_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AuthOption {
    /// A token in each request (default); `bascule token` shows it
    Token,
    /// No token: serve only unconfined processes of your user on this machine
    None,
}

/// The agent that the bridge serves, and its bus.
struct AgentBus {
    agent: AgentName,
    connection: BusOptions,
}

/// The settings, and what the bridge needs from this machine before its servers start.
struct Prepared {
    settings: Settings,
    location: ConfigLocation,
    agent_bus: Option<AgentBus>,
    /// The limit on open files.
    open_files: u64,
    socket: SocketPath,
    right: SocketRight,
    /// The servers that a client on stdio sees.
    endpoint: Endpoint,
    ports: Ports,
}

/// The open ports, and the token of their clients.
struct Ports {
    /// The port for HTTP clients, if there is one.
    clients: Option<TcpListener>,
    /// The port of the pages for operators, if they have one of their own.
    metrics: Option<TcpListener>,
    /// The generated token; `None` if clients need none.
    token: Option<Secret<String>>,
}

/// The causes of a reload and of the end.
struct ChangeCauses {
    signals: Signals,
    hangups: Signal,
    file: FileWatch,
}

/// A running bridge and everything that gives access to it.
struct ServeState {
    bridge: Arc<McpBridgeAdapter>,
    /// The events of the bridge.
    bus: Arc<EmbeddedBus>,
    gateway: Arc<Gateway>,
    control: ControlSocket,
    /// Sends metrics to a collector, if there is one.
    exporter: Option<MetricExporter>,
    /// The HTTP and stdio servers.
    servers: TaskTracker,
    stop: CancellationToken,
    access: watch::Sender<AccessPolicy>,
    /// The generated token; `None` if clients need none.
    token: Option<Secret<String>>,
    /// The address of the HTTP server.
    address: Option<SocketAddr>,
    /// The address of the pages for operators, if they have one of their own.
    metrics_address: Option<SocketAddr>,
    /// The most HTTP connections at a time.
    max_connections: usize,
    /// The settings at the start. Some of them do not change until the next start.
    initial: BridgeSettings,
    location: ConfigLocation,
    grace: Duration,
}

impl Serve {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let (prepared, causes) = self.prepare(context, printer).await?;
        let state = self.start(prepared, printer).await?;
        state.serve_until_stopped(causes, printer).await;
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the configuration and opens what the bridge needs from this machine. No server has started yet.
    async fn prepare(
        &self,
        context: CommandContext,
        printer: &Printer,
    ) -> CommandResult<(Prepared, ChangeCauses)> {
        // With --stdio, stdin belongs to the client.
        let config = context.load(printer)?;
        context.require_trust(&config, !self.stdio, printer)?;
        let settings = config.settings;
        let agent_bus = self.agent_bus(&settings.bridge)?;
        let open_files = raise_open_files()
            .map_err(|error| CommandError::failed_operation("raise the limit on open files", error))?;
        let signals = Signals::new();
        let hangups = signal(SignalKind::hangup())
            .map_err(|error| CommandError::failed_operation("handle SIGHUP", error))?;
        let socket = SocketPath::new(context.path())
            .map_err(|error| CommandError::failed_operation("locate the control socket", error))?;
        let right = self.claim(&socket, agent_bus.is_some()).await?;
        let file = watch(&context.location)
            .map_err(|error| CommandError::failed_operation("watch the configuration", error))?;
        let server = self.server.as_deref().map(|name| find_server(&settings, name)).transpose()?;
        let endpoint = server.map_or(Endpoint::All, |server| Endpoint::Server(server.name.to_string()));
        let ports = self.open_ports(&settings.bridge, agent_bus.is_some(), context.path()).await?;
        let location = context.location;
        let prepared = Prepared { settings, location, agent_bus, open_files, socket, right, endpoint, ports };
        Ok((prepared, ChangeCauses { signals, hangups, file }))
    }

    /// Starts the bridge and everything that gives access to it.
    async fn start(&self, prepared: Prepared, printer: &Printer) -> CommandResult<ServeState> {
        let Prepared { settings, location, agent_bus, open_files, endpoint, ports, .. } = prepared;
        let Ports { clients, metrics, token } = ports;
        let otlp = otlp_settings();
        let bus = Arc::new(EmbeddedBus::new(ReplayLimits::default()));
        let (initial, starting) = (settings.bridge.clone(), describe_servers(&settings));
        let bridge = Arc::new(start(settings, &bus, &location.path, otlp.clone()).await?);
        let parts = ControlParts { path: prepared.socket, bridge: bridge.clone(), bus: bus.clone() };
        let control = open_control(parts, prepared.right).await?;
        let grace = Duration::from_millis(self.grace_ms);
        let show = self.show.unwrap_or(initial.show);
        let state = ServeState {
            gateway: Gateway::open(bridge.clone(), initial.session_idle, grace, show),
            exporter: otlp.and_then(|otlp| MetricExporter::start(&otlp, &bridge)),
            bridge,
            bus,
            control,
            servers: TaskTracker::new(),
            stop: CancellationToken::new(),
            access: watch::Sender::new(access_policy(&initial, token.as_ref())),
            token,
            address: local_address(clients.as_ref()),
            metrics_address: local_address(metrics.as_ref()),
            max_connections: max_connections(open_files),
            initial,
            location,
            grace,
        };
        let has_own_pages = metrics.is_none();
        clients.into_iter().for_each(|listener| state.serve_http(listener, has_own_pages));
        metrics.into_iter().for_each(|listener| state.serve_metrics(listener));
        if self.stdio {
            state.serve_stdio(endpoint);
        }
        printer.print_note(&state.greeting());
        agent_bus.into_iter().for_each(|agent_bus| state.serve_bus(agent_bus));
        info!(target: OPERATIONS, "{starting}");
        Ok(state)
    }

    /// Returns the agent and the bus to serve it on, if there are any.
    fn agent_bus(&self, settings: &BridgeSettings) -> CommandResult<Option<AgentBus>> {
        let agent = self.agent.clone().or_else(|| settings.bus.agent.clone());
        let Some(agent) = agent else {
            let missing = "name the agent that the bridge serves with `--agent NAME`, or in the configuration with `bascule.bus.agent`";
            return if self.bus.is_given() { Err(CommandError::Usage(missing.into())) } else { Ok(None) };
        };
        let connection = self.bus.connection(&settings.bus, &format!("bascule serve --agent {agent}"))?;
        Ok(Some(AgentBus { agent, connection }))
    }

    /// Claims the control socket. With --stdio a client starts a bridge of its own, which may run beside another one. So may
    /// the replicas of an agent's bridge: the next one takes the socket over.
    async fn claim(&self, socket: &SocketPath, has_bus: bool) -> CommandResult<SocketRight> {
        match ControlServer::claim(socket).await {
            Ok(claim) => Ok(SocketRight::Claimed(claim)),
            Err(_) if self.stdio => Ok(SocketRight::None),
            Err(error) if has_bus => {
                info!("this bridge has no control socket yet: {error}");
                Ok(SocketRight::Next)
            }
            Err(error) => Err(CommandError::failed_operation("open the control socket", error)),
        }
    }

    /// Opens the ports. Only a port needs a token.
    async fn open_ports(
        &self,
        settings: &BridgeSettings,
        has_bus: bool,
        config: &Path,
    ) -> CommandResult<Ports> {
        let auth = self.authentication(settings);
        let clients = self.bind(settings, auth, has_bus).await?;
        // A bridge on the bus need not have a port for clients.
        let metrics = self.bind_metrics(settings, auth, clients.is_some() || has_bus).await?;
        let has_port = clients.is_some() || metrics.is_some();
        let needs_token = has_port && auth == Authentication::Token;
        let token = needs_token.then(|| token::load_or_create(config)).transpose();
        let token =
            token.map_err(|error| CommandError::failed_operation("get a token for HTTP clients", error))?;
        Ok(Ports { clients, metrics, token })
    }

    fn authentication(&self, settings: &BridgeSettings) -> Authentication {
        match self.auth {
            Some(AuthOption::Token) => Authentication::Token,
            Some(AuthOption::None) => Authentication::None,
            None => settings.auth,
        }
    }

    /// Opens the port for HTTP clients, if one is wanted. Only a loopback address can do without tokens.
    async fn bind(
        &self,
        settings: &BridgeSettings,
        auth: Authentication,
        has_bus: bool,
    ) -> CommandResult<Option<TcpListener>> {
        let address = match self.listen {
            None if self.stdio || (has_bus && !settings.is_listen_given) => return Ok(None),
            address => address.unwrap_or(settings.listen),
        };
        bind(address, auth, "--listen").await.map(Some)
    }

    /// Opens the port of the pages for operators, if they have one of their own. A bridge of one client on stdio opens none for them.
    async fn bind_metrics(
        &self,
        settings: &BridgeSettings,
        auth: Authentication,
        serves_others: bool,
    ) -> CommandResult<Option<TcpListener>> {
        match settings.metrics_listen.filter(|_| serves_others) {
            Some(address) => bind(address, auth, "`bascule.metrics.listen`").await.map(Some),
            None => Ok(None),
        }
    }
}

/// Opens the control socket of a running bridge, which ends if that fails.
async fn open_control(parts: ControlParts, right: SocketRight) -> CommandResult<ControlSocket> {
    let bridge = parts.bridge.clone();
    match ControlSocket::open(parts, right) {
        Ok(control) => Ok(control),
        Err(error) => {
            bridge.terminate().await;
            Err(CommandError::failed_operation("open the control socket", error))
        }
    }
}

fn local_address(listener: Option<&TcpListener>) -> Option<SocketAddr> {
    listener?.local_addr().ok()
}

impl ServeState {
    fn greeting(&self) -> String {
        let url = self.address.map(|address| format!(" at http://{address}/mcp")).unwrap_or_default();
        let metrics = self.metrics_address.map(|address| format!("\nmetrics at http://{address}/metrics"));
        let metrics = metrics.unwrap_or_default();
        let serving = format!(
            "serving {} (process {}){url}{metrics}",
            self.location.path.display(),
            std::process::id()
        );
        match (self.address.or(self.metrics_address), &self.token) {
            (None, _) => serving,
            (_, Some(_)) => format!("{serving}\n{TOKEN_HINT}"),
            (_, None) => {
                format!("{serving}\nno token is needed: every unconfined program of your user has access")
            }
        }
    }

    fn serve_http(&self, listener: TcpListener, has_metrics: bool) {
        let max_message_bytes = self.initial.max_message_bytes;
        let server = HttpServer {
            shutdown_grace: self.grace + FINAL_RESPONSES,
            access: self.access.subscribe(),
            body_limit: max_message_bytes,
            body_budget: body_budget(max_message_bytes),
            stream_limit: max_message_bytes.saturating_mul(2),
            max_connections: self.max_connections,
            ..HttpServer::default()
        };
        let router = health_pages(Router::default().mcp(&self.gateway), &self.bridge);
        let router = if has_metrics { metrics_page(router, &self.bridge) } else { router };
        self.servers.spawn(server.serve(listener, router, self.stop.clone()));
    }

    /// Serves the pages for operators alone, to those who have access to the bridge.
    fn serve_metrics(&self, listener: TcpListener) {
        let server = HttpServer {
            access: self.access.subscribe(),
            max_connections: self.max_connections.min(MAX_OPERATORS),
            ..HttpServer::default()
        };
        let router = metrics_page(health_pages(Router::default(), &self.bridge), &self.bridge);
        self.servers.spawn(server.serve(listener, router, self.stop.clone()));
    }

    /// Serves an agent on the bus. The events of the bridge are published there too.
    fn serve_bus(&self, AgentBus { agent, connection }: AgentBus) {
        let settings = &self.initial.bus;
        let service = BusServiceOptions {
            prefetch: settings.prefetch,
            timeout: settings.timeout,
            agent_timeout: settings.agent_timeout,
            max_request_bytes: self.initial.max_message_bytes,
            events: Some(self.bus.clone()),
            ..BusServiceOptions::new(agent)
        };
        let (bridge, grace) = (self.bridge.clone(), self.grace);
        let connector = BusConnector { bridge, connection, service, grace };
        self.servers.spawn(connector.run(self.stop.clone()));
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

    async fn serve_until_stopped(&self, causes: ChangeCauses, printer: &Printer) {
        let ChangeCauses { mut signals, hangups, file } = causes;
        self.reload_until_stopped(&mut signals, hangups, file).await;
        if !self.stop.is_cancelled() {
            printer.print_note("stopping: calls in flight may finish; a second signal ends them");
        }
        tokio::select! {
            () = self.shut_down() => {}
            () = signals.recv() => self.bridge.terminate().await,
        }
        self.bus.close();
    }

    /// Reloads the configuration whenever it changes, until a signal or the end of the stdio client.
    async fn reload_until_stopped(&self, signals: &mut Signals, mut hangups: Signal, mut file: FileWatch) {
        loop {
            tokio::select! {
                () = signals.recv() => return,
                () = self.stop.cancelled() => return,
                () = file.changed() => {}
                _ = hangups.recv() => {}
            }
            // The path may be a symbolic link with another target now. Before the reload: a change during it is kept.
            file = watch(&self.location).unwrap_or(file);
            tokio::select! {
                () = self.reload() => {}
                () = signals.recv() => return,
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Applies the configuration file. A file that cannot be used, or that the user does not trust, changes nothing.
    async fn reload(&self) {
        let apply = |loaded: &LoadedConfig| {
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            self.apply_bridge_settings(&loaded.settings.bridge);
        };
        match api::reload(&self.bridge, &self.location, self.grace, apply).await {
            // The reload has logged its result.
            Ok(_) => {}
            Err(ConfigError::Invalid(problems)) => {
                for problem in &problems.0 {
                    warn!("configuration not reloaded: {problem}");
                }
            }
            Err(ConfigError::NotTrusted { path, changes, .. }) => {
                for change in &changes {
                    warn!("configuration not reloaded: not trusted: {change}");
                }
                warn!("run `bascule trust {}`, then it is reloaded", path.display());
            }
            Err(error) => warn!("configuration not reloaded: {}", error_chain(&error)),
        }
    }

    /// Applies the access settings now. Other settings of the bridge apply from the next start.
    fn apply_bridge_settings(&self, next: &BridgeSettings) {
        let initial = &self.initial;
        let changes = [
            ("listen", next.listen != initial.listen),
            ("auth", next.auth != initial.auth),
            ("show", next.show != initial.show),
            ("sessionIdleMs", next.session_idle != initial.session_idle),
            ("maxMessageBytes", next.max_message_bytes != initial.max_message_bytes),
            ("traces", next.traces != initial.traces),
            ("metrics", next.metrics_listen != initial.metrics_listen),
            ("bus", next.bus != initial.bus),
        ];
        for (name, _) in changes.iter().filter(|(_, has_changed)| *has_changed) {
            warn!("`bascule.{name}` has changed: the new value applies from the next start");
        }
        self.access.send_if_modified(|policy| update_policy(policy, next, self.token.as_ref()));
    }

    async fn shut_down(&self) {
        self.control.stop_accepting();
        self.stop.cancel();
        self.servers.close();
        let started = Instant::now();
        // Requests that are still in flight after the grace get an error response.
        let _ = timeout(self.grace, self.servers.wait()).await;
        self.gateway.close().await;
        self.servers.wait().await;
        if let Some(exporter) = &self.exporter {
            exporter.close().await;
        }
        self.bridge.shut_down(self.grace.saturating_sub(started.elapsed())).await;
        self.control.close().await;
    }
}

/// Opens a port. Only a loopback address can do without tokens. `option` names the address.
async fn bind(address: SocketAddr, auth: Authentication, option: &str) -> CommandResult<TcpListener> {
    if auth == Authentication::None && !address.ip().is_loopback() {
        let message = format!(
            "could not listen on {address}: other machines can reach it, so a token is needed; use `--auth token`"
        );
        return Err(CommandError::Usage(message));
    }
    let explain = |error| {
        CommandError::failed_operation(
            &format!("listen on {address} (choose another address with {option})"),
            error,
        )
    };
    TcpListener::bind(address).await.map_err(explain)
}

/// Lazy servers start later, unless their tools are not known yet.
fn describe_servers(settings: &Settings) -> String {
    let describe = |mode: StartMode, noun: &str| {
        let servers = settings.servers.iter().filter(|server| server.start == mode);
        let names: Vec<&str> = servers.map(|server| server.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{}: {}", format_count(names.len(), noun), names.join(", ")))
    };
    let eager = describe(StartMode::Eager, "server").map(|servers| format!("starting {servers}"));
    let parts: Vec<String> = eager.into_iter().chain(describe(StartMode::Lazy, "lazy server")).collect();
    if parts.is_empty() { "no server is configured".into() } else { parts.join("; ") }
}

/// Watches the configuration and, if it must be trusted, the record of that.
fn watch(location: &ConfigLocation) -> io::Result<FileWatch> {
    match trust_store::record_path(&location.path) {
        Ok(record) if location.origin == ConfigOrigin::WorkingFolder => {
            FileWatch::new(&[&location.path, &record])
        }
        _ => FileWatch::new(&[&location.path]),
    }
}

async fn start(
    settings: Settings,
    bus: &Arc<EmbeddedBus>,
    config: &Path,
    otlp: Option<OtlpSettings>,
) -> CommandResult<McpBridgeAdapter> {
    let ids = MessageIdGenerator::new(crate::unique_number::random_u64());
    let events = Arc::new(BusEventSink::new(bus.clone(), "bascule", ids, SystemTime::now));
    let config = BridgeConfig {
        jailer: Some(jailer()),
        events,
        wait_for_servers: false,
        last_listings: LastListings::Shown,
        traces: trace_file(&settings, config),
        otlp,
        ..BridgeConfig::new(settings)
    };
    Ok(McpBridgeAdapter::init(config).await?)
}

fn read_listen_address(text: &str) -> Result<SocketAddr, String> {
    parse_listen_address(text).ok_or_else(|| "write a port, `localhost:PORT` or `IP:PORT`".into())
}

/// `token` is the generated one. Without it no token is required, and the peers are checked instead.
fn access_policy(settings: &BridgeSettings, token: Option<&Secret<String>>) -> AccessPolicy {
    let tokens = token.map(|token| settings.tokens.iter().chain([token]).cloned().collect());
    AccessPolicy {
        hosts: settings.allowed_hosts.clone(),
        origins: settings.allowed_origins.clone(),
        peers: tokens.is_none().then_some(is_trusted_peer),
        tokens: tokens.unwrap_or_default(),
    }
}

/// Updates the policy. Returns true if it changed.
fn update_policy(policy: &mut AccessPolicy, next: &BridgeSettings, token: Option<&Secret<String>>) -> bool {
    let next = access_policy(next, token);
    let is_same =
        policy.hosts == next.hosts && policy.origins == next.origins && policy.tokens == next.tokens;
    if !is_same {
        *policy = next;
    }
    !is_same
}

/// The default budget, or more if one message of the largest size would not fit.
fn body_budget(max_message_bytes: usize) -> usize {
    HttpServer::default().body_budget.max(max_message_bytes)
}

/// HTTP clients have at most half of the open files. The rest is for servers, scripts and the control socket.
fn max_connections(open_files: u64) -> usize {
    let half = usize::try_from(open_files / 2).unwrap_or(usize::MAX);
    half.clamp(1, HttpServer::default().max_connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: GW-03
    #[test]
    fn budget_fits_the_largest_message() {
        assert_eq!(body_budget(1000), HttpServer::default().body_budget);
        assert_eq!(body_budget(4 << 30), 4 << 30);
    }

    // req: GW-07
    #[test]
    fn connections_leave_half_of_the_open_files() {
        assert_eq!([0, 256, 1 << 40].map(max_connections), [1, 128, HttpServer::default().max_connections]);
    }

    // req: GW-07
    #[test]
    fn policy_requires_token_or_checks_peers() {
        let token = Secret::new("t".to_owned());
        let configured =
            BridgeSettings { tokens: vec![Secret::new("u".to_owned())], ..BridgeSettings::default() };
        let with = access_policy(&configured, Some(&token));
        assert!(with.peers.is_none() && with.tokens.len() == 2);
        let without = access_policy(&configured, None);
        assert!(without.peers.is_some() && without.tokens.is_empty());
    }

    // req: GW-07
    #[test]
    fn policy_changes_only_with_its_settings() {
        let before = BridgeSettings::default();
        let token = Secret::new("g".to_owned());
        let mut policy = access_policy(&before, Some(&token));
        assert!(!update_policy(&mut policy, &before, Some(&token)));
        let after = BridgeSettings { tokens: vec![Secret::new("t".to_owned())], ..before };
        assert!(
            update_policy(&mut policy, &after, Some(&token))
                && !update_policy(&mut policy, &after, Some(&token))
        );
        assert_eq!(policy.tokens, [after.tokens, vec![token]].concat());
    }
}
