//! `bascule search TEXT`: finds the tools for an intent.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool, ServerTools};
use bascule_model::ServerName;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::catalog_files::read_catalog;
use super::context::{CommandContext, NeededServers, trusted_settings};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{pad, sanitize, sanitize_line};
use super::tools::{MAX_DESCRIPTION_CHARS, first_line, print_missing};
use crate::api::AvailableTools;
use crate::script_types::CallNames;
use crate::search::{DEFAULT_COUNT, EncodedSearch, MAX_COUNT, ToolIntent, ToolSearch};
use crate::tool_queries::ToolDetail;

/// Find the tools for an intent, by words and by meaning
///
/// Ask for one step at a time: short intents find more than long ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Search {
    /// The intent, such as "open an issue"
    text: Option<String>,
    /// Number of tools to find
    #[arg(short, value_name = "N", default_value_t = DEFAULT_COUNT as u64, value_parser = clap::value_parser!(u64).range(1..=MAX_COUNT as u64))]
    k: u64,
    /// Parts of the tools to print
    #[arg(long, value_enum, default_value = "brief")]
    detail: ToolDetail,
    /// Saved results of `tools/list` to search instead of servers; the file name without .json is the server
    #[arg(long, value_name = "FILE", num_args = 1..)]
    catalog: Vec<PathBuf>,
    /// JSON file of many intents, [{"id": …, "query": …}]; prints {"<id>": ["server:tool", …]}
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    batch: Option<PathBuf>,
}

/// The intents of one command. A batch has ids.
struct Intents {
    ids: Option<Vec<String>>,
    intents: Vec<ToolIntent>,
}

impl Search {
    /// Returns true if the command needs no configuration.
    pub(crate) fn has_catalog(&self) -> bool {
        !self.catalog.is_empty()
    }

