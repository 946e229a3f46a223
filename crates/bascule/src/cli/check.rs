//! `bascule check`: checks the configuration and starts its servers.

use std::path::Path;
use std::process::ExitCode;

use bascule_model::{Health, ProviderAdapter, ServerHealth};
use bascule_sandbox::Confinement;
use serde_json::{Value, json};

use super::context::CommandContext;
use super::error::{CommandResult, problem_json};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use crate::McpBridgeAdapter;

/// The exit code if a server is not healthy.
const EXIT_UNHEALTHY: u8 = 3;

pub(crate) async fn run(context: CommandContext, printer: &Printer) -> CommandResult {
    let path = context.path.display().to_string();
    let warnings: Vec<Value> = context.warnings.iter().map(problem_json).collect();
    context
        .with_in_process_bridge(None, printer, async |bridge| {
            let servers = bridge.health();
            let all_healthy = servers.iter().all(|server| server.health == Health::Healthy);
            match printer.json {
                true => printer.print_json(&json!({
                    "config": path,
                    "ok": all_healthy,
                    "warnings": warnings,
                    "configWritableBy": bridge.servers_that_can_write(Path::new(&path)),
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
    json["warnings"] = bridge.schema_warnings(server.name.as_str()).into();
    if let Some(error) = bridge.start_failure(server.name.as_str()) {
        json["error"] = serde_json::to_value(&*error).unwrap_or_default();
    }
    json
}

fn print_text(path: &str, servers: &[ServerHealth], bridge: &McpBridgeAdapter, printer: &Printer) {
    printer.print_line(&format!("{path}: {}", format_count(servers.len(), "server")));
    let width = servers.iter().map(|server| server.name.as_str().len()).max().unwrap_or(0);
    for server in servers {
        let name = pad(server.name.as_str(), width);
        match bridge.server_info(server.name.as_str()) {
            Some(info) if server.health == Health::Healthy => printer.print_line(&format!(
                "{} {name}  {:9}  {} {}, MCP {}",
                printer.style.green("✓"),
                format_count(server.tools, "tool"),
                sanitize_line(&info.name),
                sanitize_line(&info.version),
                info.protocol,
            )),
            _ => print_unhealthy(&name, server, bridge, printer),
        }
        for warning in bridge.schema_warnings(server.name.as_str()) {
            printer.print_line(&format!("    {}", sanitize_line(&warning)));
        }
    }
    print_confinements(servers, bridge, printer);
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
        printer.print_line(&printer.style.dim(&format!("confinement of {}:", names.join(", "))));
        for mechanism in &confinement.in_force {
            printer.print_line(&printer.style.dim(&format!("  {mechanism}")));
        }
        for mechanism in &confinement.missing {
            printer.print_line(&printer.style.red(&format!("  MISSING: {mechanism}")));
        }
    }
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
        printer.print_line(&printer.style.red(&warning));
    }
}

fn print_unhealthy(name: &str, server: &ServerHealth, bridge: &McpBridgeAdapter, printer: &Printer) {
    let cause = server.cause.as_deref().unwrap_or("not healthy");
    printer.print_line(&format!("{} {name}  {}", printer.style.red("✗"), sanitize_line(cause)));
    let error = bridge.start_failure(server.name.as_str());
    let stderr = error.as_ref().and_then(|error| error.stderr.as_deref());
    for line in stderr.unwrap_or_default().lines() {
        printer.print_line(&format!("    {} {}", printer.style.dim("stderr |"), sanitize_line(line)));
    }
}

fn format_count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
