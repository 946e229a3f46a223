//! The configuration file, `mcp.json`: finding it, reading it, reporting its problems.
//!
//! A file passes through two forms. `syntax` parses the text into a tree, which `reader` walks. [`Settings`] is the
//! checked result: every default is filled in. All problems of a file are reported together, each with its line and
//! column. [`FileWatch`] reports changes of the file; reloading is `crate::reload`.
//!
//! Reading order: `find` locates the file, `ownership` says who can change it, [`load`] reads it, `parse` turns its text
//! into `settings`. `server`, `transport`, `limits` and `bus` read one part each with the help of `reader`; `expand` replaces
//! variables, `env_file` reads those of a file; `problem` collects errors and warnings. `trust` compares it with the file that
//! the user has trusted. `sandbox_paths` resolves the paths that sandboxes grant, with those of the command (`command_paths`).

mod find;
mod ownership;
mod parse;
mod settings;
mod trust;

mod limits;
mod search;
mod server;
mod traces;
mod transport;

mod audit;
mod bus;
mod command_paths;
mod crossed_links;
mod env_file;
mod expand;
mod problem;
mod reader;
mod sandbox_paths;
mod syntax;
mod url;
mod watch;

#[cfg(test)]
pub(crate) mod testing;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use audit::AuditSettings;
pub use bus::BusSettings;
pub(crate) use command_paths::{
    existing_arguments, find_executable, find_program, has_relative_paths, is_executable, working_folder,
};
pub use expand::EnvLookup;
pub(crate) use expand::process_environment;
pub use find::{ConfigLocation, ConfigOrigin, find};
pub(crate) use find::{canonical_entry, user_file};
pub(crate) use parse::parse_listen_address;
pub use parse::{LoadedConfig, SourceFile, parse};
pub use problem::{Problem, Problems, Severity};
pub use sandbox_paths::SandboxPaths;
pub(crate) use sandbox_paths::package_caches;
pub use settings::{
    Authentication, BridgeSettings, CustomProfile, EncoderSettings, EncoderSource, HomeAccess, Isolation,
    NetworkAccess, RemoteProtocol, ResourceLimits, RetryPolicy, Sandbox, ScriptSettings, ServerSettings,
    SessionSharing, Settings, StartMode, ToolSettings, ToolView, TransportSettings,
};
pub(crate) use syntax::parse_syntax;
pub use traces::{Capture, TraceSettings};
pub use trust::TrustSummary;
pub use url::{ServerUrl, UrlError};
pub use watch::FileWatch;

/// Larger files are refused: they are a mistake or an attack.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No file was given, and none exists at the default paths.
    #[error(
        "no configuration file found; searched\n{}\nuse `--config FILE`, run `bascule init`, or create `mcp.json` with\n  {EXAMPLE}",
        indented(paths.iter().map(|path| path.display()))
    )]
    NotFound { paths: Vec<PathBuf> },
    /// The file does not exist or is not readable.
    #[error("could not read the configuration `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("could not read the configuration `{}`: it is a directory, not a file", path.display())]
    Directory { path: PathBuf },
    #[error("the configuration `{}` is larger than {} MiB", path.display(), MAX_FILE_BYTES >> 20)]
    TooLarge { path: PathBuf },
    /// Another user could make the bridge run any command.
    #[error("the configuration `{}` {reason}", path.display())]
    Untrusted { path: PathBuf, reason: String },
    /// The user has not trusted the file, or not for all that it does.
    #[error(
        "`{0}` was found in this folder, and {1}:\n{2}\nto use it, run `bascule trust`, or name it with `--config {0}`",
        relative(path),
        match is_known { true => "does more than you have trusted it with", false => "you have not trusted it yet" },
        indented(changes)
    )]
    NotTrusted {
        path: PathBuf,
        /// The user has trusted an earlier version.
        is_known: bool,
        /// Descriptions without control characters.
        changes: Vec<String>,
    },
    /// The file is not UTF-8.
    #[error("the configuration `{}` is not UTF-8 text: line {line} contains an invalid byte", path.display())]
    NotUtf8 { path: PathBuf, line: usize },
    /// The file was read and contains errors.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

const EXAMPLE: &str = r#"{ "mcpServers": { "time": { "command": "uvx", "args": ["mcp-server-time"] } } }"#;

