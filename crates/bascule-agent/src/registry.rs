//! The tools that an agent can use now, with notifications of changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bascule_bus::{ServerState, Timestamp};
use bascule_model::{Health, ToolId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The tools of an agent. Clones share them.
#[derive(Clone)]
pub struct ToolRegistry {
    current: watch::Receiver<Arc<ToolSet>>,
}

/// All tools at one moment.
#[derive(Debug, Default)]
pub struct ToolSet {
    tools: BTreeMap<ToolId, Arc<AvailableTool>>,
    servers: Vec<ServerState>,
    published: Option<Timestamp>,
}

/// A tool that can be called. Name, description and schemas are texts of its server.
#[derive(Debug, Clone)]
pub struct AvailableTool {
    pub id: ToolId,
    pub description: Option<String>,
    /// The JSON Schema of the arguments.
    pub input_schema: Box<RawValue>,
    /// The JSON Schema of the structured result.
    pub output_schema: Option<Box<RawValue>>,
    /// The entry as it was published.
    raw: Box<RawValue>,
}

/// A difference between two sets of tools. All lists are sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolChange {
    pub added: Vec<ToolId>,
    pub removed: Vec<ToolId>,
    /// Tools with another description or schema.
    pub changed: Vec<ToolId>,
}

impl ToolRegistry {
    /// Returns the tools now. Take it once for a whole turn of the model.
    pub fn snapshot(&self) -> Arc<ToolSet> {
        self.current.borrow().clone()
    }

    /// Finds a tool by `server:tool`.
    pub fn get(&self, id: &str) -> Option<Arc<AvailableTool>> {
        self.snapshot().get(id).cloned()
    }

    /// Returns true once the tools have been published.
    pub fn is_ready(&self) -> bool {
        self.current.borrow().published.is_some()
    }

    /// Waits until the tools have been published. Returns `None` if they cannot be any more.
    pub(crate) async fn ready(&self) -> Option<Arc<ToolSet>> {
        let mut current = self.current.clone();
        let ready = current.wait_for(|tools| tools.published.is_some()).await.ok()?;
        Some(ready.clone())
    }

    /// Watches for changes, from the current tools on.
    pub fn watch(&self) -> ToolChanges {
        let mut current = self.current.clone();
        let seen = current.borrow_and_update().clone();
        ToolChanges { current, seen }
    }
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolRegistry").field("tools", &self.snapshot().len()).finish()
    }
}

/// The changes of a registry. A slow watcher gets several changes as one.
pub struct ToolChanges {
    current: watch::Receiver<Arc<ToolSet>>,
    seen: Arc<ToolSet>,
}

impl ToolChanges {
    /// Waits for a change. Returns `None` once the handler has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<ToolChange> {
        loop {
            self.current.changed().await.ok()?;
            let next = self.current.borrow_and_update().clone();
            let change = ToolChange::between(&self.seen, &next);
            self.seen = next;
            if change != ToolChange::default() {
                return Some(change);
            }
        }
    }
}

impl ToolChange {
    fn between(old: &ToolSet, new: &ToolSet) -> Self {
        let missing_in = |set: &ToolSet, id: &&ToolId| !set.tools.contains_key(*id);
        let is_changed = |tool: &&Arc<AvailableTool>| {
            old.tools.get(&tool.id).is_some_and(|old| old.raw.get() != tool.raw.get())
        };
        Self {
            added: new.tools.keys().filter(|id| missing_in(old, id)).cloned().collect(),
            removed: old.tools.keys().filter(|id| missing_in(new, id)).cloned().collect(),
            changed: new.tools.values().filter(is_changed).map(|tool| tool.id.clone()).collect(),
        }
    }
}

impl ToolSet {
    /// Makes a set of published tools. Returns the number of entries that could not be used, too.
    pub(crate) fn read(
        entries: &[Box<RawValue>],
        servers: Vec<ServerState>,
        published: Timestamp,
    ) -> (Self, u64) {
        let mut tools = BTreeMap::new();
        let mut unusable = 0;
        for entry in entries {
            match AvailableTool::parse(entry) {
                Some(tool) if !tools.contains_key(&tool.id) => {
                    drop(tools.insert(tool.id.clone(), Arc::new(tool)))
                }
                _ => unusable += 1,
            }
        }
        (Self { tools, servers, published: Some(published) }, unusable)
    }

    /// Finds a tool by `server:tool`.
    pub fn get(&self, id: &str) -> Option<&Arc<AvailableTool>> {
        self.tools.get(&ToolId::parse(id).ok()?)
    }

    /// Finds a tool by the name that a model knows: `server:tool`, or [`AvailableTool::model_name`].
    pub fn resolve(&self, name: &str) -> Option<&Arc<AvailableTool>> {
        self.get(name).or_else(|| self.iter().find(|tool| tool.model_name() == name))
    }

