//! `bascule serve`: the bridge that stays.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{BusEventSink, EmbeddedBus, MessageIdGenerator, ReplayLimits};
use bascule_mcp::{Admitted, Endpoint as At, HttpFace, StdioFace};
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
use super::error::{CommandError, error_chain};
use super::printer::Printer;
use crate::config::{self, BridgeSettings, ConfigError, FileWatch, Settings, ToolView};
use crate::control::{Door, Place};
use crate::gateway::Gateway;
use crate::{BridgeConfig, McpBridgeAdapter};

/// How long clients may take, at the end, to be told that there will be no answer.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Keep the servers running, and serve them to MCP clients and to other commands
///
/// Clients find all servers at /mcp and each by itself at /servers/NAME/mcp. The configuration is watched: a changed
/// file is taken over without losing a call; so does SIGHUP. The first SIGINT or SIGTERM lets calls finish, the second
/// does not wait for them.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where to listen for MCP clients over HTTP, instead of what the configuration says
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Serve one client on stdin and stdout; then no port is opened unless --listen is given
    #[arg(long)]
    stdio: bool,
    /// With --stdio: this server alone, under its own names
    #[arg(long, value_name = "NAME", requires = "stdio")]
    server: Option<String>,
    /// Which tools clients see: all, or two that describe the others and run scripts that call them
    #[arg(long, value_enum)]
    show: Option<Shown>,
    /// How long calls under way may take to finish when the bridge is to end, or their server is
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    grace_ms: u64,
}

/// Which tools clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shown {
    /// Every tool of every server
    All,
    /// Few tools, which describe the others and run scripts that call them
    Code,
}

/// The bridge as it runs, and all ways in.
struct Running {
    bridge: Arc<McpBridgeAdapter>,
    gateway: Arc<Gateway>,
    door: Option<Door>,
    faces: TaskTracker,
    /// Fires when it is to end.
    stop: CancellationToken,
    /// Who may come over HTTP.
    admitted: watch::Sender<Admitted>,
    /// Where they come.
    port: Option<SocketAddr>,
    /// What the configuration said of the bridge when it was started.
    started_with: BridgeSettings,
    path: PathBuf,
    grace: Duration,
}

impl Serve {
    pub(crate) async fn run(
        self,
        context: CommandContext,
        printer: &Printer,
    ) -> Result<ExitCode, CommandError> {
        let show = match self.show {
            Some(Shown::All) => ToolView::All,
            Some(Shown::Code) => ToolView::Code,
            None => context.settings.bridge.show,
        };
        let mut signals = Signals::new();
        let hang_up = signal(SignalKind::hangup()).map_err(|error| failed("hear signals", error))?;
        let place = Place::of(&context.path).map_err(|error| failed("find a place for the socket", error))?;
        // A client that starts its own bridge may well do so beside another one.
        let claim = match Door::claim(&place).await {
            Ok(claim) => Some(claim),
            Err(_) if self.stdio => None,
            Err(error) => return Err(failed("open the control socket", error)),
        };
        let file = FileWatch::new(&context.path).map_err(|error| failed("watch the configuration", error))?;
        let alone = self.server.as_deref().map(|name| context.server(name)).transpose()?;
        let client = alone.map_or(At::All, |server| At::Server(server.name.to_string()));
        let listener = self.open_port(&context.settings.bridge).await?;

        let bus = Arc::new(EmbeddedBus::new(ReplayLimits::default()));
        let (path, started_with) = (context.path, context.settings.bridge.clone());
        let bridge = Arc::new(start(context.settings, &bus).await?);
        let door = claim.map(|claim| Door::open(place, claim, bridge.clone(), bus.clone())).transpose();
        let door = match door {
            Ok(door) => door,
            Err(error) => {
                bridge.terminate().await;
                return Err(failed("open the control socket", error));
            }
        };
        let grace = Duration::from_millis(self.grace_ms);
        let running = Running {
            gateway: Gateway::open(bridge.clone(), started_with.session_idle, grace, show),
            bridge,
            door,
            faces: TaskTracker::new(),
            stop: CancellationToken::new(),
            admitted: watch::Sender::new(admitted_by(&started_with)),
            port: listener.as_ref().and_then(|listener| listener.local_addr().ok()),
            started_with,
            path,
            grace,
        };
        listener.into_iter().for_each(|listener| running.serve_port(listener));
        if self.stdio {
            running.serve_pipes(client);
        }
        printer.print_note(&running.greeting());
        running.stay(&mut signals, hang_up, file).await;
        if !running.stop.is_cancelled() {
            printer.print_note("ending; once more to end at once");
        }
        tokio::select! {
            () = running.end() => {}
            () = signals.recv() => running.bridge.terminate().await,
        }
        bus.close();
        Ok(ExitCode::SUCCESS)
    }

