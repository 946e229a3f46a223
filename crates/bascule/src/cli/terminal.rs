//! Terminal output: colours and width.

use std::io::IsTerminal;
use std::os::fd::AsFd;

pub(crate) use crate::sanitize::{sanitize, sanitize_line};

/// A terminal narrower than this does not say its width.
const MIN_WIDTH: usize = 20;

/// Colours text if the stream is a terminal that understands escapes, and knows its width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalStyle {
    has_escapes: bool,
    width: Option<usize>,
}

impl TerminalStyle {
    pub(crate) fn new(stream: &(impl IsTerminal + AsFd)) -> Self {
        let is_set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_plain = is_set("NO_COLOR").is_some() || is_set("TERM").is_some_and(|term| term == "dumb");
        let size = rustix::termios::tcgetwinsize(stream).ok().filter(|_| stream.is_terminal());
        Self {
            has_escapes: stream.is_terminal() && !is_plain,
            width: size.map(|size| size.ws_col.into()).filter(|width| *width >= MIN_WIDTH),
        }
    }

    /// Returns the columns of the terminal; `None` if the stream is none.
    pub(crate) fn width(self) -> Option<usize> {
        self.width
    }

    /// Returns true if escape sequences are allowed.
    pub(crate) fn is_enabled(self) -> bool {
        self.has_escapes
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31;1", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.has_escapes { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Pads a word to a width of at most 40, so that a server's long name does not shift the column.
pub(crate) fn pad(word: &str, width: usize) -> String {
    let width = width.min(40);
    format!("{word:width$}")
}

/// Cuts a line without escapes to a width, and marks the cut.
pub(crate) fn fit(line: &str, width: usize) -> String {
    match line.chars().count() > width {
        true => line.chars().take(width.saturating_sub(1)).collect::<String>().trim_end().to_owned() + "…",
        false => line.to_owned(),
    }
}

/// Breaks a line between words so that it fits a width; the parts after the first are indented. Names and commands in
/// backticks stay in one piece, so that they can be copied. Escapes take no columns.
pub(crate) fn break_line(line: &str, width: usize, indent: usize) -> String {
    let margin = " ".repeat(indent.min(width / 2));
    let (mut text, mut column) = (String::new(), 0);
    for (gap, word) in words(line) {
        let columns = visible_columns(word);
        if column > margin.len() && column + gap.len() + columns > width {
            text.push('\n');
            text.push_str(&margin);
            column = margin.len();
        } else {
            text.push_str(gap);
            column += gap.len();
        }
        text.push_str(word);
        column += columns;
    }
    text
}

/// A piece in backticks that is longer is broken nevertheless.
const MAX_QUOTED: usize = 60;

/// Returns the words of a line, each with the spaces before it.
fn words(mut line: &str) -> impl Iterator<Item = (&str, &str)> {
    std::iter::from_fn(move || {
        let (gap, rest) = line.split_at(line.find(|c| c != ' ').unwrap_or(line.len()));
        let end = word_end(rest);
        let word;
        (word, line) = rest.split_at(end);
        (!gap.is_empty() || !word.is_empty()).then_some((gap, word))
    })
}

/// Returns the position of the first space that is not between backticks.
fn word_end(text: &str) -> usize {
    let mut position = 0;
    loop {
        let rest = &text[position..];
        let Some(found) = rest.find([' ', '`']) else { return text.len() };
        position += found;
        if rest[found..].starts_with(' ') {
            return position;
        }
        let quoted = &text[position + 1..];
        let close = quoted.find('`').filter(|close| *close <= MAX_QUOTED);
        position += close.map_or(1, |close| close + 2);
    }
}

/// Counts the characters of a word without its escapes.
fn visible_columns(word: &str) -> usize {
    let mut parts = word.split('\u{1b}');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    plain + parts.map(|part| part.chars().skip_while(|c| *c != 'm').skip(1).count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: US-01
    #[test]
    fn breaks_lines_between_words() {
        assert_eq!(break_line("  a cause that is long", 12, 4), "  a cause\n    that is\n    long");
        assert_eq!(break_line("short", 12, 4), "short");
        assert_eq!(break_line("a  b", 80, 4), "a  b");
        assert_eq!(break_line("run `bascule refresh s` now", 20, 2), "run\n  `bascule refresh s`\n  now");
        assert_eq!(break_line("/a/very/long/path/alone", 10, 2), "/a/very/long/path/alone");
        let quoted = format!("`{}`", "x ".repeat(50));
        assert!(break_line(&quoted, 40, 2).lines().all(|line| line.len() <= 40));
        assert_eq!(break_line("an odd ` backtick here", 12, 0), "an odd `\nbacktick\nhere");
    }

    // req: US-01
    #[test]
    fn escapes_take_no_columns() {
        assert_eq!(break_line("\u{1b}[31;1mabc\u{1b}[0m def", 7, 0), "\u{1b}[31;1mabc\u{1b}[0m def");
    }

    #[test]
    fn colours_text_only_on_a_terminal() {
        let style = |has_escapes| TerminalStyle { has_escapes, width: None };
        assert_eq!(style(false).red("x"), "x");
        assert_eq!(style(true).green("x"), "\u{1b}[32mx\u{1b}[0m");
    }

    #[test]
    fn cuts_lines_to_the_width() {
        assert_eq!(fit("äbcd", 4), "äbcd");
        assert_eq!(fit("äb d", 3), "äb…");
    }

    #[test]
    fn pads_to_a_bounded_width() {
        assert_eq!(pad(&"x".repeat(70_000), 70_000).len(), 70_000);
    }
}
