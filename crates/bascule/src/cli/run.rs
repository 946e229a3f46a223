//! `bascule run FILE.ts|-`: runs one script.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::value::RawValue;

use super::context::{CommandContext, NeededServers};
use super::error::{CommandError, CommandResult};
use super::pretty_json::pretty_json;
use super::printer::Printer;
use super::spinner::Spinner;
use super::terminal::{sanitize, sanitize_line};
use super::waterfall::waterfall;
use crate::{ScriptMode, ScriptOutcome, ScriptRequest, ToolIntent, ToolSelection};

/// Run a TypeScript script that calls tools as functions
///
/// The tool `list_commits` of the server `github` is `mcp.github.listCommits({ … })`, or `github.listCommits({ … })` if
/// no other global has that name. `return` sets the result, which is converted to JSON. A failed call throws an MCPToolError with
/// `code`, `message`, `data` and `retryable`. Scripts have no files, no network and no `fetch`: only tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The script; - reads it from stdin
    #[arg(value_name = "FILE.ts")]
    file: String,
    /// Tools the script may call, separated by commas: SERVER:TOOL or SERVER:* [default: all]
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// JSON object that the script reads as `context`
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// Process that runs the script
    #[arg(long, value_enum, default_value = "worker")]
    mode: ScriptMode,
    /// Longest run time of the script
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    timeout_ms: Option<u64>,
    /// Largest JavaScript heap of the script
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory_mb: Option<u32>,
    /// Purpose of the script, which then gets only the tools that fit it best
    #[arg(long, value_name = "TEXT")]
    intent: Option<String>,
    /// Number of tools for the intent [default: 5]
    #[arg(short, value_name = "N", requires = "intent", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    k: Option<u64>,
}

impl Run {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let request = self.request()?;
        let needed = match request.intent.clone() {
            Some(intent) => NeededServers::OfIntent(request.tools.clone(), intent),
            None => NeededServers::OfSelection(request.tools.clone()),
        };
        context
            .with_bridge(needed, printer, async |bridge| {
                let running = bridge.run_script(request);
                let spinner = Spinner::new(printer.json, format!("running {}", self.file));
                let outcome = spinner.show_during(running).await?;
                Ok(print(&outcome, printer))
            })
            .await
    }

    fn request(&self) -> CommandResult<ScriptRequest> {
        let tools = match &self.tools {
            Some(names) => ToolSelection::parse(names.iter().map(String::as_str))
                .map_err(|error| CommandError::Usage(error.to_string()))?,
            None => ToolSelection::all(),
        };
        Ok(ScriptRequest {
            name: self.name(),
            tools,
            intent: self.intent.clone().map(|text| self.tool_intent(text)),
            context: self.context.as_deref().map(parse_context).transpose()?,
            mode: self.mode,
            timeout: self.timeout_ms.map(Duration::from_millis),
            memory_mb: self.memory_mb,
            ..ScriptRequest::new(self.read()?)
        })
    }

    fn tool_intent(&self, text: String) -> ToolIntent {
        let count = self.k.map(|k| k as usize);
        ToolIntent { count: count.unwrap_or(ToolIntent::new("").count), text }
    }

    fn read(&self) -> CommandResult<String> {
        let read = match self.file.as_str() {
            "-" => {
                let mut text = String::new();
                std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
            }
            file => std::fs::read_to_string(file),
        };
        read.map_err(|error| CommandError::Usage(format!("could not read `{}`: {error}", self.file)))
    }

    fn name(&self) -> String {
        let name = Path::new(&self.file).file_name().map(|name| name.to_string_lossy().into_owned());
        name.filter(|name| name != "-").unwrap_or_else(|| "script.ts".into())
    }
}

fn parse_context(text: &str) -> CommandResult<Box<RawValue>> {
    let raw = serde_json::from_str::<&RawValue>(text).map_err(|error| {
        CommandError::Usage(format!("could not parse `--context`: it is not JSON: {error}"))
    })?;
    match raw.get().starts_with('{') {
        true => Ok(raw.to_owned()),
        false => Err(CommandError::Usage("could not use `--context`: it must be a JSON object".into())),
    }
}

fn print(outcome: &ScriptOutcome, printer: &Printer) -> ExitCode {
    match printer.json {
        true => printer.print_json(outcome),
        false => print_text(outcome, printer),
    }
    ExitCode::from(u8::from(!outcome.success))
}

/// Prints the result on stdout; console, calls and error on stderr.
fn print_text(outcome: &ScriptOutcome, printer: &Printer) {
    for line in &outcome.logs {
        let level = printer.stderr_style.dim(&format!("{} |", line.level));
        line.text.lines().for_each(|text| printer.print_note(&format!("{level} {}", sanitize_line(text))));
    }
    for line in waterfall(&outcome.traces, printer.stderr_style.width()) {
        printer.print_note(&printer.stderr_style.dim(&line));
    }
    if let Some(error) = &outcome.error {
        let stack = error.stack.as_deref().filter(|stack| !stack.is_empty());
        let text = stack.map_or_else(|| format!("{}: {}", error.name, error.message), str::to_owned);
        printer.print_note(&format!("{} {}", printer.stderr_style.red("error:"), sanitize(&text)));
    } else if let Some(result) = &outcome.result {
        printer.print_line(&sanitize(&format_value(result)));
    }
}

/// Returns a string without quotes, and other values as indented JSON.
fn format_value(result: &RawValue) -> String {
    serde_json::from_str(result.get()).unwrap_or_else(|_| pretty_json(result.get()))
}
