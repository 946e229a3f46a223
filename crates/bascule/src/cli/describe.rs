//! `bascule describe SERVER:TOOL`: everything about one tool.

use std::process::ExitCode;

use bascule_catalog::CatalogTool;
use bascule_model::ToolId;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::Output;
use super::pretty::pretty;
use super::session::Session;
use super::terminal::{clean, clean_line};
use crate::config::ServerSettings;

#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
    /// The tool, as `server:tool`
    tool: String,
}

impl Describe {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let id = ToolId::parse(&self.tool).map_err(|error| Failure::Usage(error.to_string()))?;
        let servers = session.only(&id);
        let settings = session.settings.server(id.server()).cloned();
        session
            .with_bridge(servers, output, async |bridge| {
                let tool = bridge.tool(&id).await?;
                let settings = settings.expect("a tool was found, so its server is configured");
                match output.json {
                    true => output.document(&in_json(&tool, &settings)),
                    false => for_people(&tool, &settings, output),
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

/// Schemas and definition stay as the server spelled them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    id: &'a ToolId,
    server: &'a str,
    name: &'a str,
    description: Option<&'a str>,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a RawValue>,
    limits: Value,
    definition: &'a RawValue,
}

fn in_json<'a>(tool: &'a CatalogTool, settings: &ServerSettings) -> Described<'a> {
    let definition = tool.definition();
    Described {
        id: tool.id(),
        server: tool.id().server(),
        name: tool.id().tool(),
        description: definition.description.as_deref(),
        input_schema: &definition.input_schema,
        output_schema: definition.output_schema.as_deref(),
        limits: limits(tool, settings),
        definition: &definition.raw,
    }
}

fn limits(tool: &CatalogTool, settings: &ServerSettings) -> Value {
    let name = tool.id().tool();
    let limits = settings.limits_for(name);
    json!({
        "timeoutMs": settings.call_timeout_for(name).as_millis() as u64,
        "maxExecutionMs": limits.max_execution.as_millis() as u64,
    })
}

fn for_people(tool: &CatalogTool, settings: &ServerSettings, output: &Output) {
    let paint = output.paint;
    output.line(&paint.strong(&clean_line(tool.id().as_str())));
    if let Some(description) = &tool.definition().description {
        output.line(&clean(description.trim()));
    }
    output.line(&format!(
        "\n{}\n{}",
        paint.strong("arguments"),
        clean(&pretty(tool.definition().input_schema.get()))
    ));
    if let Some(schema) = &tool.definition().output_schema {
        output.line(&format!("\n{}\n{}", paint.strong("result"), clean(&pretty(schema.get()))));
    }
    let limits = limits(tool, settings);
    output.line(&format!(
        "\n{}\na call may take {} ms, and go {} ms without a sign of life",
        paint.strong("limits"),
        limits["maxExecutionMs"],
        limits["timeoutMs"]
    ));
}
