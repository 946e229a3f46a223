//! Answers queries about tools: the tools for an intent, and the types of named tools.
//!
//! MCP clients ask with `search_tools` and `describe_tools`, scripts with `mcp.search` and `mcp.describe`. Both get the same
//! entries. Nothing here calls a tool.

use std::collections::HashSet;
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool};
use bascule_model::ToolId;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::McpBridgeAdapter;
use crate::script::ToolSelection;
use crate::script_types::{CallNames, declare_tools, is_callable};
use crate::search::{DEFAULT_COUNT, RankedCatalogTool, ToolIntent};
use crate::tool_spelling::{find_tools, meant_id};

/// The most tools that one search returns.
pub(crate) const MAX_FOUND: usize = 50;
/// The number of tools suggested for an unknown name that resembles none.
const MAX_SUGGESTIONS: usize = 3;
/// The most names of one query.
const MAX_NAMES: usize = 200;
/// The longest unknown name that is repeated in an answer, in characters.
const MAX_REPEATED: usize = 200;

/// The parts of a tool that a search shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ToolDetail {
    /// Names alone
    Names,
    /// Names and the first line of the descriptions
    #[default]
    Brief,
    /// Names, descriptions and TypeScript signatures
    Types,
}

/// The form in which tools are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DescriptionFormat {
    /// TypeScript, one line a tool.
    #[default]
    Signature,
    /// TypeScript with the descriptions of arguments.
    Declaration,
    /// JSON Schema.
    Schema,
}

/// A query for the tools of an intent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchQuery {
    intent: String,
    k: Option<usize>,
    #[serde(default)]
    detail: ToolDetail,
}

/// A query for the types of tools.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DescribeQuery {
    tools: Option<NamedTools>,
    format: DescriptionFormat,
}

/// One name or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`tools` must be a list of names such as `server:tool`")]
enum NamedTools {
    One(NamedTool),
    Many(Vec<NamedTool>),
}

/// A name, or an entry of an earlier answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum NamedTool {
    Name(String),
    Entry { id: String },
}

/// The entries of an answer, and the same as text for a model.
pub(crate) struct ToolEntries {
    pub(crate) tools: Vec<Value>,
    pub(crate) text: String,
    /// No entry is a tool.
    pub(crate) is_empty: bool,
}

impl NamedTools {
    fn into_names(self) -> Vec<String> {
        let name = |tool: NamedTool| match tool {
            NamedTool::Name(name) | NamedTool::Entry { id: name } => name,
        };
        match self {
            Self::One(tool) => vec![name(tool)],
            Self::Many(tools) => tools.into_iter().take(MAX_NAMES).map(name).collect(),
        }
    }
}

impl McpBridgeAdapter {
    /// Answers with the best of the granted tools for an intent; an error is a text for the caller.
    pub(crate) async fn answer_search(
        &self,
        query: SearchQuery,
        granted: &ToolSelection,
    ) -> Result<ToolEntries, String> {
        let SearchQuery { intent, k, detail } = query;
        if intent.trim().is_empty() {
            return Err("`intent` is empty: describe one step, such as \"open an issue\"".into());
        }
        let found = self.search_granted(intent, k.unwrap_or(DEFAULT_COUNT), granted).await;
        let catalog = self.catalog();
        let calls = CallNames::of_servers(&catalog, |name| is_server_of(&found, name));
        let mut entries = ToolEntries::default();
        for RankedCatalogTool { tool, is_down } in &found {
            let mut entry = json!({ "id": tool.id(), "call": calls.call(tool) });
            if detail != ToolDetail::Names {
                entry["description"] = first_line(tool).into();
            }
            if detail == ToolDetail::Types {
                entry["signature"] = calls.signature(tool).into();
            }
            if *is_down {
                entry["down"] = true.into();
            }
            entries.add(entry);
        }
        Ok(entries)
    }

    async fn search_granted(
        &self,
        text: String,
        count: usize,
        granted: &ToolSelection,
    ) -> Vec<RankedCatalogTool> {
        let (intent, granted) = (ToolIntent { text, count: count.clamp(1, MAX_FOUND) }, granted.clone());
        self.search_tools(intent, move |tool| granted.includes(tool.id()) && is_callable(tool)).await
    }

    /// Answers with the types of the named tools, or the signatures of all granted ones. A name that is unknown is answered
    /// with the nearest.
    pub(crate) async fn answer_describe(&self, query: DescribeQuery, granted: &ToolSelection) -> ToolEntries {
        let DescribeQuery { tools, format } = query;
        let catalog = self.catalog();
        let calls = CallNames::new(&catalog);
        let mut entries = ToolEntries::default();
        let Some(names) = tools.map(NamedTools::into_names) else {
            let all = catalog.tools().filter(|tool| granted.includes(tool.id()) && is_callable(tool));
            all.for_each(|tool| entries.add(listed(tool, &calls, format)));
            return entries;
        };
        let mut described: HashSet<&ToolId> = HashSet::new();
        let mut asked = HashSet::new();
        for name in names.iter().filter(|name| asked.insert(name.as_str())) {
            let named = find_tools(&catalog, name).into_iter();
            let usable: Vec<_> =
                named.filter(|tool| granted.includes(tool.id()) && is_callable(tool)).collect();
            if usable.is_empty() {
                entries.add_unknown(self.unknown_tool(&catalog, name, granted).await);
            }
            for tool in usable.into_iter().filter(|tool| described.insert(tool.id())) {
                entries.add(full(tool, &calls, format));
            }
        }
        entries
    }

