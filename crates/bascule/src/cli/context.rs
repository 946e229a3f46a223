//! The configuration file of one command, and the bridge that the command uses.
//!
//! A running bridge is found by the path of the file. The file itself is read only if the command starts servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bascule_model::{BridgeError, CorrelationId, Delivery, ErrorCode, ProviderAdapter, ServerName, ToolId};
use bascule_sandbox::TraceLog;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

use super::bridge::BridgeHandle;
use super::error::{CommandError, CommandResult};
use super::intent_servers::servers_for_intent;
use super::printer::Printer;
use super::spinner::Spinner;
use super::trust::require_trust;
use crate::config::{
    self, ConfigError, ConfigLocation, ConfigOrigin, LoadedConfig, ServerSettings, Settings,
};
use crate::control::{RunningBridge, SocketPath};
use crate::normalise::addressed;
use crate::tool_spelling::may_name_server;
use crate::{
    BridgeConfig, LastListings, McpBridgeAdapter, OtlpSettings, ToolIntent, ToolSelection, trace_recorder,
};

/// The place of the configuration and the options that decide which bridge a command uses.
pub(crate) struct CommandContext {
    pub(crate) location: ConfigLocation,
    /// Bounds the start of each server: a server must not take longer than the caller waits.
    pub(crate) start_timeout: Option<Duration>,
    pub(crate) no_daemon: bool,
    /// Records what is refused to the servers.
    pub(crate) trace: Option<Arc<TraceLog>>,
    /// The call that the command makes, for the error of an interrupted command.
    pub(crate) call: Option<(ToolId, CorrelationId)>,
}

impl CommandContext {
    /// Finds the configuration file. One that is gone is found while a bridge serves it.
    pub(crate) fn find(explicit: Option<&Path>, no_daemon: bool) -> CommandResult<Self> {
        // An empty directory keeps the path relative, so that messages say `mcp.json`.
        let found = config::find(explicit, Path::new(""), &config::process_environment);
        let location = found.or_else(find_served).map_err(CommandError::Config)?;
        Ok(Self { location, start_timeout: None, no_daemon, trace: None, call: None })
    }

    /// Reads the configuration, and prints its warnings on stderr.
    pub(crate) fn load(&self, printer: &Printer) -> CommandResult<LoadedConfig> {
        let config = config::load_located(&self.location, &config::process_environment)
            .map_err(CommandError::Config)?;
        for warning in &config.warnings {
            printer.print_note(&warning.to_string());
        }
        Ok(config)
    }

    /// Returns the file of recorded calls. One that cannot be read as a configuration has the default one.
    pub(crate) fn trace_file(&self) -> Option<PathBuf> {
        let loaded = config::load_located(&self.location, &config::process_environment);
        let settings = loaded.map(|config| config.settings).unwrap_or_default();
        trace_file(&settings, self.path())
    }

    /// Returns true if the configuration switches recording off.
    pub(crate) fn is_recording_off(&self) -> bool {
        config::load_located(&self.location, &config::process_environment)
            .is_ok_and(|config| config.settings.bridge.traces.is_off)
    }

    /// Fails if the configuration has no such server.
    pub(crate) fn require_server(&self, name: &str) -> CommandResult<()> {
        let config = config::load_located(&self.location, &config::process_environment)
            .map_err(CommandError::Config)?;
        match config.settings.is_disabled(name) {
            true => Ok(()),
            false => find_server(&config.settings, name).map(drop),
        }
    }

    /// The configuration file.
    pub(crate) fn path(&self) -> &Path {
        &self.location.path
    }

    /// Fails unless the user trusts the configuration. Required before any of its servers starts.
    pub(crate) fn require_trust(
        &self,
        config: &LoadedConfig,
        may_ask: bool,
        printer: &Printer,
    ) -> CommandResult<()> {
        require_trust(&self.location, config, may_ask, printer)
    }

    /// Connects to the running bridge of this configuration.
    pub(crate) async fn running_bridge(&self) -> CommandResult<RunningBridge> {
        let none = || {
            CommandError::Usage(format!(
                "no running bridge uses `{}`: start one with `bascule serve`",
                self.path().display()
            ))
        };
        match SocketPath::new(self.path()) {
            Ok(path) => RunningBridge::connect(&path).await.ok_or_else(none),
            Err(_) => Err(none()),
        }
    }

