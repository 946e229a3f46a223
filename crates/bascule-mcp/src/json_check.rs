//! Checks JSON text in one pass and finds where its values end. Positions are byte offsets.
//!
//! It accepts ordinary JSON. For anything else, a fault included, it returns `None`, and the caller asks the complete parser, which
//! also names the fault. `patch` follows text that is known to be JSON, and checks nothing.

use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer};
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

/// Values may be nested this deep: one bit each.
const MAX_DEPTH: u32 = u64::BITS;

/// Reads the members of a JSON object: keys without quotes, and values as raw text. Returns `None` if `take` does, if a key holds an
/// escape, or if the text is not an ordinary object.
pub(crate) fn read_object<'a>(
    text: &'a str,
    mut take: impl FnMut(&'a str, &'a str) -> Option<()>,
) -> Option<()> {
    let bytes = text.as_bytes();
    let mut at = skip_space(bytes, 0);
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(bytes, at + 1);
    let mut is_last = bytes.get(at) == Some(&b'}');
    while !is_last {
        let member = MemberBounds::find(bytes, at).filter(|member| !member.is_escaped)?;
        let end = value_end(bytes, member.value)?;
        take(&text[at + 1..member.key_end - 1], &text[member.value..end])?;
        at = skip_space(bytes, end);
        is_last = bytes.get(at) == Some(&b'}');
        match bytes.get(at)? {
            b',' => at = skip_space(bytes, at + 1),
            b'}' => {}
            _ => return None,
        }
    }
    (skip_space(bytes, at + 1) == bytes.len()).then_some(())
}

/// Returns the text of a JSON string, if it is one without escapes.
pub(crate) fn plain_string(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"').filter(|text| !text.as_bytes().contains(&b'\\'))
}

/// Returns text that was checked as a `RawValue`, which `serde_json` would check again.
pub(crate) fn checked_raw_value(json: &str) -> Option<&RawValue> {
    <&RawValue>::deserialize(CheckedText(json)).ok()
}

/// Gives text to a `RawValue` in the form in which `serde_json` does, as a map of one member.
struct CheckedText<'a>(&'a str);

impl<'de> Deserializer<'de> for CheckedText<'de> {
    type Error = Error;

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let text = BorrowedStrDeserializer::new(self.0);
        visitor.visit_map(MapDeserializer::new(std::iter::once((name, text))))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("only a `RawValue` can be made"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// Returns the end of the value that begins at `at`, or `None` if it is not JSON, or nested too deep. The text must be UTF-8.
fn value_end(text: &[u8], mut at: usize) -> Option<usize> {
    // The open containers, the innermost in the lowest bit, which is set for an object.
    let (mut open, mut depth) = (0u64, 0u32);
    loop {
        at = match text.get(at)? {
            b'"' => string_end(text, at)?.0,
            kind @ (b'{' | b'[') => {
                let is_object = *kind == b'{';
                at = skip_space(text, at + 1);
                if text.get(at) == Some(if is_object { &b'}' } else { &b']' }) {
                    at + 1
                } else if depth == MAX_DEPTH {
                    return None;
                } else {
                    (open, depth) = (open << 1 | u64::from(is_object), depth + 1);
                    at = if is_object { MemberBounds::find(text, at)?.value } else { at };
                    continue;
                }
            }
            b'-' | b'0'..=b'9' => number_end(text, at)?,
            b't' => literal_end(text, at, b"true")?,
            b'f' => literal_end(text, at, b"false")?,
            b'n' => literal_end(text, at, b"null")?,
            _ => return None,
        };
        // Containers end behind their last value.
        loop {
            if depth == 0 {
                return Some(at);
            }
            at = skip_space(text, at);
            let is_object = open & 1 == 1;
            match (text.get(at)?, is_object) {
                (b',', true) => at = MemberBounds::find(text, skip_space(text, at + 1))?.value,
                (b',', false) => at = skip_space(text, at + 1),
                (b'}', true) | (b']', false) => {
                    (open, depth, at) = (open >> 1, depth - 1, at + 1);
                    continue;
                }
                _ => return None,
            }
            break;
        }
    }
}

/// The bounds in a member of an object: where its key ends and its value begins.
struct MemberBounds {
    key_end: usize,
    is_escaped: bool,
    value: usize,
}

impl MemberBounds {
    /// Finds the member whose key begins at `key`.
    fn find(text: &[u8], key: usize) -> Option<Self> {
        let (key_end, is_escaped) = (text.get(key) == Some(&b'"')).then(|| string_end(text, key))??;
        let colon = skip_space(text, key_end);
        let value = (text.get(colon) == Some(&b':')).then(|| skip_space(text, colon + 1))?;
        Some(Self { key_end, is_escaped, value })
    }
}

/// Returns the position behind the closing quote of the string that begins at `start`, and whether it holds an escape.
fn string_end(text: &[u8], start: usize) -> Option<(usize, bool)> {
    let (mut at, mut is_escaped) = (start + 1, false);
    loop {
        at = plain_end(text, at);
        match *text.get(at)? {
            b'"' => return Some((at + 1, is_escaped)),
            b'\\' => (at, is_escaped) = (escape_end(text, at)?, true),
            _ => return None,
        }
    }
}

/// Returns the position of the next quote, backslash or control character, or the end of the text. Looks at eight bytes at a time.
pub(crate) fn plain_end(text: &[u8], mut at: usize) -> usize {
    while let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = special_bytes(u64::from_le_bytes(*bytes));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let is_plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | ..b' ');
    at + text.get(at..).unwrap_or_default().iter().take_while(is_plain).count()
}

