//! Finds a server or a tool by the name that a script uses for it.
//!
//! The original spelling always works. The camelCase form works if it is unambiguous.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::argument_keys::ArgumentKeys;
use crate::names;
use crate::wire::InjectedTool;

/// Number of names to suggest for an unknown one.
const MAX_SUGGESTIONS: usize = 3;

/// The servers and tools that a script may call.
#[derive(Default)]
pub(crate) struct ToolLookup {
    servers: Vec<ServerEntry>,
    by_name: NameIndex,
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
    keys: OnceCell<ArgumentKeys>,
}

impl ToolEntry {
    /// The argument keys in the input schema, which is parsed on the first call of the tool.
    pub(crate) fn argument_keys(&self) -> &ArgumentKeys {
        self.keys.get_or_init(|| ArgumentKeys::from_schema(self.schema.as_deref()))
    }
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
    pub(crate) fn new(tools: Vec<InjectedTool>, absent_servers: Vec<String>) -> Self {
        let mut lookup = Self::default();
        let mut indices: HashMap<String, usize> = HashMap::new();
        for InjectedTool { server, name, input_schema, .. } in tools {
            let index = *indices.entry(server).or_insert_with_key(|server| lookup.add_server(server, false));
            let tool = ToolEntry { name, schema: input_schema, keys: OnceCell::new() };
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

    pub(crate) fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// The names to list to the script: in camelCase where that is unambiguous.
    pub(crate) fn server_names(&self) -> Vec<String> {
        self.servers.iter().map(|server| self.by_name.display_name(&server.name)).collect()
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

fn similarity(wanted: &str, name: &str) -> f64 {
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
            description: None,
            input_schema: None,
        };
        ToolLookup::new(tools.iter().map(tool).collect(), vec!["gone".into()])
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

    // req: CM-09
    #[test]
    fn finds_colliding_tools_by_original_name() {
        let tools = lookup(&[("s", "a_b"), ("s", "a-b"), ("s", "c_d"), ("s", "cD")]);
        assert_eq!(tools.find_tool(0, "aB"), LookupResult::Ambiguous(vec!["a_b".into(), "a-b".into()]));
        assert_eq!(tools.find_tool(0, "a_b"), LookupResult::Found(0));
        assert_eq!(tools.find_tool(0, "a-b"), LookupResult::Found(1));
        assert_eq!(tools.find_tool(0, "cD"), LookupResult::Found(3));
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
