//! Answers queries about tools: the tools for an intent, and the types of named tools.
//!
//! MCP clients ask with `search_tools` and `describe_tools`, scripts with `mcp.search` and `mcp.describe`. Both get the same
//! entries. Nothing here calls a tool.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool};
use bascule_model::ToolId;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::McpBridgeAdapter;
use crate::blocking::run_blocking;
use crate::fleet::snapshot::Snapshot;
use crate::normalise::addressed;
use crate::script::ToolSelection;
use crate::script_types::{CallNames, declare_tools, is_callable};
use crate::search::{DEFAULT_COUNT, RankedCatalogTool, ToolIntent};
use crate::tool_spelling::{ToolSpellings, meant_id};

/// The most tools that one search returns.
pub(crate) const MAX_FOUND: usize = 50;
/// The number of tools suggested for an unknown name that resembles none.
const MAX_SUGGESTIONS: usize = 3;
/// The most names of one query.
const MAX_NAMES: usize = 200;
/// The most servers of which an answer says how many of their tools it leaves out.
pub(crate) const MAX_OMITTED: usize = 50;
/// The way to tools that an answer leaves out.
const FIND_OTHERS: &str = "`search_tools` finds the tools for one step: describe those";
/// The way to tools that a script may not call.
const GRANT: &str =
    "its call was limited by `tools` or `intent`; name the tool in `tools`, or leave both out";
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

/// The entries of an answer, and the same as text for a model. Entries that do not fit are counted.
pub(crate) struct ToolEntries {
    pub(crate) tools: Vec<Value>,
    pub(crate) text: String,
    /// No entry is a tool, and none was left out.
    pub(crate) is_empty: bool,
    /// The tools that did not fit, for each server.
    pub(crate) omitted: Vec<(String, usize)>,
    /// The answers to unknown names, which are part of the text.
    notes: Vec<String>,
    /// The unknown names that did not fit.
    omitted_names: usize,
    /// The most bytes of the text, and of the entries as JSON.
    budget: usize,
    /// The bytes of the entries as JSON.
    size: usize,
}

/// The tools of a name, or the answer to one that is unknown.
enum ResolvedName {
    Tools(Vec<Arc<CatalogTool>>),
    Unknown(UnknownName),
}

struct UnknownName {
    /// The beginning of the name.
    shown: String,
    error: String,
    nearest: Vec<String>,
    /// No name resembles it: a search suggests tools.
    needs_search: bool,
}

