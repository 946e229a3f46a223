//! `bascule describe SERVER:TOOL`: shows one tool.

use std::process::ExitCode;

use bascule_catalog::CatalogTool;
use bascule_model::ToolId;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::pretty_json::pretty_json;
use super::printer::Printer;
use super::terminal::{sanitize, sanitize_line};
use crate::config::ServerSettings;

/// Show one tool: its description, schemas and limits
#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
    /// The tool, for example files:read_text_file
    #[arg(value_name = "SERVER:TOOL")]
    tool: String,
}

impl Describe {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let id = ToolId::parse(&self.tool).map_err(|error| CommandError::Usage(error.to_string()))?;
        let servers = context.server_of(&id);
        let settings = context.settings.server(id.server()).cloned();
        context
            .with_bridge(servers, printer, async |bridge| {
                let tool = bridge.find_tool(&id).await?;
                let settings = settings.expect("the tool was found, so its server is configured");
                match printer.json {
                    true => printer.print_json(&ToolDescription {
                        tool: &tool,
                        limits: limits_json(&tool, &settings),
                        definition: &tool.definition().raw,
                    }),
                    false => print_text(&tool, &settings, printer),
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
    limits: Value,
    definition: &'a RawValue,
}

fn limits_json(tool: &CatalogTool, settings: &ServerSettings) -> Value {
    let name = tool.id().tool();
    let limits = settings.limits_for(name);
    json!({
        "timeoutMs": settings.call_timeout_for(name).as_millis() as u64,
        "maxExecutionMs": limits.max_execution.as_millis() as u64,
    })
}

fn print_text(tool: &CatalogTool, settings: &ServerSettings, printer: &Printer) {
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
    let limits = limits_json(tool, settings);
    printer.print_line(&format!(
        "\n{}\na call may take {} ms in total, and {} ms without a progress notification",
        style.bold("limits"),
        limits["maxExecutionMs"],
        limits["timeoutMs"]
    ));
}
