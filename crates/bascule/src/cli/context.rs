//! The configuration of one command, and the bridge that the command uses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bascule_model::{BridgeError, CorrelationId, Delivery, ErrorCode, ProviderAdapter, ServerName, ToolId};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::bridge::BridgeHandle;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::with_spinner;
use crate::config::{self, LoadedConfig, Problem, ServerSettings, Settings};
use crate::control::{RunningBridge, SocketPath};
use crate::normalise::addressed;
use crate::{BridgeConfig, McpBridgeAdapter, ToolSelection};

/// The loaded configuration and the options that decide which bridge a command uses.
pub(crate) struct CommandContext {
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) warnings: Vec<Problem>,
    /// Bounds the start of each server: a server must not take longer than the caller waits.
    pub(crate) start_timeout: Option<Duration>,
    pub(crate) no_daemon: bool,
    /// The call that the command makes, for the error of an interrupted command.
    pub(crate) call: Option<(ToolId, CorrelationId)>,
}

impl CommandContext {
    /// Finds and reads the configuration, and prints its warnings on stderr.
    pub(crate) fn load(explicit: Option<&Path>, no_daemon: bool, printer: &Printer) -> CommandResult<Self> {
        let environment = |name: &str| std::env::var(name).ok();
        // An empty directory keeps the path relative, so that messages say `mcp.json`.
        let path = config::find(explicit, Path::new(""), &environment).map_err(CommandError::Config)?;
        let LoadedConfig { settings, warnings } =
            config::load(&path, &environment).map_err(CommandError::Config)?;
        for warning in &warnings {
            printer.print_note(&warning.to_string());
        }
        Ok(Self { path, settings, warnings, start_timeout: None, no_daemon, call: None })
    }

    /// Returns a configured server, or an error that names the nearest one.
    pub(crate) fn server(&self, name: &str) -> CommandResult<&ServerSettings> {
        let missing = || CommandError::Usage(crate::normalise::no_server(&self.settings, name));
        self.settings.server(name).ok_or_else(missing)
    }

    /// Returns the server of a tool. Empty if it is not configured: the bridge reports that.
    pub(crate) fn server_of(&self, tool: &ToolId) -> Option<Vec<ServerName>> {
        Some(self.settings.server(tool.server()).map(|server| server.name.clone()).into_iter().collect())
    }

    /// Returns the servers that a script may call.
    pub(crate) fn servers_of(&self, tools: &ToolSelection) -> Option<Vec<ServerName>> {
        let names = self.settings.servers.iter().map(|server| server.name.clone());
        Some(names.filter(|name| tools.includes_server(name.as_str())).collect())
    }

    /// Connects to the running bridge of this configuration.
    pub(crate) async fn running_bridge(&self) -> CommandResult<RunningBridge> {
        let none = || {
            CommandError::Usage(format!(
                "no running bridge uses `{}`: start one with `bascule serve`",
                self.path.display()
            ))
        };
        match SocketPath::new(&self.path) {
            Ok(path) => RunningBridge::connect(&path).await.ok_or_else(none),
            Err(_) => Err(none()),
        }
    }

    /// Runs `work` with the running bridge if there is one, else with a new bridge that starts the servers in `only`
    /// (`None`: all).
    pub(crate) async fn with_bridge<T>(
        self,
        only: Option<Vec<ServerName>>,
        printer: &Printer,
        work: impl AsyncFnOnce(&BridgeHandle<'_>) -> CommandResult<T>,
    ) -> CommandResult<T> {
        let running = if self.no_daemon { None } else { self.running_bridge().await.ok() };
        if running.is_none()
            && !self.no_daemon
            && SocketPath::new(&self.path).is_ok_and(|path| path.is_locked())
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
                self.with_in_process_bridge(only, printer, async |bridge| {
                    work(&BridgeHandle::InProcess(bridge)).await
                })
                .await
            }
        }
    }

    /// Starts the servers in `only` (`None`: all), runs `work`, and always stops the servers.
    pub(crate) async fn with_in_process_bridge<T>(
        self,
        only: Option<Vec<ServerName>>,
        printer: &Printer,
        work: impl AsyncFnOnce(&McpBridgeAdapter) -> CommandResult<T>,
    ) -> CommandResult<T> {
        // Before any server starts: an unhandled signal would end this process and leave the servers running.
        let mut signals = Signals::new();
        let activity = describe_start(&self.settings, only.as_deref());
        let config = BridgeConfig {
            only,
            start_timeout: self.start_timeout,
            jailer: Some(jailer()),
            // One attempt only: the user can repeat the command.
            reconnect: false,
            keep_workers: false,
            ..BridgeConfig::new(self.settings)
        };
        let starting = McpBridgeAdapter::init(config);
        let bridge = tokio::select! {
            bridge = with_spinner(printer.json, &activity, starting) => bridge?,
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
