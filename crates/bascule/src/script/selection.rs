//! Selects the tools that a script may call by name and leaves out names that scripts cannot use.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::{Catalog, CatalogTool, NamePattern, ResolveError};
use bascule_model::{BridgeError, BridgeResult, ToolId, clip};
use bascule_script::names::{self, InvalidToolName};
use bascule_script::wire::{ConsoleLine, InjectedTool, ScriptError};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::ScriptRequest;
use crate::McpBridgeAdapter;
use crate::blocking::run_blocking;
use crate::normalise::{describe_nearest, missing};
use crate::script_types::call_signature;

/// Maximum wait for servers that are still starting.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a tool description in a worker.
const MAX_DESCRIPTION: usize = 1_000;
/// Argument keys are not respelled for tools with a longer schema.
const MAX_SCHEMA: usize = 256 << 10;
/// A longer schema is not compiled before the first call of its tool: the script would wait.
const MAX_COMPILED: usize = 32 << 10;
/// A script waits for so long for the schemas of the tools that it names. The others are not compiled before their first call.
const COMPILE_TIME: Duration = Duration::from_millis(100);
/// Number of left-out tools to name.
const MAX_WARNINGS: usize = 10;

/// Maximum number of patterns in a selection: each is compared with every tool.
const MAX_PATTERNS: usize = 200;

/// A choice of tools: all, or those that match one of the `server:tool` patterns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Option<Vec<(String, String)>>", into = "Option<Vec<(String, String)>>")]
pub struct ToolSelection(Option<Vec<ToolPattern>>);

/// Matches the names of tools and of their servers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToolPattern {
    server: NamePattern,
    tool: NamePattern,
}

impl ToolPattern {
    fn new(server: &str, tool: &str) -> Self {
        Self { server: NamePattern::parse(server), tool: NamePattern::parse(tool) }
    }

    fn matches(&self, id: &ToolId) -> bool {
        self.server.matches(id.server()) && self.tool.matches(id.tool())
    }
}

/// The reason why patterns are no selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolSelectionError {
    /// A pattern is not `server:tool`.
    #[error("`{0}` is not a tool pattern: use `server:tool` or `server:*`")]
    NotAPattern(String),
    /// There are too many patterns.
    #[error(
        "too many tools are named: at most {MAX_PATTERNS} can be; `server:*` selects all tools of a server"
    )]
    TooMany,
}

impl TryFrom<Option<Vec<(String, String)>>> for ToolSelection {
    type Error = ToolSelectionError;

    fn try_from(names: Option<Vec<(String, String)>>) -> Result<Self, ToolSelectionError> {
        let Some(names) = names else { return Ok(Self::all()) };
        Self::check_count(names.len())?;
        Ok(Self(Some(names.iter().map(|(server, tool)| ToolPattern::new(server, tool)).collect())))
    }
}

impl From<ToolSelection> for Option<Vec<(String, String)>> {
    fn from(selection: ToolSelection) -> Self {
        let names = |pattern: &ToolPattern| (pattern.server.to_string(), pattern.tool.to_string());
        selection.0.map(|patterns| patterns.iter().map(names).collect())
    }
}

impl ToolSelection {
    /// Selects every tool.
    pub fn all() -> Self {
        Self(None)
    }

