//! Writes a text in which some ranges are replaced, front to back. Copies nothing before the first replacement.

use std::ops::Range;

use crate::envelope::push_quoted;

pub(super) struct Splice<'a> {
    json: &'a str,
    growth: usize,
    out: Option<String>,
    copied: usize,
}

impl<'a> Splice<'a> {
    /// `growth` is the expected difference in length.
    pub(super) fn new(json: &'a str, growth: usize) -> Self {
        Self { json, growth, out: None, copied: 0 }
    }

    /// The end of the last replaced range.
    pub(super) fn copied(&self) -> usize {
        self.copied
    }

    /// Replaces a range. A range that begins inside or before one already replaced stays as it is.
    pub(super) fn replace(&mut self, range: Range<usize>, pieces: &[&str]) {
        if let Some(out) = self.copy_until(range) {
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
        let Some(out) = self.copy_until(range) else { return };
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

    /// The changed text, or `None` if nothing was replaced.
    pub(super) fn finish(self) -> Option<String> {
        let mut out = self.out?;
        out.push_str(&self.json[self.copied..]);
        Some(out)
    }

    fn copy_until(&mut self, range: Range<usize>) -> Option<&mut String> {
        if range.start < self.copied {
            return None;
        }
        let out = self.out.get_or_insert_with(|| String::with_capacity(self.json.len() + self.growth));
        out.push_str(&self.json[self.copied..range.start]);
        self.copied = range.end;
        Some(out)
    }
}
