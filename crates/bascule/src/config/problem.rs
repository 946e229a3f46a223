//! What is wrong with a configuration file, and where.
//!
//! While a file is read, its troubles are noted by byte offset; lines and columns are counted once, at the end.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// One thing that is wrong, or only odd, at one place. Prints as `mcp.json:12:17: path: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named to us.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// Which value, like `mcpServers.files.timeoutMs`; empty for the file as a whole.
    pub path: String,
    /// What is wrong there. Never quotes a secret.
    pub message: String,
    /// Whether the file can be used all the same.
    pub severity: Severity,
}

/// Whether a problem stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but perhaps does not mean what its author thinks.
    Warning,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything wrong with one file, in its order: at least one error, and the warnings, which often explain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// More than this of one severity help nobody, and a hostile file could hold millions.
pub(super) const MOST_SHOWN: usize = 100;

const LONGEST_MESSAGE: usize = 300;

/// Collects problems while a file is being read.
#[derive(Debug, Default)]
pub(super) struct Notes(RefCell<Vec<Note>>);

#[derive(Debug)]
struct Note {
    at: usize,
    path: String,
    message: String,
    severity: Severity,
}

impl Notes {
    /// Notes what keeps the file from being used. `at` is a byte offset.
    pub(super) fn error(&self, at: usize, path: &str, message: impl fmt::Display) {
        self.add(Severity::Error, at, path, message.to_string());
    }

    /// Notes what is merely odd.
    pub(super) fn warning(&self, at: usize, path: &str, message: impl fmt::Display) {
        self.add(Severity::Warning, at, path, message.to_string());
    }

    // Errors and warnings are counted apart, so that no crowd of warnings can push an error out.
    fn add(&self, severity: Severity, at: usize, path: &str, message: String) {
        let mut notes = self.0.borrow_mut();
        let message = match notes.iter().filter(|note| note.severity == severity).count() {
            MOST_SHOWN => "and more, which are not shown".into(),
            count if count > MOST_SHOWN => return,
            _ => printable(&message, LONGEST_MESSAGE),
        };
        notes.push(Note { at, path: path.into(), message, severity });
    }

    /// Says for each note on which line and column of `text` it lies.
    pub(super) fn place(self, file: &str, text: &str) -> Vec<Problem> {
        let mut notes = self.0.into_inner();
        notes.sort_by_key(|note| note.at);
        let file: Arc<str> = file.into();
        let mut cursor = Cursor { text, at: 0, line: 1, column: 1 };
        notes.into_iter().map(|note| cursor.advance(note.at).problem(&file, note)).collect()
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    column: usize,
}

impl Cursor<'_> {
    fn advance(&mut self, to: usize) -> &Self {
        for c in self.text[self.at..to].chars() {
            (self.line, self.column) = match c {
                '\n' => (self.line + 1, 1),
                _ => (self.line, self.column + 1),
            };
        }
        self.at = to;
        self
    }

    fn problem(&self, file: &Arc<str>, note: Note) -> Problem {
        let Note { path, message, severity, .. } = note;
        Problem { file: file.clone(), line: self.line, column: self.column, path, message, severity }
    }
}

/// Text from a file as it may go to a terminal: control characters escaped, the end cut off.
pub(super) fn printable(text: &str, longest: usize) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        match c {
            _ if index == longest => return out + "…",
            c if c.is_control() => out.extend(c.escape_debug()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(notes: Notes, text: &str) -> String {
        Problems(notes.place("mcp.json", text)).to_string()
    }

    #[test]
    fn columns_count_characters_and_problems_come_in_file_order() {
        let text = "{\n  \"é\": 1\r\n}";
        let notes = Notes::default();
        notes.warning(text.find('}').unwrap(), "", "late");
        notes.error(text.find('1').unwrap(), "é", "early");
        assert_eq!(lines(notes, text), "mcp.json:2:8: é: early\nmcp.json:3:1: warning: late");
    }

    #[test]
    fn a_file_cannot_write_to_the_terminal() {
        let notes = Notes::default();
        notes.error(0, "", "is \u{1b}[31m\n");
        assert_eq!(lines(notes, ""), "mcp.json:1:1: is \\u{1b}[31m\\n");
    }

    #[test]
    fn a_crowd_of_warnings_is_cut_short_and_hides_no_error() {
        let notes = Notes::default();
        (0..1000).for_each(|_| notes.warning(0, "", "odd"));
        notes.error(0, "", "wrong");
        let problems = notes.place("mcp.json", "");
        assert_eq!(problems.len(), MOST_SHOWN + 2);
        assert_eq!(problems[MOST_SHOWN].message, "and more, which are not shown");
        assert_eq!(problems[MOST_SHOWN + 1].message, "wrong");
    }
}
