//! `bascule check`: checks the configuration and starts its servers.

use std::path::Path;
use std::process::ExitCode;

use bascule_model::{Health, ProviderAdapter, ServerHealth};
use bascule_sandbox::{Confinement, LockedFolder};
use serde_json::{Value, json};

use super::context::{CommandContext, find_server};
use super::error::{CommandResult, problem_json};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use super::trace::{self, CallToTrace};
use crate::McpBridgeAdapter;
use crate::fleet::server_log::format_count;

/// The exit code if a server is not healthy.
const EXIT_UNHEALTHY: u8 = 3;
/// The indentation of lines that continue another one.
const CONTINUED: usize = 4;

/// Validate the configuration, connect to every server, and report tools, confinement and problems
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: bascule check --server files --trace --call write_file '{\"path\":\"/data/x\",\"content\":\"\"}'"
)]
pub(crate) struct Check {
    /// Check this server only
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Record what the sandbox refuses to the server, and propose the entry that would allow it
    #[arg(long, requires = "server")]
    trace: bool,
    /// Call a tool of the traced server, with a JSON object as arguments [default: {}]
    #[arg(long, requires = "trace", num_args = 1..=2, value_names = ["TOOL", "JSON"])]
    call: Vec<String>,
}

impl Check {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        match &self.server {
            Some(server) if self.trace => {
                let call = (!self.call.is_empty()).then(|| CallToTrace::parse(server, &self.call));
                trace::run(context, server, call.transpose()?, printer).await
            }
            server => check(context, server.as_deref(), printer).await,
        }
    }
}

async fn check(context: CommandContext, only: Option<&str>, printer: &Printer) -> CommandResult {
    let path = context.path().display().to_string();
    let config = context.load(printer)?;
    let only = only.map(|server| find_server(&config.settings, server)).transpose()?;
    let only = only.map(|server| vec![server.name.clone()]);
    let warnings: Vec<Value> = config.warnings.iter().map(problem_json).collect();
    context
        .with_in_process_bridge(config, only, printer, async |bridge| {
            let servers = bridge.health();
            let all_healthy = servers.iter().all(|server| server.health == Health::Healthy);
            match printer.json {
                true => printer.print_json(&json!({
                    "config": path,
                    "ok": all_healthy,
                    "warnings": warnings,
                    "configWritableBy": bridge.servers_that_can_write(Path::new(&path)),
                    "disabled": bridge.disabled_servers(),
                    "servers": servers.iter().map(|server| server_json(server, bridge)).collect::<Vec<_>>(),
                })),
                false => print_text(&path, &servers, bridge, printer),
            }
            Ok(if all_healthy { ExitCode::SUCCESS } else { ExitCode::from(EXIT_UNHEALTHY) })
        })
        .await
}

fn server_json(server: &ServerHealth, bridge: &McpBridgeAdapter) -> Value {
    let mut json = serde_json::to_value(server).unwrap_or_default();
    json["confinement"] = json!(bridge.confinement(server.name.as_str()));
    if let Some(info) = bridge.server_info(server.name.as_str()) {
        json["serverInfo"] = json!({ "name": info.name, "version": info.version });
        json["protocolVersion"] = info.protocol.as_str().into();
    }
    let locked = bridge.locked_folders(server.name.as_str());
    let locked = locked.iter().map(|locked| json!({ "folder": locked.folder, "closed": locked.closed }));
    json["lockedFolders"] = locked.collect();
    let listing = bridge.list_warnings(server.name.as_str());
    json["warnings"] = [listing, bridge.schema_warnings(server.name.as_str())].concat().into();
    if let Some(error) = bridge.start_failure(server.name.as_str()) {
        json["error"] = serde_json::to_value(&*error).unwrap_or_default();
    }
    json
}

