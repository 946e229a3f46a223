//! Writes a text in which some ranges are replaced, front to back. Copies nothing before the first replacement.

use std::ops::Range;

use crate::envelope::push_quoted;

pub(super) struct RangeReplacer<'a> {
    json: &'a str,
    /// The capacity of `out` beyond the length of `json`.
    extra_capacity: usize,
    /// The changed text up to `position`; `None` before the first replacement.
    out: Option<String>,
    /// The end of the last replaced range in `json`; 0 before the first.
    position: usize,
}

impl<'a> RangeReplacer<'a> {
    /// `extra_capacity` is the expected growth of the text.
    pub(super) fn new(json: &'a str, extra_capacity: usize) -> Self {
        Self { json, extra_capacity, out: None, position: 0 }
    }

    /// Replaces a range. A range that begins inside or before one already replaced stays as it is.
    pub(super) fn replace(&mut self, range: Range<usize>, pieces: &[&str]) {
        if let Some(out) = self.begin_replacement(range) {
            out.extend(pieces.iter().copied());
        }
    }

    /// Replaces a range by `"a":{"b":value}` for the keys `a` and `b`, between `before` and `after`.
    pub(super) fn replace_nested(
        &mut self,
        range: Range<usize>,
        [before, after]: [&str; 2],
        keys: &[&str],
        value: &str,
    ) {
        let Some(out) = self.begin_replacement(range) else { return };
        out.push_str(before);
        for (level, key) in keys.iter().enumerate() {
            out.push_str(if level == 0 { "" } else { "{" });
            push_quoted(out, key);
            out.push(':');
        }
        out.push_str(value);
        out.extend(std::iter::repeat_n('}', keys.len().saturating_sub(1)));
        out.push_str(after);
    }

    /// Returns the changed text, or `None` if nothing was replaced.
    pub(super) fn finish(self) -> Option<String> {
        let mut out = self.out?;
        out.push_str(&self.json[self.position..]);
        Some(out)
    }

    /// Copies the text up to the range and skips the range. Returns the output for the replacement, or `None` if the range
    /// begins before the end of the last one.
    fn begin_replacement(&mut self, range: Range<usize>) -> Option<&mut String> {
        if range.start < self.position {
            return None;
        }
        let out =
            self.out.get_or_insert_with(|| String::with_capacity(self.json.len() + self.extra_capacity));
        out.push_str(&self.json[self.position..range.start]);
        self.position = range.end;
        Some(out)
    }
}
