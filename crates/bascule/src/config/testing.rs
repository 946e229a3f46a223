//! Short ways for this folder's tests to read a file.

use std::path::Path;

use super::expand::Environment;
use super::problem::{Problem, Problems};
use super::settings::{ServerSettings, Settings};
use super::{Loaded, Origin, parse};

/// Reads a file that lies in `/config`, with no environment.
pub(super) fn read(text: &str) -> Result<Loaded, Problems> {
    parse(text, &origin(), &|_| None)
}

pub(super) fn origin() -> Origin {
    Origin { name: "mcp.json".into(), folder: Path::new("/config").into() }
}

/// Reads a file that must be faultless.
#[track_caller]
pub(super) fn settings(text: &str) -> Settings {
    let loaded = read(text).unwrap();
    assert_eq!(loaded.warnings, []);
    loaded.settings
}

/// Reads the entry of the one server there is.
#[track_caller]
pub(super) fn server(entry: &str) -> ServerSettings {
    server_from(entry, &|_| None)
}

/// The same, with an environment.
#[track_caller]
pub(super) fn server_from(entry: &str, environment: Environment) -> ServerSettings {
    let loaded = parse(&with_server(entry), &origin(), environment).unwrap();
    assert_eq!(loaded.warnings, []);
    loaded.settings.servers.into_iter().next().unwrap()
}

/// Checks all that is said about a file, one problem on each line, without its name.
#[track_caller]
pub(super) fn check(text: &str, expected: &str) {
    let problems = read(text).map_or_else(|problems| problems.0, |loaded| loaded.warnings);
    let line = |problem: &Problem| problem.to_string().replacen("mcp.json:", "", 1);
    let lines: Vec<String> = problems.iter().map(line).collect();
    assert_eq!(lines.join("\n"), expected);
}

/// Checks all that is said about the entry of the one server there is, which starts in column 22.
#[track_caller]
pub(super) fn check_server(entry: &str, expected: &str) {
    check(&with_server(entry), expected);
}

fn with_server(entry: &str) -> String {
    format!(r#"{{"mcpServers":{{"it": {entry}}}}}"#)
}
