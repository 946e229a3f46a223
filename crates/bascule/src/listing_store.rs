//! The last listing of each server on disk, so that its tools are known before it has started again.
//!
//! One file for each definition of a server: a server that is configured differently has no last listing. A listing is only
//! a memory. A file that is damaged is ignored, and the next listing replaces it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bascule_model::ToolDefinition;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::{ServerSettings, TransportSettings};
use crate::hexadecimal::hexadecimal;
use crate::{launch, private_file};

const VERSION: u32 = 1;
/// A longer listing is not stored.
const MAX_BYTES: u64 = 4 << 20;
/// Beyond this number, the files that were not used for longest are removed.
const MAX_FILES: usize = 500;

/// A handle; clones share the folder.
#[derive(Debug, Clone)]
pub(crate) struct ListingStore {
    folder: PathBuf,
    /// Two servers of one definition must not write one file at the same time.
    writing: Arc<Mutex<()>>,
}

/// Identifies the definition of a server without revealing it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ListingKey(String);

/// The tools of a server, before any filter, and its `initialize` result.
#[derive(Debug)]
pub(crate) struct StoredListing {
    pub(crate) info: Box<RawValue>,
    pub(crate) tools: Vec<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct ListingFile {
    version: u32,
    initialize: Box<RawValue>,
    tools: Vec<Box<RawValue>>,
}

impl ListingKey {
    /// `capabilities` are those that the server is told of: its tools may depend on them. Headers are left out: most of them
    /// are credentials, which change while the server stays the same. The configuration file and the folder in which the
    /// server starts are part of the key: the same words may run another program there, which must not describe this one's
    /// tools.
    pub(crate) fn new(settings: &ServerSettings, capabilities: &str) -> Self {
        let mut digest = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        add(settings.name.as_str().as_bytes());
        add(settings.config_file().unwrap_or(Path::new("")).as_os_str().as_encoded_bytes());
        add(capabilities.as_bytes());
        match &settings.transport {
            TransportSettings::Stdio { command, args, env, cwd } => {
                add(command.as_bytes());
                let folder = cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
                add(folder.as_os_str().as_encoded_bytes());
                add(&args.len().to_le_bytes());
                args.iter().for_each(|argument| add(argument.as_bytes()));
                for (name, value) in env {
                    add(name.as_bytes());
                    add(value.reveal().as_bytes());
                }
            }
            TransportSettings::Remote { protocol, url, .. } => {
                add(format!("{protocol:?}").as_bytes());
                add(url.as_str().as_bytes());
            }
        }
        Self(hexadecimal(digest.finish().as_ref()))
    }

    /// Returns the name of the server's files.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl StoredListing {
    pub(crate) fn parse_tools(&self) -> serde_json::Result<Vec<ToolDefinition>> {
        self.tools.iter().cloned().map(ToolDefinition::parse).collect()
    }
}

impl ListingStore {
    /// Opens the folder of the user's data, and creates it. No sandbox grants access to it.
    pub(crate) fn open() -> io::Result<Self> {
        let folder = launch::data_folder().join("bascule/listings");
        launch::create_private(&folder)?;
        Ok(Self { folder, writing: Arc::default() })
    }

    /// Returns the last listing. A file that cannot be used is ignored.
    pub(crate) fn read(&self, key: &ListingKey) -> Option<StoredListing> {
        let path = self.path(key);
        let read = private_file::read_versioned(&path, MAX_BYTES, VERSION, |file: &ListingFile| file.version);
        let file = private_file::ignore_unusable(read, "the last listing", &path)?;
        let _ = private_file::mark_used(&path);
        Some(StoredListing { info: file.initialize, tools: file.tools })
    }