    /// Parses up to 200 patterns such as `server:tool`. Both parts may contain `*`.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSelectionError> {
        let split = |pattern: &'a str| match pattern.split_once(':') {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                Ok(ToolPattern::new(server, tool))
            }
            _ => Err(ToolSelectionError::NotAPattern(pattern.into())),
        };
        // One more than are allowed shows that there are too many.
        let patterns = patterns.into_iter().take(MAX_PATTERNS + 1).map(str::trim).map(split);
        let patterns: Vec<ToolPattern> = patterns.collect::<Result<_, _>>()?;
        Self::check_count(patterns.len())?;
        Ok(Self(Some(patterns)))
    }

    /// Refuses too many patterns.
    pub(crate) fn check_count(count: usize) -> Result<(), ToolSelectionError> {
        if count > MAX_PATTERNS { Err(ToolSelectionError::TooMany) } else { Ok(()) }
    }

    /// Selects the tools of a script: those that it names, and of them the best for its intent.
    pub(super) async fn of_request(bridge: &McpBridgeAdapter, request: &ScriptRequest) -> BridgeResult<Self> {
        let Some(intent) = &request.intent else { return Ok(request.tools.clone()) };
        request.tools.check_servers(bridge)?;
        await_starts(bridge, &request.tools).await;
        let allowed = request.tools.clone();
        let is_wanted = move |tool: &CatalogTool| {
            allowed.includes(tool.id()) && names::check(tool.id().server(), tool.id().tool()).is_ok()
        };
        let found = bridge.search_tools(intent.clone(), is_wanted).await;
        let pattern = |id: &ToolId| ToolPattern::new(id.server(), id.tool());
        Ok(Self(Some(found.iter().map(|found| pattern(found.tool.id())).collect())))
    }

    /// Returns true if a pattern names this server.
    pub(crate) fn includes_server(&self, name: &str) -> bool {
        let Some(patterns) = &self.0 else { return true };
        patterns.iter().any(|pattern| pattern.server.matches(name))
    }

    pub(crate) fn includes(&self, id: &ToolId) -> bool {
        let Some(patterns) = &self.0 else { return true };
        patterns.iter().any(|pattern| pattern.matches(id))
    }

    /// Fails if a server without a wildcard is not configured.
    fn check_servers(&self, bridge: &McpBridgeAdapter) -> BridgeResult<()> {
        let snapshot = bridge.fleet.snapshot.load();
        let literal = self.0.iter().flatten().map(|pattern| &pattern.server).filter(|name| name.is_literal());
        let mut unknown =
            literal.map(NamePattern::as_str).filter(|name| snapshot.settings.server(name).is_none());
        match unknown.next() {
            Some(name) => {
                Err(crate::normalise::missing(crate::normalise::no_server(&snapshot.settings, name)))
            }
            None => Ok(()),
        }
    }

    /// Fails if a pattern matches no tool, unless a server is down whose tools it may match.
    fn check_patterns(&self, bridge: &McpBridgeAdapter, absent: &[String]) -> BridgeResult<()> {
        let catalog = bridge.catalog();
        for pattern in self.0.iter().flatten() {
            let is_used = absent.iter().any(|name| pattern.server.matches(name))
                || catalog.tools().any(|found| pattern.matches(found.id()));
            if !is_used {
                return Err(unmatched_pattern(&catalog, pattern.server.as_str(), pattern.tool.as_str()));
            }
        }
        Ok(())
    }

    /// Returns the tools that are named without wildcards.
    fn literal_ids(&self) -> Vec<ToolId> {
        let is_literal = |pattern: &&ToolPattern| pattern.server.is_literal() && pattern.tool.is_literal();
        let literal = self.0.iter().flatten().filter(is_literal);
        literal
            .filter_map(|pattern| ToolId::parse(&format!("{}:{}", pattern.server, pattern.tool)).ok())
            .collect()
    }
}

/// Returns the error of a pattern that matches no tool. The nearest names are those of the pattern without wildcards.
fn unmatched_pattern(catalog: &Catalog, server: &str, tool: &str) -> Box<BridgeError> {
    let plain = ToolId::parse(&format!("{server}:{tool}").replace('*', ""));
    let nearest = match plain.as_ref().map(|id| catalog.resolve(id)) {
        Ok(Err(ResolveError::Unknown { nearest })) => nearest,
        _ => Vec::new(),
    };
    let advice = match nearest.is_empty() {
        true => "; `bascule tools` lists them".into(),
        false => describe_nearest(&nearest),
    };
    let mut error = missing(format!("no tool matches `{server}:{tool}`{advice}"));
    error.nearest = nearest;
    error
}

/// The tools that a script may call.
pub(super) struct InjectedTools {
    tools: Vec<Arc<CatalogTool>>,
    ids: HashSet<String>,
    /// Configured servers that have not listed their tools.
    pub(super) absent_servers: Vec<String>,
    selection: ToolSelection,
    /// Tools with invalid names, matched by a wildcard.
    left_out: Vec<InvalidToolName>,
    /// A tool with an invalid name, requested without a wildcard.
    invalid: Option<InvalidToolName>,
}

