//! `bascule status`, `refresh` and `events`: commands for the running bridge.

use std::process::ExitCode;
use std::time::Duration;

use bascule_bus::TopicPattern;
use bascule_model::{Health, ServerHealth, ServerName};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use crate::api::{BridgeStatus, ServerStatus, TraceStatus};
use crate::bus_face::status::BusStatus;
use crate::control::Operation;
use crate::fleet::server_log::{excerpt, format_count, format_duration};

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

const EXAMPLE: &str = "provider.mcp.tool.*";

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
        TopicPattern::parse(&self.pattern).map_err(|error| {
            CommandError::Usage(format!(
                "`{}` is no pattern of events: {error}; example: `{EXAMPLE}`",
                self.pattern
            ))
        })?;
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

/// The indentation of lines that continue another one.
const CONTINUED: usize = 4;

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
    let BridgeStatus { servers, refused_reload, disabled, traces, bus } =
        serde_json::from_str(status.get()).map_err(unreadable)?;
    let width = servers.iter().map(|server| server.health.name.as_str().len()).max().unwrap_or(0);
    let lines = servers.iter().flat_map(|server| format_server(server, width, printer));
    lines.for_each(|line| printer.print_sentence(&line, CONTINUED));
    print_incomplete_confinement(&servers, printer);
    for name in disabled {
        printer.print_line(&printer.style.dim(&format!("{}  disabled", pad(name.as_str(), width))));
    }
    if let Some(bus) = bus {
        print_bus(&bus, printer);
    }
    if let Some(traces) = traces {
        print_traces(&traces, printer);
    }
    if let Some(cause) = refused_reload {
        printer.print_sentence(
            &printer.style.red("the configuration file cannot be used, so the bridge keeps its old one:"),
            CONTINUED,
        );
        let lines = cause.lines().map(sanitize_line);
        lines.for_each(|line| printer.print_sentence(&format!("  {line}"), CONTINUED));
    }
    Ok(())
}

fn print_bus(bus: &BusStatus, printer: &Printer) {
    let url = bus.url.as_deref().map(|url| format!(" at {}", sanitize_line(url))).unwrap_or_default();
    let state = match (bus.connected, &bus.cause) {
        (true, _) => printer.style.green("connected"),
        (false, None) => printer.style.red("reconnecting"),
        (false, Some(cause)) => printer.style.red(&format!("not connected: {}", sanitize_line(cause))),
    };
    let requests = format_count(bus.requests, "request");
    let line = format!("bus{url}  agent {}  {state}  {requests} in progress", bus.agent);
    printer.print_sentence(&line, CONTINUED);
    if bus.dropped_events > 0 {
        printer.print_line(&format!("{} events were not published", bus.dropped_events));
    }
}

fn print_traces(traces: &TraceStatus, printer: &Printer) {
    if let Some(cause) = &traces.stopped {
        let (path, cause) = (traces.path.display(), sanitize_line(cause));
        printer.print_line(&printer.style.red(&format!("calls are not recorded in `{path}`: {cause}")));
    }
    if traces.dropped > 0 {
        printer.print_line(&format!("{} calls or log lines were not recorded", traces.dropped));
    }
}

/// Names the servers that the kernel cannot confine completely.
fn print_incomplete_confinement(servers: &[ServerStatus], printer: &Printer) {
    let is_incomplete = |server: &&ServerStatus| {
        server.confinement.as_ref().is_some_and(|confinement| !confinement.missing.is_empty())
    };
    let incomplete: Vec<&str> =
        servers.iter().filter(is_incomplete).map(|server| server.health.name.as_str()).collect();
    let names = match incomplete.len() {
        0 => return,
        count if count == servers.len() && count > 1 => "every server".to_owned(),
        _ => incomplete.join(", "),
    };
    let note = format!("confinement of {names} is incomplete: see `bascule check`");
    printer.print_sentence(&printer.style.dim(&note), CONTINUED);
}

/// Formats a server: one line, and those of the cause and of the end of stderr if it is down.
fn format_server(server: &ServerStatus, width: usize, printer: &Printer) -> Vec<String> {
    let health = &server.health;
    let name = pad(health.name.as_str(), width);
    let mut line =
        format!("{name}  {}  {:>9}", format_state(health, printer), format_count(health.tools, "tool"));
    if health.from_last_listing {
        line += " (last listing)";
    }
    if let Some(pid) = health.pid {
        line += &format!("  process {pid}");
    }
    if health.restarts > 0 {
        line += &format!("  restarted {}×", health.restarts);
    }
    if let Some(installing) = &health.installing {
        line += &format!("  {}", sanitize_line(installing));
    } else if let Some(next) = describe_next_attempt(health) {
        line += &format!("  {next}");
    }
    std::iter::once(line).chain(format_failure(health, printer)).collect()
}

/// Formats the cause of a server's state and the end of its stderr.
fn format_failure(health: &ServerHealth, printer: &Printer) -> Vec<String> {
    let cause = health.cause.iter().map(|cause| format!("  {}", sanitize_line(cause)));
    let stderr = health.stderr.iter().flat_map(|stderr| excerpt(stderr));
    let mark = printer.style.dim("stderr |");
    cause.chain(stderr.map(|text| format!("  {mark} {}", sanitize_line(&text)))).collect()
}

/// A server that has never been up cannot start; one that was up is degraded or unavailable.
fn format_state(health: &ServerHealth, printer: &Printer) -> String {
    let state = serde_json::to_value(health.health).unwrap_or_default();
    let state = if health.never_started { "cannot start" } else { state.as_str().unwrap_or_default() };
    let state = pad(state, "cannot start".len());
    match health.health {
        Health::Healthy => printer.style.green(&state),
        Health::Degraded | Health::Unavailable => printer.style.red(&state),
        Health::Starting | Health::Stopped => printer.style.dim(&state),
    }
}

fn describe_next_attempt(health: &ServerHealth) -> Option<String> {
    match (health.health, health.attempt, health.retry_after_ms) {
        (Health::Degraded, Some(attempt), Some(0)) => Some(format!("attempt {attempt} is in progress")),
        (Health::Degraded, Some(attempt), Some(wait)) => {
            Some(format!("attempt {attempt} in {}", format_duration(Duration::from_millis(wait))))
        }
        (Health::Unavailable, ..) => Some(format!("given up: `bascule refresh {}` tries again", health.name)),
        _ => None,
    }
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
