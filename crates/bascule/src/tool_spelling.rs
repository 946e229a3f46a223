//! Finds tools by the spellings that scripts, clients and people use for them.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool, NamePattern, ServerTools};
use bascule_model::ToolId;
use bascule_script::names::to_camel_case;

/// The characters between a server and its tool, as in `server:tool`, `server.tool`, `server__tool` and `server/tool`.
const SEPARATORS: [&str; 4] = [":", ".", "__", "/"];

/// The tools of a catalog by their spellings. Names in camelCase are made once, for many questions.
pub(crate) struct ToolSpellings<'c> {
    catalog: &'c Catalog,
    servers: Vec<SpelledServer<'c>>,
}

struct SpelledServer<'c> {
    server: &'c ServerTools,
    camel: String,
    /// The tools by their names in camelCase; `None` for a name that two tools have.
    tools: OnceCell<HashMap<String, Option<&'c Arc<CatalogTool>>>>,
}

impl<'c> ToolSpellings<'c> {
    pub(crate) fn new(catalog: &'c Catalog) -> Self {
        let spelled = |server: &'c Arc<ServerTools>| SpelledServer {
            server,
            camel: to_camel_case(server.name().as_str()),
            tools: OnceCell::new(),
        };
        Self { catalog, servers: catalog.servers().iter().map(spelled).collect() }
    }

    /// Returns the tools that a text names: one, those of a server (`server`), or those that match a pattern (`server:read_*`).
    ///
    /// Server and tool may be in their original spelling or in camelCase, with `mcp.` before them and arguments after them.
    pub(crate) fn find(&self, text: &str) -> Vec<&'c Arc<CatalogTool>> {
        let text = plain_name(text);
        if let Some((server, tool)) = text.split_once(':').filter(|(server, _)| server.contains('*')) {
            let (servers, tools) = (NamePattern::parse(server), NamePattern::parse(tool));
            let is_named = |id: &ToolId| servers.matches(id.server()) && tools.matches(id.tool());
            return self.catalog.tools().filter(|tool| is_named(tool.id())).collect();
        }
        let on_servers = self.servers.iter().filter_map(|server| server.find(&text));
        // A server's original name counts before a camelCase form, and the longer name before its prefix.
        let best = on_servers.max_by_key(|(rank, _)| *rank).map(|(_, tools)| tools);
        best.unwrap_or_else(|| self.by_tool_name(&text))
    }

    /// Finds a tool by its name alone, if only one server has it.
    fn by_tool_name(&self, name: &str) -> Vec<&'c Arc<CatalogTool>> {
        let exact = unique(self.servers.iter().filter_map(|server| server.server.get(name)));
        if !exact.is_empty() {
            return exact;
        }
        let camel = to_camel_case(name);
        let found: Vec<_> = self.servers.iter().filter_map(|server| server.by_camel().get(&camel)).collect();
        // A name that two tools of one server have is ambiguous, too.
        if let [Some(tool)] = found[..] { vec![tool] } else { Vec::new() }
    }
}

/// Returns the id that a text seems to mean, for an error about it.
pub(crate) fn meant_id(text: &str) -> Option<ToolId> {
    let text = plain_name(text);
    let parts = SEPARATORS.iter().find_map(|separator| text.split_once(separator));
    let (server, tool) = parts.unwrap_or((&text, "*"));
    ToolId::parse(&format!("{server}:{tool}")).ok()
}

/// Removes the parts of an expression that are no name: `await mcp["a"].b({ … })` is `a.b`.
fn plain_name(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix("await ").unwrap_or(text);
    let text = text.split('(').next().unwrap_or_default().trim().trim_end_matches(';');
    let text = text.replace("[\"", ".").replace("['", ".").replace("\"]", "").replace("']", "");
    text.strip_prefix("mcp.").map_or_else(|| text.trim_matches('.').to_owned(), str::to_owned)
}

/// The preference of a match: the original spelling of the server, and the length of the server's name.
type MatchRank = (bool, usize);

/// Returns the text after a server's name: `None` if the text begins otherwise, and an empty tool if it is the name alone.
fn after_server<'t>(text: &'t str, server: &str) -> Option<Option<&'t str>> {
    let rest = text.strip_prefix(server)?;
    match SEPARATORS.iter().find_map(|separator| rest.strip_prefix(separator)) {
        Some(tool) => Some(Some(tool)),
        None => rest.is_empty().then_some(None),
    }
}

