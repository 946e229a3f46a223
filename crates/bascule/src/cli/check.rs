//! `bascule check`: is the configuration right, and do its servers start?

use std::path::Path;
use std::process::ExitCode;

use bascule_model::{Health, ProviderAdapter, ServerHealth};
use bascule_sandbox::Confinement;
use serde_json::{Value, json};

use super::bridge::Bridge;
use super::failure::{Failure, problem_json};
use super::output::Output;
use super::session::Session;
use super::terminal::{clean_line, pad};
use crate::McpBridgeAdapter;

pub(crate) async fn run(session: Session, output: &Output) -> Result<ExitCode, Failure> {
    let path = session.path.display().to_string();
    let warnings: Vec<Value> = session.warnings.iter().map(problem_json).collect();
    session
        .with_own_bridge(None, output, async |bridge| {
            let Bridge::Own(bridge) = bridge else { unreachable!("it is our own") };
            let servers = bridge.health();
            let fine = servers.iter().all(|server| server.health == Health::Healthy);
            match output.json {
                true => output.document(&json!({
                    "config": path,
                    "ok": fine,
                    "warnings": warnings,
                    "configWritableBy": bridge.writers_of(Path::new(&path)),
                    "servers": servers.iter().map(|server| in_json(server, bridge)).collect::<Vec<_>>(),
                })),
                false => for_people(&path, &servers, bridge, output),
            }
            Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(3) })
        })
        .await
}

fn in_json(server: &ServerHealth, bridge: &McpBridgeAdapter) -> Value {
    let mut shown = serde_json::to_value(server).unwrap_or_default();
    shown["confinement"] = json!(bridge.confinement(server.name.as_str()));
    if let Some(info) = bridge.server_info(server.name.as_str()) {
        shown["serverInfo"] = json!({ "name": info.name, "version": info.version });
        shown["protocolVersion"] = info.protocol.as_str().into();
    }
    shown["warnings"] = bridge.schema_warnings(server.name.as_str()).into();
    if let Some(error) = bridge.start_failure(server.name.as_str()) {
        shown["error"] = serde_json::to_value(&*error).unwrap_or_default();
    }
    shown
}

fn for_people(path: &str, servers: &[ServerHealth], bridge: &McpBridgeAdapter, output: &Output) {
    let paint = output.paint;
    output.line(&format!("{path}: {}", counted(servers.len(), "server")));
    let width = servers.iter().map(|server| server.name.as_str().len()).max().unwrap_or(0);
    for server in servers {
        let name = pad(server.name.as_str(), width);
        match bridge.server_info(server.name.as_str()) {
            Some(info) if server.health == Health::Healthy => output.line(&format!(
                "{} {name}  {:9}  {} {}, MCP {}",
                paint.good("✓"),
                counted(server.tools, "tool"),
                clean_line(&info.name),
                clean_line(&info.version),
                info.protocol,
            )),
            _ => failed(&name, server, bridge, output),
        }
        for warning in bridge.schema_warnings(server.name.as_str()) {
            output.line(&format!("    {}", clean_line(&warning)));
        }
    }
    confinements(servers, bridge, output);
    writers(path, bridge, output);
}

/// What confines the servers, said once for all that are confined alike.
fn confinements(servers: &[ServerHealth], bridge: &McpBridgeAdapter, output: &Output) {
    let mut told: Vec<(Confinement, Vec<&str>)> = Vec::new();
    for name in servers.iter().map(|server| server.name.as_str()) {
        let Some(confinement) = bridge.confinement(name) else { continue };
        match told.iter_mut().find(|(known, _)| *known == confinement) {
            Some((_, alike)) => alike.push(name),
            None => told.push((confinement, vec![name])),
        }
    }
    for (confinement, names) in told {
        output.line(&output.paint.faint(&format!("confinement of {}:", names.join(", "))));
        confinement.in_force.iter().for_each(|what| output.line(&output.paint.faint(&format!("  {what}"))));
        confinement
            .missing
            .iter()
            .for_each(|what| output.line(&output.paint.bad(&format!("  MISSING: {what}"))));
    }
}

/// Who may write the configuration decides what confines it.
fn writers(path: &str, bridge: &McpBridgeAdapter, output: &Output) {
    let names: Vec<String> = bridge.writers_of(Path::new(path)).iter().map(ToString::to_string).collect();
    if !names.is_empty() {
        let said = format!(
            "{path} can be written by {}, and so can what confines them: keep it elsewhere, or give them a `cwd` of their own",
            names.join(", ")
        );
        output.line(&output.paint.bad(&said));
    }
}

fn failed(name: &str, server: &ServerHealth, bridge: &McpBridgeAdapter, output: &Output) {
    let cause = server.cause.as_deref().unwrap_or("not healthy");
    output.line(&format!("{} {name}  {}", output.paint.bad("✗"), clean_line(cause)));
    let error = bridge.start_failure(server.name.as_str());
    let stderr = error.as_ref().and_then(|error| error.stderr.as_deref());
    for line in stderr.unwrap_or_default().lines() {
        output.line(&format!("    {} {}", output.paint.faint("stderr |"), clean_line(line)));
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