    /// Runs `work` with the running bridge if there is one, else with a new bridge that starts the needed servers.
    pub(crate) async fn with_bridge<T>(
        self,
        needed: NeededServers<'_>,
        printer: &Printer,
        work: impl AsyncFnOnce(&BridgeHandle<'_>) -> CommandResult<T>,
    ) -> CommandResult<T> {
        let running = if self.no_daemon { None } else { self.running_bridge().await.ok() };
        if running.is_none()
            && !self.no_daemon
            && SocketPath::new(self.path()).is_ok_and(|path| path.is_locked())
        {
            let message = "the running bridge of this configuration does not respond: use `--no-daemon` to run without it";
            return Err(CommandError::Usage(message.into()));
        }
        match running {
            Some(bridge) => {
                let mut signals = Signals::new();
                let (call, bridge) = (self.call, BridgeHandle::Running(bridge));
                tokio::select! {
                    ended = work(&bridge) => ended,
                    () = signals.recv() => Err(interrupted(call, Delivery::Unknown)),
                }
            }
            None => {
                let config = self.load(printer)?;
                // An encoder may be asked, and a file that is not trusted must not choose whom.
                if matches!(needed, NeededServers::OfIntent(..)) {
                    self.require_trust(&config, true, printer)?;
                }
                let only = needed.names(&config.settings).await?;
                self.with_in_process_bridge(config, only, printer, async |bridge| {
                    work(&BridgeHandle::InProcess(bridge)).await
                })
                .await
            }
        }
    }

    /// Starts the servers in `only` (`None`: all), runs `work`, and always stops the servers.
    pub(crate) async fn with_in_process_bridge<T>(
        self,
        config: LoadedConfig,
        only: Option<Vec<ServerName>>,
        printer: &Printer,
        work: impl AsyncFnOnce(&McpBridgeAdapter) -> CommandResult<T>,
    ) -> CommandResult<T> {
        // Before the signals: they must end a command that waits for an answer.
        self.require_trust(&config, true, printer)?;
        // Before any server starts: an unhandled signal would end this process and leave the servers running.
        let mut signals = Signals::new();
        let spinner = Spinner::new(printer.json, describe_start(&config.settings, only.as_deref()));
        let starting = McpBridgeAdapter::init(self.bridge_config(config.settings, only));
        let bridge = tokio::select! {
            bridge = spinner.show_during(starting) => bridge?,
            () = signals.recv() => return Err(interrupted(self.call, Delivery::NotSent)),
        };
        let ended = tokio::select! {
            ended = work(&bridge) => ended,
            () = signals.recv() => Err(interrupted(self.call, Delivery::Unknown)),
        };
        // Stopping may take a while. A second signal skips the wait.
        tokio::select! {
            () = bridge.terminate() => {}
            () = signals.recv() => {}
        }
        ended
    }

    fn bridge_config(&self, settings: Settings, only: Option<Vec<ServerName>>) -> BridgeConfig {
        BridgeConfig {
            only,
            start_timeout: self.start_timeout,
            jailer: Some(jailer()),
            // One attempt only: the user can repeat the command.
            reconnect: false,
            keep_workers: false,
            trace: self.trace.clone(),
            last_listings: LastListings::Stored,
            traces: trace_file(&settings, &self.location.path),
            otlp: otlp_settings(),
            ..BridgeConfig::new(settings)
        }
    }
}

/// Reads the configuration without a message. `None` if it cannot be used, or if the user does not trust it.
pub(crate) fn trusted_settings(location: &ConfigLocation) -> Option<Settings> {
    let config = config::load_located(location, &config::process_environment).ok()?;
    crate::trust_store::check(location, &config).ok()?;
    Some(config.settings)
}

/// The servers that a command starts if no bridge runs.
pub(crate) enum NeededServers<'a> {
    All,
    Named(&'a ServerName),
    /// None if the server of the tool is not configured: the bridge reports that.
    OfTool(ToolId),
    OfSelection(ToolSelection),
    /// Those of servers and tools in any spelling; all if a name seems to be of none, and without names.
    OfNames(&'a [String]),
    /// Those of the best tools for an intent among the selected ones.
    OfIntent(ToolSelection, ToolIntent),
}

impl NeededServers<'_> {
    /// Returns `None` for all servers. The configuration is trusted: its encoder is asked.
    async fn names(&self, settings: &Settings) -> CommandResult<Option<Vec<ServerName>>> {
        let configured = || settings.servers.iter().map(|server| server.name.clone());
        Ok(match self {
            Self::All => None,
            Self::Named(name) => Some(vec![find_server(settings, name.as_str())?.name.clone()]),
            Self::OfTool(tool) => Some(configured().filter(|name| name.as_str() == tool.server()).collect()),
            Self::OfSelection(tools) => {
                Some(configured().filter(|name| tools.includes_server(name.as_str())).collect())
            }
            Self::OfNames(names) => {
                let servers_of = |name: &String| -> Vec<ServerName> {
                    configured().filter(|server| may_name_server(name, server.as_str())).collect()
                };
                let servers: Vec<_> = names.iter().map(servers_of).collect();
                let is_clear = !servers.is_empty() && servers.iter().all(|servers| !servers.is_empty());
                is_clear.then(|| servers.concat())
            }
            Self::OfIntent(tools, intent) => Some(servers_for_intent(settings, tools, intent).await),
        })
    }
}

/// Returns a configured server, or an error that names the nearest one.
pub(crate) fn find_server<'a>(settings: &'a Settings, name: &str) -> CommandResult<&'a ServerSettings> {
    let missing = || CommandError::Usage(crate::normalise::no_server(settings, name));
    settings.server(name).ok_or_else(missing)
}

