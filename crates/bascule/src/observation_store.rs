//! The types that tools' answers have had, on disk: one private file for each definition of a server.
//!
//! A type belongs to one definition of its tool. A changed tool starts anew. A file that is damaged is ignored, and the next
//! one replaces it. Files hold property names and kinds, never values.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bascule_catalog::{CatalogTool, ServerTools, StoredObservation};
use serde::{Deserialize, Serialize};

use crate::hexadecimal::sha256;
use crate::listing_store::ListingKey;
use crate::{launch, private_file};

const VERSION: u32 = 1;
/// A longer file is neither read nor written: the longest types are left out.
const MAX_BYTES: usize = 2 << 20;
/// The most tools in one file.
const MAX_TOOLS: usize = 1_000;
/// Beyond this number, the files that were not used for longest are removed.
const MAX_FILES: usize = 500;

/// A handle; clones share the folder.
#[derive(Debug, Clone)]
pub(crate) struct ObservationStore {
    folder: PathBuf,
    shared: Arc<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    /// The servers whose types wait to be written.
    waiting: Mutex<HashSet<ListingKey>>,
    /// Two writers of one file would lose what one of them has read.
    writing: Mutex<()>,
}

/// The stored types of a server's tools, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoredObservations(BTreeMap<String, ToolObservation>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ToolObservation {
    /// The digest of the tool's definition.
    definition: String,
    #[serde(flatten)]
    observation: StoredObservation,
}

#[derive(Serialize, Deserialize)]
struct ObservationFile {
    version: u32,
    tools: StoredObservations,
}

impl ObservationStore {
    /// Opens the folder of the user's data, and creates it. No sandbox grants access to it.
    pub(crate) fn open() -> io::Result<Self> {
        let folder = launch::data_folder().join("bascule/observed");
        launch::create_private(&folder)?;
        Ok(Self { folder, shared: Arc::default() })
    }

    /// Returns the types of the last run. A file that cannot be used is ignored.
    pub(crate) fn read(&self, key: &ListingKey) -> StoredObservations {
        let path = self.path(key);
        let stored = private_file::ignore_unusable(read_file(&path), "the observed types", &path);
        stored.inspect(|_| drop(private_file::mark_used(&path))).unwrap_or_default()
    }

    /// Returns true if nobody else is about to write the types of this server.
    pub(crate) fn begin_waiting(&self, key: &ListingKey) -> bool {
        lock(&self.shared.waiting).insert(key.clone())
    }

    /// Ends the wait: types that change from now on need another writer.
    pub(crate) fn end_waiting(&self, key: &ListingKey) {
        lock(&self.shared.waiting).remove(key);
    }

    /// Adds the types of a server's tools to those that are stored.
    pub(crate) fn write(&self, key: &ListingKey, tools: &ServerTools) -> io::Result<()> {
        let path = self.path(key);
        let _writing = lock(&self.shared.writing);
        // Another bridge may have written it in between.
        let mut stored = read_file(&path).unwrap_or_default();
        let before = stored.0.clone();
        tools.tools().iter().for_each(|tool| stored.add(tool));
        if stored.0 == before {
            return Ok(());
        }
        let text = serde_json::to_string(&ObservationFile { version: VERSION, tools: stored.bounded() })?;
        let new = private_file::write_beside(&path, &text)?;
        fs::rename(new, &path)?;
        private_file::remove_oldest(&self.folder, MAX_FILES)
    }

    fn path(&self, key: &ListingKey) -> PathBuf {
        self.folder.join(key.as_str()).with_extension("json")
    }
}

impl StoredObservations {
    /// Gives the tools of a new listing the types of their last run.
    pub(crate) fn restore(&self, tools: &ServerTools) {
        for tool in tools.tools() {
            let stored = self.0.get(tool.id().tool());
            if let Some(stored) = stored.filter(|stored| stored.definition == definition_digest(tool)) {
                tool.observed().add_stored(&stored.observation);
            }
        }
    }

    fn add(&mut self, tool: &CatalogTool) {
        let Some(observation) = tool.observed().to_stored() else { return };
        let (name, definition) = (tool.id().tool().to_owned(), definition_digest(tool));
        let observation = match self.0.get(&name).filter(|earlier| earlier.definition == definition) {
            Some(earlier) => observation.join(&earlier.observation),
            None => observation,
        };
        self.0.insert(name, ToolObservation { definition, observation });
    }

