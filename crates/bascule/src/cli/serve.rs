//! `bascule serve`: the bridge that stays.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{BusEvents, EmbeddedBus, MessageIds, Recall};
use bascule_model::ProviderAdapter;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::failure::{Failure, said};
use super::output::Output;
use super::session::{Session, Signals, jailer};
use crate::config::{self, ConfigError, FileWatch};
use crate::control::{Door, Place};
use crate::{BridgeConfig, McpBridgeAdapter};

/// Keep the servers running, and this bridge ready for other commands
///
/// The configuration is watched: a changed file is taken over without losing a call; so does SIGHUP. The first
/// SIGINT or SIGTERM lets calls finish, the second does not wait for them.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// How long calls under way may take to finish when the bridge is to end, or their server is
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    grace_ms: u64,
}

impl Serve {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let grace = Duration::from_millis(self.grace_ms);
        let failed = |what: &str, error: std::io::Error| Failure::Usage(format!("could not {what}: {error}"));
        let mut signals = Signals::listen();
        let mut hang_up = signal(SignalKind::hangup()).map_err(|error| failed("hear signals", error))?;
        let place = Place::of(&session.path).map_err(|error| failed("find a place for the socket", error))?;
        Door::is_free(&place).await.map_err(|error| failed("open the control socket", error))?;
        let mut file =
            FileWatch::new(&session.path).map_err(|error| failed("watch the configuration", error))?;

        let bus = Arc::new(EmbeddedBus::new(Recall::default()));
        let ids = MessageIds::new(crate::call::chance());
        let events = Arc::new(BusEvents::new(bus.clone(), "bascule", ids, SystemTime::now));
        let path = session.path.clone();
        let bridge = BridgeConfig {
            jailer: Some(jailer()),
            events,
            wait_for_servers: false,
            ..BridgeConfig::new(session.settings)
        };
        let bridge = Arc::new(McpBridgeAdapter::init(bridge).await?);
        let door = Door::open(place, bridge.clone(), bus.clone());
        let door = match door {
            Ok(door) => door,
            Err(error) => {
                bridge.terminate().await;
                return Err(failed("open the control socket", error));
            }
        };
        output.remark(&format!("serving {} (process {})", path.display(), std::process::id()));
        loop {
            tokio::select! {
                () = signals.next() => break,
                () = file.changed() => {}
                _ = hang_up.recv() => {}
            }
            tokio::select! {
                () = reload(&bridge, &path, grace) => {}
                () = signals.next() => break,
            }
        }
        output.remark("ending; once more to end at once");
        tokio::select! {
            () = async { door.shut(); bridge.shut_down(grace).await; door.close().await; } => {}
            () = signals.next() => bridge.terminate().await,
        }
        bus.close();
        Ok(ExitCode::SUCCESS)
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
