//! Finds the `id` of a message that is too long or too malformed to parse.
//!
//! Each byte is read once, and memory use is bounded by a few hundred bytes. The input is assumed to be JSON; for
//! any other input the scan only terminates.

use memchr::memchr2;

const LONGEST_KEY: usize = 16;
const LONGEST_ID: usize = 256;

/// Takes the message in any number of pieces through [`Scan::feed`], then yields [`Scan::outcome`].
#[derive(Debug, Default)]
pub(crate) struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    /// True if a string at the top level would be a key here.
    at_key: bool,
    reading: Reading,
    token: Vec<u8>,
    id: Option<Vec<u8>>,
    has_method: bool,
    /// True if there is a `result` or an `error`. An `id` alone does not make a response: a log line may have one.
    has_outcome: bool,
}

#[derive(Debug, Default, PartialEq, Clone, Copy)]
enum Reading {
    #[default]
    Nothing,
    Key,
    Id,
}

/// The kind of an unparsed message, as far as the scan could tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// A response to the request with this id (as JSON text).
    AnswerTo(String),
    /// A request (with its id as JSON text) or a notification of the peer.
    Theirs(Option<String>),
    /// Neither a response with an id nor a message with a method.
    Unknown,
}

impl Scan {
    /// Scans the next piece.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(&byte) = bytes.first() {
            if self.in_string && !self.escaped && self.reading == Reading::Nothing {
                // The bulk of a long message is string content: skip it quickly.
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

    /// Ends the scan.
    pub(crate) fn outcome(mut self) -> Unread {
        self.end_id();
        let id = self.id.and_then(|id| String::from_utf8(id).ok());
        match id {
            id if self.has_method => Unread::Theirs(id),
            Some(id) if self.has_outcome => Unread::AnswerTo(id),
            _ => Unread::Unknown,
        }
    }

    fn string_byte(&mut self, byte: u8) {
        self.keep(byte);
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
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
        let room = match self.reading {
            Reading::Nothing => 0,
            Reading::Key => LONGEST_KEY,
            Reading::Id => LONGEST_ID,
        };
        match self.token.len() < room {
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

/// Scans a complete message that cannot be parsed.
pub(crate) fn scan(bytes: &[u8]) -> Unread {
    let mut scan = Scan::default();
    scan.feed(bytes);
    scan.outcome()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        let said = match scan(text.as_bytes()) {
            Unread::AnswerTo(id) => id,
            Unread::Theirs(_) => "theirs".into(),
            Unread::Unknown => "unknown".into(),
        };
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn the_top_level_id_is_found_wherever_it_stands() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, "7");
        check(r#"{"result":{"id":8,"x":["id",{"id":9}]},"id" : "a\"b" }"#, r#""a\"b""#);
        check(r#"{"result":"\"id\":3,","id":-1.5e3}"#, "-1.5e3");
        check(r#"{"error":{"code":1},"id":null}"#, "null");
    }

    #[test]
    fn requests_of_the_other_side_are_not_answers_to_ours() {
        check(r#"{"id":7,"params":{"big":"xxx"},"method":"sampling/createMessage"}"#, "theirs");
        check(r#"{"method":"notifications/message","params":{"id":7}}"#, "theirs");
    }

    #[test]
    fn where_there_is_none_none_is_made_up() {
        check(r#"{"result":{"id":8}}"#, "unknown");
        check(r#"[{"id":8}]"#, "unknown");
        check("xxxxxxxxxxxxxxx", "unknown");
        check(r#"{"id":{"a":1},"result":1}"#, "unknown");
        check(&format!(r#"{{"id":"{}"}}"#, "x".repeat(1000)), "unknown");
        check(&format!(r#"{{"{}":"id","x":5}}"#, "k".repeat(100)), "unknown");
        check(r#"{"id"#, "unknown");
    }

    #[test]
    fn a_broken_answer_still_names_its_call() {
        check(r#"{"jsonrpc":"2.0","id":12,"result":{"content":[{"#, "12");
        check(r#"{"jsonrpc":"2.0","id":12,"error":{"mess"#, "12");
    }

    #[test]
    fn a_log_line_with_an_id_is_no_answer() {
        check(r#"{"level":30,"id":3,"msg":"handling the result"}"#, "unknown");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes: Vec<u8>, cut in 0usize..64) {
            let mut text = br#"{"result":{"t":""#.to_vec();
            text.extend(bytes.iter().filter(|b| !b"\"\\".contains(b)));
            text.extend(br#"\\"},"id":77}"#);
            let mut pieces = Scan::default();
            for piece in text.chunks(cut + 1) {
                pieces.feed(piece);
            }
            prop_assert_eq!(pieces.outcome(), Unread::AnswerTo("77".into()));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            scan(&bytes);
        }
    }
}
