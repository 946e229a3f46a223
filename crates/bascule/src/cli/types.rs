//! `bascule types [SERVER|SERVER:TOOL…]`: prints TypeScript declarations of tools.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool, ResolveError, nearest_name};
use bascule_model::ToolId;
use serde_json::{Value, json};

use super::catalog_files::read_catalog;
use super::context::{CommandContext, NeededServers};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::search::catalog_of;
use super::tools::print_missing;
use crate::normalise::describe_nearest;
use crate::script_types::{declare_tools, signatures};
use crate::tool_spelling::{ToolSpellings, meant_id};

/// Print TypeScript declarations of tools, as scripts call them
///
/// The declarations suit an editor beside a script: `bascule types -o mcp.d.ts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Types {
    /// Servers or tools to declare, in any spelling; all by default
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
        let mut tools: Vec<Arc<CatalogTool>> = match self.catalog.is_empty() {
            true => configured_tools(find()?, &self.tools, printer).await?,
            false => read_catalog(&self.catalog)?.tools().cloned().collect(),
        };
        if !self.tools.is_empty() {
            let named = named_ids(&catalog_of(&tools), &self.tools)?;
            tools.retain(|tool| named.contains(tool.id()));
        }
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

/// Returns the ids of the named tools. A server stands for all its tools. Fails if a name is unknown.
fn named_ids(catalog: &Catalog, names: &[String]) -> CommandResult<HashSet<ToolId>> {
    let spellings = ToolSpellings::new(catalog);
    let (mut named, mut unknown) = (HashSet::new(), Vec::new());
    for name in names {
        let found = spellings.find(name);
        if found.is_empty() {
            unknown.push(unknown_name(catalog, name));
        }
        named.extend(found.into_iter().map(|tool| tool.id().clone()));
    }
    match unknown.is_empty() {
        true => Ok(named),
        false => Err(CommandError::Usage(unknown.join("\n"))),
    }
}

fn unknown_name(catalog: &Catalog, name: &str) -> String {
    let resolved = meant_id(name).and_then(|id| catalog.resolve(&id).err());
    let advice = match resolved {
        Some(ResolveError::Denied) => return format!("the configuration does not allow `{name}`"),
        Some(ResolveError::Unknown { nearest }) if !nearest.is_empty() => describe_nearest(&nearest),
        _ => {
            let servers = catalog.servers().iter().map(|server| server.name().as_str());
            match nearest_name(servers, name) {
                Some(server) => describe_nearest(&[server]),
                None => "; `bascule tools` lists them".into(),
            }
        }
    };
    format!("there is no tool or server `{name}`{advice}")
}

async fn configured_tools(
    context: CommandContext,
    names: &[String],
    printer: &Printer,
) -> CommandResult<Vec<Arc<CatalogTool>>> {
    let needed = NeededServers::OfNames(names);
    context
        .with_bridge(needed, printer, async |bridge| {
            let available = bridge.list_tools(None).await?;
            print_missing(&available.start_failures, printer);
            Ok(available.tools)
        })
        .await
}
