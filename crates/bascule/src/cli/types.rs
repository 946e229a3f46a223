//! `bascule types [SERVER|SERVER:TOOL…]`: prints TypeScript declarations of tools.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bascule_catalog::CatalogTool;
use serde_json::{Value, json};

use super::catalog_files::read_catalog;
use super::context::{CommandContext, NeededServers};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::tools::print_missing;
use crate::script_types::{declare_tools, signatures};
use crate::{ToolSelection, ToolSelectionError};

/// Print TypeScript declarations of tools, as scripts call them
///
/// The declarations suit an editor beside a script: `bascule types -o mcp.d.ts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Types {
    /// Servers or tools to declare; all by default
    #[arg(value_name = "SERVER|SERVER:TOOL")]
    tools: Vec<String>,
    /// Read the tools from saved tools/list results instead of servers; a server is named like its file
    #[arg(long, value_name = "FILE", num_args = 1..)]
    catalog: Vec<PathBuf>,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Types {
    pub(crate) async fn run(
        mut self,
        find: impl FnOnce() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        self.take_tools_from_catalog();
        let selection = self.selection().map_err(|error| CommandError::Usage(error.to_string()))?;
        let tools: Vec<Arc<CatalogTool>> = match self.catalog.is_empty() {
            true => configured_tools(find()?, &selection, printer).await?,
            false => read_catalog(&self.catalog)?.tools().cloned().collect(),
        };
        let tools: Vec<Arc<CatalogTool>> =
            tools.into_iter().filter(|tool| selection.includes(tool.id())).collect();
        if tools.is_empty() {
            return Err(CommandError::Usage("no tool matches: `bascule tools` lists them".into()));
        }
        self.print(&tools, printer)
    }

    /// Options may stand before positional arguments: a name after `--catalog` that is no file names a tool.
    fn take_tools_from_catalog(&mut self) {
        let files = self.catalog.iter().take_while(|file| file.exists()).count().max(1);
        let names = self.catalog.split_off(files.min(self.catalog.len()));
        self.tools.extend(names.iter().map(|name| name.to_string_lossy().into_owned()));
    }

    /// The named tools. A server stands for all its tools.
    fn selection(&self) -> Result<ToolSelection, ToolSelectionError> {
        if self.tools.is_empty() {
            return Ok(ToolSelection::all());
        }
        let pattern = |name: &String| if name.contains(':') { name.clone() } else { format!("{name}:*") };
        let patterns: Vec<String> = self.tools.iter().map(pattern).collect();
        ToolSelection::parse(patterns.iter().map(String::as_str))
    }

    fn print(&self, tools: &[Arc<CatalogTool>], printer: &Printer) -> CommandResult {
        let declarations = declare_tools(tools);
        if let Some(file) = &self.output {
            std::fs::write(file, &declarations).map_err(|error| {
                CommandError::Usage(format!("could not write `{}`: {error}", file.display()))
            })?;
        }
        if printer.json {
            let described = signatures(tools).into_iter();
            let described: Vec<Value> =
                described.map(|(id, signature)| json!({ "id": id, "signature": signature })).collect();
            printer.print_json(&json!({ "tools": described, "declarations": declarations }));
        } else if self.output.is_none() {
            printer.print_line(declarations.trim_end());
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn configured_tools(
    context: CommandContext,
    selection: &ToolSelection,
    printer: &Printer,
) -> CommandResult<Vec<Arc<CatalogTool>>> {
    let needed = NeededServers::OfSelection(selection.clone());
    context
        .with_bridge(needed, printer, async |bridge| {
            let available = bridge.list_tools(None).await?;
            print_missing(&available.start_failures, printer);
            Ok(available.tools)
        })
        .await
}
