//! One command's use of the bridge: the configuration, the servers it needs, their end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bascule_model::{BridgeError, CorrelationId, Delivery, ErrorCode, ProviderAdapter, ServerName, ToolId};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::bridge::Bridge;
use super::failure::Failure;
use super::output::Output;
use super::terminal::spin;
use crate::config::{self, Loaded, Problem, ServerSettings, Settings};
use crate::control::{Place, RunningBridge};
use crate::normalise::addressed;
use crate::{BridgeConfig, McpBridgeAdapter, Selection};

/// A configuration that was read.
pub(crate) struct Session {
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) warnings: Vec<Problem>,
    /// No server may take longer to start than the caller is willing to wait.
    pub(crate) patience: Option<Duration>,
    /// Whether a running bridge is to be left alone.
    pub(crate) no_daemon: bool,
    /// The call that is to be made, for those who must say what became of it.
    pub(crate) call: Option<(ToolId, CorrelationId)>,
}

impl Session {
    /// Finds and reads the configuration. Its warnings are said at once, on the side.
    pub(crate) fn load(explicit: Option<&Path>, no_daemon: bool, output: &Output) -> Result<Self, Failure> {
        let environment = |name: &str| std::env::var(name).ok();
        // Relative, so that messages say `mcp.json` and not where this happens to be.
        let path = config::find(explicit, Path::new(""), &environment).map_err(Failure::Config)?;
        let Loaded { settings, warnings } = config::load(&path, &environment).map_err(Failure::Config)?;
        for warning in &warnings {
            output.remark(&warning.to_string());
        }
        Ok(Self { path, settings, warnings, patience: None, no_daemon, call: None })
    }

    /// A configured server, or a refusal that names the nearest.
    pub(crate) fn server(&self, name: &str) -> Result<&ServerSettings, Failure> {
        let missing = || Failure::Usage(crate::normalise::no_server(&self.settings, name));
        self.settings.server(name).ok_or_else(missing)
    }

    /// The one server that a tool needs; none where it is not configured, which the bridge will say.
    pub(crate) fn only(&self, tool: &ToolId) -> Option<Vec<ServerName>> {
        Some(self.settings.server(tool.server()).map(|server| server.name.clone()).into_iter().collect())
    }

    /// The servers that a script may need.
    pub(crate) fn concerned(&self, tools: &Selection) -> Option<Vec<ServerName>> {
        let names = self.settings.servers.iter().map(|server| server.name.clone());
        Some(names.filter(|name| tools.concerns(name.as_str())).collect())
    }

    /// The bridge that serves this configuration in another process.
    pub(crate) async fn running(&self) -> Result<RunningBridge, Failure> {
        let none = || {
            Failure::Usage(format!(
                "no bridge serves {}: start one with `bascule serve`",
                self.path.display()
            ))
        };
        match Place::of(&self.path) {
            Ok(place) => RunningBridge::at(&place).await.ok_or_else(none),
            Err(_) => Err(none()),
        }
    }

    /// Does the work with a running bridge if there is one, else with one of its own: the servers named, or all.
    pub(crate) async fn with_bridge<T>(
        self,
        only: Option<Vec<ServerName>>,
        output: &Output,
        work: impl AsyncFnOnce(&Bridge) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let running = if self.no_daemon { None } else { self.running().await.ok() };
        if running.is_none() && !self.no_daemon && Place::of(&self.path).is_ok_and(|place| place.is_taken()) {
            let said =
                "a bridge runs for this configuration, but does not answer: `--no-daemon` does without it";
            return Err(Failure::Usage(said.into()));
        }
        match running {
            Some(bridge) => {
                let mut signals = Signals::listen();
                let (call, bridge) = (self.call, Bridge::Running(bridge));
                tokio::select! {
                    ended = work(&bridge) => ended,
                    () = signals.next() => Err(interruption(call, Delivery::Unknown)),
                }
            }
            None => self.with_own_bridge(only, output, async |bridge| work(bridge).await).await,
        }
    }

    /// Starts servers (all, or those named), does the work, and ends them, whatever happens in between.
    pub(crate) async fn with_own_bridge<T>(
        self,
        only: Option<Vec<ServerName>>,
        output: &Output,
        work: impl AsyncFnOnce(&Bridge) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // Before anything is started: unheard, a signal would end us and leave the servers running.
        let mut signals = Signals::listen();
        let what = describe_start(&self.settings, only.as_deref());
        let config = BridgeConfig {
            only,
            patience: self.patience,
            jailer: Some(jailer()),
            // Tried once: whoever typed this can do so again.
            reconnect: false,
            keep_workers: false,
            ..BridgeConfig::new(self.settings)
        };
        let starting = McpBridgeAdapter::init(config);
        let bridge = tokio::select! {
            bridge = spin(output.json, &what, starting) => Bridge::Own(bridge?),
            () = signals.next() => return Err(interruption(self.call, Delivery::NotSent)),
        };
        let ended = tokio::select! {
            ended = work(&bridge) => ended,
            () = signals.next() => Err(interruption(self.call, Delivery::Unknown)),
        };
        // Ending may take a while; whoever asks a second time does not want to wait.
        tokio::select! {
            () = bridge.leave() => {}
            () = signals.next() => {}
        }
        ended
    }
}

/// Not by its path: whatever lies there now, the jail is of the same build as the bridge.
pub(crate) fn jailer() -> PathBuf {
    "/proc/self/exe".into()
}

fn describe_start(settings: &Settings, only: Option<&[ServerName]>) -> String {
    let all = || settings.servers.iter().map(|server| server.name.to_string()).collect();
    let names: Vec<String> = only.map_or_else(all, |only| only.iter().map(ToString::to_string).collect());
    match names.len() {
        0..=4 => format!("starting {}", names.join(", ")),
        many => format!("starting {many} servers"),
    }
}

/// What an interrupted command came to. Only a call can have reached a tool.
fn interruption(call: Option<(ToolId, CorrelationId)>, delivery: Delivery) -> Failure {
    let delivery = if call.is_some() { delivery } else { Delivery::NotSent };
    let mut error = BridgeError::new(ErrorCode::Cancelled, delivery, "interrupted");
    if let Some((tool, id)) = call {
        error = addressed(error, &tool);
        error.correlation_id = Some(id);
    }
    Failure::Interrupted(error)
}

/// The user, or the system, wants us to end.
pub(crate) struct Signals(std::io::Result<(Signal, Signal)>);

impl Signals {
    pub(crate) fn listen() -> Self {
        Self(signal(SignalKind::interrupt()).and_then(|i| Ok((i, signal(SignalKind::terminate())?))))
    }

    /// Returns with the next one.
    pub(crate) async fn next(&mut self) {
        let Ok((interrupt, terminate)) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
