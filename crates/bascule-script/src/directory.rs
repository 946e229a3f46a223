//! Finds a server or a tool by the name that a script uses for it.
//!
//! The original spelling always works. Its camelCase form works where no two would share it.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::fit::Keys;
use crate::names;
use crate::wire::ToolDefinition;

/// How many names are suggested for one that is not there.
const NEAREST: usize = 3;

/// The tools of a script.
#[derive(Default)]
pub(crate) struct Directory {
    servers: Vec<Server>,
    by_name: Index,
}

/// A server as a script sees it.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) tools: Vec<Tool>,
    /// Its tools are not known: any may be called.
    pub(crate) is_absent: bool,
    /// Made when a tool of it is first looked for: most scripts use few of the servers they are given.
    by_name: OnceCell<Index>,
}

impl Server {
    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.tools.iter().map(|tool| tool.name.as_str())
    }

    /// The tool that is spelled so.
    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.index().originals.get(name).map(|place| &self.tools[*place])
    }

    fn index(&self) -> &Index {
        self.by_name.get_or_init(|| Index::of(self.names()))
    }
}

/// A tool as a script sees it.
pub(crate) struct Tool {
    pub(crate) name: String,
    schema: Option<Box<RawValue>>,
    keys: OnceCell<Keys>,
}

impl Tool {
    /// The argument keys that its schema knows. Read when the tool is first called.
    pub(crate) fn keys(&self) -> &Keys {
        self.keys.get_or_init(|| Keys::of(self.schema.as_deref()))
    }
}

/// What a name leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The one there is.
    One(usize),
    /// These share the form that was used.
    Several(Vec<String>),
    /// None; these are near.
    None(Vec<String>),
}

impl Directory {
    pub(crate) fn new(definitions: Vec<ToolDefinition>, absent: Vec<String>) -> Self {
        let mut directory = Self::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        for ToolDefinition { server, name, input_schema, .. } in definitions {
            let place = *places.entry(server).or_insert_with_key(|server| directory.add(server, false));
            let tool = Tool { name, schema: input_schema, keys: OnceCell::new() };
            directory.servers[place].tools.push(tool);
        }
        for server in absent {
            places.entry(server).or_insert_with_key(|server| directory.add(server, true));
        }
        directory.by_name = Index::of(directory.servers.iter().map(|server| server.name.as_str()));
        directory
    }

    fn add(&mut self, name: &str, is_absent: bool) -> usize {
        let (tools, by_name) = (Vec::new(), OnceCell::new());
        self.servers.push(Server { name: name.to_owned(), tools, is_absent, by_name });
        self.servers.len() - 1
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The names to show: in camelCase where that is only one's.
    pub(crate) fn names(&self) -> Vec<String> {
        self.servers.iter().map(|server| self.by_name.spelled(&server.name)).collect()
    }

    pub(crate) fn tool_names(&self, server: usize) -> Vec<String> {
        let server = &self.servers[server];
        server.names().map(|name| server.index().spelled(name)).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Found {
        self.by_name.find(name, self.servers.iter().map(|server| server.name.as_str()))
    }

    pub(crate) fn find_tool(&self, server: usize, name: &str) -> Found {
        let server = &self.servers[server];
        server.index().find(name, server.names())
    }
}

/// Places by every form of a name that is only one's.
#[derive(Default)]
struct Index {
    originals: HashMap<String, usize>,
    camels: HashMap<String, Vec<usize>>,
}

impl Index {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut index = Self::default();
        for (place, name) in names.enumerate() {
            index.originals.insert(name.to_owned(), place);
            index.camels.entry(names::camel(name)).or_default().push(place);
        }
        index
    }

    /// A name in camelCase, unless others share that form.
    fn spelled(&self, name: &str) -> String {
        let camel = names::camel(name);
        let is_its_own = self.camels.get(&camel).is_some_and(|sharing| sharing.len() == 1)
            && self.originals.get(&camel).is_none_or(|place| self.originals.get(name) == Some(place));
        if is_its_own { camel } else { name.to_owned() }
    }

    fn find<'a>(&self, name: &str, all: impl Iterator<Item = &'a str> + Clone) -> Found {
        if let Some(place) = self.originals.get(name) {
            return Found::One(*place);
        }
        match self.camels.get(name).map(Vec::as_slice) {
            Some([one]) => Found::One(*one),
            Some(several) => Found::Several(
                several.iter().filter_map(|n| all.clone().nth(*n)).map(str::to_owned).collect(),
            ),
            None => Found::None(nearest(name, self, all)),
        }
    }
}

/// The names most like one that is not there, as scripts can spell them.
fn nearest<'a>(wanted: &str, index: &Index, all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = wanted.to_ascii_lowercase();
    let likeness = |name: &str| {
        let name = names::camel(name).to_ascii_lowercase();
        let longer = wanted.len().max(name.len()).max(1) as f64;
        // Letters that changed places are one mistake.
        let mistakes = strsim::osa_distance(&wanted, &name) as f64;
        let likeness = strsim::jaro_winkler(&wanted, &name).max(1.0 - mistakes / longer);
        likeness + if name.contains(&wanted) { 0.5 } else { 0.0 }
    };
    let mut ranked: Vec<_> = all.map(|name| (likeness(name), name)).filter(|(like, _)| *like > 0.6).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.into_iter().take(NEAREST).map(|(_, name)| index.spelled(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(tools: &[(&str, &str)]) -> Directory {
        let definition = |(server, name): &(&str, &str)| ToolDefinition {
            server: (*server).into(),
            name: (*name).into(),
            description: None,
            input_schema: None,
        };
        Directory::new(tools.iter().map(definition).collect(), vec!["gone".into()])
    }

    // req: CM-02
    #[test]
    fn both_spellings_lead_to_a_tool() {
        let tools = directory(&[("my-hub", "list_commits"), ("my-hub", "get")]);
        assert_eq!(tools.find("my-hub"), Found::One(0));
        assert_eq!(tools.find("myHub"), Found::One(0));
        assert_eq!(tools.find_tool(0, "listCommits"), Found::One(0));
        assert_eq!(tools.find_tool(0, "list_commits"), Found::One(0));
        assert!(tools.servers()[1].is_absent);
    }

    // req: CM-09
    #[test]
    fn tools_that_share_a_form_are_found_by_their_original_names() {
        let tools = directory(&[("s", "a_b"), ("s", "a-b"), ("s", "c_d"), ("s", "cD")]);
        assert_eq!(tools.find_tool(0, "aB"), Found::Several(vec!["a_b".into(), "a-b".into()]));
        assert_eq!(tools.find_tool(0, "a_b"), Found::One(0));
        assert_eq!(tools.find_tool(0, "a-b"), Found::One(1));
        assert_eq!(tools.find_tool(0, "cD"), Found::One(3));
    }

    #[test]
    fn a_miss_names_what_is_near() {
        let tools = directory(&[("github", "list_commits"), ("github", "list_issues"), ("x", "y")]);
        assert_eq!(tools.find("githb"), Found::None(vec!["github".into()]));
        let Found::None(near) = tools.find_tool(0, "lstCommits") else { panic!() };
        assert_eq!(near[0], "listCommits");
        let short = directory(&[("clock", "now"), ("clock", "a_b"), ("clock", "a-b")]);
        assert_eq!(short.find_tool(0, "nwo"), Found::None(vec!["now".into()]));
        let Found::None(near) = short.find_tool(0, "aBB") else { panic!() };
        assert_eq!(near, ["a_b", "a-b"]);
    }
}
