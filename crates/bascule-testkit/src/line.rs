//! One line to send, which may be far larger than what is kept of it in memory.

use std::io::{self, Write};

/// Text, so many `x`, text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) head: String,
    pub(crate) padding: usize,
    pub(crate) tail: String,
}

impl Line {
    /// A line of exactly so many bytes, as far as head and tail leave room.
    pub(crate) fn of_length(bytes: usize, head: String, tail: String) -> Line {
        let padding = bytes.saturating_sub(head.len() + tail.len());
        Line { head, padding, tail }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.padding + self.tail.len()
    }

    pub(crate) fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        static BLOCK: [u8; 64 * 1024] = [b'x'; 64 * 1024];
        out.write_all(self.head.as_bytes())?;
        let mut left = self.padding;
        while left > 0 {
            let now = left.min(BLOCK.len());
            out.write_all(&BLOCK[..now])?;
            left -= now;
        }
        out.write_all(self.tail.as_bytes())
    }
}

impl From<String> for Line {
    fn from(head: String) -> Line {
        Line { head, padding: 0, tail: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_has_the_length_that_was_asked_for() {
        let line = Line::of_length(200_000, "<".into(), ">".into());
        let mut written = Vec::new();
        line.write_to(&mut written).unwrap();
        assert_eq!((line.len(), written.len()), (200_000, 200_000));
        assert!(written.starts_with(b"<x") && written.ends_with(b"x>"));
    }
}
