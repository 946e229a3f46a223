//! `bascule tools [SERVER]`: lists tools.

use std::process::ExitCode;

use bascule_model::BridgeError;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use crate::api::AvailableTools;

/// List the tools of all servers, or of one
#[derive(Debug, clap::Args)]
pub(crate) struct Tools {
    /// List only the tools of this server
    server: Option<String>,
}

/// The part of a description that is printed.
const MAX_DESCRIPTION_CHARS: usize = 90;

impl Tools {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let server = self.server.as_deref().map(|name| context.server(name)).transpose()?;
        let server = server.map(|server| server.name.clone());
        let requested = server.as_ref().map_or(context.settings.servers.len(), |_| 1);
        let only = server.clone().map(|server| vec![server]);
        context
            .with_bridge(only, printer, async |bridge| {
                let AvailableTools { tools, start_failures } = bridge.list_tools(server.as_ref()).await?;
                print_missing(&start_failures, printer);
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
                    let summary = first_line(tool.definition().description.as_deref().unwrap_or_default());
                    printer.print_line(format!("{}  {summary}", printer.style.bold(&name)).trim_end());
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

fn print_missing(missing: &[BridgeError], printer: &Printer) {
    for error in missing {
        printer.print_note(&format!(
            "{} {}",
            printer.stderr_style.red("missing:"),
            sanitize_line(&error.message)
        ));
    }
}

fn first_line(text: &str) -> String {
    let line = sanitize_line(text.trim().lines().next().unwrap_or_default());
    match line.chars().count() > MAX_DESCRIPTION_CHARS {
        true => format!("{}…", line.chars().take(MAX_DESCRIPTION_CHARS).collect::<String>().trim_end()),
        false => line,
    }
}
