//! Splits a byte stream into lines, one message each, and holds no more than the size limit of a message.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::scan::{Scan, ScannedMessage, scan};

const READ_SIZE: usize = 16 << 10;
/// Other tasks run after this many bytes without a whole line.
const MAX_READ_IN_TURN: usize = 64 << 10;
/// A buffer that grew beyond this for one long message is freed after it.
const MAX_KEPT_BUFFER: usize = 1 << 20;

pub(crate) struct LineReader<R> {
    source: R,
    buffer: BytesMut,
    searched: usize,
    limit: usize,
    /// Set while the rest of an overlong line is skipped.
    skipping: Option<Scan>,
    /// The bytes read since other tasks could run.
    read_in_turn: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    /// A line that is not blank.
    Whole(Bytes),
    /// Longer than the limit, with the result of a scan.
    TooLong(ScannedMessage),
    /// Blank lines of this many bytes together.
    Blank(usize),
}

impl InputLine {
    #[cfg(feature = "client")]
    pub(crate) fn is_longer_than(&self, bytes: usize) -> bool {
        matches!(self, Self::Whole(line) if line.len() > bytes)
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(source: R, limit: usize) -> Self {
        Self { source, buffer: BytesMut::new(), searched: 0, limit, skipping: None, read_in_turn: 0 }
    }

    #[cfg(feature = "client")]
    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// Returns the next line, or `None` at the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            if let Some(line) = self.split_line() {
                return Ok(Some(line));
            }
            self.make_room();
            if self.read_in_turn > MAX_READ_IN_TURN {
                self.read_in_turn = 0;
                tokio::task::yield_now().await;
            }
            match self.source.read_buf(&mut self.buffer).await? {
                0 => return Ok(self.last_line()),
                read => self.read_in_turn += read,
            }
        }
    }

    fn split_line(&mut self) -> Option<InputLine> {
        if let Some(skipped) = self.skip_blank_lines() {
            return Some(InputLine::Blank(skipped));
        }
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            if let Some(line) = self.check_length(line) {
                return Some(line);
            }
        }
        self.searched = self.buffer.len();
        // The byte after the limit may be a carriage return.
        if self.skipping.is_some() || self.buffer.len() > self.limit + 1 {
            self.skipping.get_or_insert_default().feed(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
        None
    }

    /// Skips all blank lines at the beginning of the buffer at once. Returns their length.
    fn skip_blank_lines(&mut self) -> Option<usize> {
        if self.skipping.is_some() || self.searched > 0 || !self.buffer.first()?.is_ascii_whitespace() {
            return None;
        }
        let blank = self.buffer.iter().position(|byte| !byte.is_ascii_whitespace());
        let blank = &self.buffer[..blank.unwrap_or(self.buffer.len())];
        let length = memchr::memrchr(b'\n', blank)? + 1;
        self.buffer.advance(length);
        Some(length)
    }

    fn check_length(&mut self, line: BytesMut) -> Option<InputLine> {
        if let Some(mut skipped) = self.skipping.take() {
            skipped.feed(&line);
            return Some(InputLine::TooLong(skipped.finish()));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() > self.limit {
            return Some(InputLine::TooLong(scan(text)));
        }
        (!text.trim_ascii().is_empty()).then(|| InputLine::Whole(line.freeze()))
    }

    /// Returns the last line, which may lack its line break.
    fn last_line(&mut self) -> Option<InputLine> {
        let line = std::mem::take(&mut self.buffer);
        self.searched = 0;
        self.check_length(line)
    }

    fn make_room(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_KEPT_BUFFER {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(READ_SIZE);
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
            let mut lines = LineReader::new(source, limit);
            let mut seen = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                seen.push(match line {
                    InputLine::Whole(line) => String::from_utf8_lossy(line.trim_ascii()).into_owned(),
                    InputLine::TooLong(scanned) => format!("{scanned:?}"),
                    InputLine::Blank(_) => continue,
                });
            }
            seen
        })
    }

    #[test]
    fn skips_blank_lines_and_carriage_returns() {
        assert_eq!(read_all(&[b"\n\r\n{}\r\n\n[]"], 10), ["{}", "[]"]);
    }

    #[test]
    fn reports_an_overlong_line_and_reads_the_next() {
        let long = format!(r#"{{"result":"{}","id":5}}"#, "x".repeat(100_000));
        let text = format!("{{}}\n{long}\n[]\n");
        for limit in [10, 1000, 99_999] {
            assert_eq!(read_all(&[text.as_bytes()], limit), ["{}", r#"ResponseTo("5")"#, "[]"], "{limit}");
        }
        assert_eq!(read_all(&[text.as_bytes()], 200_000).len(), 3);
    }

    #[test]
    fn reports_an_unfinished_overlong_line_at_the_end() {
        assert_eq!(read_all(&[&vec![b'x'; 50_000]], 100), ["Unknown"]);
    }

    #[test]
    fn applies_the_limit_byte_by_byte_too() {
        let line = format!("{} \r\n[]\n", "x".repeat(37));
        let pieces: Vec<&[u8]> = line.as_bytes().chunks(1).collect();
        for limit in [36, 37, 38, 39] {
            assert_eq!(read_all(&pieces, limit), read_all(&[line.as_bytes()], limit), "{limit}");
        }
    }

    proptest! {
        #[test]
        fn gives_the_same_lines_in_pieces(
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