/// Finds the tools of names among those that the caller may use.
struct NameResolver {
    snapshot: Arc<Snapshot>,
    granted: ToolSelection,
    /// The tools that the caller may use.
    usable: Arc<HashSet<ToolId>>,
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
        self.search_within(query, granted, usize::MAX).await
    }

    /// Answers a search with at most `budget` bytes of text. Types are written on another thread.
    pub(crate) async fn search_within(
        &self,
        query: SearchQuery,
        granted: &ToolSelection,
        budget: usize,
    ) -> Result<ToolEntries, String> {
        let SearchQuery { intent, k, detail } = query;
        if intent.trim().is_empty() {
            return Err("`intent` is empty: describe one step, such as \"open an issue\"".into());
        }
        let found = self.search_granted(intent, k.unwrap_or(DEFAULT_COUNT), granted).await;
        let catalog = self.catalog();
        Ok(match detail {
            ToolDetail::Types => run_blocking(move || describe_found(&catalog, &found, detail, budget)).await,
            _ => describe_found(&catalog, &found, detail, budget),
        })
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
        self.describe_within(query, granted, usize::MAX).await
    }

    /// Answers with the types of tools, with at most `budget` bytes of text. Names are compared and types are written on another
    /// thread: there may be thousands.
    pub(crate) async fn describe_within(
        &self,
        query: DescribeQuery,
        granted: &ToolSelection,
        budget: usize,
    ) -> ToolEntries {
        let DescribeQuery { tools, format } = query;
        let (snapshot, granted) = (self.fleet.snapshot.load_full(), granted.clone());
        let catalog = snapshot.catalog.clone();
        let Some(names) = tools.map(NamedTools::into_names) else {
            return run_blocking(move || describe_all(&catalog, &granted, format, budget)).await;
        };
        let (mut resolved, usable) = run_blocking(move || {
            let resolver = NameResolver::new(snapshot, granted);
            (resolver.resolve(&names), resolver.usable)
        })
        .await;
        self.suggest(&mut resolved, usable).await;
        run_blocking(move || describe_named(&catalog, resolved, format, budget)).await
    }

    /// Adds the tools that a search finds to the names that resemble none.
    async fn suggest(&self, resolved: &mut [ResolvedName], usable: Arc<HashSet<ToolId>>) {
        let unknown = resolved.iter_mut().filter_map(|resolved| match resolved {
            ResolvedName::Unknown(name) if name.needs_search => Some(name),
            _ => None,
        });
        let unknown: Vec<&mut UnknownName> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        let intent =
            |name: &&mut UnknownName| ToolIntent { text: spoken(&name.shown), count: MAX_SUGGESTIONS };
        let intents = unknown.iter().map(intent).collect();
        let found = self.search_all(intents, move |tool| usable.contains(tool.id())).await;
        for (name, found) in unknown.into_iter().zip(found) {
            name.nearest = found.iter().map(|found| found.tool.id().to_string()).collect();
        }
    }
}

impl NameResolver {
    fn new(snapshot: Arc<Snapshot>, granted: ToolSelection) -> Self {
        let is_usable = |tool: &&Arc<CatalogTool>| granted.includes(tool.id()) && is_callable(tool);
        let usable = snapshot.catalog.tools().filter(is_usable).map(|tool| tool.id().clone()).collect();
        Self { usable: Arc::new(usable), snapshot, granted }
    }

    fn resolve(&self, names: &[String]) -> Vec<ResolvedName> {
        let spellings = ToolSpellings::new(&self.snapshot.catalog);
        let mut asked = HashSet::new();
        let names = names.iter().filter(|name| asked.insert(name.as_str()));
        let resolve = |name: &String| {
            let named = spellings.find(name);
            let usable: Vec<_> = named
                .iter()
                .filter(|tool| self.usable.contains(tool.id()))
                .map(|tool| (*tool).clone())
                .collect();
            match usable.is_empty() {
                true => ResolvedName::Unknown(self.unknown(name, named.first().copied())),
                false => ResolvedName::Tools(usable),
            }
        };
        names.map(resolve).collect()
    }

    /// Answers a name that is not the name of a tool that the caller may use.
    fn unknown(&self, name: &str, withheld: Option<&Arc<CatalogTool>>) -> UnknownName {
        let shown: String = name.chars().take(MAX_REPEATED).collect();
        let refused = |shown: String, error: String| UnknownName {
            shown,
            error,
            nearest: Vec::new(),
            needs_search: false,
        };
        if let Some(tool) = withheld {
            let error = match bascule_script::names::check(tool.id().server(), tool.id().tool()) {
                Err(error) => error.to_string(),
                Ok(()) => format!("`{}` exists, but was not granted to this script: {GRANT}", tool.id()),
            };
            return refused(shown, error);
        }
        let meant = meant_id(&shown);
        if let Some(id) = meant.as_ref().filter(|id| self.is_withheld(id)) {
            let error = format!(
                "the server `{}` exists, but none of its tools was granted to this script: {GRANT}",
                id.server()
            );
            return refused(shown, error);
        }
        let error =
            meant.and_then(|id| self.snapshot.known_tool(&id).map_err(|error| addressed(error, &id)).err());
        let message = error.as_ref().map_or_else(
            || format!("`{shown}` is no name of a tool, such as `server:tool`"),
            |error| error.message.clone(),
        );
        let nearest = error.map_or_else(Vec::new, |error| error.nearest);
        let nearest: Vec<String> =
            nearest.iter().filter(|id| self.usable.contains(id)).map(ToString::to_string).collect();
        UnknownName { needs_search: nearest.is_empty(), ..UnknownName { nearest, ..refused(shown, message) } }
    }

