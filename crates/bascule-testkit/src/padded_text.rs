//! Text to send that may be far larger than its representation in memory.

use std::io::{self, Write};

/// `head`, then `padding` times `x`, then `tail`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PaddedText {
    pub(crate) head: String,
    pub(crate) padding: usize,
    pub(crate) tail: String,
}

impl PaddedText {
    /// Pads the text to `bytes` bytes.
    pub(crate) fn with_length(bytes: usize, head: String, tail: String) -> PaddedText {
        let padding = bytes.saturating_sub(head.len() + tail.len());
        PaddedText { head, padding, tail }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.padding + self.tail.len()
    }

    pub(crate) fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        static BLOCK: [u8; 64 * 1024] = [b'x'; 64 * 1024];
        out.write_all(self.head.as_bytes())?;
        let mut left = self.padding;
        while left > 0 {
            let count = left.min(BLOCK.len());
            out.write_all(&BLOCK[..count])?;
            left -= count;
        }
        out.write_all(self.tail.as_bytes())
    }
}

impl From<String> for PaddedText {
    fn from(head: String) -> PaddedText {
        PaddedText { head, padding: 0, tail: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_requested_length() {
        let text = PaddedText::with_length(200_000, "<".into(), ">".into());
        let mut written = Vec::new();
        text.write_to(&mut written).unwrap();
        assert_eq!((text.len(), written.len()), (200_000, 200_000));
        assert!(written.starts_with(b"<x") && written.ends_with(b"x>"));
    }
}
