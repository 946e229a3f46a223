//! `bascule logs`: what a server wrote to its stderr, and its log messages.

use std::process::ExitCode;

use bascule_store::{LogFilter, LogLine, Reader};

use super::super::context::{CommandContext, Signals};
use super::super::error::CommandResult;
use super::super::printer::Printer;
use super::super::terminal::sanitize_line;
use super::since::Since;
use super::{json, open, table, unreadable, wait};

/// The most lines between two looks at the file. The store keeps fewer for each server.
const MAX_FOLLOWED: usize = 100_000;

/// Show what a server wrote to its stderr, and its log messages
#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// Name of the server
    server: String,
    /// Number of lines, the newest ones
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Lines since then: a duration (30s, 15m, 2h, 7d), a date or a time
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Show new lines as they come, until interrupted; with --json, one document in each line
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let (limit, since) = (self.limit as usize, self.since.map(|since| since.0));
        let mut filter = LogFilter { server: self.server.clone(), after: None, since, limit };
        let mut reader = open(&context)?;
        let lines = read(reader.as_mut(), &filter)?;
        if lines.is_empty() {
            context.require_server(&self.server)?;
            self.print_empty_note(&context, printer);
        }
        match (printer.json, self.follow) {
            (true, false) => {
                printer.print_json(&lines.iter().map(|(_, line)| json::log_line(line)).collect::<Vec<_>>());
            }
            _ => print_lines(&lines, printer),
        }
        if !self.follow {
            return Ok(ExitCode::SUCCESS);
        }
        let mut signals = Signals::new();
        // The limit is for the lines that are there already.
        (filter.after, filter.limit) = (lines.last().map(|(number, _)| *number), MAX_FOLLOWED);
        while !printer.is_stdout_closed() && wait(&mut signals).await {
            // A bridge begins a new file, with new numbers, if the file was moved or removed. It has left the old one then.
            if reader.as_ref().is_none_or(|reader| !reader.is_current())
                && let Some(new) = open(&context)?
                && let Some(mut old) = reader.replace(new)
            {
                print_lines(&read(Some(&mut old), &filter)?, printer);
                filter.after = None;
            }
            let lines = read(reader.as_mut(), &filter)?;
            print_lines(&lines, printer);
            filter.after = lines.last().map(|(number, _)| *number).or(filter.after);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Logs {
    fn print_empty_note(&self, context: &CommandContext, printer: &Printer) {
        let reason = match (context.is_recording_off(), self.since) {
            (true, _) => {
                format!(" are recorded, because `{}` has `bascule.traces.off`", context.path().display())
            }
            (false, Some(_)) => " are that new".into(),
            (false, None) => " are recorded yet".into(),
        };
        if !printer.json {
            printer.print_note(&format!("no lines of `{}`{reason}", self.server));
        }
    }
}

fn read(reader: Option<&mut Reader>, filter: &LogFilter) -> CommandResult<Vec<(i64, LogLine)>> {
    reader.map_or_else(|| Ok(Vec::new()), |reader| reader.logs(filter)).map_err(unreadable)
}

fn print_lines(lines: &[(i64, LogLine)], printer: &Printer) {
    for (_, line) in lines {
        match printer.json {
            true => printer.print_json(&json::log_line(line)),
            false => printer.print_line(&format_line(line, printer)),
        }
    }
}

fn format_line(line: &LogLine, printer: &Printer) -> String {
    let source = line
        .level
        .as_ref()
        .map_or_else(|| line.source.to_string(), |level| format!("{} {level}", line.source));
    let head = format!("{} {source} |", table::local_time(line.at));
    format!("{} {}", printer.style.dim(&sanitize_line(&head)), sanitize_line(&line.text))
}