/// Returns the first default path that a bridge serves, although there is no file any more.
fn find_served(error: ConfigError) -> Result<ConfigLocation, ConfigError> {
    let ConfigError::NotFound { paths } = &error else { return Err(error) };
    let is_served = |path: &&PathBuf| SocketPath::new(path).is_ok_and(|path| path.is_locked());
    match paths.iter().find(is_served) {
        Some(path) => Ok(ConfigLocation { path: path.clone(), origin: ConfigOrigin::WorkingFolder }),
        None => Err(error),
    }
}

/// Returns the file that a bridge of this configuration records in.
pub(crate) fn trace_file(settings: &Settings, config: &Path) -> Option<PathBuf> {
    let path = trace_recorder::store_path(&settings.bridge.traces, config);
    path.inspect_err(|error| warn!("calls are not recorded: {error}")).ok()
}

/// Returns the collector that the environment names. A bridge without one is better than none.
pub(crate) fn otlp_settings() -> Option<OtlpSettings> {
    let settings = OtlpSettings::from_environment(&config::process_environment);
    let settings = settings.inspect_err(|error| warn!("nothing is sent to a collector: {error}")).ok()??;
    for variable in &settings.unsupported {
        warn!("`{variable}` has no effect: it is not supported");
    }
    Some(settings)
}

/// Not the path of the program: the file may have been replaced, and the jail must be of the same build.
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

/// Returns the error of an interrupted command. Without a call, nothing was sent to a tool.
fn interrupted(call: Option<(ToolId, CorrelationId)>, delivery: Delivery) -> CommandError {
    let delivery = if call.is_some() { delivery } else { Delivery::NotSent };
    let mut error = BridgeError::new(ErrorCode::Cancelled, delivery, "interrupted");
    if let Some((tool, id)) = call {
        error = addressed(error, &tool);
        error.correlation_id = Some(id);
    }
    CommandError::Interrupted(error)
}

/// Receives SIGINT and SIGTERM.
pub(crate) struct Signals(std::io::Result<(Signal, Signal)>);

impl Signals {
    pub(crate) fn new() -> Self {
        Self(signal(SignalKind::interrupt()).and_then(|i| Ok((i, signal(SignalKind::terminate())?))))
    }

    /// Waits for the next signal.
    pub(crate) async fn recv(&mut self) {
        let Ok((interrupt, terminate)) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