    /// Returns true if the server is configured, but none of its tools is granted.
    fn is_withheld(&self, id: &ToolId) -> bool {
        let is_configured = self.snapshot.settings.server(id.server()).is_some();
        is_configured && !self.granted.includes_server(id.server())
    }
}

impl ToolEntries {
    fn within(budget: usize) -> Self {
        Self {
            tools: Vec::new(),
            text: String::new(),
            is_empty: true,
            omitted: Vec::new(),
            notes: Vec::new(),
            omitted_names: 0,
            budget,
            size: 0,
        }
    }

    /// Adds the entry of a tool if there is room for it.
    fn add(&mut self, tool: &CatalogTool, entry: Value) {
        self.is_empty = false;
        let text = text_of(&entry);
        // After the first one that is left out all are: an agent should not take the list for complete.
        if !self.omitted.is_empty() || !self.push(text, entry) {
            self.omit(tool.id().server(), 1);
        }
    }

    /// Adds the entries of all tools of a server, or none of them.
    fn add_server(&mut self, server: &str, entries: Vec<Value>) {
        self.is_empty &= entries.is_empty();
        let (texts, tools, size) = (self.text.len(), self.tools.len(), self.size);
        let count = entries.len();
        let all_fit = entries.into_iter().all(|entry| self.push(text_of(&entry), entry));
        if !all_fit {
            self.text.truncate(texts);
            self.tools.truncate(tools);
            self.size = size;
            self.omit(server, count);
        }
    }

    fn add_unknown(&mut self, name: &UnknownName) {
        let mut text = format!("// {}", name.error);
        if !name.nearest.is_empty() {
            let nearest: Vec<String> = name.nearest.iter().map(|id| format!("`{id}`")).collect();
            text.push_str(&format!("; the nearest tools are {}", nearest.join(", ")));
        }
        let entry = json!({ "id": name.shown, "error": name.error, "nearest": name.nearest });
        match self.push(text.clone(), entry) {
            true => self.notes.push(text),
            false => self.omitted_names += 1,
        }
    }

    /// Adds an entry. Returns false if there is no room for it.
    fn push(&mut self, text: String, entry: Value) -> bool {
        if self.budget < usize::MAX {
            let size = self.size + entry.to_string().len() + 1;
            if size > self.budget || self.text.len() + text.len() + 1 > self.budget {
                return false;
            }
            self.size = size;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&text);
        self.tools.push(entry);
        true
    }

    fn omit(&mut self, server: &str, count: usize) {
        match self.omitted.iter_mut().rev().find(|(name, _)| name == server) {
            Some((_, known)) => *known += count,
            None => self.omitted.push((server.to_owned(), count)),
        }
    }

    /// Writes the declarations of all entries together: those of a server's tools share the objects `mcp` and that of the server.
    fn declare_together(&mut self, catalog: &Catalog) {
        let tools: HashMap<String, &Arc<CatalogTool>> =
            catalog.tools().map(|tool| (tool.id().to_string(), tool)).collect();
        let declared = self.tools.iter().filter(|entry| entry.get("declaration").is_some());
        let declared = declared.filter_map(|entry| tools.get(entry["id"].as_str()?));
        let declared: Vec<Arc<CatalogTool>> = declared.map(|tool| (*tool).clone()).collect();
        let mut text = self.notes.join("\n");
        if !declared.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(&declare_tools(&declared));
        }
        self.text = text;
    }

    /// Says what was left out, and the way to it.
    fn finish(&mut self, advice: &str) {
        let mut left_out: Vec<String> = self.omitted.iter().take(MAX_OMITTED).map(omitted_server).collect();
        if self.omitted.len() > MAX_OMITTED {
            left_out.push(format!("{} more servers", self.omitted.len() - MAX_OMITTED));
        }
        if self.omitted_names > 0 {
            left_out.push(format!("{} more unknown names", self.omitted_names));
        }
        if !left_out.is_empty() {
            let separator = if self.text.is_empty() { "" } else { "\n" };
            let left_out = left_out.join(", ");
            self.text.push_str(&format!(
                "{separator}// Left out, because the answer is too long: {left_out}; {advice}."
            ));
        }
    }
}

