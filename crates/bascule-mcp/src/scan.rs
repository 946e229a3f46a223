//! Finds the `id` of a message that is too long, or not valid enough, to be parsed.
//!
//! Looks at each byte once, in constant memory. The text is assumed to be JSON; for any other text the result has no
//! meaning.

use memchr::memchr2;

const MAX_KEY_LENGTH: usize = 16;
const MAX_ID_LENGTH: usize = 256;

/// Scans a message in any number of pieces (`feed`), then returns its kind (`finish`).
#[derive(Debug, Default)]
pub(crate) struct Scan {
    depth: u64,
    in_string: bool,
    is_escaped: bool,
    /// True where a string at the top level is a key.
    at_key: bool,
    reading: Reading,
    token: Vec<u8>,
    id: Option<Vec<u8>>,
    has_method: bool,
    /// True if there is a `result` or an `error`: a log line may have an `id` too.
    has_outcome: bool,
}

#[derive(Debug, Default, PartialEq, Clone, Copy)]
enum Reading {
    #[default]
    Nothing,
    Key,
    Id,
}

/// The kind of a message that was scanned and not parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScannedMessage {
    /// A response to the request with this id (as JSON text).
    ResponseTo(String),
    /// A request with this id (as JSON text), or a notification.
    RequestOrNotification(Option<String>),
    Unknown,
}

impl Scan {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(&byte) = bytes.first() {
            if self.in_string && !self.is_escaped && self.reading == Reading::Nothing {
                // The long part of a long message is text.
                let Some(at) = memchr2(b'"', b'\\', bytes) else { return };
                bytes = &bytes[at..];
                self.string_byte(bytes[0]);
            } else if self.in_string {
                self.string_byte(byte);
            } else {
                self.plain_byte(byte);
            }
            bytes = &bytes[1..];
        }
    }

    pub(crate) fn finish(mut self) -> ScannedMessage {
        self.end_id();
        let id = self.id.and_then(|id| String::from_utf8(id).ok());
        match id {
            id if self.has_method => ScannedMessage::RequestOrNotification(id),
            Some(id) if self.has_outcome => ScannedMessage::ResponseTo(id),
            _ => ScannedMessage::Unknown,
        }
    }

    fn string_byte(&mut self, byte: u8) {
        self.keep(byte);
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.in_string = false;
                self.end_string();
            }
            _ => {}
        }
    }

    fn plain_byte(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 && self.at_key {
                    self.reading = Reading::Key;
                    self.token.clear();
                }
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.end_id();
                self.depth += 1;
                self.at_key = self.depth == 1 && byte == b'{';
            }
            b'}' | b']' => {
                self.end_id();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 => {
                self.end_id();
                self.at_key = true;
            }
            b':' if self.depth == 1 => self.at_key = false,
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        let max_length = match self.reading {
            Reading::Nothing => 0,
            Reading::Key => MAX_KEY_LENGTH,
            Reading::Id => MAX_ID_LENGTH,
        };
        match self.token.len() < max_length {
            true => self.token.push(byte),
            false => self.reading = Reading::Nothing,
        }
    }

    fn end_string(&mut self) {
        match self.reading {
            Reading::Key => {
                self.at_key = false;
                self.has_method |= self.token == b"\"method\"";
                self.has_outcome |= self.token == b"\"result\"" || self.token == b"\"error\"";
                self.reading = if self.token == b"\"id\"" { Reading::Id } else { Reading::Nothing };
                self.token.clear();
            }
            Reading::Id => self.end_id(),
            Reading::Nothing => {}
        }
    }

    fn end_id(&mut self) {
        if self.reading == Reading::Id && !self.token.is_empty() {
            self.id = Some(std::mem::take(&mut self.token));
        }
        self.reading = Reading::Nothing;
    }
}

/// Scans a whole message that could not be parsed.
pub(crate) fn scan(bytes: &[u8]) -> ScannedMessage {
    let mut scan = Scan::default();
    scan.feed(bytes);
    scan.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        let found = match scan(text.as_bytes()) {
            ScannedMessage::ResponseTo(id) => id,
            ScannedMessage::RequestOrNotification(_) => "request or notification".into(),
            ScannedMessage::Unknown => "unknown".into(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn finds_the_top_level_id() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, "7");
        check(r#"{"result":{"id":8,"x":["id",{"id":9}]},"id" : "a\"b" }"#, r#""a\"b""#);
        check(r#"{"result":"\"id\":3,","id":-1.5e3}"#, "-1.5e3");
        check(r#"{"error":{"code":1},"id":null}"#, "null");
    }

    #[test]
    fn tells_requests_from_responses() {
        check(
            r#"{"id":7,"params":{"big":"xxx"},"method":"sampling/createMessage"}"#,
            "request or notification",
        );
        check(r#"{"method":"notifications/message","params":{"id":7}}"#, "request or notification");
    }

    #[test]
    fn reports_unknown_without_an_id() {
        check(r#"{"result":{"id":8}}"#, "unknown");
        check(r#"[{"id":8}]"#, "unknown");
        check("xxxxxxxxxxxxxxx", "unknown");
        check(r#"{"id":{"a":1},"result":1}"#, "unknown");
        check(&format!(r#"{{"id":"{}"}}"#, "x".repeat(1000)), "unknown");
        check(&format!(r#"{{"{}":"id","x":5}}"#, "k".repeat(100)), "unknown");
        check(r#"{"id"#, "unknown");
    }

    #[test]
    fn finds_the_id_of_a_broken_response() {
        check(r#"{"jsonrpc":"2.0","id":12,"result":{"content":[{"#, "12");
        check(r#"{"jsonrpc":"2.0","id":12,"error":{"mess"#, "12");
    }

    #[test]
    fn ignores_the_id_of_a_log_line() {
        check(r#"{"level":30,"id":3,"msg":"handling the result"}"#, "unknown");
    }

    proptest! {
        #[test]
        fn gives_the_same_result_in_pieces(bytes: Vec<u8>, cut in 0usize..64) {
            let mut text = br#"{"result":{"t":""#.to_vec();
            text.extend(bytes.iter().filter(|b| !b"\"\\".contains(b)));
            text.extend(br#"\\"},"id":77}"#);
            let mut pieces = Scan::default();
            for piece in text.chunks(cut + 1) {
                pieces.feed(piece);
            }
            prop_assert_eq!(pieces.finish(), ScannedMessage::ResponseTo("77".into()));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            scan(&bytes);
        }
    }
}
