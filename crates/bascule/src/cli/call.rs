//! `bascule call SERVER:TOOL [JSON|-]`: one call.

use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bascule_client::CallToolResult;
use bascule_model::{
    BridgeError, CallOutcome, CallTimeout, CorrelationId, Delivery, ErrorCode, ToolId, Violation,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bridge::TypedCall;
use super::failure::Failure;
use super::output::Output;
use super::session::Session;
use super::terminal::{clean, spin};
use crate::call::random_id;
use crate::normalise::addressed;

#[derive(Debug, clap::Args)]
pub(crate) struct Call {
    /// The tool, as `server:tool`
    tool: String,
    /// Its arguments, a JSON object; `-` reads it from stdin
    #[arg(value_name = "JSON", default_value = "{}", hide_default_value = true)]
    arguments: String,
    /// How long to wait for the answer at most, starting the server included
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    timeout_ms: Option<u64>,
    /// The id that every event, log line and error of this call carries
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

impl Call {
    pub(crate) async fn run(self, mut session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let since = Instant::now();
        let usage = |error: bascule_model::NameError| Failure::Usage(error.to_string());
        let id = ToolId::parse(&self.tool).map_err(usage)?;
        let correlation =
            self.correlation_id.as_deref().map(CorrelationId::parse).transpose().map_err(usage)?;
        let correlation = correlation.unwrap_or_else(random_id);
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let arguments = self.read_arguments(&id, &correlation)?;
        session.call = Some((id.clone(), correlation.clone()));
        session.patience = timeout;
        let servers = session.only(&id);
        session
            .with_bridge(servers, output, async |bridge| {
                let timeout = timeout.map(|duration| CallTimeout { since, duration });
                let call = TypedCall { tool: id.clone(), arguments, timeout, correlation_id: correlation };
                let outcome = spin(output.json, &format!("calling {id}"), bridge.call(call)).await?;
                Ok(show(&outcome, output))
            })
            .await
    }

    fn read_arguments(&self, id: &ToolId, correlation: &CorrelationId) -> Result<Box<RawValue>, Failure> {
        let mut text = self.arguments.clone();
        if text == "-" {
            text.clear();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            read.map_err(|error| {
                Failure::Usage(format!("could not read the arguments from stdin: {error}"))
            })?;
        }
        serde_json::from_str::<&RawValue>(&text)
            .map(ToOwned::to_owned)
            .map_err(|cause| not_json(&cause, id, correlation))
    }
}

fn not_json(cause: &serde_json::Error, id: &ToolId, correlation: &CorrelationId) -> Failure {
    let said = format!("the arguments are not JSON: {cause}");
    let mut error = BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, said);
    error.violations = vec![Violation { pointer: String::new(), message: format!("not JSON: {cause}") }];
    error.correlation_id = Some(correlation.clone());
    Failure::Arguments(addressed(error, id))
}

fn show(outcome: &CallOutcome, output: &Output) -> ExitCode {
    let failed = outcome.result.is_error;
    match output.json {
        true => output.document(outcome),
        false => for_people(outcome, output),
    }
    if failed && !output.json {
        output.remark(&output.aside.bad("the tool reported failure"));
    }
    ExitCode::from(u8::from(failed))
}

fn for_people(outcome: &CallOutcome, output: &Output) {
    let Ok(result) = CallToolResult::parse(outcome.result.raw.clone()) else { return };
    let blocks = result.content();
    for block in &blocks {
        output.line(&clean(&shown(block)));
    }
    match result.structured_content() {
        Some(structured) if blocks.is_empty() => output.line(&clean(structured.get())),
        _ => {}
    }
}

/// A content block in a line or more: text as it is, everything else by its kind.
fn shown(block: &RawValue) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Block {
        #[serde(rename = "type", default)]
        kind: String,
        text: Option<String>,
        data: Option<String>,
        mime_type: Option<String>,
        uri: Option<String>,
    }
    match serde_json::from_str::<Block>(block.get()) {
        Ok(Block { text: Some(text), .. }) => text,
        Ok(Block { kind, data: Some(data), mime_type, .. }) => {
            format!("[{kind} {}, {} characters of base64]", mime_type.unwrap_or_default(), data.len())
        }
        Ok(Block { kind, uri: Some(uri), .. }) => format!("[{kind} {uri}]"),
        _ => block.get().to_owned(),
    }
}