fn omitted_server((server, count): &(String, usize)) -> String {
    let tools = if *count == 1 { "tool" } else { "tools" };
    format!("mcp.{} ({count} {tools})", bascule_script::names::to_camel_case(server))
}

/// Describes the tools that a search found.
fn describe_found(
    catalog: &Catalog,
    found: &[RankedCatalogTool],
    detail: ToolDetail,
    budget: usize,
) -> ToolEntries {
    let calls = CallNames::of_servers(catalog, |name| is_server_of(found, name));
    let mut entries = ToolEntries::within(budget);
    for RankedCatalogTool { tool, is_down } in found {
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
        entries.add(tool, entry);
    }
    entries.finish("ask for fewer (`k`)");
    entries
}

/// Describes all tools that the caller may use: each server as a whole, or not at all.
fn describe_all(
    catalog: &Catalog,
    granted: &ToolSelection,
    format: DescriptionFormat,
    budget: usize,
) -> ToolEntries {
    let (calls, mut entries) = (CallNames::new(catalog), ToolEntries::within(budget));
    for server in catalog.servers() {
        let usable = server.tools().iter().filter(|tool| granted.includes(tool.id()) && is_callable(tool));
        let listed = usable.map(|tool| listed(tool, &calls, format)).collect();
        entries.add_server(server.name().as_str(), listed);
    }
    if format == DescriptionFormat::Declaration {
        entries.declare_together(catalog);
    }
    entries.finish(FIND_OTHERS);
    entries
}