/// Sets the highest bit of each byte that is a quote, a backslash or a control character. Bytes above the lowest of them may be
/// marked too.
fn special_bytes(bytes: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let below = |bytes: u64, limit: u8| bytes.wrapping_sub(ONES * u64::from(limit)) & !bytes;
    let equal = |byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    (below(bytes, b' ') | equal(b'"') | equal(b'\\')) & (ONES << 7)
}

fn escape_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => text.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit).then_some(at + 6),
        _ => None,
    }
}

fn number_end(text: &[u8], at: usize) -> Option<usize> {
    let integer = at + usize::from(text[at] == b'-');
    let mut end = match text.get(integer)? {
        b'0' => integer + 1,
        _ => digits_end(text, integer)?,
    };
    if text.get(end) == Some(&b'.') {
        end = digits_end(text, end + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits_end(text, end + 1 + sign)?;
    }
    // A digit behind a leading zero.
    (!text.get(end).is_some_and(u8::is_ascii_digit)).then_some(end)
}

/// Returns the end of one or more digits.
fn digits_end(text: &[u8], at: usize) -> Option<usize> {
    let count = text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(at + count)
}

fn literal_end(text: &[u8], at: usize, literal: &[u8]) -> Option<usize> {
    text[at..].starts_with(literal).then_some(at + literal.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares with the complete parser: what is accepted is JSON, and JSON of little depth is accepted.
    #[track_caller]
    fn check(text: &str) -> bool {
        let start = skip_space(text.as_bytes(), 0);
        let end = value_end(text.as_bytes(), start);
        let is_whole = end.is_some_and(|end| skip_space(text.as_bytes(), end) == text.len());
        assert_eq!(is_whole, serde_json::from_str::<&RawValue>(text).is_ok(), "{text:?}");
        is_whole
    }

    // req: GW-03
    #[test]
    fn accepts_what_a_parser_accepts() {
        for text in [
            "0",
            "-0",
            "10",
            "1.5",
            "1e5",
            "1E+5",
            "1.0e-05",
            "null",
            "true",
            "false",
            "{}",
            "[]",
            " [ ] ",
            "{ }",
            r#""""#,
            r#""a\"\\\/\b\f\n\r\t\u00e9\ud800""#,
            r#"{"a":1,"a":[2 , {"b":[]}] , "c":"é"}"#,
            "[1,2\n,3]",
        ] {
            assert!(check(text), "{text}");
        }
        assert!(check(&format!("\"{}\\n{}\"", "x".repeat(100), "é".repeat(100))));
        assert!(check(&format!("{}1{}", "[".repeat(64), "]".repeat(64))));
    }

    // req: GW-03
    #[test]
    fn refuses_what_a_parser_refuses() {
        for text in [
            "",
            "-",
            "01",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "nul",
            "nulll",
            "True",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{a:1}"#,
            r#"{"a":1]"#,
            r#"[1}"#,
            "[",
            "{",
            "\"",
            r#""\x""#,
            r#""\u12g4""#,
            r#""\u12"#,
            "\"\n\"",
            "\"\u{1}\"",
            "[1]]",
            "\u{a0}1",
        ] {
            assert!(!check(text), "{text}");
        }
        assert!(!check(&format!("\"{}\u{7}{}\"", "x".repeat(100), "y".repeat(100))));
    }

    #[test]
    fn leaves_deep_values_to_the_parser() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        assert_eq!(value_end(deep.as_bytes(), 0), None);
    }

    #[test]
    fn reads_the_members_of_an_object() {
        let read = |text: &'static str| {
            let mut members = Vec::new();
            read_object(text, |key, value| {
                members.push(format!("{key}={value}"));
                Some(())
            })
            .map(|()| members.join(" "))
        };
        assert_eq!(read(" { \"a\" : [1, 2] ,\"a\":\"}\"}\n").as_deref(), Some(r#"a=[1, 2] a="}""#));
        assert_eq!(read("{ }").as_deref(), Some(""));
        for text in [
            "",
            "[]",
            "{",
            r#"{"a":1"#,
            r#"{"a":1}}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{"\u0061":1}"#,
            "{} x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn wraps_checked_text_without_another_check() {
        let text = "[1.0, {\"a\":1e400}]";
        let raw = checked_raw_value(text).unwrap();
        assert_eq!((raw.get(), raw.get().as_ptr()), (text, text.as_ptr()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        // req: GW-03
        #[test]
        fn agrees_with_a_parser(text in "([\\[\\]{}\":, \\\\eu01.-]|true|null|\"a\"|\\PC|\n){0,16}") {
            check(&text);
        }

        // req: GW-03
        #[test]
        fn agrees_with_a_parser_on_strings(text in "\"(\\PC|[\\\\\"]|\\\\[u0-9a-f]{1,5}|[\\x00-\\x7f]|x{20,40}){0,12}\"") {
            check(&text);
        }
    }
}
