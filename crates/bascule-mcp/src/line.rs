//! Splits a byte stream into lines of one message each. The buffer is bounded by the message size limit.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::scan::{Scan, Unread, scan};

const READ_AT_ONCE: usize = 16 << 10;
/// A buffer that grew beyond this size for a long message is freed afterwards.
const KEPT_BUFFER: usize = 1 << 20;

pub(crate) struct Lines<R> {
    source: R,
    buffer: BytesMut,
    searched: usize,
    limit: usize,
    /// Scans the rest of an overlong line while it is skipped.
    skipping: Option<Scan>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line within the limit, never blank. Its line break may be included.
    Whole(Bytes),
    /// A line longer than the limit, and its kind as found by the scan.
    TooLong(Unread),
}

impl Line {
    /// Returns true if the line was read whole and is longer than `bytes`.
    #[cfg(feature = "client")]
    pub(crate) fn is_longer_than(&self, bytes: usize) -> bool {
        matches!(self, Self::Whole(line) if line.len() > bytes)
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(source: R, limit: usize) -> Self {
        Self { source, buffer: BytesMut::new(), searched: 0, limit, skipping: None }
    }

    #[cfg(feature = "client")]
    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// Returns the next line, or `None` at the end of the stream. Cancel-safe: dropping the future loses no data.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.cut() {
                return Ok(Some(line));
            }
            self.make_room();
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.rest());
            }
        }
    }

    fn cut(&mut self) -> Option<Line> {
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            if let Some(line) = self.judge(line) {
                return Some(line);
            }
        }
        self.searched = self.buffer.len();
        // The byte after the limit may be the carriage return of the line break.
        if self.skipping.is_some() || self.buffer.len() > self.limit + 1 {
            self.skipping.get_or_insert_default().feed(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
        None
    }

    fn judge(&mut self, line: BytesMut) -> Option<Line> {
        if let Some(mut skipped) = self.skipping.take() {
            skipped.feed(&line);
            return Some(Line::TooLong(skipped.outcome()));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() > self.limit {
            return Some(Line::TooLong(scan(text)));
        }
        (!text.trim_ascii().is_empty()).then(|| Line::Whole(line.freeze()))
    }

    /// Returns the last line, which may lack its line break.
    fn rest(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.buffer);
        self.searched = 0;
        self.judge(line)
    }

    fn make_room(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BUFFER {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(READ_AT_ONCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(pieces: &[&[u8]], limit: usize) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let source = pieces
                .iter()
                .fold(Box::new(tokio::io::empty()) as Box<dyn AsyncRead + Unpin>, |before, piece| {
                    Box::new(before.chain(io::Cursor::new(piece.to_vec())))
                });
            let mut lines = Lines::new(source, limit);
            let mut seen = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                seen.push(match line {
                    Line::Whole(line) => String::from_utf8_lossy(line.trim_ascii()).into_owned(),
                    Line::TooLong(unread) => format!("{unread:?}"),
                });
            }
            seen
        })
    }

    #[test]
    fn blank_lines_and_carriage_returns_are_nothing() {
        assert_eq!(read_all(&[b"\n\r\n{}\r\n\n[]"], 10), ["{}", "[]"]);
    }

    #[test]
    fn an_overlong_line_is_passed_over_and_the_next_one_read() {
        let long = format!(r#"{{"result":"{}","id":5}}"#, "x".repeat(100_000));
        let text = format!("{{}}\n{long}\n[]\n");
        for limit in [10, 1000, 99_999] {
            assert_eq!(read_all(&[text.as_bytes()], limit), ["{}", r#"AnswerTo("5")"#, "[]"], "{limit}");
        }
        assert_eq!(read_all(&[text.as_bytes()], 200_000).len(), 3);
    }

    #[test]
    fn an_overlong_line_that_never_ends_is_told_at_the_end() {
        assert_eq!(read_all(&[&vec![b'x'; 50_000]], 100), ["Unknown"]);
    }

    #[test]
    fn a_line_is_as_long_as_it_is_however_it_comes() {
        let line = format!("{} \r\n[]\n", "x".repeat(37));
        let pieces: Vec<&[u8]> = line.as_bytes().chunks(1).collect();
        for limit in [36, 37, 38, 39] {
            assert_eq!(read_all(&pieces, limit), read_all(&[line.as_bytes()], limit), "{limit}");
        }
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_makes_no_difference(
            lines in prop::collection::vec("[ -~]{0,40}", 0..20),
            size in 1usize..30,
            limit in 5usize..60,
        ) {
            let text = lines.join("\n");
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(read_all(&pieces, limit), read_all(&[text.as_bytes()], limit));
        }
    }
}
