//! Finds a server or a tool by the name that a script uses for it.
//!
//! The original spelling always works. The camelCase form works if it is unambiguous.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::argument_keys::ArgumentKeys;
use crate::names;
use crate::wire::{InjectedTool, RefusedToolCall};

/// Number of names to suggest for an unknown one.
const MAX_SUGGESTIONS: usize = 3;
pub(crate) const TOOL_NOT_FOUND: &str = "TOOL_NOT_FOUND";
pub(crate) const POLICY_DENIED: &str = "POLICY_DENIED";

/// The servers and tools that a script may call.
#[derive(Default)]
pub(crate) struct ToolLookup {
    servers: Vec<ServerEntry>,
    by_name: NameIndex,
    /// Ids of tools that exist, but that the script may not call.
    not_granted: Vec<String>,
    /// The tools were selected by a purpose, not only by name.
    is_limited_by_intent: bool,
    /// Ids of tools that the configuration denies.
    denied: Vec<String>,
    /// The names of the author's own values in `context`, which come before servers.
    context_names: HashSet<String>,
}

pub(crate) struct ServerEntry {
    pub(crate) name: String,
    pub(crate) tools: Vec<ToolEntry>,
    /// The server has not listed its tools, so scripts may call any tool name.
    pub(crate) is_absent: bool,
    /// Built on the first lookup: most scripts use few of their servers.
    by_name: OnceCell<NameIndex>,
}

impl ServerEntry {
    fn tool_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Returns the tool with this original name.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolEntry> {
        self.index().originals.get(name).map(|index| &self.tools[*index])
    }

    fn index(&self) -> &NameIndex {
        self.by_name.get_or_init(|| NameIndex::new(self.tool_names()))
    }
}

pub(crate) struct ToolEntry {
    pub(crate) name: String,
    schema: Option<Box<RawValue>>,
    output_schema: Option<Box<RawValue>>,
    observed_schema: Option<Box<RawValue>>,
    /// The call and the type of its arguments.
    pub(crate) signature: Option<String>,
    /// The bridge does not validate the arguments.
    pub(crate) is_unchecked: bool,
    keys: OnceCell<ArgumentKeys>,
    parsed_input: OnceCell<Option<Value>>,
    parsed_output: OnceCell<Option<Value>>,
    parsed_observed: OnceCell<Option<Value>>,
}

impl ToolEntry {
    /// The input schema, if it is known.
    pub(crate) fn input_schema(&self) -> Option<&Value> {
        self.parsed_input.get_or_init(|| parsed(self.schema.as_deref())).as_ref()
    }

    /// The schema of the result, if it is known.
    pub(crate) fn output_schema(&self) -> Option<&Value> {
        self.parsed_output.get_or_init(|| parsed(self.output_schema.as_deref())).as_ref()
    }

    /// The schema of earlier results. Later ones may differ.
    pub(crate) fn observed_schema(&self) -> Option<&Value> {
        self.parsed_observed.get_or_init(|| parsed(self.observed_schema.as_deref())).as_ref()
    }

    /// The argument keys in the input schema, which is parsed on the first call of the tool.
    pub(crate) fn argument_keys(&self) -> &ArgumentKeys {
        self.keys.get_or_init(|| ArgumentKeys::from_schema(self.schema.as_deref()))
    }
}

/// Splits the id of a tool, in any of its spellings, into server and tool: `server:tool`, `mcp.server.toolName`,
/// `server.toolName` or `server__tool`.
pub(crate) fn split_id(id: &str) -> Option<(&str, &str)> {
    let path = id.strip_prefix("mcp.").unwrap_or(id);
    id.split_once(':').or_else(|| path.split_once('.')).or_else(|| path.split_once("__"))
}

/// Finds an id by names as a script may spell them.
fn find_id<'a>(ids: &'a [String], server: &str, tool: Option<&str>) -> Option<&'a str> {
    let is_named = |name: &str, wanted: &str| name == wanted || names::to_camel_case(name) == wanted;
    ids.iter().map(String::as_str).find(|id| {
        id.split_once(':').is_some_and(|(of, name)| {
            is_named(of, server) && tool.is_none_or(|wanted| is_named(name, wanted))
        })
    })
}

fn parsed(schema: Option<&RawValue>) -> Option<Value> {
    serde_json::from_str(schema?.get()).ok()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// The index of the server or tool.
    Found(usize),
    /// The original names that share this camelCase form.
    Ambiguous(Vec<String>),
    NotFound {
        nearest: Vec<String>,
    },
}