impl InjectedTools {
    /// Waits for the selected servers to start and selects their tools. An unknown tool is an error, unless its server is
    /// down: the script gets that error when it calls.
    pub(super) async fn select(bridge: &McpBridgeAdapter, selection: &ToolSelection) -> BridgeResult<Self> {
        await_starts(bridge, selection).await;
        let absent_servers = absent_servers(bridge, selection);
        for id in selection.literal_ids() {
            if !absent_servers.iter().any(|server| server == id.server()) {
                bridge.get_tool(&id)?;
            }
        }
        selection.check_servers(bridge)?;
        let requested: HashSet<String> = selection.literal_ids().iter().map(ToString::to_string).collect();
        let mut injected = Self {
            tools: Vec::new(),
            ids: HashSet::new(),
            absent_servers,
            selection: selection.clone(),
            left_out: Vec::new(),
            invalid: None,
        };
        selection.check_patterns(bridge, &injected.absent_servers)?;
        for tool in bridge.catalog().tools().filter(|tool| selection.includes(tool.id())) {
            match names::check(tool.id().server(), tool.id().tool()) {
                Ok(()) => {
                    injected.ids.insert(tool.id().to_string());
                    injected.tools.push(tool.clone());
                }
                Err(error) if requested.contains(&tool.id().to_string()) => injected.invalid = Some(error),
                Err(error) => injected.left_out.push(error),
            }
        }
        Ok(injected)
    }

    /// The tools that the script may call, by name.
    pub(super) fn selection(&self) -> &ToolSelection {
        &self.selection
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.id().to_string()).collect()
    }

    /// Returns the first few ids, for the log.
    pub(super) fn summary(&self) -> String {
        let first: Vec<String> = self.tools.iter().take(20).map(|tool| tool.id().to_string()).collect();
        first.join(" ")
    }

    /// Returns true if the script may call the tool. The worker is not trusted to call only the injected tools.
    pub(super) fn allows(&self, server: &str, tool: &str) -> bool {
        const MAX_NAME: usize = 256;
        let id = format!("{server}:{tool}");
        let is_absent = || self.absent_servers.iter().any(|absent| absent == server);
        let is_valid = || tool.len() <= MAX_NAME && names::check(server, tool).is_ok();
        let is_selected = || ToolId::parse(&id).is_ok_and(|id| self.selection.includes(&id));
        self.ids.contains(&id) || (is_absent() && is_valid() && is_selected())
    }

    /// Compiles the schemas of the tools that the script names, on another thread: the patterns of a schema may take long, and the
    /// script's check needs to know whether the bridge can use the schema.
    pub(super) async fn compile_schemas(&self, code: &str) {
        let words = NamedWords::of(code);
        let is_slow = |tool: &&Arc<CatalogTool>| {
            words.may_name(tool.id().tool())
                && !tool.has_quick_input_schema()
                && tool.definition().input_schema.get().len() <= MAX_COMPILED
        };
        let slow: Vec<_> = self.tools.iter().filter(is_slow).cloned().collect();
        if !slow.is_empty() {
            run_blocking(move || compile_schemas(&slow)).await;
        }
    }

    /// Returns the definitions for the worker. The script's check needs the types of the tools that it names.
    pub(super) fn definitions(&self, code: &str) -> Vec<InjectedTool> {
        let words = NamedWords::of(code);
        self.tools.iter().map(|tool| injected_tool(tool, words.may_name(tool.id().tool()))).collect()
    }

    /// Returns the ids of the tools that exist, but were not selected. A server whose tools are not known is `server:*`.
    pub(super) fn not_granted(&self, bridge: &McpBridgeAdapter) -> Vec<String> {
        const MAX_NAMED: usize = 5_000;
        if self.selection.0.is_none() {
            return Vec::new();
        }
        let snapshot = bridge.fleet.snapshot.load();
        let configured = snapshot.settings.servers.iter().map(|server| server.name.as_str());
        let unlisted = configured
            .filter(|name| snapshot.catalog.server(name).is_none() && !self.selection.includes_server(name));
        let others = snapshot.catalog.tools().map(|tool| tool.id()).filter(|id| !self.selection.includes(id));
        let others = others.map(ToString::to_string);
        unlisted.map(|name| format!("{name}:*")).chain(others).take(MAX_NAMED).collect()
    }

    /// Returns the ids of the tools that the configuration denies.
    pub(super) fn denied(bridge: &McpBridgeAdapter) -> Vec<String> {
        const MAX_NAMED: usize = 5_000;
        let catalog = bridge.catalog();
        let servers = catalog.servers().iter();
        let ids = servers
            .flat_map(|server| server.denied_names().map(move |tool| format!("{}:{tool}", server.name())));
        ids.take(MAX_NAMED).collect()
    }

    /// Returns the error for a requested tool whose name scripts cannot use.
    pub(super) fn invalid_name(&self) -> Option<ScriptError> {
        let error = self.invalid.as_ref()?;
        Some(ScriptError {
            name: "InvalidToolNameError".into(),
            code: Some("INVALID_TOOL_NAME".into()),
            message: error.to_string(),
            ..ScriptError::default()
        })
    }

    /// Returns warnings about tools that were left out.
    pub(super) fn warnings(&self) -> Vec<ConsoleLine> {
        let line = |text: String| ConsoleLine { level: "warn".into(), text };
        let shown = self.left_out.iter().take(MAX_WARNINGS);
        let mut lines: Vec<_> =
            shown.map(|error| line(format!("tool left out: {}", clip(&error.to_string(), 200)))).collect();
        if self.left_out.len() > MAX_WARNINGS {
            lines.push(line(format!("{} more tools left out", self.left_out.len() - MAX_WARNINGS)));
        }
        lines
    }
}

