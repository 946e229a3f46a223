//! Parses a `text/event-stream` and keeps the point from which it can be resumed.

use std::time::Duration;

use http::HeaderValue;

use crate::scan::{Scan, ScannedMessage};

/// Longest start of a line that is needed to know its field.
const FIELD_LENGTH: usize = 16;
/// Longest id that is sent back: it must fit into a header.
const MAX_ID_LENGTH: usize = 1024;

/// An incremental parser.
pub(crate) struct EventReader {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Set once the data of this event exceeds the limit: from then on it is only scanned.
    too_long: Option<Scan>,
    /// True if the rest of the current line is not kept, because it exceeds the limit or has no known field.
    is_skipping: bool,
    after_cr: bool,
    at_start: bool,
    is_endpoint: bool,
    /// The id of the current event, if it has one; `Some(None)` if it cannot be sent back.
    id: Option<Option<HeaderValue>>,
    resume_point: ResumePoint,
    /// True if this stream continues another one and has had no event yet.
    is_resumed: bool,
    count: usize,
}

/// The point from which a stream can be resumed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// The id of the last complete event.
    pub(crate) last_id: Option<HeaderValue>,
    /// The pause that the server asks for before the stream is resumed.
    pub(crate) retry: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SseEvent {
    Data(Vec<u8>),
    /// The data of an event named `endpoint`, the first one of HTTP+SSE.
    Endpoint(Vec<u8>),
    /// Longer than the limit, with the result of a scan.
    TooLong(ScannedMessage),
}

impl EventReader {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            too_long: None,
            is_skipping: false,
            after_cr: false,
            at_start: true,
            is_endpoint: false,
            id: None,
            resume_point: ResumePoint::default(),
            is_resumed: false,
            count: 0,
        }
    }

    /// Returns a parser for the continuation of a stream.
    pub(crate) fn resuming(limit: usize, resume_point: ResumePoint) -> Self {
        Self { is_resumed: resume_point.last_id.is_some(), resume_point, ..Self::new(limit) }
    }

    pub(crate) fn resume_point(&self) -> &ResumePoint {
        &self.resume_point
    }

    /// Returns the number of events so far, those without data included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Parses the next bytes and reports every event that they complete.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(SseEvent)) {
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.extend_line(&bytes[..at]);
            self.end_line(&mut on_event);
            let crlf = bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
            self.after_cr = bytes[at] == b'\r' && at + 1 == bytes.len();
            bytes = &bytes[at + 1 + usize::from(crlf)..];
        }
        self.extend_line(bytes);
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(FIELD_LENGTH.saturating_sub(self.line.len())));
        if !self.is_skipping {
            self.line.extend_from_slice(head);
            if self.line.len() + rest.len() <= self.limit.max(FIELD_LENGTH) {
                self.line.extend_from_slice(rest);
                return;
            }
            self.is_skipping = true;
            let value = data_of(&self.line).map(<[u8]>::to_vec);
            self.scan(value.as_deref());
            self.line.truncate(5);
            return self.scan(is_data(&self.line).then_some(rest));
        }
        self.scan(is_data(&self.line).then_some(bytes));
    }

    fn scan(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else { return };
        let scan = self.too_long.get_or_insert_with(|| {
            let mut scan = Scan::default();
            scan.feed(&std::mem::take(&mut self.data));
            scan
        });
        scan.feed(value);
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(SseEvent)) {
        if std::mem::take(&mut self.at_start) && self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
        }
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_skipping) {
            return;
        }
        if line.is_empty() {
            self.end_event(on_event);
        } else {
            self.parse_field(&line);
        }
        // The buffer is kept, so that a stream of small events allocates once.
        self.line = line;
        self.line.clear();
    }

    fn parse_field(&mut self, line: &[u8]) {
        match split_field(line) {
            (b"data", value) => self.add_data(value),
            (b"event", value) => self.is_endpoint = value == b"endpoint",
            (b"id", value) if !value.contains(&0) => self.id = Some(to_header(value)),
            (b"retry", value) => self.resume_point.retry = milliseconds(value).or(self.resume_point.retry),
            _ => {}
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        // The line break between two data lines counts.
        let length = self.data.len() + usize::from(self.has_data) + value.len();
        if self.too_long.is_some() || length > self.limit {
            return self.scan(Some(value));
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }

    fn end_event(&mut self, on_event: &mut impl FnMut(SseEvent)) {
        let data = std::mem::take(&mut self.data);
        let had_data = std::mem::take(&mut self.has_data);
        let too_long = self.too_long.take();
        let is_endpoint = std::mem::take(&mut self.is_endpoint);
        let is_something = had_data || too_long.is_some() || self.id.is_some();
        // The resume point moves only now: an incomplete event has to be sent again.
        if self.is_repeated() || !is_something {
            return;
        }
        self.count += 1;
        self.is_resumed = false;
        match too_long {
            Some(scan) => on_event(SseEvent::TooLong(scan.finish())),
            None if data.is_empty() => {}
            None if is_endpoint => on_event(SseEvent::Endpoint(data)),
            None => on_event(SseEvent::Data(data)),
        }
    }

    /// Moves the resume point to this event. Returns true if it is the event from which the stream was resumed, which a
    /// server may send again.
    fn is_repeated(&mut self) -> bool {
        let Some(id) = self.id.take() else { return false };
        let is_repeated = self.is_resumed && id.is_some() && id == self.resume_point.last_id;
        self.resume_point.last_id = id;
        is_repeated
    }
}

fn is_data(line: &[u8]) -> bool {
    line.starts_with(b"data:")
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    match split_field(line) {
        (b"data", value) => Some(value),
        _ => None,
    }
}

/// Splits a line into field name and value.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(colon) = memchr::memchr(b':', line) else { return (line, b"") };
    let value = &line[colon + 1..];
    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
}