impl ToolLookup {
    pub(crate) fn new(
        tools: Vec<InjectedTool>,
        absent_servers: Vec<String>,
        not_granted: Vec<String>,
    ) -> Self {
        let mut lookup = Self { not_granted, ..Self::default() };
        let mut indices: HashMap<String, usize> = HashMap::new();
        for tool in tools {
            let index =
                *indices.entry(tool.server).or_insert_with_key(|server| lookup.add_server(server, false));
            let tool = ToolEntry {
                name: tool.name,
                schema: tool.input_schema,
                output_schema: tool.output_schema,
                observed_schema: tool.observed_schema,
                signature: tool.signature,
                is_unchecked: tool.is_unchecked,
                keys: OnceCell::new(),
                parsed_input: OnceCell::new(),
                parsed_output: OnceCell::new(),
                parsed_observed: OnceCell::new(),
            };
            lookup.servers[index].tools.push(tool);
        }
        for server in absent_servers {
            indices.entry(server).or_insert_with_key(|server| lookup.add_server(server, true));
        }
        lookup.by_name = NameIndex::new(lookup.servers.iter().map(|server| server.name.as_str()));
        lookup
    }

    fn add_server(&mut self, name: &str, is_absent: bool) -> usize {
        let (tools, by_name) = (Vec::new(), OnceCell::new());
        self.servers.push(ServerEntry { name: name.to_owned(), tools, is_absent, by_name });
        self.servers.len() - 1
    }

    /// Notes that the tools were selected by a purpose.
    pub(crate) fn limited_by_intent(self, is_limited_by_intent: bool) -> Self {
        Self { is_limited_by_intent, ..self }
    }

    /// Adds the context of the script, a JSON object.
    pub(crate) fn with_context(mut self, context: &str) -> Self {
        let members = serde_json::from_str::<HashMap<String, IgnoredAny>>(context);
        self.context_names = members.unwrap_or_default().into_keys().collect();
        self
    }

    /// Returns true if the context of the script has a value of this name.
    pub(crate) fn is_in_context(&self, name: &str) -> bool {
        self.context_names.contains(name)
    }

    /// Adds the ids of tools that the configuration denies. A server whose tools are all denied becomes known: a call of one of
    /// them is denied, not unknown.
    pub(crate) fn with_denied(mut self, denied: Vec<String>) -> Self {
        let mut servers: Vec<&str> = denied.iter().filter_map(|id| Some(id.split_once(':')?.0)).collect();
        servers.dedup();
        for server in servers {
            let is_known = self.servers.iter().any(|entry| entry.name == server);
            if !is_known && self.not_granted(server, None).is_none() {
                self.add_server(server, false);
            }
        }
        self.by_name = NameIndex::new(self.servers.iter().map(|server| server.name.as_str()));
        Self { denied, ..self }
    }

    /// Returns the id of a tool (or of any tool of the server) that exists, but that the script may not call.
    pub(crate) fn not_granted(&self, server: &str, tool: Option<&str>) -> Option<&str> {
        find_id(&self.not_granted, server, tool)
    }

    /// Returns the class and message of the error about a function that scripts do not have: see [`names::absence`]. A tool of
    /// the name `fetch` is the example of what to call instead.
    pub(crate) fn absence(&self, path: &str, argument: Option<&str>) -> Option<(&'static str, String)> {
        let (class, message) = names::absence(path, argument)?;
        let fetcher = self.servers.iter().find(|server| path == "fetch" && server.tool(path).is_some());
        let name = fetcher.map(|server| names::to_camel_case(&server.name));
        match name.filter(|name| name.chars().all(|letter| letter.is_ascii_alphanumeric())) {
            Some(name) => Some((class, message.replace("SERVER.TOOL", &format!("{name}.{path}")))),
            None => Some((class, message)),
        }
    }

    /// Returns the message about a server that exists, but none of whose tools the script may call.
    pub(crate) fn server_not_granted(&self, name: &str) -> Option<String> {
        self.not_granted(name, None)?;
        Some(format!(
            "the server `{name}` exists, but none of its tools was granted to this script: {}",
            self.grant_advice("name them in `tools`, or leave `tools` out")
        ))
    }