/// The words of a script, without their spelling: `listCommits` and `list_commits` are one word.
struct NamedWords(HashSet<String>);

impl NamedWords {
    fn of(code: &str) -> Self {
        let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/');
        let names = code.split(|letter| !is_name(letter)).flat_map(|name| {
            // A name with these characters is quoted as a whole; elsewhere they separate names.
            std::iter::once(name).chain(name.split(['-', '.', '/']))
        });
        Self(names.filter(|name| !name.is_empty()).map(Self::plain).collect())
    }

    /// Returns false if the script surely does not name the tool.
    fn may_name(&self, tool: &str) -> bool {
        self.0.contains(&Self::plain(tool))
    }

    fn plain(name: &str) -> String {
        let letters = name.chars().filter(|letter| letter.is_alphanumeric());
        letters.map(|letter| letter.to_ascii_lowercase()).collect()
    }
}

/// Returns the definition of a tool for the worker, with its types if the script names it.
fn injected_tool(tool: &Arc<CatalogTool>, is_named: bool) -> InjectedTool {
    let definition = tool.definition();
    let is_short = |raw: &RawValue| raw.get().len() <= MAX_SCHEMA;
    let observed = || to_raw_value(&tool.observed_schema()?).ok();
    InjectedTool {
        server: tool.id().server().to_owned(),
        name: tool.id().tool().to_owned(),
        description: definition.description.as_deref().map(|text| clip(text, MAX_DESCRIPTION).to_owned()),
        input_schema: Some(definition.input_schema.clone()).filter(|raw| is_short(raw)),
        output_schema: definition.output_schema.clone().filter(|raw| is_named && is_short(raw)),
        observed_schema: is_named.then(observed).flatten().filter(|raw| is_short(raw)),
        signature: is_named.then(|| call_signature(tool)),
        is_unchecked: is_named && !is_validated(tool),
    }
}

/// Returns true if the bridge validates the arguments of the tool, as far as that is quick to see: the caller runs on the thread of
/// all calls.
fn is_validated(tool: &CatalogTool) -> bool {
    tool.has_quick_input_schema() && tool.has_usable_input_schema()
}

/// Compiles schemas until the time is over.
fn compile_schemas(tools: &[Arc<CatalogTool>]) {
    let started = std::time::Instant::now();
    for tool in tools.iter().take_while(|_| started.elapsed() < COMPILE_TIME) {
        tool.has_usable_input_schema();
    }
}

async fn await_starts(bridge: &McpBridgeAdapter, selection: &ToolSelection) {
    let (snapshot, deadline) = (bridge.fleet.snapshot.load_full(), Instant::now() + START_TIMEOUT);
    let selected =
        snapshot.in_order().filter(|server| selection.includes_server(server.settings.name.as_str()));
    let starts = selected.map(|server| server.tools_known(deadline));
    futures_util::future::join_all(starts).await;
}

