//! Explains failed starts: usual mistakes in the configuration, programs that are no MCP servers, missing variables.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bascule_model::{BridgeError, ErrorCode};

use crate::config::{ServerSettings, TransportSettings, is_executable};
use crate::fleet::stray_output::StrayOutput;
use crate::normalise::start_error;
use crate::sanitize::excerpt;

/// Maximum length of a server's line in a message.
const MAX_LINE_CHARS: usize = 120;

/// Adds to the error of a failed handshake that the program may be no MCP server, if its output says so.
pub(crate) fn explain_output(
    mut error: Box<BridgeError>,
    settings: &ServerSettings,
    output: &StrayOutput,
) -> Box<BridgeError> {
    let TransportSettings::Stdio { command, .. } = &settings.transport else { return error };
    let printed = output.first_line().map(|line| excerpt(&line, MAX_LINE_CHARS));
    if output.is_echo() {
        let reason = format!("`{command}` returns its input instead of answering it: it is no MCP server");
        error.message = start_error(&settings.name, reason).message;
    } else if error.exit.as_deref() == Some("exit code 0") {
        let reason =
            format!("`{command}` ended without an answer (exit code 0): it is probably no MCP server");
        error.message = start_error(&settings.name, reason).message;
    }
    if let Some(line) = printed.filter(|_| !output.is_echo()) {
        error.message +=
            &format!("; it printed `{line}` on stdout, where an MCP server writes only messages");
    }
    error
}

/// Returns the hint for a command that is not found: the program and its arguments may be in one string.
pub(crate) fn split_command(command: &str, is_program: impl Fn(&str) -> bool) -> Option<String> {
    let mut words = command.split_whitespace();
    let program = words.next()?;
    let arguments: Vec<&str> = words.collect();
    if arguments.is_empty() || !is_program(program) {
        return None;
    }
    let json = |value| serde_json::to_string(value).unwrap_or_default();
    let arguments: Vec<String> = arguments.into_iter().map(json).collect();
    Some(format!(
        "`command` is the program alone: write \"command\": {}, \"args\": [{}]",
        json(program),
        arguments.join(", ")
    ))
}

/// Returns the reason for which the system would not execute a file that exists.
pub(crate) fn find_obstacle(program: &Path) -> Option<String> {
    let shown = program.display();
    let interpreter = interpreter_of(program);
    let run_it = interpreter
        .map(|name| format!(", or write \"command\": \"{name}\", \"args\": [\"{shown}\"]"))
        .unwrap_or_default();
    if !is_executable(program) {
        return Some(format!("it is not executable: run `chmod +x {shown}`{run_it}"));
    }
    let mut beginning = Vec::new();
    File::open(program).ok()?.take(256).read_to_end(&mut beginning).ok()?;
    match beginning.strip_prefix(b"#!") {
        Some(line) => {
            let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next()?).into_owned();
            let named = line.split_whitespace().next()?.to_owned();
            (!Path::new(&named).exists())
                .then(|| format!("its first line names the interpreter `{named}`, which does not exist"))
        }
        None => interpreter
            .map(|_| format!("it does not begin with `#!` and an interpreter: add that line{run_it}")),
    }
}

/// Returns the program that usually runs files with this extension.
fn interpreter_of(script: &Path) -> Option<&'static str> {
    match script.extension()?.to_str()? {
        "py" => Some("python3"),
        "js" | "mjs" | "cjs" => Some("node"),
        "sh" => Some("sh"),
        _ => None,
    }
}

/// Adds a hint to the error of a server that has ended or not started, if its stderr misses an environment variable.
pub(crate) fn explain_missing_variable(error: &mut BridgeError, settings: &ServerSettings) {
    let TransportSettings::Stdio { env, .. } = &settings.transport else { return };
    let has_failed = error.code == ErrorCode::ProviderInitFailed || error.exit.is_some();
    if !has_failed || error.hint.is_some() {
        return;
    }
    let is_configured = |name: &str| env.iter().any(|(configured, _)| configured == name);
    let missing = error.stderr.as_deref().and_then(|text| find_missing_variable(text, is_configured));
    if let Some(name) = missing {
        let hint = format!(
            "it seems to miss the environment variable `{name}`: servers inherit none of yours, \
             add \"env\": {{ \"{name}\": \"${{{name}}}\" }} to `{}` in the configuration",
            settings.name
        );
        error.message += &format!("; {hint}");
        error.hint = Some(hint);
    }
}