    /// Leaves out the longest types if there are too many for one file.
    fn bounded(self) -> Self {
        let length = |entry: &(String, ToolObservation)| {
            entry.0.len() + serde_json::to_string(&entry.1).map_or(usize::MAX / 2, |text| text.len()) + 8
        };
        let mut entries: Vec<(usize, _)> = self.0.into_iter().map(|entry| (length(&entry), entry)).collect();
        entries.sort_by_key(|(length, _)| *length);
        let mut left = MAX_BYTES - 100;
        let fits = |(length, _): &(usize, _)| {
            let rest = left.checked_sub(*length);
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        Self(entries.into_iter().take(MAX_TOOLS).take_while(fits).map(|(_, entry)| entry).collect())
    }
}

fn definition_digest(tool: &CatalogTool) -> String {
    sha256(tool.definition().raw.get().as_bytes())
}

fn read_file(path: &Path) -> io::Result<StoredObservations> {
    let version = |file: &ObservationFile| file.version;
    Ok(private_file::read_versioned(path, MAX_BYTES as u64, VERSION, version)?.tools)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use bascule_catalog::{ResultData, ToolFilter};
    use bascule_model::{ServerName, ToolDefinition};
    use serde_json::value::RawValue;

    use super::*;
    use crate::config::{ServerSettings, TransportSettings};

    fn store() -> (tempfile::TempDir, ObservationStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = ObservationStore { folder: folder.path().to_owned(), shared: Arc::default() };
        (folder, store)
    }

    fn name() -> ServerName {
        ServerName::parse("s").unwrap()
    }

    fn key() -> ListingKey {
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec![], env: vec![], cwd: None };
        ListingKey::new(&ServerSettings::new(name(), transport), "{}")
    }

    fn tools(definitions: &[&str]) -> ServerTools {
        let parse =
            |text: &&str| ToolDefinition::parse(RawValue::from_string((*text).into()).unwrap()).unwrap();
        ServerTools::new(name(), ToolFilter::default(), definitions.iter().map(parse).collect())
    }

    fn look(tools: &ServerTools, tool: &str, answer: &str) {
        tools.get(tool).unwrap().observed().look(ResultData::Json(answer));
    }

    /// The schema that a tool has after a restart.
    fn restored(store: &ObservationStore, definition: &str) -> Option<String> {
        let tools = tools(&[definition]);
        store.read(&key()).restore(&tools);
        tools.tools()[0].observed_schema().map(|schema| schema.to_string())
    }

    const TOOL: &str = r#"{"name":"t"}"#;

    // req: CM-15
    #[test]
    fn restores_types_of_unchanged_tools_only() {
        let (_folder, store) = store();
        let first = tools(&[TOOL, r#"{"name":"u"}"#]);
        look(&first, "t", r#"{"a":"s3cret"}"#);
        store.write(&key(), &first).unwrap();
        assert_eq!(
            restored(&store, TOOL).unwrap(),
            r#"{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"}"#
        );
        assert_eq!(restored(&store, r#"{"name":"t","description":"changed"}"#), None);
        assert_eq!(restored(&store, r#"{"name":"u"}"#), None, "it was never called");
        let path = store.path(&key());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains("s3cret"));
    }

    // req: CM-15
    #[test]
    fn joins_the_types_of_two_bridges() {
        let (_folder, store) = store();
        let (one, other) = (tools(&[TOOL]), tools(&[TOOL]));
        look(&one, "t", "1");
        look(&other, "t", "null");
        store.write(&key(), &one).unwrap();
        store.write(&key(), &other).unwrap();
        assert_eq!(restored(&store, TOOL).unwrap(), r#"{"type":["number","null"]}"#);
        let changed = tools(&[r#"{"name":"t","description":"changed"}"#]);
        look(&changed, "t", "true");
        store.write(&key(), &changed).unwrap();
        assert_eq!(restored(&store, TOOL), None, "a changed tool starts anew");
    }

    // req: CM-15
    #[test]
    fn ignores_and_replaces_damaged_files() {
        let (_folder, store) = store();
        for text in
            ["", "{", r#"{"version":1}"#, r#"{"version":2,"tools":{}}"#, r#"{"version":1,"tools":{"t":7}}"#]
        {
            let new = private_file::write_beside(&store.path(&key()), text).unwrap();
            fs::rename(new, store.path(&key())).unwrap();
            assert_eq!(restored(&store, TOOL), None, "{text}");
        }
        let tools = tools(&[TOOL]);
        look(&tools, "t", "1");
        store.write(&key(), &tools).unwrap();
        assert_eq!(restored(&store, TOOL).unwrap(), r#"{"type":"number"}"#);
    }

    // req: CM-15
    #[test]
    fn leaves_out_the_longest_types() {
        let definitions: Vec<String> = (0..1_200).map(|n| format!(r#"{{"name":"t{n}"}}"#)).collect();
        let tools = tools(&definitions.iter().map(String::as_str).collect::<Vec<_>>());
        for (index, tool) in tools.tools().iter().enumerate() {
            let names =
                |n: usize| ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"][n % 10].repeat(n / 10 + 50);
            let entries: Vec<String> = (0..index % 100)
                .map(|n| format!(r#""{}":{}"#, names(n), if n % 2 == 0 { "1" } else { "[]" }))
                .collect();
            look(&tools, tool.id().tool(), &format!("{{{}}}", entries.join(",")));
        }
        let (_folder, store) = store();
        store.write(&key(), &tools).unwrap();
        let length = fs::metadata(store.path(&key())).unwrap().len();
        assert!(length <= MAX_BYTES as u64, "{length}");
        assert!((500..=MAX_TOOLS).contains(&store.read(&key()).0.len()));
        assert!(store.begin_waiting(&key()) && !store.begin_waiting(&key()));
        store.end_waiting(&key());
        assert!(store.begin_waiting(&key()));
    }
}
