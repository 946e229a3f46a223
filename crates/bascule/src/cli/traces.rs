//! The commands that look back: `traces`, `trace`, `stats`, `logs`, `graph` and `related`. They read the file, whether or not a bridge runs.

mod graph;
mod json;
mod logs;
mod since;
mod stats;
mod table;
mod tree;

use std::process::ExitCode;
use std::time::Duration;

use bascule_store::{Found, Reader, Span, SpanFilter};

pub(crate) use graph::{Graph, Related};
pub(crate) use logs::Logs;
pub(crate) use stats::Stats;

use super::context::{CommandContext, Signals};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use crate::otlp;
use since::Since;

/// The time between two looks at the file with `--follow`.
const POLL: Duration = Duration::from_millis(200);

/// Show recorded calls and scripts: the newest last, with --json the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct Traces {
    #[command(flatten)]
    filter: FilterOptions,
    /// Calls with this correlation id only
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Number of calls [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Show new calls as they end, until interrupted; with --json, one document in each line
    #[arg(long, short)]
    follow: bool,
    /// Print OpenTelemetry spans (OTLP JSON) instead
    #[arg(long, conflicts_with = "follow")]
    otlp: bool,
}

/// Show one recorded call, or a script with its calls, over time
#[derive(Debug, clap::Args)]
pub(crate) struct TraceCommand {
    /// Trace id, span id or correlation id; a unique beginning is enough. A correlation id shows its last ten traces
    id: String,
    /// Print OpenTelemetry spans (OTLP JSON) instead
    #[arg(long)]
    otlp: bool,
}

/// Options that choose calls.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterOptions {
    /// Calls of this tool only: server:tool, or a name that tools of several servers have
    #[arg(long)]
    tool: Option<String>,
    /// Calls of this server only
    #[arg(long)]
    server: Option<String>,
    /// Failed calls only
    #[arg(long)]
    failed: bool,
    /// Calls since then: a duration (30s, 15m, 2h, 7d), a date or a time like 2026-11-18T07:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Calls that took at least this long
    #[arg(long, value_name = "MS")]
    slow: Option<u64>,
}

impl FilterOptions {
    fn filter(&self) -> SpanFilter {
        SpanFilter {
            tool: self.tool.clone(),
            server: self.server.clone(),
            correlation_id: None,
            failed: self.failed,
            since: self.since.map(|since| since.0),
            slower_than: self.slow.map(|millis| millis.saturating_mul(1_000)),
            after: None,
            limit: None,
        }
    }

    /// Returns the reason why no call is shown.
    fn empty_note(filter: &SpanFilter, context: &CommandContext) -> String {
        let is_filtered = *filter != SpanFilter { limit: filter.limit, ..SpanFilter::default() };
        match is_filtered && !context.is_recording_off() {
            true => "no recorded call matches".into(),
            false => format!("no recorded calls: {}", empty_reason(context)),
        }
    }
}