    /// Returns the message about a tool that exists, but that the script may not call.
    pub(crate) fn tool_not_granted(&self, server: &str, tool: &str) -> Option<String> {
        let id = self.not_granted(server, Some(tool))?;
        let advice = self.grant_advice("name it in `tools`");
        Some(format!("`{id}` exists, but was not granted to this script: {advice}"))
    }

    /// Returns the reason why tools were not granted, and the way to get them.
    fn grant_advice(&self, of_names: &'static str) -> &'static str {
        match self.is_limited_by_intent {
            true => {
                "the call was limited to the best `k` tools for its `intent`; leave `intent` out, or name the tools in `tools` instead"
            }
            false => of_names,
        }
    }

    /// Returns the id of a tool that the configuration denies.
    pub(crate) fn denied(&self, server: &str, tool: &str) -> Option<&str> {
        find_id(&self.denied, server, Some(tool))
    }

    /// Returns the code of the error for a tool that was not found.
    pub(crate) fn refusal_code(&self, server: &str, tool: &str) -> &'static str {
        if self.denied(server, tool).is_some() { POLICY_DENIED } else { TOOL_NOT_FOUND }
    }

    /// Returns a refused call of a denied tool under the tool's own name. Scripts may use another spelling.
    pub(crate) fn with_original_names(&self, refused: RefusedToolCall) -> RefusedToolCall {
        match self.denied(&refused.server, &refused.tool).and_then(|id| id.split_once(':')) {
            Some((server, tool)) => RefusedToolCall { server: server.into(), tool: tool.into(), ..refused },
            None => refused,
        }
    }

    pub(crate) fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// The names to list to the script: in camelCase where that is unambiguous. A server without a tool for it is not listed.
    pub(crate) fn server_names(&self) -> Vec<String> {
        let listed = self.servers.iter().filter(|server| server.is_absent || !server.tools.is_empty());
        listed.map(|server| self.by_name.display_name(&server.name)).collect()
    }

    pub(crate) fn tool_names(&self, server: usize) -> Vec<String> {
        let server = &self.servers[server];
        server.tool_names().map(|name| server.index().display_name(name)).collect()
    }

    pub(crate) fn find_server(&self, name: &str) -> LookupResult {
        self.by_name.find(name, self.servers.iter().map(|server| server.name.as_str()))
    }

    pub(crate) fn find_tool(&self, server: usize, name: &str) -> LookupResult {
        let server = &self.servers[server];
        server.index().find(name, server.tool_names())
    }
}

/// Returns the names under which scripts see servers, or the tools of one: in camelCase where that is unambiguous.
pub fn display_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let index = NameIndex::new(names.clone());
    names.map(|name| index.display_name(name)).collect()
}

/// Maps original names and camelCase forms to indices.
#[derive(Default)]
struct NameIndex {
    originals: HashMap<String, usize>,
    camel_forms: HashMap<String, Vec<usize>>,
}

impl NameIndex {
    fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut by_name = Self::default();
        for (index, name) in names.enumerate() {
            by_name.originals.insert(name.to_owned(), index);
            by_name.camel_forms.entry(names::to_camel_case(name)).or_default().push(index);
        }
        by_name
    }

    /// Returns the camelCase form, or the original name if the form is ambiguous.
    fn display_name(&self, name: &str) -> String {
        let camel = names::to_camel_case(name);
        let is_unique = self.camel_forms.get(&camel).is_some_and(|indices| indices.len() == 1)
            && self.originals.get(&camel).is_none_or(|index| self.originals.get(name) == Some(index));
        if is_unique { camel } else { name.to_owned() }
    }

    fn find<'a>(&self, name: &str, all: impl Iterator<Item = &'a str> + Clone) -> LookupResult {
        if let Some(index) = self.originals.get(name) {
            return LookupResult::Found(*index);
        }
        match self.camel_forms.get(name).map(Vec::as_slice) {
            Some([index]) => LookupResult::Found(*index),
            Some(indices) => {
                let names = indices.iter().filter_map(|index| all.clone().nth(*index));
                LookupResult::Ambiguous(names.map(str::to_owned).collect())
            }
            None => LookupResult::NotFound { nearest: self.nearest(name, all) },
        }
    }

    /// Returns the names most similar to an unknown one, as scripts can spell them.
    fn nearest<'a>(&self, wanted: &str, all: impl Iterator<Item = &'a str>) -> Vec<String> {
        let wanted = wanted.to_ascii_lowercase();
        let mut ranked: Vec<_> = all.map(|name| (similarity(&wanted, name), name)).collect();
        ranked.retain(|(similarity, _)| *similarity > 0.6);
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| self.display_name(name)).collect()
    }
}

