//! `bascule run FILE.ts|-`: one script.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::Output;
use super::pretty::pretty;
use super::session::Session;
use super::terminal::{clean, clean_line, spin};
use super::waterfall::waterfall;
use crate::{Mode, ScriptOutcome, ScriptRequest, Selection};

/// Run a script that calls tools: TypeScript, with tools as functions
///
/// A tool `list_commits` of the server `github` is `mcp.github.listCommits({ … })`, and `github.listCommits({ … })` where
/// that name is free. `return` gives the script's value back, which must be JSON. A failed call throws an MCPToolError
/// with `code`, `message`, `data` and `retryable`. Scripts have no files, no network and no `fetch`: only tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The script; `-` reads it from stdin
    #[arg(value_name = "FILE.ts")]
    file: String,
    /// The tools that it may call: `server:tool`, or with `*`, separated by commas. Without this all
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// A JSON object that the script finds as `context`
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// Where it runs: in a worker that was ready, or in one started for it
    #[arg(long, value_enum, default_value = "worker")]
    mode: Where,
    /// How long it may run
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    timeout_ms: Option<u64>,
    /// How much memory its objects may occupy
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory_mb: Option<u32>,
    /// What the script is for, to choose its tools by (comes with search: until then name them with --tools)
    #[arg(long, value_name = "TEXT", hide = true)]
    intent: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Where {
    Worker,
    Subprocess,
}

impl Run {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let request = self.request()?;
        let servers = session.concerned(&request.tools);
        session
            .with_bridge(servers, output, async |bridge| {
                let running = bridge.run_script(request);
                let outcome = spin(output.json, &format!("running {}", self.file), running).await?;
                Ok(show(&outcome, output))
            })
            .await
    }

    fn request(&self) -> Result<ScriptRequest, Failure> {
        if self.intent.is_some() {
            let said = "--intent is not there yet: name the tools with --tools, or leave it away for all";
            return Err(Failure::Usage(said.into()));
        }
        let tools = match &self.tools {
            Some(names) => Selection::named(names.iter().map(String::as_str))
                .map_err(|error| Failure::Usage(error.to_string()))?,
            None => Selection::all(),
        };
        Ok(ScriptRequest {
            name: self.name(),
            tools,
            context: self.context.as_deref().map(context).transpose()?,
            mode: match self.mode {
                Where::Worker => Mode::Worker,
                Where::Subprocess => Mode::Subprocess,
            },
            timeout: self.timeout_ms.map(Duration::from_millis),
            memory_mb: self.memory_mb,
            ..ScriptRequest::new(self.read()?)
        })
    }

    fn read(&self) -> Result<String, Failure> {
        let read = match self.file.as_str() {
            "-" => {
                let mut text = String::new();
                std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
            }
            file => std::fs::read_to_string(file),
        };
        read.map_err(|error| Failure::Usage(format!("could not read `{}`: {error}", self.file)))
    }

    fn name(&self) -> String {
        let name = Path::new(&self.file).file_name().map(|name| name.to_string_lossy().into_owned());
        name.filter(|name| name != "-").unwrap_or_else(|| "script.ts".into())
    }
}

fn context(text: &str) -> Result<Box<RawValue>, Failure> {
    let raw = serde_json::from_str::<&RawValue>(text)
        .map_err(|error| Failure::Usage(format!("the context is not JSON: {error}")))?;
    match raw.get().starts_with('{') {
        true => Ok(raw.to_owned()),
        false => Err(Failure::Usage("the context must be a JSON object".into())),
    }
}

fn show(outcome: &ScriptOutcome, output: &Output) -> ExitCode {
    match output.json {
        true => output.document(outcome),
        false => for_people(outcome, output),
    }
    ExitCode::from(u8::from(!outcome.success))
}

/// The value is the result; what was logged, called and thrown is extra it.
fn for_people(outcome: &ScriptOutcome, output: &Output) {
    for line in &outcome.logs {
        let level = output.aside.faint(&format!("{} |", line.level));
        line.text.lines().for_each(|text| output.remark(&format!("{level} {}", clean_line(text))));
    }
    for line in waterfall(&outcome.traces) {
        output.remark(&output.aside.faint(&line));
    }
    if let Some(error) = &outcome.error {
        let what = error.stack.as_deref().filter(|stack| !stack.is_empty());
        let what = what.map_or_else(|| format!("{}: {}", error.name, error.message), str::to_owned);
        output.remark(&format!("{} {}", output.aside.bad("error:"), clean(&what)));
    } else if let Some(result) = &outcome.result {
        output.line(&clean(&readable(result)));
    }
}

/// A text as it is, everything else as JSON for people.
fn readable(result: &RawValue) -> String {
    serde_json::from_str(result.get()).unwrap_or_else(|_| pretty(result.get()))
}
