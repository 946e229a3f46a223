//! Cuts a `text/event-stream` into messages.
//!
//! Only `data` matters so far; `id` and `retry` will be kept here when streams are resumed.

use crate::scan::{Scan, Unread};

/// Longest beginning of a line that is needed to know its field.
const FIELD: usize = 16;

/// An incremental reader: feed it bytes as they come.
pub(crate) struct EventReader {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Set once this event's data is beyond the limit: from then on it is only looked through.
    too_long: Option<Scan>,
    /// The rest of the current line is not kept, because it is beyond the limit or not wanted.
    passing: bool,
    after_cr: bool,
    at_start: bool,
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its data.
    Data(Vec<u8>),
    /// Longer than the limit, with what could be seen of it in passing.
    TooLong(Unread),
}

impl EventReader {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            too_long: None,
            passing: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes the next bytes and hands over every event they complete.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Event)) {
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.more_of_line(&bytes[..at]);
            self.end_line(&mut each);
            let crlf = bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
            self.after_cr = bytes[at] == b'\r' && at + 1 == bytes.len();
            bytes = &bytes[at + 1 + usize::from(crlf)..];
        }
        self.more_of_line(bytes);
    }

    fn more_of_line(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(FIELD.saturating_sub(self.line.len())));
        if !self.passing {
            self.line.extend_from_slice(head);
            if self.line.len() + rest.len() <= self.limit.max(FIELD) {
                self.line.extend_from_slice(rest);
                return;
            }
            self.passing = true;
            let value = data_of(&self.line).map(<[u8]>::to_vec);
            self.look_through(value.as_deref());
            self.line.truncate(5);
            return self.look_through(is_data(&self.line).then_some(rest));
        }
        self.look_through(is_data(&self.line).then_some(bytes));
    }

    fn look_through(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else { return };
        let scan = self.too_long.get_or_insert_with(|| {
            let mut scan = Scan::default();
            scan.feed(&std::mem::take(&mut self.data));
            scan
        });
        scan.feed(value);
    }

    fn end_line(&mut self, each: &mut impl FnMut(Event)) {
        if std::mem::take(&mut self.at_start) && self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
        }
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.passing) {
            return;
        }
        if line.is_empty() {
            self.end_event(each);
        } else if let Some(value) = data_of(&line) {
            self.add_data(value);
        }
        // Hand the buffer back, so that a stream of small events allocates once.
        self.line = line;
        self.line.clear();
    }

    fn add_data(&mut self, value: &[u8]) {
        if self.too_long.is_some() || self.data.len() + value.len() > self.limit {
            return self.look_through(Some(value));
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }

    fn end_event(&mut self, each: &mut impl FnMut(Event)) {
        let data = std::mem::take(&mut self.data);
        let had_data = std::mem::take(&mut self.has_data);
        match self.too_long.take() {
            Some(scan) => each(Event::TooLong(scan.outcome())),
            None if had_data && !data.is_empty() => each(Event::Data(data)),
            None => {}
        }
    }
}

fn is_data(line: &[u8]) -> bool {
    line.starts_with(b"data:")
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    if line == b"data" {
        return Some(b"");
    }
    let value = line.strip_prefix(b"data:")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]], limit: usize) -> Vec<String> {
        let mut reader = EventReader::new(limit);
        let mut seen = Vec::new();
        for piece in pieces {
            reader.feed(piece, |event| {
                seen.push(match event {
                    Event::Data(data) => String::from_utf8(data).unwrap(),
                    Event::TooLong(unread) => format!("{unread:?}"),
                });
            });
        }
        seen
    }

    fn check(stream: &str, expected: &[&str]) {
        assert_eq!(read(&[stream.as_bytes()], 1000), expected, "{stream:?}");
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes, 1000), expected, "{stream:?}, byte by byte");
    }

    #[test]
    fn every_kind_of_line_break_ends_a_line() {
        check("data: a\n\ndata:b\r\n\r\ndata: c\r\rdata: d", &["a", "b", "c"]);
    }

    #[test]
    fn lines_of_data_are_joined_and_the_rest_is_passed_over() {
        check(": hello\nevent: message\nid: 7\nretry: 5\ndata: {\ndata:  1}\n\n", &["{\n 1}"]);
        check("\u{feff}data: x\n\n", &["x"]);
        check("data\n\nid: 1\ndata:\n\n: only a comment\n\n", &[]);
    }

    #[test]
    fn an_overlong_event_is_told_and_the_next_one_read() {
        let long = format!("event: message\ndata: {{\"result\":\"{}\",\"id\":3}}\n\n", "x".repeat(5000));
        check(&format!("{long}data: ok\n\n"), &[r#"AnswerTo("3")"#, "ok"]);
        let lines =
            format!("data: {{\"result\":[\n{}data: 1],\"id\":3}}\n\n", "data: 11111111,\n".repeat(200));
        check(&format!("{lines}data: ok\n\n"), &[r#"AnswerTo("3")"#, "ok"]);
        check(&format!(": {}\ndata: ok\n\n", "x".repeat(5000)), &["ok"]);
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_makes_no_difference(
            lines in prop::collection::vec("(data: ?|: |)[ -~\r]{0,30}", 0..20),
            size in 1usize..20,
            limit in 16usize..80,
        ) {
            let text = lines.join("\n") + "\n\n";
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(read(&pieces, limit), read(&[text.as_bytes()], limit));
        }
    }
}
