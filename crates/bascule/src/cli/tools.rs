//! `bascule tools [SERVER]`: lists tools.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use bascule_catalog::CatalogTool;
use bascule_model::{BridgeError, ErrorCode, NameError, ServerName};

use super::context::{CommandContext, NeededServers};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{fit, pad, sanitize_line};
use crate::api::AvailableTools;

/// List the tools of all servers, or of one
#[derive(Debug, clap::Args)]
pub(crate) struct Tools {
    /// List only the tools of this server
    server: Option<String>,
}

/// The part of a description that is printed where there is no terminal.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 90;

impl Tools {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let usage = |error: NameError| CommandError::Usage(error.to_string());
        let server = self.server.as_deref().map(ServerName::parse).transpose().map_err(usage)?;
        let needed = server.as_ref().map_or(NeededServers::All, NeededServers::Named);
        context
            .with_bridge(needed, printer, async |bridge| {
                let listing = bridge.list_tools(server.as_ref()).await.map_err(unknown_server)?;
                let AvailableTools { tools, start_failures, requested, disabled } = listing;
                print_disabled(&disabled, printer);
                print_missing(&start_failures, printer);
                print_unconfirmed(&tools, printer);
                // No server started, so the first error is the result.
                if let (true, Some(error)) =
                    (start_failures.len() == requested, start_failures.into_iter().next())
                {
                    return Err(CommandError::Bridge(Box::new(error)));
                }
                if printer.json {
                    printer.print_json(&tools.iter().map(|tool| &**tool).collect::<Vec<_>>());
                    return Ok(ExitCode::SUCCESS);
                }
                let names: Vec<String> = tools.iter().map(|tool| sanitize_line(tool.id().as_str())).collect();
                let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
                for (tool, name) in tools.iter().zip(&names) {
                    let name = pad(name, width);
                    let room = printer.style.width().map_or(MAX_DESCRIPTION_CHARS, |width| {
                        width.saturating_sub(name.chars().count() + 2)
                    });
                    let summary =
                        first_line(tool.definition().description.as_deref().unwrap_or_default(), room);
                    printer.print_line(format!("{}  {summary}", printer.style.bold(&name)).trim_end());
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

/// A server that does not exist is a mistake on the command line, also if a running bridge reports it.
fn unknown_server(error: Box<BridgeError>) -> CommandError {
    match error.code {
        ErrorCode::ToolNotFound => CommandError::Usage(error.message),
        _ => CommandError::Bridge(error),
    }
}

fn print_disabled(names: &[ServerName], printer: &Printer) {
    let names: Vec<&str> = names.iter().map(ServerName::as_str).collect();
    if !names.is_empty() {
        printer.print_note(&printer.stderr_style.dim(&format!("disabled: {}", names.join(", "))));
    }
}

pub(super) fn print_missing(missing: &[BridgeError], printer: &Printer) {
    for error in missing {
        printer.print_note(&format!(
            "{} {}",
            printer.stderr_style.red("missing:"),
            sanitize_line(&error.message)
        ));
    }
}

/// Names the servers that have not listed their tools in this run.
fn print_unconfirmed(tools: &[Arc<CatalogTool>], printer: &Printer) {
    let last = tools.iter().filter(|tool| tool.is_from_last_listing());
    let servers: BTreeSet<&str> = last.map(|tool| tool.id().server()).collect();
    if !servers.is_empty() {
        let servers = servers.into_iter().collect::<Vec<_>>().join(", ");
        printer.print_note(&format!("from the last listing, because not started yet: {servers}"));
    }
}

pub(super) fn first_line(text: &str, room: usize) -> String {
    fit(&sanitize_line(text.trim().lines().next().unwrap_or_default()), room)
}
