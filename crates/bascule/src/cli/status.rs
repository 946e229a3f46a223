//! `bascule status`, `refresh` and `events`: look at a running bridge, and poke it.

use std::process::ExitCode;

use bascule_model::{Health, ServerName};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::Output;
use super::session::Session;
use super::terminal::{clean_line, pad};
use crate::control::What;
use crate::status::{ServerStatus, Status};

/// Show how the servers of a running bridge are
#[derive(Debug, clap::Args)]
pub(crate) struct ShowStatus {
    /// Show it again at every change, until interrupted
    #[arg(long)]
    watch: bool,
}

impl ShowStatus {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let bridge = session.running().await?;
        let mut answers = bridge.listen(What::Status, json!({ "watch": self.watch })).await?;
        while let Some(answer) = answers.next().await? {
            show(&answer, output)?;
            if self.watch && !output.json {
                output.line("");
            }
            if output.nobody_reads() {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Have a running bridge list tools again; a server that is down is started
#[derive(Debug, clap::Args)]
pub(crate) struct Refresh {
    /// Only this server
    server: Option<String>,
}

impl Refresh {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let bridge = session.running().await?;
        let server = self.server.as_deref().map(ServerName::parse).transpose();
        let server = server.map_err(|error| Failure::Usage(error.to_string()))?;
        let status: Box<RawValue> = bridge.ask(What::Refresh, json!({ "server": server })).await?;
        show(&status, output)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Print what happens in a running bridge, until interrupted
#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// Only events whose name fits: `*` stands for one word, `#` for any number (`provider.mcp.tool.*`)
    #[arg(default_value = "#", hide_default_value = true)]
    pattern: String,
    /// First print so many of those that happened lately
    #[arg(long, value_name = "N", default_value_t = 0)]
    replay: usize,
}

impl Events {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let bridge = session.running().await?;
        let params = json!({ "pattern": self.pattern, "replay": self.replay });
        let mut events = bridge.listen(What::Events, params).await?;
        while let Some(event) = events.next().await? {
            match output.json {
                true => output.document(&event),
                false => output.line(&event_line(&event, output)),
            }
            if output.nobody_reads() {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(status: &RawValue, output: &Output) -> Result<(), Failure> {
    if output.json {
        output.document(&status);
        return Ok(());
    }
    let unreadable = |error| Failure::Usage(format!("the running bridge is of another version: {error}"));
    let Status { servers } = serde_json::from_str(status.get()).map_err(unreadable)?;
    let width = servers.iter().map(|server| server.health.name.as_str().len()).max().unwrap_or(0);
    servers.iter().for_each(|server| output.line(&server_line(server, width, output)));
    Ok(())
}

fn server_line(server: &ServerStatus, width: usize, output: &Output) -> String {
    let ServerStatus { health, confinement } = server;
    let paint = output.paint;
    let state = serde_json::to_value(health.health).unwrap_or_default();
    let state = pad(state.as_str().unwrap_or_default(), 11);
    let state = match health.health {
        Health::Healthy => paint.good(&state),
        Health::Degraded | Health::Unavailable => paint.bad(&state),
        Health::Starting | Health::Stopped => paint.faint(&state),
    };
    let mut line = format!("{}  {state}  {:3} tools", pad(health.name.as_str(), width), health.tools);
    if let Some(pid) = health.pid {
        line += &format!("  process {pid}");
    }
    if health.restarts > 0 {
        line += &format!("  restarted {}×", health.restarts);
    }
    if let Some(cause) = &health.cause {
        line += &format!("  {}", clean_line(cause));
    }
    if confinement.as_ref().is_some_and(|confinement| !confinement.missing.is_empty()) {
        line += &format!("  {}", paint.faint("(not all confinement is in force: see `bascule check`)"));
    }
    line
}

/// Time, name, and what there is to say.
fn event_line(event: &RawValue, output: &Output) -> String {
    #[derive(Deserialize)]
    struct Envelope {
        timestamp: String,
        #[serde(rename = "type")]
        kind: String,
        body: serde_json::Map<String, serde_json::Value>,
    }
    let Ok(Envelope { timestamp, kind, body }) = serde_json::from_str(event.get()) else {
        return clean_line(event.get());
    };
    let facts = body.iter().filter(|(name, _)| *name != "type");
    let facts: Vec<String> =
        facts.map(|(name, value)| format!("{name}={}", clean_line(&value.to_string()))).collect();
    format!("{} {} {}", output.paint.faint(&timestamp), output.paint.strong(&kind), facts.join(" "))
}