    /// The port for clients over HTTP, where one is wanted. Only a loopback address may be without a token.
    async fn open_port(&self, settings: &BridgeSettings) -> Result<Option<TcpListener>, CommandError> {
        let address = match (self.listen, self.stdio) {
            (None, true) => return Ok(None),
            (address, _) => address.unwrap_or(settings.listen),
        };
        if lacks_token(address, settings) {
            let said = format!(
                "{address} can be reached from other machines: that needs a token. Make one with `bascule token` and \
                 put it into the configuration (`bascule.tokens`)"
            );
            return Err(CommandError::Usage(said));
        }
        let bound = TcpListener::bind(address).await;
        bound
            .map(Some)
            .map_err(|error| failed(&format!("listen on {address} (choose another with --listen)"), error))
    }
}

impl Running {
    fn greeting(&self) -> String {
        let at = self.port.map(|at| format!(" at http://{at}/mcp")).unwrap_or_default();
        format!("serving {} (process {}){at}", self.path.display(), std::process::id())
    }

    fn serve_port(&self, listener: TcpListener) {
        let settings = &self.started_with;
        let face = HttpFace {
            stop_grace: self.grace + LAST_WORDS,
            admitted: self.admitted.subscribe(),
            body_limit: settings.max_message_bytes,
            body_room: room_for(settings.max_message_bytes),
            lane_limit: settings.max_message_bytes.saturating_mul(2),
            ..HttpFace::default()
        };
        self.faces.spawn(face.serve(listener, self.gateway.clone(), self.stop.clone()));
    }

    /// Serves one client on stdin and stdout, whose end is ours.
    fn serve_pipes(&self, client: At) {
        let face = StdioFace {
            message_limit: self.started_with.max_message_bytes,
            lane_limit: self.started_with.max_message_bytes.saturating_mul(2),
            stop_grace: self.grace,
        };
        let (gateway, stop) = (self.gateway.clone(), self.stop.clone());
        self.faces.spawn(async move {
            let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
            face.serve(gateway, client, stdin, stdout, stop.clone()).await;
            // Whoever started us has hung up.
            stop.cancel();
        });
    }

    /// Takes over what the file says as often as it changes, until it is time to end.
    async fn stay(&self, signals: &mut Signals, mut hang_up: Signal, mut file: FileWatch) {
        loop {
            tokio::select! {
                () = signals.recv() => return,
                () = self.stop.cancelled() => return,
                () = file.changed() => {}
                _ = hang_up.recv() => {}
            }
            tokio::select! {
                () = self.reload() => {}
                () = signals.recv() => return,
            }
            // It may be a link that leads elsewhere now.
            file = FileWatch::new(&self.path).unwrap_or(file);
        }
    }

