//! `bascule graph` and `bascule related`: the tools that were called together, after one another, or with each other's values.

use std::process::ExitCode;

use bascule_catalog::nearest_name;
use bascule_graph::{EdgeKind, ExportedEdge, GraphExport, GraphLimits, GraphRows, SuggestedTool, ToolGraph};

use super::super::context::CommandContext;
use super::super::error::{CommandError, CommandResult};
use super::super::printer::Printer;
use super::super::terminal::{fit, sanitize_line};
use super::{empty_reason, open, table, unreadable};

/// The columns of a name.
const NAME: usize = 40;

/// Show the tools that were called, and their relations
#[derive(Debug, clap::Args)]
pub(crate) struct Graph {
    /// Print the graph in the DOT language of Graphviz
    #[arg(long, conflicts_with_all = ["mermaid", "json"])]
    dot: bool,
    /// Print the graph as a Mermaid flow chart
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
    /// Number of tools, those with the highest ranks [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Show the tools with the strongest relations to a tool, by recorded calls
#[derive(Debug, clap::Args)]
pub(crate) struct Related {
    /// The tool as server:tool
    #[arg(value_name = "SERVER:TOOL")]
    tool: String,
    /// Number of tools
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    k: u64,
}

impl Graph {
    pub(crate) fn run(self, context: &CommandContext, printer: &Printer) -> CommandResult {
        let rows = read(context, printer)?;
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let graph = ToolGraph::from_rows(GraphLimits::default(), &rows).export(limit);
        match (self.dot, self.mermaid, printer.json) {
            (true, ..) => printer.print_line(graph.to_dot().trim_end()),
            (_, true, _) => printer.print_line(graph.to_mermaid().trim_end()),
            (.., true) => printer.print_json(&graph),
            _ => print_text(&graph, printer),
        }
        if graph.nodes.is_empty() && !printer.json {
            printer.print_note(&format!("no tools: {}", empty_reason(context)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Related {
    pub(crate) fn run(self, context: &CommandContext, printer: &Printer) -> CommandResult {
        let rows = read(context, printer)?;
        if !rows.nodes.iter().any(|node| *node.tool == *self.tool) {
            return Err(CommandError::Usage(unknown_tool(&self.tool, &rows, context)));
        }
        let graph = ToolGraph::from_rows(GraphLimits::default(), &rows);
        let related = graph.related(&self.tool, self.k as usize);
        match printer.json {
            true => printer.print_json(&related),
            false if related.is_empty() => {
                printer.print_note(&format!("no other tool was called together with `{}` yet", self.tool));
            }
            false => print_related(&related, printer),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(context: &CommandContext, printer: &Printer) -> CommandResult<GraphRows> {
    let Some(reader) = open(context)? else { return Ok(GraphRows::default()) };
    let dropped = reader.dropped_values().map_err(unreadable)?;
    if dropped > 0 && !printer.json {
        printer.print_note(&format!(
            "the data flow of {dropped} calls is not known: there was no room for their values"
        ));
    }
    reader.graph().map_err(unreadable)
}

fn unknown_tool(tool: &str, rows: &GraphRows, context: &CommandContext) -> String {
    if rows.nodes.is_empty() {
        return format!("could not find tools related to `{tool}`: {}", empty_reason(context));
    }
    let nearest = nearest_name(rows.nodes.iter().map(|node| &*node.tool), tool);
    let hint = nearest.map_or_else(
        || "`bascule graph` lists the tools with calls".into(),
        |name| format!("did you mean `{}`?", sanitize_line(name)),
    );
    format!("could not find tools related to `{tool}`: no call of it is recorded; {hint}")
}

fn print_text(graph: &GraphExport, printer: &Printer) {
    if graph.nodes.is_empty() {
        return;
    }
    let head = format!("{:NAME$} {:>9} {:>9} {:>6}", "tool", "calls", "ok", "rank");
    printer.print_line(&printer.style.bold(&head));
    for node in &graph.nodes {
        let (calls, successes, rank) = (node.calls, node.successes, node.rank);
        printer.print_line(&format!("{:NAME$} {calls:>9} {successes:>9} {rank:>6.3}", name(&node.id)));
    }
    if !graph.edges.is_empty() {
        printer.print_line("");
        let head = format!("{:13} {:>9} {:>9}  {:23}  tools", "relation", "count", "ok", "last seen");
        printer.print_line(&printer.style.bold(&head));
    }
    graph.edges.iter().for_each(|edge| printer.print_line(&edge_line(edge)));
}

fn edge_line(edge: &ExportedEdge) -> String {
    let arrow = if edge.kind == EdgeKind::CoOccurrence { "–" } else { "→" };
    let (kind, seen) = (edge.kind.as_str(), table::local_time(edge.last_seen));
    let (from, to) = (name(&edge.from), name(&edge.to));
    format!("{kind:13} {:>9} {:>9}  {seen}  {from} {arrow} {to}", edge.count, edge.successes)
}

fn print_related(related: &[SuggestedTool], printer: &Printer) {
    for SuggestedTool { tool, score, kinds } in related {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        printer.print_line(&format!("{:NAME$} {score:>6.3}  {}", name(tool), kinds.join(", ")));
    }
}

/// Formats the name of a tool, which a server has chosen.
fn name(tool: &str) -> String {
    fit(&sanitize_line(tool), NAME)
}
