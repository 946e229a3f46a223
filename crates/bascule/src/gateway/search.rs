//! The tools `search_tools` and `describe_tools`, and the list of servers in the description of `execute_code`.

use std::sync::Arc;

use bascule_catalog::{ServerTools, SharedResult};
use bascule_mcp::patch;
use bascule_script::display_names;
use bascule_script::names::to_camel_case;
use serde_json::{Value, json};

use super::Gateway;
use super::client_request::ClientRequest;
use super::code::{always_loaded, failure_result};
use crate::ToolSelection;
use crate::client::ClientContext;
use crate::fleet::server::Server;
use crate::fleet::snapshot::Snapshot;
use crate::script_types::is_callable;
use crate::tool_queries::{DescribeQuery, MAX_FOUND, MAX_OMITTED, SearchQuery, ToolEntries};

pub(super) const SEARCH: &str = "search_tools";
pub(super) const DESCRIBE: &str = "describe_tools";
/// The room for names of tools in a description, in bytes. Servers are always named.
const NAMES_ROOM: usize = 4_000;
/// The number of tools named as examples where there is no room for all.
const EXAMPLES: usize = 3;
/// The longest purpose of a server, in characters.
const MAX_PURPOSE: usize = 120;

impl Gateway {
    pub(super) async fn search(&self, request: &ClientRequest<'_>, query: SearchQuery) -> String {
        match self.bridge.search_within(query, &ToolSelection::all(), self.text_budget()).await {
            Ok(found) => result_of(found),
            Err(message) => failure_result(&message, request.correlation_id()),
        }
    }

    pub(super) async fn describe(&self, query: DescribeQuery) -> String {
        result_of(self.bridge.describe_within(query, &ToolSelection::all(), self.text_budget()).await)
    }

    /// Summarises the servers as a client sees them.
    pub(super) fn summary(&self, client: &Arc<ClientContext>) -> String {
        summarise(&self.bridge.fleet.snapshot.load_full(), |base| self.info(client, base))
    }
}

/// Returns a result with TypeScript as its text. It is an error if a client asked for tools and none of them exists.
fn result_of(entries: ToolEntries) -> String {
    let content = [json!({ "type": "text", "text": entries.text })];
    let is_error = entries.is_empty && !entries.tools.is_empty();
    let mut structured = json!({ "tools": entries.tools });
    if !entries.omitted.is_empty() {
        structured["omitted"] = entries.omitted.iter().take(MAX_OMITTED).cloned().collect();
    }
    json!({ "content": content, "structuredContent": structured, "isError": is_error }).to_string()
}

/// Lists every server with its number of tools and its purpose, and the names of its tools as far as there is room. Where
/// there is none, a few names are examples. A server without tools has the reason.
pub(super) fn summarise(snapshot: &Snapshot, info: impl Fn(&Arc<Server>) -> Option<Arc<str>>) -> String {
    let (mut summary, mut room, mut is_complete) = (String::new(), NAMES_ROOM, true);
    for base in snapshot.in_order() {
        let name = base.settings.name.as_str();
        let Some(server) = snapshot.catalog.server(name) else {
            summary.push_str(&format!("\nmcp.{} ({})", to_camel_case(name), reason_of(base)));
            continue;
        };
        let info = info(base);
        let (head, names) = (head_of(server, info.as_deref()), names_of(server));
        let fits = names.iter().map(|name| name.len() + 2).sum::<usize>() <= room;
        let listed = match fits {
            true => names.join(", "),
            false => format!("such as {}", names[..names.len().min(EXAMPLES)].join(", ")),
        };
        room = room.saturating_sub(listed.len());
        is_complete &= fits;
        summary.push_str(&format!("\n{head}: {listed}"));
    }
    if !is_complete {
        summary.push_str(&format!("\n`{SEARCH}` finds the other tools; `{DESCRIBE}` describes them."));
    }
    summary
}

/// Returns the reason why a server has no tools.
fn reason_of(server: &Server) -> String {
    match server.failure() {
        _ if server.is_on_demand() => "not started: its first call starts it".into(),
        Some(error) => {
            let line = error.message.lines().next().unwrap_or_default();
            let line: String = line.chars().filter(|letter| !letter.is_control()).take(MAX_PURPOSE).collect();
            format!("down: {line}")
        }
        None => "starting".into(),
    }
}

/// Returns `mcp.github (26 tools; most return { content: string }; manages repositories)`.
fn head_of(server: &ServerTools, info: Option<&str>) -> String {
    let count = server.tools().iter().filter(|tool| is_callable(tool)).count();
    let tools = if count == 1 { "1 tool".into() } else { format!("{count} tools") };
    let name = to_camel_case(server.name().as_str());
    let parts: Vec<String> =
        [tools].into_iter().chain(shared_result(server)).chain(info.and_then(purpose)).collect();
    format!("mcp.{name} ({})", parts.join("; "))
}