fn describe_named(
    catalog: &Catalog,
    resolved: Vec<ResolvedName>,
    format: DescriptionFormat,
    budget: usize,
) -> ToolEntries {
    let (calls, mut entries) = (CallNames::new(catalog), ToolEntries::within(budget));
    let mut described = HashSet::new();
    for name in resolved {
        match name {
            ResolvedName::Unknown(name) => entries.add_unknown(&name),
            ResolvedName::Tools(tools) => {
                for tool in tools.iter().filter(|tool| described.insert(tool.id().clone())) {
                    entries.add(tool, full(tool, &calls, format));
                }
            }
        }
    }
    if format == DescriptionFormat::Declaration {
        entries.declare_together(catalog);
    }
    entries.finish(FIND_OTHERS);
    entries
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

#[cfg(test)]
mod tests {
    use bascule_catalog::{ServerTools, ToolFilter};
    use bascule_model::{ServerName, ToolDefinition};
    use serde_json::value::RawValue;

    use super::*;

    const BUDGET: usize = 20_000;

    fn server(name: &str, count: usize) -> ServerTools {
        let parse = |n: usize| {
            let schema =
                r#"{"type":"object","properties":{"path":{"type":"string","description":"A path"}}}"#;
            let text = format!(r#"{{"name":"tool_{n}","description":"Does {n}","inputSchema":{schema}}}"#);
            ToolDefinition::parse(RawValue::from_string(text).unwrap()).unwrap()
        };
        let tools = (0..count).map(parse).collect();
        ServerTools::new(ServerName::parse(name).unwrap(), ToolFilter::default(), tools)
    }

    fn catalog() -> Catalog {
        [server("my-big", 1_000), server("small", 3)].into_iter().collect()
    }

    /// The longest note about what was left out.
    const MAX_NOTE: usize = 500;

    fn check_size(entries: &ToolEntries) {
        assert!(entries.text.len() <= BUDGET + MAX_NOTE, "{}", entries.text.len());
        assert!(json!(entries.tools).to_string().len() <= BUDGET + 2);
    }

    // req: GW-08, CM-15
    #[test]
    fn server_that_does_not_fit_is_named_with_its_count() {
        for format in
            [DescriptionFormat::Signature, DescriptionFormat::Declaration, DescriptionFormat::Schema]
        {
            let entries = describe_all(&catalog(), &ToolSelection::all(), format, BUDGET);
            check_size(&entries);
            let ids: Vec<_> = entries.tools.iter().map(|tool| tool["id"].clone()).collect();
            assert_eq!(ids, ["small:tool_0", "small:tool_1", "small:tool_2"]);
            let note = entries.text.lines().last().unwrap();
            assert!(note.contains("mcp.myBig (1000 tools)") && note.contains("`search_tools`"), "{note}");
            assert!(!entries.is_empty);
        }
        let whole = describe_all(&catalog(), &ToolSelection::all(), DescriptionFormat::Schema, usize::MAX);
        assert_eq!((whole.tools.len(), whole.omitted.len()), (1_003, 0));
    }

    // req: GW-08, CM-15
    #[test]
    fn declarations_of_a_server_are_one_block() {
        let catalog: Catalog = [server("my-big", 3), server("small", 3)].into_iter().collect();
        let all = |name: &str| {
            ResolvedName::Tools(ToolSpellings::new(&catalog).find(name).into_iter().cloned().collect())
        };
        let unknown = UnknownName {
            shown: "smal".into(),
            error: "there is no `smal`".into(),
            nearest: Vec::new(),
            needs_search: false,
        };
        let named = vec![all("small:*"), ResolvedName::Unknown(unknown), all("my-big:tool_1")];
        let entries = describe_named(&catalog, named, DescriptionFormat::Declaration, BUDGET);
        let count = |part: &str| entries.text.matches(part).count();
        for once in ["declare const mcp:", "declare const small:", "readonly small:", "// there is no `smal`"]
        {
            assert_eq!(count(once), 1, "{once}: {}", entries.text);
        }
        assert_eq!((count("): Promise<"), entries.tools.len()), (4, 5), "{}", entries.text);
        let text = describe_all(&catalog, &ToolSelection::all(), DescriptionFormat::Declaration, BUDGET).text;
        assert_eq!(
            (text.matches("declare const").count(), text.matches("): Promise<").count()),
            (3, 6),
            "{text}"
        );
    }

    // req: GW-08, CM-15
    #[test]
    fn named_tools_are_described_whole_or_counted() {
        let catalog = catalog();
        let all = |name: &str| {
            ResolvedName::Tools(ToolSpellings::new(&catalog).find(name).into_iter().cloned().collect())
        };
        let named = vec![all("small"), all("my-big:*")];
        let entries = describe_named(&catalog, named, DescriptionFormat::Declaration, BUDGET);
        check_size(&entries);
        assert!(entries.tools.len() > 10 && entries.tools.iter().all(|tool| tool["declaration"].is_string()));
        assert_eq!(entries.omitted, [("my-big".to_owned(), 1_003 - entries.tools.len())]);
        let unknown = |n: usize| UnknownName {
            shown: format!("{n}{}", "x".repeat(200)),
            error: "there is no such tool".repeat(10),
            nearest: vec!["small:tool_1".into(); 3],
            needs_search: false,
        };
        let unknown = (0..200).map(|n| ResolvedName::Unknown(unknown(n))).collect();
        let entries = describe_named(&catalog, unknown, DescriptionFormat::Signature, BUDGET);
        check_size(&entries);
        assert!(entries.is_empty && entries.text.contains("more unknown names"), "{}", entries.text);
    }
}
