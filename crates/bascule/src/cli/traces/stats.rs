//! `bascule stats`: the calls of each tool in numbers.

use std::process::ExitCode;

use bascule_store::ToolStatistics;
use serde_json::{Value, json};

use super::super::context::CommandContext;
use super::super::error::CommandResult;
use super::super::printer::Printer;
use super::super::terminal::{fit, sanitize_line};
use super::{FilterOptions, json as fields, open, table, unreadable};

/// Show calls, errors and durations of each tool
#[derive(Debug, clap::Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    filter: FilterOptions,
}

impl Stats {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let (tools, dropped) = match open(&context)? {
            Some(mut reader) => {
                let tools = reader.statistics(&self.filter.filter()).map_err(unreadable)?;
                (tools, reader.dropped().map_err(unreadable)?)
            }
            None => (Vec::new(), 0),
        };
        match printer.json {
            true => {
                let tools: Vec<Value> = tools.iter().map(tool).collect();
                printer.print_json(&json!({ "tools": tools, "dropped": dropped }));
            }
            false => {
                if tools.is_empty() {
                    printer.print_note(&FilterOptions::empty_note(&self.filter.filter(), &context));
                }
                print_text(&tools, dropped, printer);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn tool(tool: &ToolStatistics) -> Value {
    json!({
        "tool": tool.tool,
        "calls": tool.calls,
        "errors": tool.errors,
        "toolErrors": tool.tool_errors,
        "p50Ms": fields::millis(tool.p50),
        "p95Ms": fields::millis(tool.p95),
        "p99Ms": fields::millis(tool.p99),
        "maxMs": fields::millis(tool.max),
    })
}

fn print_text(tools: &[ToolStatistics], dropped: u64, printer: &Printer) {
    const NAME: usize = 40;
    if !tools.is_empty() {
        let head = format!(
            "{:NAME$} {:>9} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "tool", "calls", "errors", "failed", "p50", "p95", "p99", "max"
        );
        printer.print_line(&printer.style.bold(&head));
    }
    for tool in tools {
        let [p50, p95, p99, max] = [tool.p50, tool.p95, tool.p99, tool.max].map(table::duration);
        let name = fit(&sanitize_line(&tool.tool), NAME);
        printer.print_line(&format!(
            "{name:NAME$} {:>9} {:>7} {:>7} {p50:>9} {p95:>9} {p99:>9} {max:>9}",
            tool.calls, tool.errors, tool.tool_errors
        ));
    }
    if dropped > 0 {
        printer.print_note(&format!("{dropped} calls or log lines were not recorded: there was no room, or the file could not be written"));
    }
}