    /// Returns all tools, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AvailableTool>> {
        self.tools.values()
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The health of a server; `None` if the bridge does not know it.
    pub fn health(&self, server: &str) -> Option<Health> {
        self.servers.iter().find(|state| state.name.as_str() == server).map(|state| state.health)
    }

    /// The time at which the bridge published the tools; `None` before the first time.
    pub fn published(&self) -> Option<Timestamp> {
        self.published
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PublishedTool {
    id: ToolId,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Box<RawValue>>,
    #[serde(default)]
    output_schema: Option<Box<RawValue>>,
}

impl AvailableTool {
    fn parse(raw: &RawValue) -> Option<Self> {
        let tool: PublishedTool = serde_json::from_str(raw.get()).ok()?;
        let any_object = || serde_json::value::to_raw_value(&json!({"type": "object"})).expect("it is JSON");
        Some(Self {
            id: tool.id,
            description: tool.description,
            input_schema: tool.input_schema.unwrap_or_else(any_object),
            output_schema: tool.output_schema,
            raw: raw.to_owned(),
        })
    }

    /// A name of the characters that the model APIs accept: `server__tool`. Two tools may share it if they differ only in
    /// other characters: [`ToolSet::resolve`] then finds the first.
    pub fn model_name(&self) -> String {
        let replace = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let tool: String = self.id.tool().chars().map(replace).collect();
        let mut name = format!("{}__{tool}", self.id.server());
        name.truncate(64);
        name
    }

    /// Returns the entry of `tools` in a request to Anthropic's API.
    pub fn to_anthropic(&self) -> Value {
        json!({"name": self.model_name(), "description": self.description, "input_schema": self.input_schema})
    }

    /// Returns the entry of `tools` in a request to OpenAI's API.
    pub fn to_openai(&self) -> Value {
        let function = json!({"name": self.model_name(), "description": self.description, "parameters": self.input_schema});
        json!({"type": "function", "function": function})
    }
}

/// The writing end of a registry.
pub(crate) struct RegistryWriter(watch::Sender<Arc<ToolSet>>);

impl RegistryWriter {
    pub(crate) fn new() -> (Self, ToolRegistry) {
        let (sender, current) = watch::channel(Arc::default());
        (Self(sender), ToolRegistry { current })
    }

    pub(crate) fn replace(&self, tools: ToolSet) {
        self.0.send_replace(Arc::new(tools));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(entries: &[&str]) -> (ToolSet, u64) {
        let raw = |text: &&str| RawValue::from_string((*text).to_owned()).unwrap();
        let entries: Vec<_> = entries.iter().map(raw).collect();
        ToolSet::read(&entries, Vec::new(), Timestamp::from_unix_millis(1))
    }

    // req: BU-07
    #[test]
    fn finds_tools_by_id_and_by_model_name() {
        let (tools, unusable) = set(&[
            r#"{"id":"files:read.text","description":"Reads","inputSchema":{"type":"object","x":1.0}}"#,
            r#"{"id":"files:read.text","description":"again"}"#,
            r#"{"id":"nameless"}"#,
            r#"{"id":"a:b","description":7}"#,
            r#"7"#,
        ]);
        assert_eq!((tools.len(), unusable), (1, 4));
        let tool = tools.get("files:read.text").unwrap();
        assert_eq!(
            (tool.model_name(), tool.input_schema.get()),
            ("files__read_text".into(), r#"{"type":"object","x":1.0}"#)
        );
        assert!(tools.resolve("files__read_text").is_some() && tools.resolve("files:read.text").is_some());
        assert!(tools.resolve("files__other").is_none() && tools.get("x").is_none());
        assert_eq!(tool.to_anthropic()["input_schema"]["type"], "object");
        assert_eq!(tool.to_openai()["function"]["name"], "files__read_text");
    }

    // req: BU-07
    #[tokio::test]
    async fn reports_added_removed_and_changed_tools() {
        let (writer, registry) = RegistryWriter::new();
        let mut changes = registry.watch();
        let ids = |texts: &[&str]| texts.iter().map(|text| ToolId::parse(text).unwrap()).collect::<Vec<_>>();
        writer.replace(set(&[r#"{"id":"s:a"}"#, r#"{"id":"s:b"}"#]).0);
        let added = ToolChange { added: ids(&["s:a", "s:b"]), ..ToolChange::default() };
        assert_eq!(changes.next().await, Some(added));
        // The same tools again are no change; two changes become one.
        writer.replace(set(&[r#"{"id":"s:a"}"#, r#"{"id":"s:b"}"#]).0);
        writer.replace(set(&[r#"{"id":"s:b"}"#]).0);
        writer.replace(set(&[r#"{"id":"s:b","description":"new"}"#, r#"{"id":"s:c"}"#]).0);
        let change = ToolChange { added: ids(&["s:c"]), removed: ids(&["s:a"]), changed: ids(&["s:b"]) };
        assert_eq!(changes.next().await, Some(change));
        drop(writer);
        assert_eq!(changes.next().await, None);
        assert_eq!(registry.snapshot().len(), 2);
    }
}
