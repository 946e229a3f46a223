//! The configuration file, `mcp.json`: finding it, reading it, reporting its problems.
//!
//! A file passes through two forms. `syntax` parses the text into a tree, which `reader` walks. [`Settings`] is the
//! checked result: every default is filled in. All problems of a file are reported together, each with its line and
//! column. [`FileWatch`] reports changes of the file; reloading is `crate::reload`.
//!
//! Reading order: `find` locates the file, [`load`] reads it, `parse` turns its text into `settings`. `server`,
//! `transport` and `limits` read one part each with the help of `reader`; `expand` replaces variables; `problem` collects
//! errors and warnings.

mod find;
mod parse;
mod settings;

mod limits;
mod server;
mod transport;

mod expand;
mod problem;
mod reader;
mod syntax;
mod url;
mod watch;

#[cfg(test)]
mod testing;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{getgid, getuid};

pub use expand::EnvLookup;
pub use find::find;
pub use parse::{LoadedConfig, SourceFile, parse};
pub use problem::{Problem, Problems, Severity};
pub use settings::{
    Authentication, BridgeSettings, CustomProfile, Isolation, NetworkAccess, RemoteProtocol, ResourceLimits,
    RetryPolicy, Sandbox, ScriptSettings, ServerSettings, SessionSharing, Settings, ToolSettings, ToolView,
    TransportSettings,
};
pub use url::{ServerUrl, UrlError};
pub use watch::FileWatch;

/// Larger files are refused: they are a mistake or an attack.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No file was given, and none exists at the default paths.
    #[error(
        "no configuration file found; searched\n{}\nuse `--config FILE`, or create `mcp.json` with\n  {EXAMPLE}",
        indented(paths)
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
    /// The file is not UTF-8.
    #[error("the configuration `{}` is not UTF-8 text: line {line} contains an invalid byte", path.display())]
    NotUtf8 { path: PathBuf, line: usize },
    /// The file was read and contains errors.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

const EXAMPLE: &str = r#"{ "mcpServers": { "time": { "command": "uvx", "args": ["mcp-server-time"] } } }"#;

fn indented(paths: &[PathBuf]) -> String {
    let lines: Vec<String> = paths.iter().map(|path| format!("  {}", path.display())).collect();
    lines.join("\n")
}

/// Reads a configuration file.
pub fn load(path: &Path, environment: EnvLookup<'_>) -> Result<LoadedConfig, ConfigError> {
    let unreadable = |source| ConfigError::Read { path: path.into(), source };
    let source_file = SourceFile::from_path(path).map_err(unreadable)?;
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(reason) = find_other_writer(&metadata, getuid().as_raw(), getgid().as_raw()) {
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
    Ok(parse(&text, &source_file, environment)?)
}

/// Returns the reason why another user than `user` and root can write the file. A group of the user alone is common, and
/// cannot be told from others; the user's own group is allowed.
fn find_other_writer(metadata: &Metadata, user: u32, group: u32) -> Option<String> {
    if !metadata.is_file() {
        return None;
    }
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != user && owner != 0 {
        return Some(format!(
            "belongs to another user (id {owner}), who could run any command as you: copy it, or change its owner"
        ));
    }
    let is_open_to_group = mode & 0o020 != 0 && metadata.gid() != group && metadata.gid() != 0;
    (mode & 0o002 != 0 || is_open_to_group).then(|| {
        format!(
            "is writable by others (mode {:o}), who could run any command as you: use `chmod go-w`",
            mode & 0o777
        )
    })
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
        let metadata = fs::metadata(&path).unwrap();
        let (user, group) = (metadata.uid(), metadata.gid());
        assert_eq!(find_other_writer(&metadata, user, group), None);
        if group != 0 {
            assert!(find_other_writer(&metadata, user, group + 1).unwrap().contains("writable by others"));
        }
        if user != 0 {
            assert!(find_other_writer(&metadata, user + 1, group).unwrap().contains("another user"));
        }
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