fn print_text(path: &str, servers: &[ServerHealth], bridge: &McpBridgeAdapter, printer: &Printer) {
    printer.print_line(&format!("{path}: {}", format_count(servers.len(), "server")));
    let disabled = bridge.disabled_servers();
    let names = servers.iter().map(|server| &server.name).chain(&disabled);
    let width = names.map(|name| name.as_str().len()).max().unwrap_or(0);
    for server in servers {
        let name = pad(server.name.as_str(), width);
        match bridge.server_info(server.name.as_str()) {
            Some(info) if server.health == Health::Healthy => {
                let (mark, tools) = (printer.style.green("✓"), format_count(server.tools, "tool"));
                let (program, version) = (sanitize_line(&info.name), sanitize_line(&info.version));
                let line = format!("{mark} {name}  {tools:9}  {program} {version}, MCP {}", info.protocol);
                printer.print_sentence(&line, CONTINUED);
            }
            _ => print_unhealthy(&name, server, bridge, printer),
        }
        for warning in bridge.schema_warnings(server.name.as_str()) {
            printer.print_sentence(&format!("    {}", sanitize_line(&warning)), 2 + CONTINUED);
        }
    }
    for name in disabled {
        printer.print_line(&printer.style.dim(&format!("- {}  disabled", pad(name.as_str(), width))));
    }
    print_confinements(servers, bridge, printer);
    print_locked_folders(servers, bridge, printer);
    print_writers(path, bridge, printer);
}

/// Prints the confinement of the servers, once for servers with equal confinement.
fn print_confinements(servers: &[ServerHealth], bridge: &McpBridgeAdapter, printer: &Printer) {
    let mut groups: Vec<(Confinement, Vec<&str>)> = Vec::new();
    for name in servers.iter().map(|server| server.name.as_str()) {
        let Some(confinement) = bridge.confinement(name) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == confinement) {
            Some((_, names)) => names.push(name),
            None => groups.push((confinement, vec![name])),
        }
    }
    for (confinement, names) in groups {
        let title = format!("confinement of {}:", names.join(", "));
        printer.print_sentence(&printer.style.dim(&title), CONTINUED);
        for mechanism in &confinement.in_force {
            printer.print_sentence(&printer.style.dim(&format!("  {mechanism}")), CONTINUED);
        }
        for mechanism in &confinement.missing {
            printer.print_sentence(&printer.style.red(&format!("  MISSING: {mechanism}")), CONTINUED);
        }
    }
}

/// Warns of writable folders in which a server can create and remove nothing.
fn print_locked_folders(servers: &[ServerHealth], bridge: &McpBridgeAdapter, printer: &Printer) {
    for name in servers.iter().map(|server| server.name.as_str()) {
        let locked = bridge.locked_folders(name);
        let folders: Vec<String> = locked.iter().take(MAX_LOCKED).map(describe_locked_folder).collect();
        if !folders.is_empty() {
            let more = if locked.len() > MAX_LOCKED { " and others" } else { "" };
            let folders = folders.join(", ");
            let warning = format!(
                "{name} can create, remove or replace nothing directly in {folders}{more}; in subfolders it can"
            );
            printer.print_sentence(&printer.style.red(&warning), CONTINUED);
        }
    }
}

/// More folders are not named.
const MAX_LOCKED: usize = 3;

fn describe_locked_folder(locked: &LockedFolder) -> String {
    let closed = locked.closed.file_name().unwrap_or_default().to_string_lossy();
    format!("`{}`, which contains the closed `{closed}`", locked.folder.display())
}

/// Warns of servers that can write the configuration file, and thereby change their own confinement.
fn print_writers(path: &str, bridge: &McpBridgeAdapter, printer: &Printer) {
    let names: Vec<String> =
        bridge.servers_that_can_write(Path::new(path)).iter().map(ToString::to_string).collect();
    if !names.is_empty() {
        let warning = format!(
            "{path} is writable by {}: a server can write to its `cwd` and could change its own confinement; move the file, or set another `cwd`",
            names.join(", ")
        );
        printer.print_sentence(&printer.style.red(&warning), CONTINUED);
    }
}

fn print_unhealthy(name: &str, server: &ServerHealth, bridge: &McpBridgeAdapter, printer: &Printer) {
    let cause = server.cause.as_deref().unwrap_or("not healthy");
    let line = format!("{} {name}  {}", printer.style.red("✗"), sanitize_line(cause));
    printer.print_sentence(&line, CONTINUED);
    let error = bridge.start_failure(server.name.as_str());
    let stderr = error.as_ref().and_then(|error| error.stderr.as_deref());
    for line in stderr.unwrap_or_default().lines() {
        let line = format!("    {} {}", printer.style.dim("stderr |"), sanitize_line(line));
        printer.print_sentence(&line, 2 + CONTINUED);
    }
}
