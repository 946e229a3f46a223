//! The configuration file of Bascule, to be changed by a command.
//!
//! A file that the user's own command makes or changes stays trusted. A file that was not trusted before stays untrusted.

use std::path::{Path, PathBuf};

use super::file_change::{FileChange, at_file, parse_file, read_file};
use crate::cli::error::{CommandError, CommandResult};
use crate::config::{
    self, ConfigError, ConfigLocation, ConfigOrigin, LoadedConfig, Problem, Problems, Severity, SourceFile,
};
use crate::document::{Document, DocumentError, Format, ServerPlace, Tree};
use crate::settings_file::SettingsFile;
use crate::trust_store;

/// The file and its place of servers.
pub(crate) struct OwnFile {
    pub(crate) file: SettingsFile,
    origin: ConfigOrigin,
    pub(crate) place: ServerPlace,
}

const PLACES: [ServerPlace; 2] =
    [ServerPlace { key: "mcpServers", is_list: false }, ServerPlace { key: "servers", is_list: false }];

impl OwnFile {
    /// Finds the file that other commands would use. Without one, the user's own file is made.
    pub(crate) fn find(named: Option<&Path>) -> CommandResult<Self> {
        match config::find(named, Path::new(""), &config::process_environment) {
            Ok(location) => Self::open(location),
            Err(ConfigError::NotFound { paths }) => {
                let path = paths.last().cloned().unwrap_or_else(|| "mcp.json".into());
                Self::open(ConfigLocation { path, origin: ConfigOrigin::UserFolder })
            }
            Err(error) => Err(CommandError::Config(error)),
        }
    }

    pub(crate) fn open(location: ConfigLocation) -> CommandResult<Self> {
        let file = read_file(&location.path)?;
        let document = parse_file(&file, Format::Json)?;
        let place = PLACES.into_iter().find(|place| document.get(place.key).is_some()).unwrap_or(PLACES[0]);
        drop(document);
        Ok(Self { file, origin: location.origin, place })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn document(&self) -> CommandResult<Document<'_>> {
        parse_file(&self.file, Format::Json)
    }

    /// Returns the entry of a server.
    pub(crate) fn server(&self, name: &str) -> CommandResult<Option<Tree>> {
        let document = self.document()?;
        let servers = document.servers(self.place).map_err(|error| self.error(&error))?;
        Ok(servers.iter().find(|(own, _)| own == name).map(|(_, node)| node.to_tree()))
    }

    /// Returns the names of the servers.
    pub(crate) fn names(&self) -> CommandResult<Vec<String>> {
        let document = self.document()?;
        let servers = document.servers(self.place).map_err(|error| self.error(&error))?;
        Ok(servers.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the text with this server. A text that Bascule would refuse is not returned.
    pub(crate) fn with_server(
        &self,
        text: &str,
        name: &str,
        fields: &[(String, Tree)],
    ) -> CommandResult<String> {
        let document = Document::parse(Format::Json, text).map_err(|error| self.error(&error))?;
        let text = document.set_server(self.place, name, fields, &[]).map_err(|error| self.error(&error))?;
        let new = self.errors(&text);
        let old = self.errors(self.file.text());
        // Only what is new: another entry may need a variable that is not set here.
        let is_new = |problem: &&Problem| !old.iter().any(|known| known.path == problem.path);
        match new.iter().filter(is_new).cloned().collect::<Vec<_>>() {
            problems if problems.is_empty() => Ok(text),
            problems => Err(CommandError::Config(ConfigError::Invalid(Problems(problems)))),
        }
    }

    pub(crate) fn without_server(&self, name: &str) -> CommandResult<String> {
        self.document()?.remove_server(self.place, name).map_err(|error| self.error(&error))
    }

    /// Replaces the file's text. `change` was made from this file.
    pub(crate) fn write(change: &FileChange, origin: ConfigOrigin) -> CommandResult<()> {
        if let Some(text) = &change.text {
            keep_trust(&change.file, origin, text);
        }
        change.write(false).map(|_| ())
    }

    /// Prepares the change to this text.
    pub(crate) fn into_change(self, text: String, secrets: &[String]) -> (FileChange, ConfigOrigin) {
        (FileChange::new(self.file, Some(text), Format::Json, secrets), self.origin)
    }

    fn errors(&self, text: &str) -> Vec<Problem> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        match parse(self.path(), text) {
            Ok(_) => Vec::new(),
            Err(Problems(problems)) => {
                problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect()
            }
        }
    }

    fn error(&self, error: &DocumentError) -> CommandError {
        at_file(&self.file, error)
    }
}

fn parse(path: &Path, text: &str) -> Result<LoadedConfig, Problems> {
    let source = SourceFile::from_path(path)
        .unwrap_or_else(|_| SourceFile { name: path.display().to_string(), directory: PathBuf::from("/") });
    config::parse(text, &source, &config::process_environment)
}

/// Trusts the new text of a file that was trusted, or that is new. Recorded before the file changes, so that a running
/// bridge can use it at once.
fn keep_trust(file: &SettingsFile, origin: ConfigOrigin, text: &str) {
    if origin == ConfigOrigin::UserFolder {
        return;
    }
    let location = ConfigLocation { path: file.path.clone(), origin: ConfigOrigin::WorkingFolder };
    let was_trusted = !file.exists()
        || parse(&file.path, file.text()).is_ok_and(|old| trust_store::check(&location, &old).is_ok());
    if let (true, Ok(new)) = (was_trusted, parse(&file.path, text)) {
        // Without a record the next command asks.
        let _ = trust_store::record(&file.path, &new.summary);
    }
}