impl Traces {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let default = if self.follow { 10 } else { 50 };
        let limit = self.limit.map_or(default, |limit| limit as usize);
        let filter =
            SpanFilter { correlation_id: self.correlation_id, limit: Some(limit), ..self.filter.filter() };
        if self.follow {
            return follow(&context, filter, printer).await;
        }
        let spans = open(&context)?.map_or_else(|| Ok(Vec::new()), |mut reader| reader.spans(&filter));
        let spans: Vec<Span> = spans.map_err(unreadable)?.into_iter().map(|(_, span)| span).collect();
        match (self.otlp, printer.json) {
            (true, _) => printer.print_json(&otlp::spans_json(&spans)),
            (_, true) => printer.print_json(&spans.iter().map(json::span).collect::<Vec<_>>()),
            _ if spans.is_empty() => printer.print_note(&FilterOptions::empty_note(&filter, &context)),
            _ => spans.iter().rev().for_each(|span| printer.print_line(&table::line(span, printer.style))),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl TraceCommand {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let id = self.id.to_lowercase();
        let mut reader = open(&context)?.ok_or_else(|| not_found(&self.id))?;
        let mut found = reader.find(&self.id).map_err(unreadable)?;
        if matches!(found, Found::Nothing) && id != self.id {
            found = reader.find(&id).map_err(unreadable)?;
        }
        let traces = match found {
            Found::Trace(spans) => vec![spans],
            Found::Correlated(traces) => traces,
            Found::Nothing => return Err(not_found(&self.id)),
            Found::Ambiguous(traces) => {
                let traces: Vec<String> = traces.iter().map(ToString::to_string).collect();
                let message = format!("`{}` is ambiguous: it may mean {}", self.id, traces.join(", "));
                return Err(CommandError::Usage(message));
            }
        };
        match (self.otlp, printer.json) {
            (true, _) => printer.print_json(&otlp::spans_json(&traces.concat())),
            (_, true) => printer.print_json(&traces.iter().flatten().map(json::span).collect::<Vec<_>>()),
            _ => print_trees(&traces, printer),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_trees(traces: &[Vec<Span>], printer: &Printer) {
    for (number, spans) in traces.iter().enumerate() {
        if number > 0 {
            printer.print_line("");
        }
        tree::print(spans, printer);
    }
}

fn empty_reason(context: &CommandContext) -> String {
    match context.is_recording_off() {
        true => {
            format!("calls are not recorded, because `{}` has `bascule.traces.off`", context.path().display())
        }
        false => "no call is recorded yet; calls appear a few seconds after they end".into(),
    }
}

fn not_found(id: &str) -> CommandError {
    CommandError::Usage(format!("no recorded call has the id `{id}`: `bascule traces` lists them"))
}

/// Prints the newest spans, then each new one, until interrupted.
async fn follow(context: &CommandContext, mut filter: SpanFilter, printer: &Printer) -> CommandResult {
    let mut signals = Signals::new();
    let mut reader: Option<Reader> = None;
    loop {
        // A bridge begins a new file, with new numbers, if the file was moved or removed. It has left the old one then.
        if reader.as_ref().is_none_or(|reader| !reader.is_current())
            && let Some(new) = open(context)?
            && let Some(mut old) = reader.replace(new)
        {
            print_new(&mut old, &mut filter, printer)?;
            filter.after = Some(0);
        }
        if let Some(reader) = &mut reader {
            print_new(reader, &mut filter, printer)?;
        }
        if printer.is_stdout_closed() || !wait(&mut signals).await {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Prints the spans that were not printed yet, and makes the filter select all of those that come later.
fn print_new(reader: &mut Reader, filter: &mut SpanFilter, printer: &Printer) -> CommandResult<()> {
    let mut spans = reader.spans(filter).map_err(unreadable)?;
    spans.reverse();
    for (number, span) in &spans {
        filter.after = Some(*number);
        match printer.json {
            true => printer.print_json(&json::span(span)),
            false => printer.print_line(&table::line(span, printer.style)),
        }
    }
    let after = filter.after.map_or_else(|| reader.last_span(), Ok).map_err(unreadable)?;
    (filter.limit, filter.after) = (None, Some(after));
    Ok(())
}

/// Waits for the next look at the file. Returns false if the command is interrupted.
async fn wait(signals: &mut Signals) -> bool {
    tokio::select! {
        () = tokio::time::sleep(POLL) => true,
        () = signals.recv() => false,
    }
}

/// Opens the file of the configuration. Returns `None` if nothing was recorded yet.
fn open(context: &CommandContext) -> CommandResult<Option<Reader>> {
    let Some(path) = context.trace_file() else {
        return Err(CommandError::Usage(
            "calls are not recorded: neither XDG_STATE_HOME nor a home is set".into(),
        ));
    };
    if !path.exists() {
        return Ok(None);
    }
    match Reader::open(&path) {
        Ok(reader) => Ok(Some(reader)),
        Err(bascule_store::StoreError::Empty) => Ok(None),
        Err(error) => Err(unreadable(error)),
    }
}

fn unreadable(error: bascule_store::StoreError) -> CommandError {
    CommandError::Usage(format!("could not read the recorded calls: {error}"))
}