fn absent_servers(bridge: &McpBridgeAdapter, selection: &ToolSelection) -> Vec<String> {
    let snapshot = bridge.fleet.snapshot.load();
    let configured = snapshot.settings.servers.iter().map(|server| server.name.as_str());
    let unlisted = configured.filter(|name| snapshot.catalog.server(name).is_none());
    unlisted
        .filter(|name| selection.includes_server(name) && names::check(name, "tool").is_ok())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-07
    #[test]
    fn selects_tools_by_pattern() {
        let selection = ToolSelection::parse(["a:b", " c:* "]).unwrap();
        let includes = |id: &str| selection.includes(&ToolId::parse(id).unwrap());
        assert!(includes("a:b") && includes("c:x") && !includes("a:c") && !includes("d:b"));
        assert!(
            selection.includes_server("a")
                && selection.includes_server("c")
                && !selection.includes_server("d")
        );
        assert_eq!(selection.literal_ids().len(), 1);
        assert!(ToolSelection::all().includes(&ToolId::parse("x:y").unwrap()));
        assert!(ToolSelection::parse(["a"]).is_err() && ToolSelection::parse([":b"]).is_err());
    }

    // req: CM-07
    #[test]
    fn refuses_more_patterns_than_can_be_compared_quickly() {
        let patterns = |count: usize| ToolSelection::parse(std::iter::repeat_n("a:b", count));
        assert!(patterns(200).is_ok());
        assert_eq!(patterns(20_000), Err(ToolSelectionError::TooMany));
        let names = serde_json::to_string(&vec![("a", "b"); 201]).unwrap();
        assert!(serde_json::from_str::<ToolSelection>(&names).is_err());
        let selection = ToolSelection::parse(["a:b", "c:*"]).unwrap();
        let json = serde_json::to_string(&selection).unwrap();
        assert_eq!(json, r#"[["a","b"],["c","*"]]"#);
        assert_eq!(serde_json::from_str::<ToolSelection>(&json).unwrap(), selection);
    }

    fn tool(schema: &str) -> Arc<CatalogTool> {
        let raw = RawValue::from_string(format!(r#"{{"name":"now","inputSchema":{schema}}}"#)).unwrap();
        let definition = bascule_model::ToolDefinition::parse(raw).unwrap();
        Arc::new(CatalogTool::new(&bascule_model::ServerName::parse("clock").unwrap(), definition))
    }

    fn is_unchecked(tool: &Arc<CatalogTool>) -> bool {
        injected_tool(tool, true).is_unchecked
    }

    // req: CM-14
    #[test]
    fn tells_whether_the_bridge_validates_arguments() {
        assert!(!is_unchecked(&tool("{}")) && !is_unchecked(&tool(r#"{"required":["zone"]}"#)));
        assert!(is_unchecked(&tool(
            r#"{"properties":{"a":{"$ref":"https://example.com/a.json"}},"required":["a"]}"#
        )));
    }

    // req: CM-14
    #[test]
    fn compiles_no_patterns_on_the_thread_of_all_calls() {
        let schema = |pattern: &str| format!(r#"{{"properties":{{"a":{{"pattern":"{pattern}"}}}}}}"#);
        let (usable, unusable) = (tool(&schema("x")), tool(&schema("[")));
        assert!(is_unchecked(&usable) && !usable.has_quick_input_schema(), "not compiled yet");
        compile_schemas(&[usable.clone(), unusable.clone()]);
        assert!(!is_unchecked(&usable) && is_unchecked(&unusable));
    }

    // req: CM-14
    #[test]
    fn recognises_the_tools_that_a_script_names() {
        let words = NamedWords::of(
            "await mcp.hub.listCommits({ n: 1 }); hub['get-sum'](); bascule.call(\"a:dir/x.y\")",
        );
        for tool in ["list_commits", "listCommits", "get-sum", "get_sum", "dir/x.y"] {
            assert!(words.may_name(tool), "{tool}");
        }
        assert!(!words.may_name("list_issues") && !words.may_name("commits"));
    }
}
