//! Replaces parts of a text, and finds the ends of its lines and comments.

use std::ops::Range;

/// Replaces a range of bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

impl Splice {
    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }

    pub(super) fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }

    pub(super) fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { range, text: text.into() }
    }
}

/// Applies splices. Of two removals that overlap, the common part is removed once.
pub(super) fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.range.start);
    let (mut edited, mut limit) = (text.to_owned(), text.len());
    for Splice { range, text } in splices.into_iter().rev() {
        edited.replace_range(range.start..range.end.min(limit), &text);
        limit = range.start;
    }
    edited
}

/// Returns the line break that the text uses.
pub(super) fn line_break(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the position of the line's first byte.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Returns the position of the line break that ends the line, or the end of the text.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    if text[at..end].ends_with('\r') { end - 1 } else { end }
}

/// Returns the position after the line break that ends the line.
pub(super) fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// Returns the position after white space and `#` comments.
pub(super) fn skip_trivia(text: &str, mut at: usize) -> usize {
    loop {
        at = text.len() - text[at..].trim_start().len();
        if !text[at..].starts_with('#') {
            return at;
        }
        at = line_end(text, at);
    }
}

/// Returns the white space before `at`, if nothing else precedes it on its line.
pub(super) fn indentation(text: &str, at: usize) -> Option<&str> {
    let before = &text[line_start(text, at)..at];
    before.chars().all(|c| c == ' ' || c == '\t').then_some(before)
}

/// Removes whole lines, from the line of `range.start` to that of `range.end`: with the line break before them, so that the
/// end of the file stays as it is.
pub(super) fn remove_lines(text: &str, range: Range<usize>) -> Splice {
    let (start, end) = (line_start(text, range.start), line_end(text, range.end));
    match start {
        0 => Splice::remove(0..next_line(text, end)),
        _ => Splice::remove(line_end(text, line_start(text, start - 1))..end),
    }
}

/// Removes a value from a sequence with commas. `skip` returns the position after white space and comments.
pub(super) fn remove_between_commas(
    text: &str,
    before: Option<usize>,
    range: Range<usize>,
    skip: fn(&str, usize) -> usize,
) -> Vec<Splice> {
    let after = skip(text, range.end);
    let is_followed = text[after..].starts_with(',');
    let end = if is_followed { after + 1 } else { range.end };
    let mut splices = vec![Splice::remove(start_with_line_break(text, range.start)..end)];
    if let Some(comma) = before.map(|end| skip(text, end)).filter(|at| text[*at..].starts_with(','))
        && !is_followed
    {
        splices.push(Splice::remove(comma..comma + 1));
    }
    splices
}

/// Includes the white space before a position, with at most one line break.
fn start_with_line_break(text: &str, at: usize) -> usize {
    let start = text[..at].trim_end_matches([' ', '\t']).len();
    let line = text[..start].strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    line.map_or(start, str::len)
}

/// Returns the line and the column of a position, both counted from 1. Columns are characters.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let line = 1 + text[..at].matches('\n').count();
    (line, 1 + text[line_start(text, at)..at].chars().count())
}
