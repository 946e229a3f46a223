//! `bascule tokens`: counts the tokens that the tools take in an agent's context.

use std::process::ExitCode;
use std::sync::Arc;

use bascule_catalog::CatalogTool;
use serde_json::{Value, json};
use tiktoken_rs::CoreBPE;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use super::tools::print_missing;
use crate::McpBridgeAdapter;
use crate::api::{self, AvailableTools};
use crate::config::ToolView;
use crate::gateway::definitions_in_view;

const TOKENIZER: &str = "o200k_base";

/// Count the tokens that the tools take in an agent's context
///
/// Starts the servers and counts name, description and input schema of each tool, as JSON, with the tokenizer o200k_base. In the
/// view `all` an agent gets every tool, in the view `code` the three tools that find, describe and call the others.
#[derive(Debug, clap::Args)]
pub(crate) struct Tokens {}

/// The tools of one server or view.
struct TokenCount {
    name: String,
    tools: usize,
    tokens: usize,
}

impl Tokens {
    pub(crate) async fn run(self, context: CommandContext, printer: &Printer) -> CommandResult {
        let tokenizer = tiktoken_rs::o200k_base()
            .map_err(|error| CommandError::Usage(format!("could not read the tokenizer: {error}")))?;
        let config = context.load(printer)?;
        context
            .with_in_process_bridge(config, None, printer, async |bridge| {
                let AvailableTools { tools, start_failures, .. } = api::list_tools(bridge, None).await?;
                print_missing(&start_failures, printer);
                let servers = count_servers(&tools, &tokenizer);
                let views = [count_all(bridge, &servers, &tokenizer), count_code(bridge, &tokenizer)];
                print(&servers, &views, printer);
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

fn count_servers(tools: &[Arc<CatalogTool>], tokenizer: &CoreBPE) -> Vec<TokenCount> {
    let servers = tools.chunk_by(|a, b| a.id().server() == b.id().server());
    let count = |tools: &[Arc<CatalogTool>]| {
        let definitions = tools.iter().map(|tool| definition_at_gateway(tool));
        let tokens = definitions.map(|definition| count_tokens(&definition, tokenizer)).sum();
        TokenCount { name: tools[0].id().server().to_owned(), tools: tools.len(), tokens }
    };
    servers.map(count).collect()
}

/// Returns a tool as clients of all servers see it.
fn definition_at_gateway(tool: &CatalogTool) -> Value {
    json!({
        "name": format!("{}__{}", tool.id().server(), tool.id().tool()),
        "description": tool.definition().description,
        "inputSchema": tool.definition().input_schema,
    })
}

fn count_all(bridge: &McpBridgeAdapter, servers: &[TokenCount], tokenizer: &CoreBPE) -> TokenCount {
    let own = count_own(bridge, ToolView::All, "all", tokenizer);
    let tools = servers.iter().map(|server| server.tools).sum::<usize>() + own.tools;
    TokenCount {
        tools,
        tokens: servers.iter().map(|server| server.tokens).sum::<usize>() + own.tokens,
        ..own
    }
}

fn count_code(bridge: &McpBridgeAdapter, tokenizer: &CoreBPE) -> TokenCount {
    count_own(bridge, ToolView::Code, "code", tokenizer)
}

/// Counts the bridge's own tools in a view.
fn count_own(bridge: &McpBridgeAdapter, view: ToolView, name: &str, tokenizer: &CoreBPE) -> TokenCount {
    let definitions = definitions_in_view(bridge, view);
    let tokens = definitions.iter().map(|definition| count_tokens(definition, tokenizer)).sum();
    TokenCount { name: name.to_owned(), tools: definitions.len(), tokens }
}

/// Counts the parts of a definition that hosts show to models.
fn count_tokens(definition: &Value, tokenizer: &CoreBPE) -> usize {
    let parts = json!({
        "name": definition["name"], "description": definition["description"], "inputSchema": definition["inputSchema"],
    });
    tokenizer.encode_ordinary(&parts.to_string()).len()
}

fn print(servers: &[TokenCount], views: &[TokenCount; 2], printer: &Printer) {
    if printer.json {
        let entry = |count: &TokenCount| json!({ "tools": count.tools, "tokens": count.tokens });
        let server =
            |count: &TokenCount| json!({ "name": count.name, "tools": count.tools, "tokens": count.tokens });
        let [all, code] = views.each_ref().map(entry);
        let servers: Vec<Value> = servers.iter().map(server).collect();
        return printer
            .print_json(&json!({ "tokenizer": TOKENIZER, "all": all, "code": code, "servers": servers }));
    }
    let views = views.iter().map(|view| (format!("view `{}`", view.name), view));
    let rows: Vec<_> =
        servers.iter().map(|server| (sanitize_line(&server.name), server)).chain(views).collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    printer.print_line(&format!("{}  tools   tokens", pad("", width)));
    for (name, count) in rows {
        printer.print_line(&format!("{}  {:>5}  {:>7}", pad(&name, width), count.tools, count.tokens));
    }
}