    /// Takes over what the file says now; what cannot be read changes nothing.
    async fn reload(&self) {
        match config::load(&self.path, &|name: &str| std::env::var(name).ok()) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    warn!("{warning}");
                }
                self.admit_anew(&loaded.settings.bridge);
                let reloaded = self.bridge.reload(loaded.settings, self.grace).await;
                info!(plan = ?reloaded.plan, refused = ?reloaded.refused, "the configuration was taken over");
            }
            Err(ConfigError::Invalid(problems)) => {
                for problem in &problems.0 {
                    warn!("the configuration is not taken over: {problem}");
                }
            }
            Err(error) => warn!("the configuration is not taken over: {}", error_chain(&error)),
        }
    }

    /// Who may come is as the file says from now on; what else it says of the bridge itself, from the next start on.
    fn admit_anew(&self, next: &BridgeSettings) {
        let started = &self.started_with;
        let changes = [
            ("listen", next.listen != started.listen),
            ("show", next.show != started.show),
            ("sessionIdleMs", next.session_idle != started.session_idle),
            ("maxMessageBytes", next.max_message_bytes != started.max_message_bytes),
        ];
        for (name, _) in changes.iter().filter(|(_, has_changed)| *has_changed) {
            warn!("`bascule.{name}` has changed: that holds from the next start on");
        }
        match self.port.filter(|at| lacks_token(*at, next)) {
            Some(at) => warn!(
                "who may come stays as it was: {at} can be reached from other machines, and no token is left"
            ),
            None => _ = self.admitted.send_if_modified(|admitted| admit(admitted, next)),
        }
    }

    async fn end(&self) {
        self.door.iter().for_each(Door::shut);
        self.stop.cancel();
        self.faces.close();
        let begin = Instant::now();
        // What is not done by then is given up, and whoever waits for it is told.
        let _ = timeout(self.grace, self.faces.wait()).await;
        self.gateway.close().await;
        self.faces.wait().await;
        self.bridge.shut_down(self.grace.saturating_sub(begin.elapsed())).await;
        if let Some(door) = &self.door {
            door.close().await;
        }
    }
}

async fn start(settings: Settings, bus: &Arc<EmbeddedBus>) -> Result<McpBridgeAdapter, CommandError> {
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

fn failed(what: &str, error: impl std::fmt::Display) -> CommandError {
    CommandError::Usage(format!("could not {what}: {error}"))
}

/// Whether anybody on other machines could come, and would not have to show a token.
fn lacks_token(address: SocketAddr, settings: &BridgeSettings) -> bool {
    !address.ip().is_loopback() && settings.tokens.is_empty()
}

/// Who may come. Our own servers may not: a confined one could reach all others so. Where a token must be shown, who
/// cannot be seen may try.
fn admitted_by(settings: &BridgeSettings) -> Admitted {
    Admitted {
        hosts: settings.allowed_hosts.clone(),
        origins: settings.allowed_origins.clone(),
        tokens: settings.tokens.clone(),
        peers: Some(match settings.tokens.is_empty() {
            true => |peer, local, asked| check_peer(peer, local, asked) == PeerConfinement::Unconfined,
            false => |peer, local, asked| check_peer(peer, local, asked) != PeerConfinement::Confined,
        }),
    }
}

/// Admits those of these settings. Says whether they are others than before.
fn admit(admitted: &mut Admitted, next: &BridgeSettings) -> bool {
    let is_same = admitted.hosts == next.allowed_hosts
        && admitted.origins == next.allowed_origins
        && admitted.tokens == next.tokens;
    if !is_same {
        *admitted = admitted_by(next);
    }
    !is_same
}

/// For messages that are being read: as many of the usual size as ever, and at least one of the longest.
fn room_for(longest_message: usize) -> usize {
    HttpFace::default().body_room.max(longest_message)
}

#[cfg(test)]
mod tests {
    use bascule_model::Secret;

    use super::*;

    // req: GW-03
    #[test]
    fn there_is_room_for_the_longest_message() {
        assert_eq!(room_for(1000), HttpFace::default().body_room);
        assert_eq!(room_for(4 << 30), 4 << 30);
    }

    // req: GW-07
    #[test]
    fn only_a_loopback_address_may_be_without_a_token() {
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
    fn who_may_come_changes_only_where_the_configuration_does() {
        let before = BridgeSettings::default();
        let mut admitted = admitted_by(&before);
        assert!(!admit(&mut admitted, &before));
        let after = BridgeSettings { tokens: vec![Secret::new("t".to_owned())], ..before };
        assert!(admit(&mut admitted, &after) && !admit(&mut admitted, &after));
        assert_eq!(admitted.tokens, after.tokens);
    }
}
