//! `bascule status`, `refresh` and `events`: commands for the running bridge.

use std::process::ExitCode;

use bascule_model::{Health, ServerName};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use crate::api::{BridgeStatus, ServerStatus};
use crate::control::Operation;

/// Show the servers of the running bridge: health, tools, process, restarts
#[derive(Debug, clap::Args)]
pub(crate) struct StatusCommand {
    /// Print the status again after every change, until interrupted
    #[arg(long)]
    watch: bool,
}

impl StatusCommand {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let bridge = context.running_bridge().await?;
        let mut responses = bridge.subscribe(Operation::Status, json!({ "watch": self.watch })).await?;
        while let Some(status) = responses.next().await? {
            print_status(&status, printer)?;
            if self.watch && !printer.json {
                printer.print_line("");
            }
            if printer.is_stdout_closed() {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// List tools again in the running bridge, and start servers that are down
#[derive(Debug, clap::Args)]
pub(crate) struct Refresh {
    /// Refresh only this server
    server: Option<String>,
}

impl Refresh {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let bridge = context.running_bridge().await?;
        let server = self.server.as_deref().map(ServerName::parse).transpose();
        let server = server.map_err(|error| CommandError::Usage(error.to_string()))?;
        let status: Box<RawValue> = bridge.request(Operation::Refresh, json!({ "server": server })).await?;
        print_status(&status, printer)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Print the events of the running bridge, until interrupted
#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// Print only events with a matching name: * is one word, # is any number of words (`provider.mcp.tool.*`)
    #[arg(default_value = "#", hide_default_value = true)]
    pattern: String,
    /// Print up to N recent events first
    #[arg(long, value_name = "N", default_value_t = 0)]
    replay: usize,
}

impl Events {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let bridge = context.running_bridge().await?;
        let params = json!({ "pattern": self.pattern, "replay": self.replay });
        let mut events = bridge.subscribe(Operation::Events, params).await?;
        while let Some(event) = events.next().await? {
            match printer.json {
                true => printer.print_json(&event),
                false => printer.print_line(&format_event(&event, printer)),
            }
            if printer.is_stdout_closed() {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_status(status: &RawValue, printer: &Printer) -> CommandResult<()> {
    if printer.json {
        printer.print_json(&status);
        return Ok(());
    }
    let unreadable = |error| {
        CommandError::Usage(format!(
            "could not read the status: the running bridge has another version: {error}"
        ))
    };
    let BridgeStatus { servers } = serde_json::from_str(status.get()).map_err(unreadable)?;
    let width = servers.iter().map(|server| server.health.name.as_str().len()).max().unwrap_or(0);
    servers.iter().for_each(|server| printer.print_line(&format_server(server, width, printer)));
    Ok(())
}

fn format_server(server: &ServerStatus, width: usize, printer: &Printer) -> String {
    let ServerStatus { health, confinement } = server;
    let state = serde_json::to_value(health.health).unwrap_or_default();
    let state = pad(state.as_str().unwrap_or_default(), 11);
    let state = match health.health {
        Health::Healthy => printer.style.green(&state),
        Health::Degraded | Health::Unavailable => printer.style.red(&state),
        Health::Starting | Health::Stopped => printer.style.dim(&state),
    };
    let mut line = format!("{}  {state}  {:3} tools", pad(health.name.as_str(), width), health.tools);
    if let Some(pid) = health.pid {
        line += &format!("  process {pid}");
    }
    if health.restarts > 0 {
        line += &format!("  restarted {}×", health.restarts);
    }
    if let Some(cause) = &health.cause {
        line += &format!("  {}", sanitize_line(cause));
    }
    if confinement.as_ref().is_some_and(|confinement| !confinement.missing.is_empty()) {
        line += &format!("  {}", printer.style.dim("(confinement is incomplete: see `bascule check`)"));
    }
    line
}

/// Formats an event: time, name and fields.
fn format_event(event: &RawValue, printer: &Printer) -> String {
    #[derive(Deserialize)]
    struct EventEnvelope {
        timestamp: String,
        #[serde(rename = "type")]
        kind: String,
        body: serde_json::Map<String, serde_json::Value>,
    }
    let Ok(EventEnvelope { timestamp, kind, body }) = serde_json::from_str(event.get()) else {
        return sanitize_line(event.get());
    };
    let fields = body.iter().filter(|(name, _)| *name != "type");
    let fields: Vec<String> =
        fields.map(|(name, value)| format!("{name}={}", sanitize_line(&value.to_string()))).collect();
    format!("{} {} {}", printer.style.dim(&timestamp), printer.style.bold(&kind), fields.join(" "))
}