pub(crate) fn similarity(wanted: &str, name: &str) -> f64 {
    let name = names::to_camel_case(name).to_ascii_lowercase();
    let longer = wanted.len().max(name.len()).max(1) as f64;
    // This distance counts two transposed letters as one mistake.
    let mistakes = strsim::osa_distance(wanted, &name) as f64;
    let similarity = strsim::jaro_winkler(wanted, &name).max(1.0 - mistakes / longer);
    similarity + if name.contains(wanted) { 0.5 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(tools: &[(&str, &str)]) -> ToolLookup {
        let tool = |(server, name): &(&str, &str)| InjectedTool {
            server: (*server).into(),
            name: (*name).into(),
            ..InjectedTool::default()
        };
        ToolLookup::new(tools.iter().map(tool).collect(), vec!["gone".into()], Vec::new())
    }

    // req: CM-02
    #[test]
    fn finds_tool_by_both_spellings() {
        let tools = lookup(&[("my-hub", "list_commits"), ("my-hub", "get")]);
        assert_eq!(tools.find_server("my-hub"), LookupResult::Found(0));
        assert_eq!(tools.find_server("myHub"), LookupResult::Found(0));
        assert_eq!(tools.find_tool(0, "listCommits"), LookupResult::Found(0));
        assert_eq!(tools.find_tool(0, "list_commits"), LookupResult::Found(0));
        assert!(tools.servers()[1].is_absent);
    }

    // req: TR-01
    #[test]
    fn server_with_denied_tools_alone_is_known_and_not_listed() {
        let tools =
            lookup(&[("clock", "now")]).with_denied(vec!["clock:set".into(), "notes:add_note".into()]);
        assert_eq!(tools.find_server("notes"), LookupResult::Found(2));
        assert_eq!(tools.refusal_code("notes", "addNote"), POLICY_DENIED);
        assert_eq!(tools.refusal_code("notes", "other"), TOOL_NOT_FOUND);
        assert_eq!(tools.server_names(), ["clock", "gone"]);
    }

    // req: CM-09
    #[test]
    fn finds_colliding_tools_by_original_name() {
        let tools = lookup(&[("s", "a_b"), ("s", "a-b"), ("s", "c_d"), ("s", "cD")]);
        assert_eq!(tools.find_tool(0, "aB"), LookupResult::Ambiguous(vec!["a_b".into(), "a-b".into()]));
        assert_eq!(tools.find_tool(0, "a_b"), LookupResult::Found(0));
        assert_eq!(tools.find_tool(0, "a-b"), LookupResult::Found(1));
        assert_eq!(tools.find_tool(0, "cD"), LookupResult::Found(3));
    }

    // req: CM-02
    #[test]
    fn splits_every_spelling_of_id() {
        let check = |id: &str, expected: Option<(&str, &str)>| assert_eq!(split_id(id), expected, "{id}");
        check("my-hub:list_commits", Some(("my-hub", "list_commits")));
        check("mcp.myHub.listCommits", Some(("myHub", "listCommits")));
        check("myHub.listCommits", Some(("myHub", "listCommits")));
        check("my-hub__list_commits", Some(("my-hub", "list_commits")));
        check("hub:a.b", Some(("hub", "a.b")));
        check("listCommits", None);
    }

    #[test]
    fn suggests_nearest_names() {
        let tools = lookup(&[("github", "list_commits"), ("github", "list_issues"), ("x", "y")]);
        assert_eq!(tools.find_server("githb"), LookupResult::NotFound { nearest: vec!["github".into()] });
        let LookupResult::NotFound { nearest } = tools.find_tool(0, "lstCommits") else { panic!() };
        assert_eq!(nearest[0], "listCommits");
        let short = lookup(&[("clock", "now"), ("clock", "a_b"), ("clock", "a-b")]);
        assert_eq!(short.find_tool(0, "nwo"), LookupResult::NotFound { nearest: vec!["now".into()] });
        let LookupResult::NotFound { nearest } = short.find_tool(0, "aBB") else { panic!() };
        assert_eq!(nearest, ["a_b", "a-b"]);
    }
}
