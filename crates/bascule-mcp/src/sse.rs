//! Splits a `text/event-stream` into messages, and tracks the position from which the stream can be resumed.

use std::time::Duration;

use http::HeaderValue;

use crate::scan::{Scan, Unread};

/// Length of the line prefix needed to identify its field.
const FIELD: usize = 16;
/// Maximum length of an event id that is sent back: it must fit into a header.
const LONGEST_ID: usize = 1024;

/// An incremental reader of an event stream.
pub(crate) struct EventReader {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Set once the data of the current event exceeds the limit. Further data is only scanned.
    too_long: Option<Scan>,
    /// True if the rest of the current line is dropped, because it exceeds the limit or is not needed.
    passing: bool,
    after_cr: bool,
    at_start: bool,
    names_endpoint: bool,
    /// The id of the current event, if it has one. The inner value is `None` if the id cannot be sent back.
    id: Option<Option<HeaderValue>>,
    place: Place,
    /// True if this stream resumes another and no event has arrived yet.
    resumed: bool,
    seen: usize,
}

/// The position from which a stream can be resumed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The id of the last complete event.
    pub(crate) id: Option<HeaderValue>,
    /// The delay before reconnecting, as requested by the server.
    pub(crate) retry: Option<Duration>,
}

/// An event of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The data of an ordinary event.
    Data(Vec<u8>),
    /// The data of an event named `endpoint`, the first event of the older HTTP+SSE.
    Endpoint(Vec<u8>),
    /// An event longer than the limit, and the kind of its message as found by the scan.
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
            names_endpoint: false,
            id: None,
            place: Place::default(),
            resumed: false,
            seen: 0,
        }
    }

    /// Creates a reader for a stream that resumes at `place`.
    pub(crate) fn resuming(limit: usize, place: Place) -> Self {
        Self { resumed: place.id.is_some(), place, ..Self::new(limit) }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the number of events so far, including events without data.
    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    /// Reads the next bytes and calls `each` for every event they complete.
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
        } else {
            self.take_field(&line);
        }
        // Reuse the buffer, so that a stream of small events allocates once.
        self.line = line;
        self.line.clear();
    }

    fn take_field(&mut self, line: &[u8]) {
        match field(line) {
            (b"data", value) => self.add_data(value),
            (b"event", value) => self.names_endpoint = value == b"endpoint",
            (b"id", value) if !value.contains(&0) => self.id = Some(usable_id(value)),
            (b"retry", value) => self.place.retry = milliseconds(value).or(self.place.retry),
            _ => {}
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        // The line break between two data lines counts.
        let length = self.data.len() + usize::from(self.has_data) + value.len();
        if self.too_long.is_some() || length > self.limit {
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
        let too_long = self.too_long.take();
        let is_endpoint = std::mem::take(&mut self.names_endpoint);
        let is_something = had_data || too_long.is_some() || self.id.is_some();
        // The position advances only here, at the end of the event: an incomplete event must be sent again.
        if self.is_repeated() || !is_something {
            return;
        }
        self.seen += 1;
        self.resumed = false;
        match too_long {
            Some(scan) => each(Event::TooLong(scan.outcome())),
            None if data.is_empty() => {}
            None if is_endpoint => each(Event::Endpoint(data)),
            None => each(Event::Data(data)),
        }
    }

    /// Advances the position to this event. Returns true if it is the event after which the server was asked to resume:
    /// a server may send that one again.
    fn is_repeated(&mut self) -> bool {
        let Some(id) = self.id.take() else { return false };
        let known = self.resumed && id.is_some() && id == self.place.id;
        self.place.id = id;
        known
    }
}

fn is_data(line: &[u8]) -> bool {
    line.starts_with(b"data:")
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    match field(line) {
        (b"data", value) => Some(value),
        _ => None,
    }
}

/// Splits a line into the name and the value of its field.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let value = &line[colon + 1..];
    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
}

/// Returns the id in the form that is sent back, or `None` if it does not fit. An empty id resets the last one.
fn usable_id(value: &[u8]) -> Option<HeaderValue> {
    let fits = !value.is_empty() && value.len() <= LONGEST_ID;
    fits.then(|| HeaderValue::from_bytes(value).ok()).flatten()
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    // `u32` bounds the delay to 49 days. A longer one is invalid.
    digits.parse::<u32>().ok().map(|ms| Duration::from_millis(ms.into()))
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
                    Event::Endpoint(data) => format!("endpoint {}", String::from_utf8(data).unwrap()),
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

    #[test]
    fn an_event_of_many_lines_is_as_long_as_its_lines_and_their_breaks() {
        let two = |last: &str| format!("data: {}\ndata: {last}\n\n", "x".repeat(10));
        assert_eq!(read(&[two("yyyyyyyyy").as_bytes()], 20), [format!("{}\nyyyyyyyyy", "x".repeat(10))]);
        assert_eq!(read(&[two("yyyyyyyyyy").as_bytes()], 20), ["Unknown"]);
    }

    #[test]
    fn the_event_that_opens_the_older_transport_is_known_by_its_name() {
        check("event: endpoint\ndata: /messages\n\ndata: x\n\n", &["endpoint /messages", "x"]);
        check("event: endpoint\nevent: message\ndata: x\n\n", &["x"]);
    }

    fn place_after(stream: &str) -> (Option<String>, Option<u64>, usize) {
        let mut reader = EventReader::new(3000);
        reader.feed(stream.as_bytes(), |_| {});
        let Place { id, retry } = reader.place();
        let id = id.as_ref().map(|id| id.to_str().unwrap().to_owned());
        (id, retry.map(|retry| retry.as_millis() as u64), reader.seen())
    }

    // req: BR-01
    #[test]
    fn a_stream_stands_after_its_last_whole_event() {
        let seven = Some("7".to_owned());
        assert_eq!(place_after("id: 7\ndata: a\n\nid: 8\ndata: b\n"), (seven.clone(), None, 1));
        assert_eq!(place_after("id: 7\ndata:\n\n"), (seven.clone(), None, 1), "events without data count");
        assert_eq!(place_after("id: 7\n\ndata: a\n\n"), (seven.clone(), None, 2), "an id holds on");
        assert_eq!(place_after("id: 7\n\nid\ndata: a\n\n"), (None, None, 2), "until it is taken back");
        assert_eq!(place_after("id: 7\n\nid: 8\0\ndata: a\n\n"), (seven.clone(), None, 2));
        assert_eq!(place_after(&format!("id: 7\n\nid: {}\n\n", "x".repeat(1025))), (None, None, 2));
        assert_eq!(place_after(&format!("id: 7\ndata: {}\n\n", "x".repeat(5000))), (seven, None, 1));
        assert_eq!(place_after(": hello\n\n\n\n"), (None, None, 0));
    }

    #[test]
    fn the_wait_that_a_server_asks_for_is_a_number() {
        assert_eq!(place_after("retry: 1500\n").1, Some(1500));
        assert_eq!(place_after("retry: 1500\nretry: soon\nretry: -1\nretry: 99999999999999\n").1, Some(1500));
    }

    // req: BR-01
    #[test]
    fn an_event_that_comes_again_after_a_break_is_passed_over() {
        let place = Place { id: Some(HeaderValue::from_static("7")), retry: None };
        let mut reader = EventReader::resuming(1000, place);
        let mut seen = Vec::new();
        let stream = b": again\n\nid: 7\ndata: old\n\nid: 8\ndata: new\n\nid: 8\ndata: more\n\n";
        reader.feed(stream, |event| seen.push(event));
        assert_eq!(seen, [Event::Data(b"new".to_vec()), Event::Data(b"more".to_vec())]);
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
