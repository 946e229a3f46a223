//! Names and declares tools as scripts call them.

use std::collections::HashMap;
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool, DeclaredServer, DeclaredTool, declarations};
use bascule_model::ToolId;
use bascule_script::{display_names, names};

/// The expressions with which scripts call tools: `mcp.github.listCommits`.
///
/// A name is in camelCase where that is unambiguous among all tools of the catalog, so it works in every script.
pub(crate) struct CallNames<'c> {
    calls: HashMap<&'c ToolId, String>,
}

impl<'c> CallNames<'c> {
    /// Names the tools of the catalog that scripts can call.
    pub(crate) fn new(catalog: &'c Catalog) -> Self {
        Self::of_servers(catalog, |_| true)
    }

    /// Names only the tools of some servers.
    pub(crate) fn of_servers(catalog: &'c Catalog, is_wanted: impl Fn(&str) -> bool) -> Self {
        let servers = by_server(catalog.tools());
        let named = servers.iter().zip(display_names(servers.iter().map(|(name, _)| *name)));
        let wanted = named.filter(|((name, _), _)| is_wanted(name));
        Self { calls: wanted.flat_map(|((_, tools), server)| calls_of(&server, tools)).collect() }
    }

    /// Returns the call of a tool; empty if scripts cannot call it.
    pub(crate) fn call(&self, tool: &CatalogTool) -> &str {
        self.calls.get(tool.id()).map_or("", String::as_str)
    }

    /// Returns the signature of a tool, on one line; empty if scripts cannot call it.
    pub(crate) fn signature(&self, tool: &CatalogTool) -> String {
        self.calls.get(tool.id()).map_or_else(String::new, |call| tool.signature(call))
    }
}

fn calls_of<'c>(server: &str, tools: &[&'c CatalogTool]) -> Vec<(&'c ToolId, String)> {
    let server = member(server);
    let names = display_names(tools.iter().map(|tool| tool.id().tool()));
    tools.iter().zip(names).map(|(tool, name)| (tool.id(), format!("mcp{server}{}", member(&name)))).collect()
}

/// Writes declarations of the tools that scripts can call.
pub(crate) fn declare_tools(tools: &[Arc<CatalogTool>]) -> String {
    declarations(&declared_servers(tools))
}

/// Returns the signature of each tool that scripts can call, on one line.
pub(crate) fn signatures(tools: &[Arc<CatalogTool>]) -> Vec<(&ToolId, String)> {
    let servers = by_server(tools.iter());
    let names = display_names(servers.iter().map(|(name, _)| *name));
    let calls = servers.iter().zip(names).flat_map(|((_, tools), server)| calls_of(&server, tools));
    let tools = servers.iter().flat_map(|(_, tools)| tools);
    tools.zip(calls).map(|(tool, (id, call))| (id, tool.signature(&call))).collect()
}

/// Returns the call of a tool in a script and the type of its arguments.
pub(crate) fn call_signature(tool: &CatalogTool) -> String {
    let part = |name: &str| member(&names::to_camel_case(name));
    tool.call_signature(&format!("mcp{}{}", part(tool.id().server()), part(tool.id().tool())))
}

/// Writes the access to a member of an object.
fn member(name: &str) -> String {
    match name.starts_with(|first: char| first.is_ascii_alphabetic()) && !name.contains(['-', '.', '/']) {
        true => format!(".{name}"),
        false => format!("[\"{name}\"]"),
    }
}

fn declared_servers(tools: &[Arc<CatalogTool>]) -> Vec<DeclaredServer<'_>> {
    let servers = by_server(tools.iter());
    let names = display_names(servers.iter().map(|(name, _)| *name));
    let named = servers.iter().zip(names);
    named.map(|((_, tools), name)| declare_server(name, tools)).collect()
}

fn declare_server<'a>(name: String, tools: &[&'a CatalogTool]) -> DeclaredServer<'a> {
    let names = display_names(tools.iter().map(|tool| tool.id().tool()));
    let declare = |(tool, name): (&&'a CatalogTool, String)| DeclaredTool { name, tool };
    DeclaredServer { name, tools: tools.iter().zip(names).map(declare).collect() }
}

/// Groups the tools that scripts can call by server, in the order of their first tool.
fn by_server<'a>(tools: impl Iterator<Item = &'a Arc<CatalogTool>>) -> Vec<(&'a str, Vec<&'a CatalogTool>)> {
    let mut servers: Vec<(&str, Vec<&CatalogTool>)> = Vec::new();
    for tool in tools.filter(|tool| is_callable(tool)) {
        let server = tool.id().server();
        match servers.iter_mut().rev().find(|(name, _)| *name == server) {
            Some((_, tools)) => tools.push(tool),
            None => servers.push((server, vec![tool])),
        }
    }
    servers
}

/// Returns true if scripts can call the tool.
pub(crate) fn is_callable(tool: &CatalogTool) -> bool {
    names::check(tool.id().server(), tool.id().tool()).is_ok()
}