    /// Replaces the last listing. One that is too long is removed: it must not be mistaken for the new one.
    pub(crate) fn write(&self, key: &ListingKey, listing: StoredListing) -> io::Result<()> {
        let StoredListing { info, tools } = listing;
        let text = serde_json::to_string(&ListingFile { version: VERSION, initialize: info, tools })?;
        let path = self.path(key);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() as u64 > MAX_BYTES {
            return fs::remove_file(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
        }
        if private_file::read(&path, MAX_BYTES).is_ok_and(|stored| stored == text) {
            return Ok(());
        }
        let new = private_file::write_beside(&path, &text)?;
        fs::rename(new, &path)?;
        private_file::remove_oldest(&self.folder, MAX_FILES)
    }

    fn path(&self, key: &ListingKey) -> PathBuf {
        self.folder.join(&key.0).with_extension("json")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use bascule_model::{Secret, ServerName};

    use super::*;

    fn store() -> (tempfile::TempDir, ListingStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = ListingStore { folder: folder.path().to_owned(), writing: Arc::default() };
        (folder, store)
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    fn listing(tool: &str) -> StoredListing {
        StoredListing { info: raw(r#"{"capabilities":{}}"#), tools: vec![raw(tool)] }
    }

    fn key(change: impl FnOnce(&mut ServerSettings)) -> ListingKey {
        let env = vec![("TOKEN".into(), Secret::new("s3cret".to_owned()))];
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec!["a".into()], env, cwd: None };
        let mut settings = ServerSettings::new(ServerName::parse("s").unwrap(), transport);
        change(&mut settings);
        ListingKey::new(&settings, "{}")
    }

    // req: US-03
    #[test]
    fn keeps_a_listing_byte_for_byte() {
        let (_folder, store) = store();
        let (key, tool) = (key(|_| {}), r#"{"name":"t","inputSchema":{ "minimum":1.0 },"x":[ ]}"#);
        assert!(store.read(&key).is_none());
        store.write(&key, listing(tool)).unwrap();
        let stored = store.read(&key).unwrap();
        assert_eq!((stored.info.get(), stored.tools[0].get()), (r#"{"capabilities":{}}"#, tool));
        assert_eq!(stored.parse_tools().unwrap()[0].name, "t");
        store.write(&key, listing(r#"{"name":"u"}"#)).unwrap();
        assert_eq!(store.read(&key).unwrap().parse_tools().unwrap()[0].name, "u");
        let mode = fs::metadata(store.path(&key)).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, fs::read_dir(&store.folder).unwrap().count()), (0o600, 1));
    }

    // req: US-03
    #[test]
    fn changed_server_has_no_listing() {
        let with = |args: Vec<String>, value: &str| {
            key(|settings| {
                let env = vec![("TOKEN".into(), Secret::new(value.to_owned()))];
                settings.transport = TransportSettings::Stdio { command: "x".into(), args, env, cwd: None };
            })
        };
        let own = key(|_| {});
        assert_eq!(with(vec!["a".into()], "s3cret"), own);
        assert_ne!(with(vec!["b".into()], "s3cret"), own);
        assert_ne!(with(vec!["a".into()], "other"), own);
        assert_ne!(with(vec!["a".into(), String::new()], "s3cret"), own);
        assert_ne!(key(|settings| settings.name = ServerName::parse("t").unwrap()), own);
        let folder = std::env::current_dir().unwrap();
        let in_folder = |folder: &Path| {
            key(|settings| {
                let TransportSettings::Stdio { cwd, .. } = &mut settings.transport else { return };
                *cwd = Some(folder.to_owned());
            })
        };
        assert_eq!(in_folder(&folder), own, "a server without `cwd` starts in the bridge's folder");
        assert_ne!(in_folder(Path::new("/")), own);
        assert_eq!(key(|settings| settings.denied_tools = vec!["*".into()]), own, "filters apply later");
        assert!(!own.0.contains("s3cret"));
    }

    // req: US-03
    #[test]
    fn ignores_damaged_and_foreign_files() {
        let (_folder, store) = store();
        let key = key(|_| {});
        for text in ["", "{", r#"{"version":1}"#, r#"{"version":2,"initialize":{},"tools":[]}"#, "\u{0}"] {
            let new = private_file::write_beside(&store.path(&key), text).unwrap();
            fs::rename(new, store.path(&key)).unwrap();
            assert!(store.read(&key).is_none(), "{text}");
        }
        store.write(&key, listing(r#"{"name":"t"}"#)).unwrap();
        assert!(store.read(&key).is_some());
        fs::set_permissions(store.path(&key), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(store.read(&key).is_none(), "others may have written it");
    }

    // req: US-03
    #[test]
    fn bounds_size_and_number() {
        let (_folder, store) = store();
        let own = key(|_| {});
        store.write(&own, listing(r#"{"name":"t"}"#)).unwrap();
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(MAX_BYTES as usize));
        store.write(&own, listing(&long)).unwrap();
        assert!(store.read(&own).is_none());
        for number in 0..MAX_FILES + 5 {
            let name = ServerName::parse(&format!("s{number}")).unwrap();
            store.write(&key(|settings| settings.name = name), listing(r#"{"name":"t"}"#)).unwrap();
        }
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), MAX_FILES);
    }
}
