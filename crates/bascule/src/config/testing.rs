//! Helpers for the tests of the configuration.

use std::path::Path;

use super::expand::EnvLookup;
use super::problem::{Problem, Problems};
use super::settings::{ServerSettings, Settings};
use super::{LoadedConfig, SourceFile, parse};

/// Parses a file in `/config`, without environment variables.
pub(super) fn read(text: &str) -> Result<LoadedConfig, Problems> {
    parse(text, &source(), &|_| None)
}

pub(super) fn source() -> SourceFile {
    SourceFile { name: "mcp.json".into(), directory: Path::new("/config").into() }
}

/// Parses a file that has no problems.
#[track_caller]
pub(super) fn settings(text: &str) -> Settings {
    let loaded = read(text).unwrap();
    assert_eq!(loaded.warnings, []);
    loaded.settings
}

/// Parses the entry of the only server.
#[track_caller]
pub(crate) fn server(entry: &str) -> ServerSettings {
    server_from(entry, &|_| None)
}

/// Parses the entry of the only server, with environment variables.
#[track_caller]
pub(super) fn server_from(entry: &str, environment: EnvLookup) -> ServerSettings {
    let loaded = parse(&with_server(entry), &source(), environment).unwrap();
    assert_eq!(loaded.warnings, []);
    loaded.settings.servers.into_iter().next().unwrap()
}

/// Checks all problems of a file, one per line, without the file's name.
#[track_caller]
pub(super) fn check(text: &str, expected: &str) {
    let problems = read(text).map_or_else(|problems| problems.0, |loaded| loaded.warnings);
    let line = |problem: &Problem| problem.to_string().replacen("mcp.json:", "", 1);
    let lines: Vec<String> = problems.iter().map(line).collect();
    assert_eq!(lines.join("\n"), expected);
}

/// Checks all problems of the only server's entry, which starts in column 22.
#[track_caller]
pub(super) fn check_server(entry: &str, expected: &str) {
    check(&with_server(entry), expected);
}

fn with_server(entry: &str) -> String {
    format!(r#"{{"mcpServers":{{"it": {entry}}}}}"#)
}
