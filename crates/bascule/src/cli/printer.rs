//! Prints results on stdout, as one JSON document or as text, and everything else on stderr.

use std::cell::Cell;
use std::io::{self, Write};
use std::process::ExitCode;

use bascule_model::{BridgeError, Delivery};
use serde::Serialize;

use super::error::CommandError;
use super::terminal::{TerminalStyle, break_line, sanitize, sanitize_line};
use crate::config::{ConfigError, Problem, Severity};
use crate::normalise::error_chain;

/// The output of a command.
pub(crate) struct Printer {
    pub(crate) json: bool,
    /// The style of stdout.
    pub(crate) style: TerminalStyle,
    pub(crate) stderr_style: TerminalStyle,
    has_failed: Cell<bool>,
    is_closed: Cell<bool>,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            style: TerminalStyle::new(&io::stdout()),
            stderr_style: TerminalStyle::new(&io::stderr()),
            has_failed: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// Prints a JSON document on stdout.
    pub(crate) fn print_json(&self, document: &impl Serialize) {
        match serde_json::to_string(document) {
            Ok(text) => self.print_line(&escape_controls(text)),
            Err(error) => self.print_note(&format!("could not print the result: {error}")),
        }
    }

    /// Prints a line on stdout. A reader that closes the pipe is not an error.
    pub(crate) fn print_line(&self, line: &str) {
        match writeln!(io::stdout().lock(), "{line}") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.print_note(&format!("could not write the result: {error}"));
                self.has_failed.set(true);
            }
            Err(_) => self.is_closed.set(true),
            Ok(()) => {}
        }
    }

    /// Prints a sentence on stdout. On a terminal it is broken between words; its other parts are indented.
    pub(crate) fn print_sentence(&self, sentence: &str, indent: usize) {
        match self.style.width() {
            Some(width) => self.print_line(&break_line(sentence, width, indent)),
            None => self.print_line(sentence),
        }
    }

    /// Returns true if the reader of stdout has closed it.
    pub(crate) fn is_stdout_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Returns the exit code: `code`, or 2 if a result could not be written.
    pub(crate) fn exit_code(&self, code: ExitCode) -> ExitCode {
        if self.has_failed.get() { ExitCode::from(2) } else { code }
    }

    /// Prints a line on stderr.
    pub(crate) fn print_note(&self, note: &str) {
        let _ = writeln!(io::stderr().lock(), "{note}");
    }

    /// Prints the error of a command and returns its exit code.
    pub(crate) fn print_error(&self, error: &CommandError) -> ExitCode {
        match error {
            _ if self.json => self.print_json(error),
            CommandError::Usage(message) => self.print_message(message),
            CommandError::Config(ConfigError::Invalid(problems)) => {
                problems.0.iter().for_each(|problem| self.print_problem(problem))
            }
            CommandError::Config(error) => self.print_message(&error_chain(error)),
            CommandError::Bridge(error) | CommandError::Arguments(error) => self.print_bridge_error(error),
            CommandError::Interrupted(error) => self.print_note(&error.message),
        }
        error.exit_code()
    }

    /// A warning says so itself, after its position.
    fn print_problem(&self, problem: &Problem) {
        match problem.severity {
            Severity::Error => self.print_message(&problem.to_string()),
            Severity::Warning => self.print_note(&problem.to_string()),
        }
    }

    fn print_message(&self, message: &str) {
        self.print_note(&format!("{} {}", self.stderr_style.red("error:"), sanitize(message)));
    }

    /// Prints the likely cause on stderr: a refusal by the sandbox, or a missing variable.
    pub(crate) fn print_hint(&self, hint: Option<&str>) {
        if let Some(hint) = hint {
            self.print_note(&format!("  {} {}", self.stderr_style.bold("hint:"), sanitize_line(hint)));
        }
    }

    fn print_bridge_error(&self, error: &BridgeError) {
        let hint = error.hint.as_deref().unwrap_or_default();
        let message =
            error.message.strip_suffix(hint).map_or(&*error.message, |rest| rest.trim_end_matches("; "));
        let code = self.stderr_style.bold(&error.code.to_string());
        self.print_message(&format!("{} ({code})", sanitize_line(message)));
        self.print_hint(error.hint.as_deref());
        // The message contains the first three violations.
        for violation in error.violations.iter().skip(3) {
            let (pointer, message) = (sanitize_line(&violation.pointer), sanitize_line(&violation.message));
            self.print_note(&format!("  {pointer}: {message}"));
        }
        if let Some(signature) = &error.signature {
            self.print_note(&format!("  {}", sanitize_line(signature)));
        }
        self.print_note(&format!("  {}", self.stderr_style.dim(&describe_outcome(error))));
        for line in error.stderr.iter().flat_map(|text| text.lines()) {
            self.print_note(&format!("  {} {}", self.stderr_style.dim("stderr |"), sanitize_line(line)));
        }
    }
}

fn describe_outcome(error: &BridgeError) -> String {
    let delivery = match error.delivery {
        Delivery::NotSent => "the tool did not run",
        Delivery::Unknown => "the request was sent; the tool may have run",
        Delivery::Answered => "the server responded",
    };
    let retry = if error.retryable { "a retry may help" } else { "a retry will not help" };
    let id = error.correlation_id.iter().map(|id| format!(" · correlation id {id}")).collect::<String>();
    format!("{delivery} · {retry}{id}")
}

/// Escapes the characters of a JSON document that a terminal would obey: C1 controls, and those of the direction of text. Outside
/// of its strings there are none.
fn escape_controls(json: String) -> String {
    let is_obeyed = |c: char| {
        matches!(c, '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
    };
    if !json.contains(is_obeyed) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match is_obeyed(c) {
            true => escaped += &format!("\\u{:04x}", u32::from(c)),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-01
    #[test]
    fn json_has_no_control_characters() {
        let text = "a\u{7f}\u{85}\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}é€😀";
        let json = escape_controls(serde_json::to_string(text).unwrap());
        assert_eq!(json, r#""a\u007f\u0085\u009b31m\u202e\u2066\u200f\u061cé€😀""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