/// Returns the id as a header value. An empty id resets the last one.
fn to_header(value: &[u8]) -> Option<HeaderValue> {
    let fits = !value.is_empty() && value.len() <= MAX_ID_LENGTH;
    fits.then(|| HeaderValue::from_bytes(value).ok()).flatten()
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    // More than seven weeks (32 bits) are ignored.
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
                    SseEvent::Data(data) => String::from_utf8(data).unwrap(),
                    SseEvent::Endpoint(data) => format!("endpoint {}", String::from_utf8(data).unwrap()),
                    SseEvent::TooLong(scanned) => format!("{scanned:?}"),
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
    fn accepts_every_kind_of_line_break() {
        check("data: a\n\ndata:b\r\n\r\ndata: c\r\rdata: d", &["a", "b", "c"]);
    }

    #[test]
    fn joins_data_lines_and_ignores_the_rest() {
        check(": hello\nevent: message\nid: 7\nretry: 5\ndata: {\ndata:  1}\n\n", &["{\n 1}"]);
        check("\u{feff}data: x\n\n", &["x"]);
        check("data\n\nid: 1\ndata:\n\n: only a comment\n\n", &[]);
    }

    #[test]
    fn reports_an_overlong_event_and_reads_the_next() {
        let long = format!("event: message\ndata: {{\"result\":\"{}\",\"id\":3}}\n\n", "x".repeat(5000));
        check(&format!("{long}data: ok\n\n"), &[r#"ResponseTo("3")"#, "ok"]);
        let lines =
            format!("data: {{\"result\":[\n{}data: 1],\"id\":3}}\n\n", "data: 11111111,\n".repeat(200));
        check(&format!("{lines}data: ok\n\n"), &[r#"ResponseTo("3")"#, "ok"]);
        check(&format!(": {}\ndata: ok\n\n", "x".repeat(5000)), &["ok"]);
    }

    #[test]
    fn counts_line_breaks_against_the_limit() {
        let two = |last: &str| format!("data: {}\ndata: {last}\n\n", "x".repeat(10));
        assert_eq!(read(&[two("yyyyyyyyy").as_bytes()], 20), [format!("{}\nyyyyyyyyy", "x".repeat(10))]);
        assert_eq!(read(&[two("yyyyyyyyyy").as_bytes()], 20), ["Unknown"]);
    }

    #[test]
    fn recognises_the_endpoint_event() {
        check("event: endpoint\ndata: /messages\n\ndata: x\n\n", &["endpoint /messages", "x"]);
        check("event: endpoint\nevent: message\ndata: x\n\n", &["x"]);
    }

    fn resume_point_after(stream: &str) -> (Option<String>, Option<u64>, usize) {
        let mut reader = EventReader::new(3000);
        reader.feed(stream.as_bytes(), |_| {});
        let ResumePoint { last_id, retry } = reader.resume_point();
        let id = last_id.as_ref().map(|id| id.to_str().unwrap().to_owned());
        (id, retry.map(|retry| retry.as_millis() as u64), reader.count())
    }

    // req: BR-01
    #[test]
    fn resumes_after_the_last_complete_event() {
        let seven = Some("7".to_owned());
        assert_eq!(resume_point_after("id: 7\ndata: a\n\nid: 8\ndata: b\n"), (seven.clone(), None, 1));
        assert_eq!(
            resume_point_after("id: 7\ndata:\n\n"),
            (seven.clone(), None, 1),
            "events without data count"
        );
        assert_eq!(resume_point_after("id: 7\n\ndata: a\n\n"), (seven.clone(), None, 2), "an id holds on");
        assert_eq!(resume_point_after("id: 7\n\nid\ndata: a\n\n"), (None, None, 2), "until it is taken back");
        assert_eq!(resume_point_after("id: 7\n\nid: 8\0\ndata: a\n\n"), (seven.clone(), None, 2));
        assert_eq!(resume_point_after(&format!("id: 7\n\nid: {}\n\n", "x".repeat(1025))), (None, None, 2));
        assert_eq!(resume_point_after(&format!("id: 7\ndata: {}\n\n", "x".repeat(5000))), (seven, None, 1));
        assert_eq!(resume_point_after(": hello\n\n\n\n"), (None, None, 0));
    }

    #[test]
    fn parses_retry_as_a_number() {
        assert_eq!(resume_point_after("retry: 1500\n").1, Some(1500));
        assert_eq!(
            resume_point_after("retry: 1500\nretry: soon\nretry: -1\nretry: 99999999999999\n").1,
            Some(1500)
        );
    }

    // req: BR-01
    #[test]
    fn skips_a_repeated_event_after_resuming() {
        let point = ResumePoint { last_id: Some(HeaderValue::from_static("7")), retry: None };
        let mut reader = EventReader::resuming(1000, point);
        let mut seen = Vec::new();
        let stream = b": again\n\nid: 7\ndata: old\n\nid: 8\ndata: new\n\nid: 8\ndata: more\n\n";
        reader.feed(stream, |event| seen.push(event));
        assert_eq!(seen, [SseEvent::Data(b"new".to_vec()), SseEvent::Data(b"more".to_vec())]);
    }

    proptest! {
        #[test]
        fn gives_the_same_events_in_pieces(
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
