//! `bascule serve`: the bridge that stays.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{BusEvents, EmbeddedBus, MessageIds, Recall};
use bascule_mcp::{HttpFace, Place as At, serve_stdio};
use bascule_model::ProviderAdapter;
use bascule_sandbox::Peer;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::failure::{Failure, said};
use super::output::Output;
use super::session::{Session, Signals, jailer};
use crate::config::{self, BridgeSettings, ConfigError, FileWatch, Show};
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

impl Serve {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let grace = Duration::from_millis(self.grace_ms);
        let show = self.show.map(|shown| match shown {
            Shown::All => Show::All,
            Shown::Code => Show::Code,
        });
        let mut signals = Signals::listen();
        let mut hang_up = signal(SignalKind::hangup()).map_err(|error| failed("hear signals", error))?;
        let place = Place::of(&session.path).map_err(|error| failed("find a place for the socket", error))?;
        // A client that starts its own bridge may well do so beside another one.
        let claim = match Door::claim(&place).await {
            Ok(claim) => Some(claim),
            Err(_) if self.stdio => None,
            Err(error) => return Err(failed("open the control socket", error)),
        };
        let mut file =
            FileWatch::new(&session.path).map_err(|error| failed("watch the configuration", error))?;
        let alone = self.server.as_deref().map(|name| session.server(name)).transpose()?;
        let client = alone.map_or(At::Together, |server| At::Alone(server.name.to_string()));
        let listener = self.open_port(&session.settings.bridge).await?;

        let bus = Arc::new(EmbeddedBus::new(Recall::default()));
        let ids = MessageIds::new(crate::call::chance());
        let events = Arc::new(BusEvents::new(bus.clone(), "bascule", ids, SystemTime::now));
        let (path, face) = (session.path.clone(), face_of(&session.settings.bridge, grace));
        let BridgeSettings { max_message_bytes: message_limit, session_idle, .. } = session.settings.bridge;
        let bridge = BridgeConfig {
            jailer: Some(jailer()),
            events,
            wait_for_servers: false,
            ..BridgeConfig::new(session.settings)
        };
        let bridge = Arc::new(McpBridgeAdapter::init(bridge).await?);
        let door = claim.map(|claim| Door::open(place, claim, bridge.clone(), bus.clone())).transpose();
        let door = match door {
            Ok(door) => door,
            Err(error) => {
                bridge.terminate().await;
                return Err(failed("open the control socket", error));
            }
        };
        let gateway = Gateway::open(bridge.clone(), &bus, session_idle, grace, show);
        let (faces, stop) = (TaskTracker::new(), CancellationToken::new());
        let mut said = format!("serving {} (process {})", path.display(), std::process::id());
        if let Some(listener) = listener {
            said += &listener.local_addr().map(|at| format!(" at http://{at}/mcp")).unwrap_or_default();
            faces.spawn(face.serve(listener, gateway.clone(), stop.clone()));
        }
        if self.stdio {
            let (gateway, stop) = (gateway.clone(), stop.clone());
            faces.spawn(async move {
                let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
                serve_stdio(gateway, client, stdin, stdout, message_limit, (stop.clone(), grace)).await;
                // Whoever started us has hung up.
                stop.cancel();
            });
        }
        output.remark(&said);
        loop {
            tokio::select! {
                () = signals.next() => break,
                () = stop.cancelled() => break,
                () = file.changed() => {}
                _ = hang_up.recv() => {}
            }
            tokio::select! {
                () = reload(&bridge, &path, grace) => {}
                () = signals.next() => break,
            }
            // It may be a link that leads elsewhere now.
            file = FileWatch::new(&path).unwrap_or(file);
        }
        let ending = async {
            door.iter().for_each(Door::shut);
            stop.cancel();
            faces.close();
            let begin = Instant::now();
            // What is not done by then is given up, and whoever waits for it is told.
            let _ = timeout(grace, faces.wait()).await;
            gateway.close().await;
            faces.wait().await;
            bridge.shut_down(grace.saturating_sub(begin.elapsed())).await;
            if let Some(door) = &door {
                door.close().await;
            }
        };
        if !stop.is_cancelled() {
            output.remark("ending; once more to end at once");
        }
        tokio::select! {
            () = ending => {}
            () = signals.next() => bridge.terminate().await,
        }
        bus.close();
        Ok(ExitCode::SUCCESS)
    }

    /// The port for clients over HTTP, where one is wanted. Only a loopback address may be without a token.
    async fn open_port(&self, settings: &BridgeSettings) -> Result<Option<TcpListener>, Failure> {
        let address = match (self.listen, self.stdio) {
            (None, true) => return Ok(None),
            (address, _) => address.unwrap_or(settings.listen),
        };
        if !address.ip().is_loopback() && settings.tokens.is_empty() {
            let said = format!(
                "{address} can be reached from other machines: that needs a token. Make one with `bascule token` and \
                 put it into the configuration (`bascule.tokens`)"
            );
            return Err(Failure::Usage(said));
        }
        let bound = TcpListener::bind(address).await;
        bound
            .map(Some)
            .map_err(|error| failed(&format!("listen on {address} (choose another with --listen)"), error))
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("could not {what}: {error}"))
}

/// How clients are received. Our own servers are not: a confined one could reach all others so. Where a token must be
/// shown, who cannot be seen may try.
fn face_of(settings: &BridgeSettings, grace: Duration) -> HttpFace {
    HttpFace {
        stop_grace: grace + LAST_WORDS,
        hosts: settings.hosts.clone(),
        origins: settings.origins.clone(),
        tokens: settings.tokens.clone(),
        body_limit: settings.max_message_bytes,
        lane_limit: settings.max_message_bytes.saturating_mul(2),
        admit: Some(match settings.tokens.is_empty() {
            true => |peer, local, asked| bascule_sandbox::peer(peer, local, asked) == Peer::Free,
            false => |peer, local, asked| bascule_sandbox::peer(peer, local, asked) != Peer::Confined,
        }),
        ..HttpFace::default()
    }
}

/// Takes over what the file says now; what cannot be read changes nothing.
async fn reload(bridge: &McpBridgeAdapter, path: &std::path::Path, grace: Duration) {
    match config::load(path, &|name: &str| std::env::var(name).ok()) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                warn!("{warning}");
            }
            let reloaded = bridge.reload(loaded.settings, grace).await;
            info!(plan = ?reloaded.plan, refused = ?reloaded.refused, "the configuration was taken over");
        }
        Err(ConfigError::Invalid(problems)) => {
            for problem in &problems.0 {
                warn!("the configuration is not taken over: {problem}");
            }
        }
        Err(error) => warn!("the configuration is not taken over: {}", said(&error)),
    }
}
