//! `bascule describe SERVER:TOOL`: shows one tool.

use std::process::ExitCode;
use std::sync::Arc;

use bascule_catalog::CatalogTool;
use bascule_model::ToolId;
use serde::Serialize;
use serde_json::value::RawValue;

use super::context::{CommandContext, NeededServers};
use super::error::{CommandError, CommandResult};
use super::pretty_json::pretty_json;
use super::printer::Printer;
use super::terminal::{sanitize, sanitize_line};
use crate::api::{CallLimits, FoundTool};
use crate::script_types::declare_tools;

/// Show one tool: its description, schemas, TypeScript and limits
#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
    /// The tool, for example files:read_text_file
    #[arg(value_name = "SERVER:TOOL")]
    tool: String,
}

impl Describe {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let id = ToolId::parse(&self.tool).map_err(|error| CommandError::Usage(error.to_string()))?;
        context
            .with_bridge(NeededServers::OfTool(id.clone()), printer, async |bridge| {
                let FoundTool { tool, limits } = bridge.find_tool(&id).await?;
                match printer.json {
                    true => printer.print_json(&ToolDescription {
                        tool: &tool,
                        typescript: declare_tools(std::slice::from_ref(&tool)),
                        limits,
                        definition: &tool.definition().raw,
                    }),
                    false => print_text(&tool, &limits, printer),
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

/// Schemas and definition are the server's own bytes.
#[derive(Serialize)]
struct ToolDescription<'a> {
    #[serde(flatten)]
    tool: &'a CatalogTool,
    /// Empty if scripts cannot call the tool.
    typescript: String,
    limits: CallLimits,
    definition: &'a RawValue,
}

fn print_text(tool: &Arc<CatalogTool>, limits: &CallLimits, printer: &Printer) {
    let style = printer.style;
    printer.print_line(&style.bold(&sanitize_line(tool.id().as_str())));
    if let Some(description) = &tool.definition().description {
        printer.print_line(&sanitize(description.trim()));
    }
    printer.print_line(&format!(
        "\n{}\n{}",
        style.bold("arguments"),
        sanitize(&pretty_json(tool.definition().input_schema.get()))
    ));
    if let Some(schema) = &tool.definition().output_schema {
        printer.print_line(&format!("\n{}\n{}", style.bold("result"), sanitize(&pretty_json(schema.get()))));
    }
    let typescript = declare_tools(std::slice::from_ref(tool));
    printer.print_line(&format!("\n{}\n{}", style.bold("TypeScript"), sanitize(typescript.trim_end())));
    printer.print_line(&format!(
        "\n{}\na call may take {} ms in total, and {} ms without a progress notification",
        style.bold("limits"),
        limits.max_execution_ms,
        limits.timeout_ms
    ));
}
