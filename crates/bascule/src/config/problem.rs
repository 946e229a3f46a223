//! Errors and warnings of a configuration file, with their positions.
//!
//! Problems are collected by byte offset; lines and columns are counted once, at the end.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// One error or warning. Prints as `mcp.json:12:17: path: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the caller named it.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// The value, for example `mcpServers.files.timeoutMs`; empty for the whole file.
    pub path: String,
    /// Never quotes a secret.
    pub message: String,
    pub severity: Severity,
}

/// Says if a problem makes the file unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file is usable, but may not mean what its author thinks.
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

/// All problems of one file, in file order: at least one error, and the warnings, which often explain it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

/// A hostile file could contain millions of problems.
pub(super) const MAX_PER_SEVERITY: usize = 100;

const MAX_MESSAGE_CHARS: usize = 300;

/// Collects problems while a file is read.
#[derive(Debug, Default)]
pub(super) struct ProblemCollector(RefCell<Vec<UnplacedProblem>>);

#[derive(Debug)]
struct UnplacedProblem {
    at: usize,
    path: String,
    message: String,
    severity: Severity,
}

impl ProblemCollector {
    /// Adds an error at a byte offset.
    pub(super) fn error(&self, at: usize, path: &str, message: impl fmt::Display) {
        self.add(Severity::Error, at, path, message.to_string());
    }

    /// Adds a warning at a byte offset.
    pub(super) fn warning(&self, at: usize, path: &str, message: impl fmt::Display) {
        self.add(Severity::Warning, at, path, message.to_string());
    }

    // Errors and warnings are counted separately, so that many warnings cannot displace an error.
    fn add(&self, severity: Severity, at: usize, path: &str, message: String) {
        let mut problems = self.0.borrow_mut();
        let message = match problems.iter().filter(|problem| problem.severity == severity).count() {
            MAX_PER_SEVERITY => "further problems are not shown".into(),
            count if count > MAX_PER_SEVERITY => return,
            _ => escape_and_truncate(&message, MAX_MESSAGE_CHARS),
        };
        problems.push(UnplacedProblem { at, path: path.into(), message, severity });
    }

    /// Computes line and column of each problem in `text`.
    pub(super) fn into_problems(self, file: &str, text: &str) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| problem.at);
        let (file, mut counted, mut line, mut column) = (Arc::<str>::from(file), 0, 1, 1);
        let place = |UnplacedProblem { at, path, message, severity }| {
            for c in text[counted..at].chars() {
                (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
            }
            counted = at;
            Problem { file: file.clone(), line, column, path, message, severity }
        };
        problems.into_iter().map(place).collect()
    }
}

/// Makes text from a file safe to print: escapes invisible characters and truncates it.
pub(super) fn escape_and_truncate(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    for (index, c) in text.chars().enumerate() {
        match c {
            _ if index == max_chars => return out + "…",
            '\t' | '\n' | '\r' | '\0' => out.extend(c.escape_debug()),
            c if is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Returns true for characters that move the cursor, reorder text or cannot be seen: control characters, unusual spaces,
/// bidirectional marks, Unicode's default ignorable code points, and private ones, whose look is unknown.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(problems: ProblemCollector, text: &str) -> String {
        Problems(problems.into_problems("mcp.json", text)).to_string()
    }

    #[test]
    fn columns_count_characters_and_problems_are_in_file_order() {
        let text = "{\n  \"é\": 1\r\n}";
        let problems = ProblemCollector::default();
        problems.warning(text.find('}').unwrap(), "", "late");
        problems.error(text.find('1').unwrap(), "é", "early");
        assert_eq!(print(problems, text), "mcp.json:2:8: é: early\nmcp.json:3:1: warning: late");
    }

    #[test]
    fn control_characters_are_escaped() {
        let problems = ProblemCollector::default();
        problems.error(0, "", "is \u{1b}[31m\n");
        assert_eq!(print(problems, ""), "mcp.json:1:1: is \\u{1b}[31m\\n");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let text = "größer 漢 ✓ a\u{202e}b\u{200b}\u{3164}\u{a0}\u{feff}\u{e0041}\u{9b}\u{2028}";
        let expected = "größer 漢 ✓ a\\u{202e}b\\u{200b}\\u{3164}\\u{a0}\\u{feff}\\u{e0041}\\u{9b}\\u{2028}";
        assert_eq!(escape_and_truncate(text, 100), expected);
        assert_eq!(escape_and_truncate(text, 3), "grö…");
    }

    #[test]
    fn many_warnings_are_truncated_and_hide_no_error() {
        let problems = ProblemCollector::default();
        (0..1000).for_each(|_| problems.warning(0, "", "odd"));
        problems.error(0, "", "wrong");
        let problems = problems.into_problems("mcp.json", "");
        assert_eq!(problems.len(), MAX_PER_SEVERITY + 2);
        assert_eq!(problems[MAX_PER_SEVERITY].message, "further problems are not shown");
        assert_eq!(problems[MAX_PER_SEVERITY + 1].message, "wrong");
    }
}
