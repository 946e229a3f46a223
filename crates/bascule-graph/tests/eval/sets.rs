//! Reads sets of tasks: an intent and the tools that it takes, in order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use bascule_model::ToolDefinition;
use bascule_search::{Intent, SearchIndex, ServerIndex};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The servers of the agent tasks whose tools are listed in the catalogs, by the name that the tasks use.
const SERVERS: [(&str, &str); 6] = [
    ("files", "filesystem"),
    ("git", "git"),
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("everything", "everything"),
    ("time", "time"),
];

/// An intent and its tools in the order of their first use.
pub(crate) struct Task {
    pub(crate) text: String,
    pub(crate) tools: Vec<String>,
    /// All tools of the catalog by position, with their scores in search.
    found: Vec<(u32, f32)>,
}

/// Tasks in the order of their file, and the catalog that they choose from.
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) tasks: Vec<Task>,
    /// The tools of the catalog.
    ids: Vec<String>,
}

#[derive(Deserialize)]
struct Query {
    text: String,
    gold: Vec<String>,
}

#[derive(Deserialize)]
struct ServerOf {
    server: String,
}

#[derive(Deserialize)]
struct Listing {
    server: String,
    tools: Vec<Box<RawValue>>,
}

impl Task {
    fn new(text: String, tools: Vec<String>) -> Self {
        Self { text, tools: first_uses(tools), found: Vec::new() }
    }
}

impl Set {
    fn new(name: &str, servers: BTreeMap<String, Vec<ToolDefinition>>, tasks: Vec<Task>) -> Self {
        let index: SearchIndex =
            servers.iter().map(|(name, tools)| Arc::new(ServerIndex::new(name, tools))).collect();
        let (mut ids, mut offsets) = (Vec::new(), Vec::new());
        for (server, tools) in &servers {
            offsets.push(ids.len());
            ids.extend(tools.iter().map(|tool| format!("{server}:{}", tool.name)));
        }
        let mut set = Self { name: name.to_owned(), tasks, ids };
        let known: HashSet<&str> = set.ids.iter().map(String::as_str).collect();
        for task in &mut set.tasks {
            task.tools.retain(|tool| known.contains(tool.as_str()));
            let found = index.search(&Intent::new(&task.text), usize::MAX, |_, _| true);
            task.found =
                found.iter().map(|hit| ((offsets[hit.server] + hit.tool) as u32, hit.score)).collect();
        }
        set.tasks.retain(|task| !task.tools.is_empty());
        set
    }

    /// Reads a folder with `tools.json` and `queries.json`.
    pub(crate) fn external(folder: &Path, name: &str) -> Self {
        let read = |file| std::fs::read(folder.join(name).join(file)).unwrap();
        let listed: Vec<Box<RawValue>> = serde_json::from_slice(&read("tools.json")).unwrap();
        let mut servers = BTreeMap::<_, Vec<_>>::new();
        for tool in listed {
            let ServerOf { server } = serde_json::from_str(tool.get()).unwrap();
            servers.entry(server).or_default().push(ToolDefinition::parse(tool).unwrap());
        }
        let queries: Vec<Query> = serde_json::from_slice(&read("queries.json")).unwrap();
        let task = |query: Query| Task::new(query.text, query.gold);
        Self::new(name, servers, queries.into_iter().map(task).collect())
    }

    /// Reads the agent tasks of this project, with the tools of 25 real servers as the catalog.
    pub(crate) fn agent_tasks() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut servers = BTreeMap::new();
        for file in files(&root.join("crates/bascule-catalog/tests/catalogs")) {
            let Listing { server, tools } = serde_json::from_str(&file).unwrap();
            let tools = tools.into_iter().map(|tool| ToolDefinition::parse(tool).unwrap()).collect();
            servers.insert(server, tools);
        }
        let names = script_names(&servers);
        let task = |code: &String| {
            let text = code.lines().next().unwrap().trim_start_matches("// ").to_owned();
            Task::new(text, called_tools(code, &names))
        };
        let tasks = files(&root.join("tests/agent-tasks")).iter().map(task).collect();
        Self::new("agent-tasks", servers, tasks)
    }

    pub(crate) fn all(&self) -> Vec<&Task> {
        self.tasks.iter().collect()
    }

    /// Returns all tools with their scores in search, best first.
    pub(crate) fn search(&self, task: &Task) -> Vec<(&str, f64)> {
        task.found
            .iter()
            .map(|(tool, score)| (self.ids[*tool as usize].as_str(), f64::from(*score)))
            .collect()
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// Returns the tools by the lower-case names, without separators, by which scripts call them.
fn script_names(servers: &BTreeMap<String, Vec<ToolDefinition>>) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for (alias, server) in SERVERS {
        for tool in servers.get(server).into_iter().flatten() {
            names.insert(plain(&format!("{alias}.{}", tool.name)), format!("{server}:{}", tool.name));
        }
    }
    names
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || *c == '.').flat_map(char::to_lowercase).collect()
}

/// Returns the tools that a script calls, in the order of its text.
fn called_tools(code: &str, names: &HashMap<String, String>) -> Vec<String> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    let words = words.map(|word| plain(word.trim_start_matches('.').trim_start_matches("mcp.")));
    words.filter_map(|word| names.get(&word).cloned()).collect()
}

fn first_uses(tools: Vec<String>) -> Vec<String> {
    let mut first = Vec::<String>::new();
    for tool in tools {
        if !first.contains(&tool) {
            first.push(tool);
        }
    }
    first
}