/// Finds the name of a variable that a program complains about.
fn find_missing_variable(stderr: &str, is_configured: impl Fn(&str) -> bool) -> Option<String> {
    const COMPLAINTS: [&str; 12] = [
        "environment",
        "env var",
        "not set",
        "unset",
        "required",
        "missing",
        "must be set",
        "must set",
        "not found",
        "undefined",
        "keyerror",
        "please provide",
    ];
    stderr.lines().find_map(|line| {
        let lower = line.to_lowercase();
        COMPLAINTS.iter().find(|complaint| lower.contains(*complaint))?;
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.find(|word| is_variable(word) && !is_configured(word)).map(str::to_owned)
    })
}

/// Returns true for names like `API_KEY`. A word without `_` is more often something else.
fn is_variable(word: &str) -> bool {
    let is_legal = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
    // Codes of errors in Node.
    const OTHERS: [&str; 3] = ["ERR_", "E_", "MODULE_NOT_FOUND"];
    word.len() >= 4
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.trim_matches('_').contains('_')
        && word.bytes().all(is_legal)
        && !OTHERS.iter().any(|other| word.starts_with(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_variable(stderr: &str, expected: Option<&str>) {
        let found = find_missing_variable(stderr, |name| name == "KNOWN_KEY");
        assert_eq!(found.as_deref(), expected, "{stderr}");
    }

    // req: BR-05
    #[test]
    fn finds_the_variable_that_a_server_misses() {
        check_variable("Error: BRAVE_API_KEY environment variable is required", Some("BRAVE_API_KEY"));
        check_variable("Traceback:\nKeyError: 'MY_TOKEN'", Some("MY_TOKEN"));
        check_variable(
            "Please set the SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables",
            Some("SLACK_BOT_TOKEN"),
        );
        check_variable("missing env var: \"NOTION_TOKEN\"", Some("NOTION_TOKEN"));
        check_variable("KNOWN_KEY is set, OTHER_KEY is missing", Some("OTHER_KEY"));
    }

    #[test]
    fn ignores_other_words_in_capitals() {
        check_variable("KNOWN_KEY is required", None);
        check_variable("code: 'MODULE_NOT_FOUND', not found", None);
        check_variable("ERR_MODULE_NOT_FOUND: Cannot find package, missing", None);
        check_variable("FATAL: a JSON file is required", None);
        check_variable("API_KEY looks fine", None);
    }

    // req: BR-05
    #[test]
    fn splits_a_command_with_arguments() {
        let hint = split_command("python3 -m x", |program| program == "python3").unwrap();
        assert_eq!(
            hint,
            r#"`command` is the program alone: write "command": "python3", "args": ["-m", "x"]"#
        );
        assert_eq!(split_command("python3", |_| true), None);
        assert_eq!(split_command("/opt/My App/server", |_| false), None);
    }

    // req: BR-05
    #[test]
    fn names_the_obstacle_of_a_program() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, text: &str, mode: u32, part: Option<&str>| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = find_obstacle(&path);
            assert_eq!(found.is_some(), part.is_some(), "{found:?}");
            assert!(part.is_none_or(|part| found.as_ref().unwrap().contains(part)), "{found:?}");
        };
        check("a", "#!/bin/sh\n", 0o644, Some("not executable: run `chmod +x"));
        check("b.py", "#!/bin/sh\n", 0o644, Some(r#""command": "python3", "args": [""#));
        check(
            "c",
            "#!/no/such/interpreter -x\n",
            0o755,
            Some("`/no/such/interpreter`, which does not exist"),
        );
        check("d.js", "console.log(1)", 0o755, Some("does not begin with `#!`"));
        check("e", "#!/bin/sh\n", 0o755, None);
        check("f", "\u{7f}ELF", 0o755, None);
    }
}
