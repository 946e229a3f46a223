//! Fingerprints of telling values: keyed hashes that can be compared and tell nothing else.
//!
//! The hash is SipHash-1-3 with 128 bits of output and a secret key of 128 bits, a pseudorandom function: without the key nobody
//! can test a guessed value against a fingerprint. With the key anybody can, so a fingerprint must never be kept beside its key.
//! The graph keeps neither: fingerprints live in memory for as long as their session is remembered.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr2;
use serde::de::IgnoredAny;
use siphasher::sip128::SipHasher13;

use crate::telling::{is_telling_number, is_telling_text, telling_words};

/// The part of a JSON text that is read, in bytes.
const MAX_JSON: usize = 256 * 1024;
/// The largest number of fingerprints of one value.
const MAX_FINGERPRINTS: usize = 256;
/// JSON inside a text inside JSON is read this deep.
const MAX_NESTING: usize = 3;
/// A text of this many bytes has no telling word beside others.
const MIN_WORDS_TEXT: usize = 5;
/// The beginning of a text that is cut into words, in bytes.
const MAX_WORDS_TEXT: usize = 16 * 1024;

/// The keyed hash of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

/// The secret key of fingerprints. Random, and new for each process if fingerprints stay in memory.
#[derive(Clone, Copy)]
pub struct FingerprintKey([u8; 16]);

impl FingerprintKey {
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// Hashes a text. A number has the fingerprint of its decimal digits, because tools pass numbers as texts and back.
    fn hash(&self, text: &str) -> Fingerprint {
        Fingerprint(SipHasher13::new_with_key(&self.0).hash(text.as_bytes()).as_u128())
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(***)")
    }
}

/// Returns the fingerprints of the telling values in a JSON text, sorted. Names of members are not values.
///
/// Reads at most 256 KiB and returns at most 256 fingerprints. The text may be cut anywhere: of a cut string, the words are read.
pub fn fingerprints(json: &str, key: &FingerprintKey) -> Vec<Fingerprint> {
    let mut reader = ValueReader { key, found: Vec::new(), nesting: 0 };
    reader.read_json(beginning(json, MAX_JSON));
    reader.remove_repetitions();
    reader.found
}

/// Reads the values of JSON texts. It needs no tree: a string is a value unless a colon follows it.
struct ValueReader<'a> {
    key: &'a FingerprintKey,
    found: Vec<Fingerprint>,
    nesting: usize,
}

impl ValueReader<'_> {
    fn read_json(&mut self, json: &str) {
        let (bytes, mut at) = (json.as_bytes(), 0);
        while let Some(byte) = bytes.get(at).filter(|_| self.found.len() < MAX_FINGERPRINTS) {
            at = match byte {
                b'"' => self.read_string(json, at),
                b'-' | b'0'..=b'9' => self.read_number(json, at),
                _ => at + 1,
            };
        }
    }

    /// Reads a string, and returns its end.
    fn read_string(&mut self, json: &str, start: usize) -> usize {
        let string = JsonString::find(json, start);
        let follows = json.as_bytes()[string.end..].iter().find(|byte| !byte.is_ascii_whitespace());
        if follows != Some(&b':') {
            self.read_text(&string.text(json, start), string.is_cut);
        }
        string.end
    }

    fn read_text(&mut self, text: &str, is_cut: bool) {
        let text = text.trim();
        if !is_cut && is_telling_text(text) {
            self.add(text);
        }
        if !text.starts_with(['{', '[']) {
            return self.read_words(text);
        }
        self.nesting += 1;
        match self.nesting <= MAX_NESTING {
            true if is_json(text) => self.read_json(text),
            true => self.read_words(text),
            false => {}
        }
        self.nesting -= 1;
    }

    fn read_words(&mut self, text: &str) {
        if text.len() <= MIN_WORDS_TEXT {
            return;
        }
        telling_words(beginning(text, MAX_WORDS_TEXT)).for_each(|word| self.add(word));
    }

    /// Reads a number, and returns its end.
    fn read_number(&mut self, json: &str, start: usize) -> usize {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = json.as_bytes()[start..].iter().take_while(|byte| is_digit(byte)).count();
        let digits = &json[start..start + length];
        if is_telling_number(digits) {
            self.add(digits);
        }
        start + length
    }

    fn add(&mut self, text: &str) {
        if self.found.len() == MAX_FINGERPRINTS {
            return;
        }
        self.found.push(self.key.hash(text));
        // A value that is repeated takes no room of others.
        if self.found.len() == MAX_FINGERPRINTS {
            self.remove_repetitions();
        }
    }

    fn remove_repetitions(&mut self) {
        self.found.sort_unstable();
        self.found.dedup();
    }
}

/// A string in a JSON text.
struct JsonString {
    /// Behind the closing quote, or the end of the text.
    end: usize,
    has_escapes: bool,
    is_cut: bool,
}

