//! Fingerprints of telling values: keyed hashes that can be compared and tell nothing else.
//!
//! The hash is SipHash-2-4 with 128 bits of output and a secret key of 128 bits, a pseudorandom function: without the key nobody
//! can test a guessed value against a fingerprint. With the key anybody can, so a fingerprint must never be kept beside its key.
//! The graph keeps neither: fingerprints live in memory for as long as their session is remembered.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use siphasher::sip128::SipHasher24;

use crate::telling::{is_telling_number, is_telling_text, telling_words};

/// The part of a JSON text that is read, in bytes.
const MAX_JSON: usize = 256 * 1024;
/// The largest number of fingerprints of one value.
const MAX_FINGERPRINTS: usize = 256;
/// JSON inside a text inside JSON is read this deep.
const MAX_NESTING: usize = 3;
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
        Fingerprint(SipHasher24::new_with_key(&self.0).hash(text.as_bytes()).as_u128())
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(***)")
    }
}

/// Returns the fingerprints of the telling values in a JSON text, sorted. Names of members are not values.
///
/// Reads at most 256 KiB and returns at most 256 fingerprints; a text that is no JSON gives those before the first error.
pub fn fingerprints(json: &str, key: &FingerprintKey) -> Vec<Fingerprint> {
    let mut found = Vec::new();
    read_json(json, ValueReader { key, found: &mut found, nesting: 0 });
    found.sort_unstable();
    found.dedup();
    found
}

/// Reads the values of a JSON text. Returns false if it is no JSON.
fn read_json(json: &str, reader: ValueReader<'_>) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(beginning(json, MAX_JSON));
    // Other errors are the end of a cut text, or of the room for fingerprints.
    reader.deserialize(&mut deserializer).err().is_none_or(|error| !error.is_syntax())
}

/// Visits the values of a JSON text without building a tree.
struct ValueReader<'a> {
    key: &'a FingerprintKey,
    found: &'a mut Vec<Fingerprint>,
    nesting: usize,
}

impl ValueReader<'_> {
    fn reborrow(&mut self) -> ValueReader<'_> {
        ValueReader { key: self.key, found: self.found, nesting: self.nesting }
    }

    fn add(&mut self, text: &str) {
        if self.found.len() < MAX_FINGERPRINTS {
            self.found.push(self.key.hash(text));
        }
    }

    fn read_text(&mut self, text: &str) {
        let text = text.trim();
        if is_telling_text(text) {
            self.add(text);
        }
        let may_be_json = text.starts_with(['{', '[']);
        let nesting = self.nesting + 1;
        let inner = ValueReader { nesting, ..self.reborrow() };
        if !may_be_json || (nesting <= MAX_NESTING && !read_json(text, inner)) {
            telling_words(beginning(text, MAX_WORDS_TEXT)).for_each(|word| self.add(word));
        }
    }

    fn read_number(&mut self, number: &impl ToString) {
        let digits = number.to_string();
        if is_telling_number(&digits) {
            self.add(&digits);
        }
    }

    /// Ends the reading when there is no room.
    fn finish<E: Error>(&self) -> Result<(), E> {
        if self.found.len() < MAX_FINGERPRINTS { Ok(()) } else { Err(E::custom("enough values")) }
    }
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(mut self, number: u64) -> Result<(), E> {
        self.read_number(&number);
        self.finish()
    }

    fn visit_i64<E: Error>(mut self, number: i64) -> Result<(), E> {
        self.read_number(&number);
        self.finish()
    }

    fn visit_f64<E: Error>(mut self, number: f64) -> Result<(), E> {
        self.read_number(&number);
        self.finish()
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        self.read_text(text);
        self.finish()
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.reborrow())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<IgnoredAny>()?.is_some() {
            members.next_value_seed(self.reborrow())?;
        }
        Ok(())
    }
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