    /// Searches saved lists of tools. No server is started.
    pub(crate) fn run_on_files(mut self, printer: &Printer) -> CommandResult {
        self.take_text_from_catalog();
        self.search(&ToolSearch::default(), &read_catalog(&self.catalog)?, None, &HashSet::new(), printer)
    }

    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let location = context.location.clone();
        context
            .with_bridge(NeededServers::All, printer, async |bridge| {
                let AvailableTools { tools, start_failures, .. } = bridge.list_tools(None).await?;
                print_missing(&start_failures, printer);
                let down = start_failures.iter().filter_map(|error| error.server.clone()).collect();
                let (search, catalog) = (Arc::new(ToolSearch::default()), Arc::new(catalog_of(&tools)));
                let encoder = trusted_settings(&location).and_then(|settings| settings.bridge.encoder);
                let intents = self.intents()?.intents;
                let encoded = search.encode(encoder.as_ref(), &catalog, &intents).await;
                self.search(&search, &catalog, encoded, &down, printer)
            })
            .await
    }

    /// `--catalog a.json b.json TEXT`: the last value is the text if there is no such file.
    fn take_text_from_catalog(&mut self) {
        if self.text.is_none()
            && self.batch.is_none()
            && self.catalog.last().is_some_and(|last| !last.exists())
        {
            self.text = self.catalog.pop().map(|last| last.to_string_lossy().into_owned());
        }
    }

    fn search(
        &self,
        search: &ToolSearch,
        catalog: &Catalog,
        encoded: Option<EncodedSearch>,
        down: &HashSet<ServerName>,
        printer: &Printer,
    ) -> CommandResult {
        let Intents { ids, intents } = self.intents()?;
        let found = search.find(catalog, &intents, encoded, |_| true);
        if let Some(ids) = ids {
            let names = |found: Vec<(Arc<CatalogTool>, f32)>| {
                found.iter().map(|(tool, _)| tool.id().as_str().into()).collect::<Vec<Value>>()
            };
            let lists = ids.into_iter().zip(found).map(|(id, found)| (id, names(found).into()));
            printer.print_json(&lists.collect::<Map<String, Value>>());
            return Ok(ExitCode::SUCCESS);
        }
        let found = found.into_iter().next().unwrap_or_default();
        let is_down = |tool: &CatalogTool| down.contains(tool.id().server());
        let calls = CallNames::new(catalog);
        match printer.json {
            true => {
                let entry =
                    |(tool, score): &(Arc<CatalogTool>, f32)| self.entry(tool, *score, is_down(tool), &calls);
                printer.print_json(&found.iter().map(entry).collect::<Vec<_>>());
            }
            false => self.print_text(&found, is_down, &calls, printer),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn intents(&self) -> CommandResult<Intents> {
        let intent = |text: String| ToolIntent { text, count: self.k as usize };
        match (&self.text, &self.batch) {
            (Some(text), _) if !text.trim().is_empty() => {
                Ok(Intents { ids: None, intents: vec![intent(text.clone())] })
            }
            (_, Some(file)) => {
                let (ids, texts): (Vec<_>, Vec<_>) = read_batch(file)?.into_iter().unzip();
                Ok(Intents { ids: Some(ids), intents: texts.into_iter().map(intent).collect() })
            }
            _ => Err(CommandError::Usage("the intent is missing: `bascule search \"open an issue\"`".into())),
        }
    }

    fn entry(&self, tool: &CatalogTool, score: f32, is_down: bool, calls: &CallNames<'_>) -> Value {
        let definition = tool.definition();
        let mut entry = json!({
            "id": tool.id(),
            "server": tool.id().server(),
            "name": definition.name,
            "description": definition.description,
            "score": (f64::from(score) * 1e4).round() / 1e4,
            "down": is_down,
        });
        if self.detail == ToolDetail::Types {
            entry["signature"] = calls.signature(tool).into();
            entry["inputSchema"] = json!(definition.input_schema);
            entry["outputSchema"] = json!(definition.output_schema);
            if let Some(observed) = tool.observed_schema() {
                entry["observedSchema"] = observed;
            }
        }
        entry
    }

    fn print_text(
        &self,
        found: &[(Arc<CatalogTool>, f32)],
        is_down: impl Fn(&CatalogTool) -> bool,
        calls: &CallNames<'_>,
        printer: &Printer,
    ) {
        let names: Vec<_> = found.iter().map(|(tool, _)| sanitize_line(tool.id().as_str())).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for ((tool, _), name) in found.iter().zip(&names) {
            let description = tool.definition().description.as_deref().unwrap_or_default();
            let mark = if is_down(tool) { " (down)" } else { "" };
            let name = printer.style.bold(&pad(name, width));
            let line = match self.detail {
                ToolDetail::Names => format!("{name}{mark}"),
                _ => format!("{name}{mark}  {}", first_line(description, MAX_DESCRIPTION_CHARS)),
            };
            printer.print_line(line.trim_end());
            if self.detail == ToolDetail::Types {
                printer.print_line(&sanitize(&format!("  {}", calls.signature(tool))));
            }
        }
    }
}

/// Puts the tools of a listing back into the order of servers. They keep what is known of their results.
pub(crate) fn catalog_of(tools: &[Arc<CatalogTool>]) -> Catalog {
    let servers = tools.chunk_by(|a, b| a.id().server() == b.id().server());
    let server = |tools: &[Arc<CatalogTool>]| {
        let name = ServerName::parse(tools[0].id().server()).ok()?;
        Some(Arc::new(ServerTools::of_tools(name, tools.to_vec())))
    };
    servers.filter_map(server).collect()
}

#[derive(Deserialize)]
struct BatchEntry {
    id: Value,
    query: String,
}

fn read_batch(file: &Path) -> CommandResult<Vec<(String, String)>> {
    let wrong =
        |cause: String| CommandError::Usage(format!("could not use the batch `{}`: {cause}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let entries: Vec<BatchEntry> = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let id = |id: Value| id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    let batch: Vec<_> = entries.into_iter().map(|entry| (id(entry.id), entry.query)).collect();
    let mut seen = HashSet::new();
    match batch.iter().find(|(id, _)| !seen.insert(id.as_str())) {
        Some((id, _)) => Err(wrong(format!("the id `{id}` occurs twice"))),
        None => Ok(batch),
    }
}