fn indented(lines: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let lines: Vec<String> = lines.into_iter().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

/// Returns a path that cannot be taken for an option or a name to search.
fn relative(path: &Path) -> String {
    match path.components().count() {
        1 => format!("./{}", path.display()),
        _ => path.display().to_string(),
    }
}

/// Reads a configuration file. The place of a file that was found, and not named, is checked too.
pub fn load_located(
    location: &ConfigLocation,
    environment: EnvLookup<'_>,
) -> Result<LoadedConfig, ConfigError> {
    let path = &location.path;
    if location.origin == ConfigOrigin::WorkingFolder {
        let reason = ownership::find_untrusted_place(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        if let Some(reason) = reason {
            return Err(ConfigError::Untrusted { path: path.into(), reason });
        }
    }
    load(path, environment)
}

/// Reads a configuration file.
pub fn load(path: &Path, environment: EnvLookup<'_>) -> Result<LoadedConfig, ConfigError> {
    let unreadable = |source| ConfigError::Read { path: path.into(), source };
    let source_file = SourceFile::from_path(path).map_err(unreadable)?;
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(reason) = ownership::find_other_writer(&metadata) {
        return Err(ConfigError::Untrusted { path: path.into(), reason });
    }
    let bytes = read_bounded(file).map_err(|source| match source.kind() {
        io::ErrorKind::IsADirectory => ConfigError::Directory { path: path.into() },
        _ => unreadable(source),
    })?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(ConfigError::TooLarge { path: path.into() });
    }
    let text = String::from_utf8(bytes).map_err(|error| not_utf8(path, &error))?;
    let mut loaded = parse(&text, &source_file, environment)?;
    sandbox_paths::resolve_paths(&mut loaded.settings, path);
    Ok(loaded)
}

// The file's size is not asked for: the file may be a pipe, or grow.
fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn not_utf8(path: &Path, error: &std::string::FromUtf8Error) -> ConfigError {
    let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
    ConfigError::NotUtf8 { path: path.into(), line }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Loads an `mcp.json` with these bytes. The error is the printed chain without the directory.
    fn load_bytes(bytes: &[u8]) -> Result<LoadedConfig, String> {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("mcp.json"), bytes).unwrap();
        load_from(&folder, "mcp.json")
    }

    fn load_from(folder: &TempDir, name: &str) -> Result<LoadedConfig, String> {
        let loaded = load(&folder.path().join(name), &|_| None);
        let prefix = format!("{}/", folder.path().display());
        loaded.map_err(|error| chain(&error).replace(&prefix, ""))
    }

    fn chain(error: &dyn Error) -> String {
        match error.source() {
            Some(source) => format!("{error}: {}", chain(source)),
            None => error.to_string(),
        }
    }

    // req: GW-07
    #[test]
    fn refuses_file_that_another_user_can_write() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, r#"{"mcpServers": {}}"#).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
        let expected = "the configuration `mcp.json` is writable by others (mode 646), who could run any command as you: use `chmod go-w`";
        assert_eq!(load_from(&folder, "mcp.json").unwrap_err(), expected);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        load_from(&folder, "mcp.json").unwrap();
    }

    // req: SB-08
    #[test]
    fn checks_the_folder_of_a_found_file_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, r#"{"mcpServers": {}}"#).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let load = |origin| load_located(&ConfigLocation { path: path.clone(), origin }, &|_| None);
        assert!(chain(&load(ConfigOrigin::WorkingFolder).unwrap_err()).contains("could be replaced"));
        load(ConfigOrigin::Named).unwrap();
    }

    // req: BR-01
    #[test]
    fn relative_paths_start_at_the_files_directory() {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("mcp.json"), r#"{"mcpServers": {"a": {"command": "x", "cwd": "b"}}}"#)
            .unwrap();
        let loaded = load_from(&folder, "mcp.json").unwrap();
        let TransportSettings::Stdio { cwd, .. } = &loaded.settings.servers[0].transport else {
            panic!("a command is stdio");
        };
        assert_eq!(cwd.as_deref(), Some(folder.path().join("b").as_path()));
    }

    #[test]
    fn problems_name_the_file() {
        assert_eq!(
            load_bytes(b"{\n}").unwrap_err(),
            "mcp.json:1:1: neither `mcpServers` nor `servers` is present: add one of them"
        );
    }

    #[test]
    fn unreadable_file_is_reported_with_its_cause() {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        assert_eq!(
            load_from(&folder, "gone.json").unwrap_err(),
            "could not read the configuration `gone.json`: No such file or directory (os error 2)"
        );
        assert_eq!(
            load_from(&folder, "sub").unwrap_err(),
            "could not read the configuration `sub`: it is a directory, not a file"
        );
    }

    #[test]
    fn file_that_is_not_utf8_is_refused_with_the_line() {
        assert_eq!(
            load_bytes(b"{\n\"a\": \"\xff\"}").unwrap_err(),
            "the configuration `mcp.json` is not UTF-8 text: line 2 contains an invalid byte"
        );
    }

    #[test]
    fn file_larger_than_16_mib_is_refused() {
        let mut text = br#"{"mcpServers": {}}"#.to_vec();
        text.resize(MAX_FILE_BYTES, b' ');
        assert!(load_bytes(&text).is_ok());
        text.push(b' ');
        assert_eq!(load_bytes(&text).unwrap_err(), "the configuration `mcp.json` is larger than 16 MiB");
    }
}