    /// Returns the entry of a name that is not the name of a tool that the caller may use.
    async fn unknown_tool(&self, catalog: &Catalog, name: &str, granted: &ToolSelection) -> Value {
        let shown: String = name.chars().take(MAX_REPEATED).collect();
        if let Some(tool) = find_tools(catalog, name).first() {
            let error = match bascule_script::names::check(tool.id().server(), tool.id().tool()) {
                Err(error) => error.to_string(),
                Ok(()) => format!("`{}` exists, but was not granted to this script", tool.id()),
            };
            return json!({ "id": shown, "error": error, "nearest": [] });
        }
        let meant = meant_id(&shown);
        if let Some(id) = meant.as_ref().filter(|id| self.is_withheld(id, granted)) {
            let error = format!(
                "the server `{}` exists, but none of its tools was granted to this script",
                id.server()
            );
            return json!({ "id": shown, "error": error, "nearest": [] });
        }
        let refused = meant.and_then(|id| self.get_tool(&id).err());
        let error = refused.as_ref().map_or_else(
            || format!("`{shown}` is no name of a tool, such as `server:tool`"),
            |error| error.message.clone(),
        );
        let near = refused.map_or_else(Vec::new, |error| error.nearest);
        let mut near: Vec<String> = near
            .into_iter()
            .filter(|id| granted.includes(id) && catalog.get(id).is_some_and(|tool| is_callable(tool)))
            .map(|id| id.to_string())
            .collect();
        if near.is_empty() {
            let found = self.search_granted(spoken(&shown), MAX_SUGGESTIONS, granted).await;
            near = found.iter().map(|found| found.tool.id().to_string()).collect();
        }
        json!({ "id": shown, "error": error, "nearest": near })
    }

    /// Returns true if the server is configured, but none of its tools is granted.
    fn is_withheld(&self, id: &ToolId, granted: &ToolSelection) -> bool {
        let is_configured = self.fleet.snapshot.load().settings.server(id.server()).is_some();
        is_configured && !granted.includes_server(id.server())
    }
}

impl Default for ToolEntries {
    fn default() -> Self {
        Self { tools: Vec::new(), text: String::new(), is_empty: true }
    }
}

impl ToolEntries {
    fn add(&mut self, entry: Value) {
        self.is_empty = false;
        self.push(text_of(&entry), entry);
    }

    fn add_unknown(&mut self, entry: Value) {
        let nearest = entry["nearest"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let nearest: Vec<String> = nearest.map(|id| format!("`{id}`")).collect();
        let mut text = format!("// {}", entry["error"].as_str().unwrap_or_default());
        if !nearest.is_empty() {
            text.push_str(&format!("; the nearest tools are {}", nearest.join(", ")));
        }
        self.push(text, entry);
    }

    fn push(&mut self, text: String, entry: Value) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&text);
        self.tools.push(entry);
    }
}

fn is_server_of(found: &[RankedCatalogTool], name: &str) -> bool {
    found.iter().any(|found| found.tool.id().server() == name)
}

/// Returns the text of an entry: TypeScript, or the JSON of an entry with schemas.
fn text_of(entry: &Value) -> String {
    if entry.get("inputSchema").is_some() {
        return entry.to_string();
    }
    let field = |name: &str| entry[name].as_str().filter(|text| !text.is_empty());
    let declaration = field("declaration").or(field("signature")).or(field("call")).unwrap_or_default();
    let is_down = entry["down"] == true;
    let down = is_down.then_some("its server is down");
    // The declaration repeats the description.
    let description = field("description").filter(|_| field("declaration").is_none());
    let comment: Vec<&str> = down.into_iter().chain(description).collect();
    match comment.join("; ") {
        comment if comment.is_empty() => declaration.to_owned(),
        comment if comment.contains('\n') => format!("/* {} */\n{declaration}", comment.replace("*/", "* /")),
        comment => format!("{declaration} // {comment}"),
    }
}

/// Returns the entry of one of all tools: without its description, because there may be many.
fn listed(tool: &Arc<CatalogTool>, calls: &CallNames<'_>, format: DescriptionFormat) -> Value {
    match format {
        DescriptionFormat::Signature => json!({ "id": tool.id(), "signature": calls.signature(tool) }),
        _ => full(tool, calls, format),
    }
}

fn full(tool: &Arc<CatalogTool>, calls: &CallNames<'_>, format: DescriptionFormat) -> Value {
    let definition = tool.definition();
    let mut entry =
        json!({ "id": tool.id(), "call": calls.call(tool), "description": definition.description });
    match format {
        DescriptionFormat::Signature => entry["signature"] = calls.signature(tool).into(),
        DescriptionFormat::Declaration => {
            entry["declaration"] = declare_tools(std::slice::from_ref(tool)).into();
        }
        DescriptionFormat::Schema => {
            entry["inputSchema"] = json!(definition.input_schema);
            entry["outputSchema"] = json!(definition.output_schema);
        }
    }
    entry
}

pub(crate) fn first_line(tool: &CatalogTool) -> &str {
    let description = tool.definition().description.as_deref().unwrap_or_default();
    description.trim().lines().next().unwrap_or_default()
}

/// Returns the words of a name, as an intent.
fn spoken(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    for letter in name.chars() {
        match letter {
            letter if letter.is_ascii_uppercase() => words.extend([' ', letter.to_ascii_lowercase()]),
            letter if letter.is_alphanumeric() => words.push(letter),
            _ => words.push(' '),
        }
    }
    words
}
