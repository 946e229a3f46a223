//! The configuration file, `mcp.json`: where it is, what it says, what is wrong with it.
//!
//! Two shapes: what people type is a syntax tree, which `reader` walks; what the program believes is
//! [`Settings`], in which every default is filled in and every value was checked. All problems of a file are
//! reported together, each with its line and column. Watching the file for changes is left to others.
//!
//! Reading order: `find` the file, [`load`] it here, `parse` its text into `settings`. For that `syntax` makes
//! a tree, `server`, `transport` and `limits` read one part each by means of `reader`, `expand` fills in
//! variables, and `problem` collects what is wrong.

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

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use expand::Environment;
pub use find::find;
pub use parse::{Loaded, Origin, parse};
pub use problem::{Problem, Problems, Severity};
pub use settings::{
    BridgeSettings, Isolation, Limits, Network, Retry, Sandbox, ScriptSettings, ServerSettings, Session,
    Settings, Show, ToolSettings, TransportSettings,
};
pub use url::{ServerUrl, UrlError};
pub use watch::FileWatch;

/// A larger file is a mistake, or an attack.
const LARGEST: usize = 16 << 20;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// None was named, and none is in the usual places.
    #[error(
        "found no configuration; looked for\n{}\nname one with `--config FILE`, or start with\n  {EXAMPLE}",
        indented(places)
    )]
    NotFound {
        /// The usual places.
        places: Vec<PathBuf>,
    },
    /// The file is not there, or may not be read.
    #[error("could not read the configuration `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A folder was named.
    #[error("the configuration `{}` is a folder, not a file", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// The file is too large to be meant.
    #[error("the configuration `{}` is larger than {} MiB", path.display(), LARGEST >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("the configuration `{}` is not UTF-8 text: line {line} holds an illegal byte", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line of the first such byte, counted from 1.
        line: usize,
    },
    /// The file was read, and there is something wrong with it.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

const EXAMPLE: &str = r#"{ "mcpServers": { "time": { "command": "uvx", "args": ["mcp-server-time"] } } }"#;

fn indented(places: &[PathBuf]) -> String {
    let lines: Vec<String> = places.iter().map(|place| format!("  {}", place.display())).collect();
    lines.join("\n")
}

/// Reads a configuration file.
pub fn load(path: &Path, environment: Environment<'_>) -> Result<Loaded, ConfigError> {
    let unreadable = |source| ConfigError::Read { path: path.into(), source };
    let origin = Origin::of(path).map_err(unreadable)?;
    let bytes = read_bounded(path).map_err(|source| match source.kind() {
        io::ErrorKind::IsADirectory => ConfigError::Folder { path: path.into() },
        _ => unreadable(source),
    })?;
    if bytes.len() > LARGEST {
        return Err(ConfigError::TooLarge { path: path.into() });
    }
    let text = String::from_utf8(bytes).map_err(|error| not_text(path, &error))?;
    Ok(parse(&text, &origin, environment)?)
}

// Not by its size: the file may be a pipe, or grow.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn not_text(path: &Path, error: &std::string::FromUtf8Error) -> ConfigError {
    let legal = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + legal.iter().filter(|byte| **byte == b'\n').count();
    ConfigError::NotText { path: path.into(), line }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Loads `mcp.json` with these bytes; an error as it is printed, with its causes, the folder left out.
    fn loaded(bytes: &[u8]) -> Result<Loaded, String> {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("mcp.json"), bytes).unwrap();
        loaded_from(&folder, "mcp.json")
    }

    fn loaded_from(folder: &TempDir, name: &str) -> Result<Loaded, String> {
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

    // req: BR-01
    #[test]
    fn a_file_is_loaded_and_its_folder_is_where_paths_start() {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("mcp.json"), r#"{"mcpServers": {"a": {"command": "x", "cwd": "b"}}}"#)
            .unwrap();
        let loaded = loaded_from(&folder, "mcp.json").unwrap();
        let TransportSettings::Stdio { cwd, .. } = &loaded.settings.servers[0].transport else {
            panic!("a command is stdio");
        };
        assert_eq!(cwd.as_deref(), Some(folder.path().join("b").as_path()));
    }

    #[test]
    fn problems_carry_the_files_name() {
        assert_eq!(loaded(b"{\n}").unwrap_err(), "mcp.json:1:1: has neither `mcpServers` nor `servers`");
    }

    #[test]
    fn what_cannot_be_read_is_said_clearly() {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        assert_eq!(
            loaded_from(&folder, "gone.json").unwrap_err(),
            "could not read the configuration `gone.json`: No such file or directory (os error 2)"
        );
        assert_eq!(
            loaded_from(&folder, "sub").unwrap_err(),
            "the configuration `sub` is a folder, not a file"
        );
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_line() {
        assert_eq!(
            loaded(b"{\n\"a\": \"\xff\"}").unwrap_err(),
            "the configuration `mcp.json` is not UTF-8 text: line 2 holds an illegal byte"
        );
    }

    #[test]
    fn a_file_beyond_sixteen_mebibytes_is_refused() {
        let mut text = br#"{"mcpServers": {}}"#.to_vec();
        text.resize(LARGEST, b' ');
        assert!(loaded(&text).is_ok());
        text.push(b' ');
        assert_eq!(loaded(&text).unwrap_err(), "the configuration `mcp.json` is larger than 16 MiB");
    }
}