/// Returns true if a text may name a tool of this server, or the server itself.
pub(crate) fn may_name_server(text: &str, server: &str) -> bool {
    let text = plain_name(text);
    if let Some((pattern, _)) = text.split_once(':').filter(|(pattern, _)| pattern.contains('*')) {
        return NamePattern::parse(pattern).matches(server);
    }
    [server, &to_camel_case(server)].into_iter().any(|spelling| after_server(&text, spelling).is_some())
}

impl<'c> SpelledServer<'c> {
    fn find(&self, text: &str) -> Option<(MatchRank, Vec<&'c Arc<CatalogTool>>)> {
        let name = self.server.name().as_str();
        [name, &self.camel].into_iter().find_map(|spelling| {
            let tools = match after_server(text, spelling)? {
                Some(tool) => self.named(tool),
                None => self.server.tools().iter().collect(),
            };
            (!tools.is_empty()).then_some(((spelling == name, spelling.len()), tools))
        })
    }

    fn named(&self, name: &str) -> Vec<&'c Arc<CatalogTool>> {
        let (server, pattern) = (self.server, NamePattern::parse(name));
        if !pattern.is_literal() {
            return server.tools().iter().filter(|tool| pattern.matches(tool.id().tool())).collect();
        }
        let by_camel = || self.by_camel().get(&to_camel_case(name)).copied().flatten();
        server.get(name).or_else(by_camel).into_iter().collect()
    }

    fn by_camel(&self) -> &HashMap<String, Option<&'c Arc<CatalogTool>>> {
        let server = self.server;
        self.tools.get_or_init(|| {
            let mut tools = HashMap::new();
            for tool in server.tools() {
                let unique = |known: &mut Option<_>| *known = None;
                tools.entry(to_camel_case(tool.id().tool())).and_modify(unique).or_insert(Some(tool));
            }
            tools
        })
    }
}

fn unique<'c>(tools: impl Iterator<Item = &'c Arc<CatalogTool>>) -> Vec<&'c Arc<CatalogTool>> {
    let found: Vec<_> = tools.take(2).collect();
    if found.len() == 1 { found } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server_of;

    fn found(text: &str) -> Vec<String> {
        let catalog: Catalog = [
            server_of("my-hub", &["list_commits", "get.issue", "a_b", "a-b"]),
            server_of("my-hub-two", &["list_commits"]),
            server_of("search", &["web"]),
        ]
        .into_iter()
        .collect();
        ToolSpellings::new(&catalog).find(text).into_iter().map(|tool| tool.id().to_string()).collect()
    }

    // req: CM-07, CM-09
    #[test]
    fn finds_tool_in_every_spelling() {
        for text in [
            "my-hub:list_commits",
            "my-hub:listCommits",
            "myHub:list_commits",
            "my-hub.listCommits",
            "mcp.myHub.listCommits",
            "await mcp.myHub.listCommits({ n: 1 });",
            "mcp['my-hub']['list_commits']",
            "mcp[\"my-hub\"].listCommits",
            "myHub.listCommits",
            "my-hub__list_commits",
            " my-hub/list_commits ",
        ] {
            assert_eq!(found(text), ["my-hub:list_commits"], "{text}");
        }
        assert_eq!(found("mcp.myHub.getIssue"), ["my-hub:get.issue"]);
        assert_eq!(found("my-hub:get.issue"), ["my-hub:get.issue"]);
        assert_eq!(found("my-hub-two__list_commits"), ["my-hub-two:list_commits"]);
        assert_eq!(found("mcp.search.web"), ["search:web"]);
        assert_eq!(found("getIssue"), ["my-hub:get.issue"]);
    }

    // req: CM-07
    #[test]
    fn finds_several_tools_by_pattern_and_server() {
        assert_eq!(found("my-hub:a*"), ["my-hub:a_b", "my-hub:a-b"]);
        assert_eq!(found("search"), ["search:web"]);
        assert_eq!(found("*:list_*"), ["my-hub:list_commits", "my-hub-two:list_commits"]);
        assert_eq!(found("mcp.myHub.*").len(), 4);
    }

    // req: CM-07, CM-09
    #[test]
    fn finds_nothing_for_unknown_and_ambiguous_names() {
        for text in ["my-hub:aB", "list_commits", "my-hub:nothing", "nowhere:web", "", ":", "mcp", "mcp."] {
            assert!(found(text).is_empty(), "{text}");
        }
        assert_eq!(meant_id("mcp.myHub.lst").unwrap().as_str(), "myHub:lst");
    }
}
