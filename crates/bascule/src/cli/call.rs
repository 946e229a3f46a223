//! `bascule call SERVER:TOOL [JSON|-]`: calls one tool.

use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bascule_client::CallToolResult;
use bascule_model::{
    BridgeError, CallOutcome, CallRequest, CallTimeout, CorrelationId, Delivery, ErrorCode, ToolId, Violation,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::context::{CommandContext, NeededServers};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::spinner::Spinner;
use super::terminal::sanitize;
use crate::normalise::addressed;
use crate::unique_number::next_correlation_id;

/// Call one tool and print its result
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: bascule call files:read_text_file '{\"path\":\"hello.txt\"}'")]
pub(crate) struct Call {
    /// The tool, for example files:read_text_file
    #[arg(value_name = "SERVER:TOOL")]
    tool: String,
    /// The arguments as a JSON object; - reads them from stdin [default: {}]
    #[arg(value_name = "JSON", default_value = "{}", hide_default_value = true)]
    arguments: String,
    /// Timeout of the whole call, including the start of the server
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    timeout_ms: Option<u64>,
    /// Id that events, log lines and errors of this call contain [default: random]
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

impl Call {
    pub(crate) async fn run(self, mut context: CommandContext, printer: &Printer) -> CommandResult {
        let since = Instant::now();
        let usage = |error: bascule_model::NameError| CommandError::Usage(error.to_string());
        let id = ToolId::parse(&self.tool).map_err(usage)?;
        let correlation =
            self.correlation_id.as_deref().map(CorrelationId::parse).transpose().map_err(usage)?;
        let correlation = correlation.unwrap_or_else(next_correlation_id);
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let arguments = self.read_arguments(&id, &correlation)?;
        context.call = Some((id.clone(), correlation.clone()));
        context.start_timeout = timeout;
        context
            .with_bridge(NeededServers::OfTool(id.clone()), printer, async |bridge| {
                let timeout = timeout.map(|duration| CallTimeout { since, duration });
                let spinner = Spinner::new(printer.json, format!("calling {id}"));
                let request = CallRequest { tool: id, arguments, timeout };
                let call = bridge.call_tool(request, correlation, spinner.progress());
                Ok(print(&spinner.show_during(call).await?, printer))
            })
            .await
    }

    fn read_arguments(&self, id: &ToolId, correlation: &CorrelationId) -> CommandResult<Box<RawValue>> {
        let mut text = self.arguments.clone();
        if text == "-" {
            text.clear();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            read.map_err(|error| {
                CommandError::Usage(format!("could not read the arguments from stdin: {error}"))
            })?;
        }
        let parsed = match serde_json::from_str::<&RawValue>(&text) {
            Ok(raw) if raw.get().starts_with('{') => Ok(raw.to_owned()),
            Ok(_) => Err("the arguments must be an object".to_owned()),
            Err(cause) => Err(format!("the arguments are not JSON: {cause}")),
        };
        parsed.map_err(|reason| unusable_arguments(reason, id, correlation))
    }
}

fn unusable_arguments(reason: String, id: &ToolId, correlation: &CorrelationId) -> CommandError {
    let mut error = BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, reason.clone());
    error.violations = vec![Violation { pointer: String::new(), message: reason }];
    error.correlation_id = Some(correlation.clone());
    CommandError::Arguments(addressed(error, id))
}

fn print(outcome: &CallOutcome, printer: &Printer) -> ExitCode {
    let failed = outcome.result.is_error;
    match printer.json {
        true => printer.print_json(outcome),
        false => print_text(outcome, printer),
    }
    if failed && !printer.json {
        printer.print_note(&printer.stderr_style.red("the tool reported failure"));
        printer.print_hint(outcome.hint.as_deref());
    }
    ExitCode::from(u8::from(failed))
}

fn print_text(outcome: &CallOutcome, printer: &Printer) {
    let Ok(result) = CallToolResult::parse(outcome.result.raw.clone()) else { return };
    let blocks = result.content();
    for block in &blocks {
        let text = sanitize(&format_block(block));
        // The line has an end of its own.
        printer.print_line(text.strip_suffix('\n').unwrap_or(&text));
    }
    match result.structured_content() {
        Some(structured) if blocks.is_empty() => printer.print_line(&sanitize(structured.get())),
        _ => {}
    }
}

/// Formats a content block: its text, or a summary of other types.
fn format_block(block: &RawValue) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ContentBlock {
        #[serde(rename = "type", default)]
        kind: String,
        text: Option<String>,
        data: Option<String>,
        mime_type: Option<String>,
        uri: Option<String>,
    }
    match serde_json::from_str::<ContentBlock>(block.get()) {
        Ok(ContentBlock { text: Some(text), .. }) => text,
        Ok(ContentBlock { kind, data: Some(data), mime_type, .. }) => {
            format!("[{kind} {}, {} characters of base64]", mime_type.unwrap_or_default(), data.len())
        }
        Ok(ContentBlock { kind, uri: Some(uri), .. }) => format!("[{kind} {uri}]"),
        _ => block.get().to_owned(),
    }
}
