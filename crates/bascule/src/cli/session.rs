//! One command's use of the bridge: the configuration, the servers it needs, their end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bascule_model::{BridgeError, CorrelationId, Delivery, ErrorCode, ProviderAdapter, ServerName, ToolId};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use super::output::Output;
use super::terminal::spin;
use crate::config::{self, Loaded, Problem, ServerSettings, Settings};
use crate::normalise::addressed;
use crate::{BridgeConfig, McpBridgeAdapter};

/// A configuration that was read.
pub(crate) struct Session {
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) warnings: Vec<Problem>,
    /// No server may take longer to start than the caller is willing to wait.
    pub(crate) patience: Option<Duration>,
    /// The call that is to be made, for those who must say what became of it.
    pub(crate) call: Option<(ToolId, CorrelationId)>,
}

impl Session {
    /// Finds and reads the configuration. Its warnings are said at once, on the side.
    pub(crate) fn load(explicit: Option<&Path>, output: &Output) -> Result<Self, Failure> {
        let environment = |name: &str| std::env::var(name).ok();
        // Relative, so that messages say `mcp.json` and not where this happens to be.
        let path = config::find(explicit, Path::new(""), &environment).map_err(Failure::Config)?;
        let Loaded { settings, warnings } = config::load(&path, &environment).map_err(Failure::Config)?;
        for warning in &warnings {
            output.remark(&warning.to_string());
        }
        Ok(Self { path, settings, warnings, patience: None, call: None })
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

    /// Starts servers (all, or those named), does the work, and ends them, whatever happens in between.
    pub(crate) async fn with_bridge<T>(
        self,
        only: Option<Vec<ServerName>>,
        output: &Output,
        work: impl AsyncFnOnce(&McpBridgeAdapter) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // Before anything is started: unheard, a signal would end us and leave the servers running.
        let mut signals =
            signal(SignalKind::interrupt()).and_then(|i| Ok((i, signal(SignalKind::terminate())?)));
        let what = describe_start(&self.settings, only.as_deref());
        // Not by its path: whatever lies there now, the jail is of the same build as the bridge.
        let jailer = PathBuf::from("/proc/self/exe");
        let config = BridgeConfig {
            only,
            patience: self.patience,
            jailer: Some(jailer),
            // Tried once: whoever typed this can do so again.
            reconnect: false,
            ..BridgeConfig::new(self.settings)
        };
        let starting = McpBridgeAdapter::init(config);
        let bridge = tokio::select! {
            bridge = spin(output.json, &what, starting) => bridge?,
            () = interrupted(&mut signals) => return Err(interruption(self.call, Delivery::NotSent)),
        };
        let ended = tokio::select! {
            ended = work(&bridge) => ended,
            () = interrupted(&mut signals) => Err(interruption(self.call, Delivery::Unknown)),
        };
        // Ending may take a while; whoever asks a second time does not want to wait.
        tokio::select! {
            () = bridge.terminate() => {}
            () = interrupted(&mut signals) => {}
        }
        ended
    }
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

/// Returns when the user, or the system, wants us to end.
async fn interrupted(signals: &mut std::io::Result<(Signal, Signal)>) {
    let Ok((interrupt, terminate)) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