/// Returns what the tools of a server return, as far as most of them return the same: without it, a script is written for text.
fn shared_result(server: &ServerTools) -> Option<String> {
    let SharedResult { result, is_of_all } = server.shared_result()?;
    let subject = if is_of_all { "all" } else { "most" };
    let result = if &*result == "string" { "text" } else { &result };
    Some(format!("{subject} return {result}"))
}

fn names_of(server: &ServerTools) -> Vec<String> {
    let callable = server.tools().iter().filter(|tool| is_callable(tool));
    display_names(callable.map(|tool| tool.id().tool()))
}

/// Returns what a server says of itself, in one line: its description, title or instructions.
fn purpose(info: &str) -> Option<String> {
    let paths: [&[&str]; 3] = [&["serverInfo", "description"], &["instructions"], &["serverInfo", "title"]];
    let description = paths.into_iter().find_map(|path| patch::find_string(info, path))?;
    let line = first_sentence_line(&description);
    let sentence = line.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let purpose: String = sentence.chars().filter(|letter| !letter.is_control()).take(MAX_PURPOSE).collect();
    (!purpose.trim().is_empty()).then_some(purpose)
}

/// Returns the first line of Markdown text that is no heading, or the first heading if there is nothing else.
fn first_sentence_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or_default();
    lines.find(|line| !line.starts_with('#')).unwrap_or(first).trim_start_matches(['#', '-', '*', '>', ' '])
}

pub(super) fn search_definition() -> Value {
    json!({
        "name": SEARCH,
        "title": "Search tools",
        "description": "Finds the tools for an intent, by words and by meaning. Ask for one short step at a time (\"open an \
                        issue\", then \"post a message to a channel\"): that finds more than a description of the whole task.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "intent": { "type": "string", "description": "One step, in a few words." },
                "k": { "type": "integer", "minimum": 1, "maximum": MAX_FOUND, "description": "Number of tools. Default: 5." },
                "detail": {
                    "enum": ["names", "brief", "types"],
                    "description": "`names` alone, with the first line of the description (`brief`, the default), or with \
                                    TypeScript signatures (`types`).",
                },
            },
            "required": ["intent"],
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true },
        "_meta": always_loaded(),
    })
}

pub(super) fn describe_definition() -> Value {
    json!({
        "name": DESCRIBE,
        "title": "Describe tools",
        "description": "Returns the TypeScript signatures of tools, as scripts call them: ask for the tools that you are about \
                        to call. An unknown name is answered with the nearest ones.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Tools to describe: `server:tool`, `mcp.server.toolName`, or `server:*`. Default: the signatures of all.",
                },
                "format": {
                    "enum": ["signature", "declaration", "schema"],
                    "description": "TypeScript on one line (`signature`, the default), TypeScript with the descriptions of \
                                    arguments (`declaration`), or JSON Schema (`schema`).",
                },
            },
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true },
        "_meta": always_loaded(),
    })
}

#[cfg(test)]
mod tests {
    use bascule_catalog::ToolFilter;
    use bascule_model::{ServerName, ToolDefinition};
    use serde_json::value::RawValue;

    use super::*;

    // req: GW-08, CM-15
    #[test]
    fn head_names_the_result_that_most_tools_share() {
        let content =
            r#"{"type":"object","properties":{"content":{"type":"string"}},"required":["content"]}"#;
        let head = |schemas: [&str; 3]| {
            let definition = |(n, schema): (usize, &str)| {
                let text = format!(r#"{{"name":"t{n}","outputSchema":{schema}}}"#);
                ToolDefinition::parse(RawValue::from_string(text).unwrap()).unwrap()
            };
            let tools = schemas.into_iter().enumerate().map(definition).collect();
            let name = ServerName::parse("filesystem").unwrap();
            head_of(
                &ServerTools::new(name, ToolFilter::default(), tools),
                Some(r#"{"instructions":"Reads files."}"#),
            )
        };
        let most = "mcp.filesystem (3 tools; most return { content: string }; Reads files)";
        assert_eq!(head([content, content, "{}"]), most);
        assert_eq!(head([content; 3]), most.replace("most", "all"));
        assert_eq!(head([content, "{}", "{}"]), "mcp.filesystem (3 tools; Reads files)");
        assert_eq!(
            head([r#"{"type":"string"}"#; 3]),
            "mcp.filesystem (3 tools; all return text; Reads files)"
        );
    }
}
