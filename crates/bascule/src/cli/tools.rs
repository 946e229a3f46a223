//! `bascule tools [SERVER]`: the catalog.

use std::process::ExitCode;

use bascule_model::{Health, ProviderAdapter};

use super::failure::Failure;
use super::output::Output;
use super::session::Session;
use super::terminal::{clean_line, pad};
use crate::McpBridgeAdapter;

#[derive(Debug, clap::Args)]
pub(crate) struct Tools {
    /// Only this server's tools
    server: Option<String>,
}

/// How much of a description fits on its line.
const SHOWN: usize = 90;

impl Tools {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let only = match &self.server {
            Some(name) => Some(vec![session.server(name)?.name.clone()]),
            None => None,
        };
        session
            .with_bridge(only, output, async |bridge| {
                no_server_started(bridge)?;
                say_what_is_missing(bridge, output);
                let tools = bridge.list_tools();
                if output.json {
                    output.document(&tools.iter().map(|tool| &**tool).collect::<Vec<_>>());
                    return Ok(ExitCode::SUCCESS);
                }
                let names: Vec<String> = tools.iter().map(|tool| clean_line(tool.id().as_str())).collect();
                let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
                for (tool, name) in tools.iter().zip(&names) {
                    let name = pad(name, width);
                    let about = first_line(tool.definition().description.as_deref().unwrap_or_default());
                    output.line(format!("{}  {about}", output.paint.strong(&name)).trim_end());
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

/// Where nothing could be started there is no catalog to show, and the first reason is the answer.
fn no_server_started(bridge: &McpBridgeAdapter) -> Result<(), Failure> {
    let servers = bridge.health();
    if servers.iter().any(|server| server.health == Health::Healthy) {
        return Ok(());
    }
    let first = servers.iter().find_map(|server| bridge.start_failure(server.name.as_str()));
    first.map_or(Ok(()), |error| Err(Failure::Bridge(Box::new(error.as_ref().clone()))))
}

fn say_what_is_missing(bridge: &McpBridgeAdapter, output: &Output) {
    for server in bridge.health() {
        if let Some(error) = bridge.start_failure(server.name.as_str()) {
            output.remark(&format!("{} {}", output.aside.bad("missing:"), clean_line(&error.message)));
        }
    }
}

fn first_line(text: &str) -> String {
    let line = clean_line(text.trim().lines().next().unwrap_or_default());
    match line.chars().count() > SHOWN {
        true => format!("{}…", line.chars().take(SHOWN).collect::<String>().trim_end()),
        false => line,
    }
}