impl JsonString {
    fn find(json: &str, start: usize) -> Self {
        let (bytes, mut at, mut has_escapes) = (json.as_bytes(), start + 1, false);
        while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            at += found;
            if bytes[at] == b'"' {
                return Self { end: at + 1, has_escapes, is_cut: false };
            }
            (at, has_escapes) = (at + 2, true);
        }
        Self { end: bytes.len(), has_escapes, is_cut: true }
    }

    fn text<'a>(&self, json: &'a str, start: usize) -> Cow<'a, str> {
        let inside = &json[start + 1..if self.is_cut { self.end } else { self.end - 1 }];
        match self.has_escapes {
            true => unescape(inside).map_or(Cow::Borrowed(inside), Cow::Owned),
            false => Cow::Borrowed(inside),
        }
    }
}

/// Returns the text without its escapes. The last one may be cut.
fn unescape(inside: &str) -> Option<String> {
    let read = |text: &str| serde_json::from_str(&format!("\"{text}\"")).ok();
    read(inside).or_else(|| read(&inside[..inside.rfind('\\')?]))
}

/// Tells if a text is JSON, or the beginning of it.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).err().is_none_or(|error| error.is_eof())
}

/// Returns at most `limit` bytes of a text, at a character boundary.
fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FingerprintKey = FingerprintKey([7; 16]);

    fn shares(a: &str, b: &str) -> bool {
        let known = fingerprints(a, &KEY);
        fingerprints(b, &KEY).iter().any(|value| known.contains(value))
    }

    // req: TR-02
    #[test]
    fn equal_values_have_equal_fingerprints() {
        for (returned, given) in [
            (r#"{"id":"a1b2c3d4"}"#, r#"{"note":{"ref":"a1b2c3d4"}}"#),
            (r#"{"id":48213}"#, r#"{"id":"48213"}"#),
            (r#"{"content":[{"type":"text","text":"{\"sha\":\"9f8e7d6c\"}"}]}"#, r#"["9f8e7d6c"]"#),
            (r#"{"text":"Created issue 48213 (https://x.org/i/48213)."}"#, r#"{"issue":48213}"#),
            (r#"{"text":"[FILE] page-1.json\n[FILE] page-2.json"}"#, r#"{"path":"/data/logs/page-2.json"}"#),
            (r#"{"text":"a long line of prose"}"#, r#"{"content":"a long line of prose"}"#),
            (r#"{"at":52.520008}"#, r#"{"lat":52.520008}"#),
        ] {
            assert!(shares(returned, given), "{returned} {given}");
        }
    }

    // req: TR-02
    #[test]
    fn common_values_have_no_fingerprints() {
        let json = r#"{"a":true,"b":null,"c":"pending","d":42,"e":60000,"f":"in_progress","g":"text/plain",
            "h":"2026-11-18","i":"utf-8","j":"success","k":1.5,"l":"","a_long_member_name_1":"no"}"#;
        assert_eq!(fingerprints(json, &KEY), []);
    }

    // req: TR-02
    #[test]
    fn words_of_a_cut_string_are_read() {
        let result = format!(r#"{{"content":[{{"text":"issue-48213-ab created\n{}"#, "filler ".repeat(3_000));
        for cut in [40, 48, 2_000, result.len()] {
            assert!(shares(&result[..cut], r#"{"issue":"issue-48213-ab"}"#), "{cut}");
        }
        assert!(shares(r#"["see page-2.json and \u00"#, r#"["page-2.json"]"#));
    }

    // req: TR-02
    #[test]
    fn repeated_values_take_no_room() {
        let many = vec!["value-1"; 10 * MAX_FINGERPRINTS];
        let list = serde_json::to_string(&[many, vec!["value-2"]].concat()).unwrap();
        assert_eq!(fingerprints(&list, &KEY).len(), 2);
    }

    // req: TR-02
    #[test]
    fn another_key_gives_other_fingerprints() {
        let json = r#"{"id":"a1b2c3d4"}"#;
        assert_ne!(fingerprints(json, &KEY), fingerprints(json, &FingerprintKey([8; 16])));
        assert_eq!(format!("{KEY:?}"), "FingerprintKey(***)");
    }

    // req: TR-02
    #[test]
    fn huge_and_broken_values_are_bounded() {
        let many: Vec<String> = (0..100_000).map(|n| format!("value-{n}")).collect();
        let list = serde_json::to_string(&many).unwrap();
        assert_eq!(fingerprints(&list, &KEY).len(), MAX_FINGERPRINTS);
        let cut = &list[..list.len() / 2];
        assert_eq!(fingerprints(cut, &KEY).len(), MAX_FINGERPRINTS);
        assert_eq!(fingerprints(&format!(r#"["a1b2c3d4","{}"]"#, "é".repeat(4_000_000)), &KEY).len(), 1);
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(fingerprints(&deep, &KEY), []);
        assert_eq!(fingerprints(r#"["a1b2c3d4", oops"#, &KEY).len(), 1);
        let mut nested = String::from("[\"a1b2c3d4\"]");
        for _ in 0..12 {
            nested = serde_json::to_string(&[nested]).unwrap();
        }
        assert_eq!(fingerprints(&nested, &KEY).len(), MAX_NESTING + 1);
    }
}
