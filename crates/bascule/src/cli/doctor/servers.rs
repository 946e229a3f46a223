//! Starts each server once.

use bascule_model::{Health, ProviderAdapter};

use super::{DoctorFinding, checks, error_message};
use crate::McpBridgeAdapter;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandResult;
use crate::cli::printer::Printer;
use crate::config::{LoadedConfig, Settings};
use crate::fleet::server_log::excerpt;

pub(super) async fn check(
    context: CommandContext,
    config: LoadedConfig,
    printer: &Printer,
) -> CommandResult<Vec<DoctorFinding>> {
    let disabled: Vec<DoctorFinding> = config
        .settings
        .disabled
        .iter()
        .map(|name| DoctorFinding::ok(format!("server {name}"), "disabled in the configuration"))
        .collect();
    if config.settings.servers.is_empty() {
        let finding =
            DoctorFinding::warn("servers", "no server is configured", "bascule add NAME -- COMMAND");
        return Ok(disabled.into_iter().chain([finding]).collect());
    }
    let missing = missing_programs(&config.settings);
    let checked = context
        .with_in_process_bridge(config, None, printer, async |bridge| Ok(describe(bridge, &missing)))
        .await;
    let findings = match checked {
        Ok(findings) => findings,
        Err(error) => vec![DoctorFinding::fail("servers", error_message(error)?, "bascule check")],
    };
    Ok(findings.into_iter().chain(disabled).collect())
}

/// Returns the servers whose program is not there, with the way to get it.
fn missing_programs(settings: &Settings) -> Vec<(String, String)> {
    let servers = settings.servers.iter();
    servers.filter_map(|server| Some((server.name.to_string(), checks::missing_program(server)?))).collect()
}

fn describe(bridge: &McpBridgeAdapter, missing: &[(String, String)]) -> Vec<DoctorFinding> {
    let describe = |server: &bascule_model::ServerHealth| {
        let (name, check) = (server.name.as_str(), format!("server {}", server.name));
        if server.health == Health::Healthy {
            let noun = if server.tools == 1 { "tool" } else { "tools" };
            return DoctorFinding::ok(check, format!("{} {noun}", server.tools));
        }
        let mut message = server.cause.clone().unwrap_or_else(|| "not healthy".into());
        let stderr = bridge.start_failure(name).and_then(|error| error.stderr.clone()).unwrap_or_default();
        for line in excerpt(&stderr) {
            message.push_str(&format!("\nstderr | {line}"));
        }
        let fix = missing.iter().find(|(server, _)| server == name).map(|(_, fix)| fix.clone());
        DoctorFinding::fail(
            check,
            message,
            fix.unwrap_or_else(|| format!("bascule check --server {name} --trace")),
        )
    };
    bridge.health().iter().map(describe).collect()
}
