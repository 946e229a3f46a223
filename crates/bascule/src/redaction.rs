//! Hides configured secrets in the texts of a server, in all forms in which programs usually write them.

use std::fmt::Write;
use std::ops::Range;

/// Replaces a secret.
pub(crate) const MASK: &str = "***";
/// Shorter words are not secrets, and would garble every text.
const MIN_LENGTH: usize = 6;

/// The texts that stand for some secrets.
#[derive(Default)]
pub(crate) struct SecretForms(Vec<String>);

impl SecretForms {
    /// Each word of a value counts: the second one of `Bearer TOKEN` is secret on its own.
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let words = values.flat_map(|value| std::iter::once(value).chain(value.split(' ')));
        let mut forms: Vec<String> =
            words.filter(|word| word.len() >= MIN_LENGTH).flat_map(forms_of).collect();
        forms.sort_unstable();
        forms.dedup();
        Self(forms)
    }

    /// Hides the secrets in a text.
    pub(crate) fn hide(&self, text: &mut String) {
        let secrets = self.find(text);
        if !secrets.is_empty() {
            *text = mask(text, secrets);
        }
    }

    /// Returns the places of the secrets, which may overlap.
    pub(crate) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let found = self.0.iter().flat_map(|form| text.match_indices(form.as_str()));
        found.map(|(at, found)| at..at + found.len()).collect()
    }

    pub(crate) fn occur_in(&self, text: &str) -> bool {
        self.0.iter().any(|form| text.contains(form))
    }
}

/// Returns the text with a mask in place of each range, and of ranges that overlap or touch.
pub(crate) fn mask(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut out, mut end) = (String::with_capacity(text.len()), None);
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        if end.is_none_or(|end| range.start > end) {
            out += &text[end.unwrap_or(0)..range.start];
            out += MASK;
        }
        end = end.max(Some(range.end));
    }
    out + &text[end.unwrap_or(0)..]
}

/// Joins the secrets of several servers.
impl FromIterator<SecretForms> for SecretForms {
    fn from_iter<T: IntoIterator<Item = SecretForms>>(all: T) -> Self {
        Self(all.into_iter().flat_map(|forms| forms.0).collect())
    }
}

fn forms_of(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned(), json_escaped(secret), json_escaped(&json_escaped(secret))];
    for keeps in [&b"-._~"[..], b"-._~!*'()", b"-._~/"] {
        let encoded = percent_encoded(secret, keeps);
        for encoded in [encoded.replace("%20", "+"), encoded] {
            forms.extend([lower_hex(&encoded), encoded]);
        }
    }
    for offset in 0..3 {
        let encoded = base64_part(secret.as_bytes(), offset);
        forms.extend([encoded.replace('+', "-").replace('/', "_"), encoded]);
    }
    forms.retain(|form| form.len() >= MIN_LENGTH);
    forms
}

fn json_escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("text is always JSON");
    quoted[1..quoted.len() - 1].to_owned()
}

/// Escapes all bytes but letters, digits and `keeps`, which differs between programs.
fn percent_encoded(text: &str, keeps: &[u8]) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || keeps.contains(&byte) {
            true => out.push(byte.into()),
            false => write!(out, "%{byte:02X}").expect("a string accepts all text"),
        }
    }
    out
}

fn lower_hex(encoded: &str) -> String {
    let mut escaped = 0;
    let lower = |letter: char| {
        escaped = if letter == '%' { 3 } else { u8::saturating_sub(escaped, 1) };
        if escaped > 0 { letter.to_ascii_lowercase() } else { letter }
    };
    encoded.chars().map(lower).collect()
}

/// Returns the letters of a Base64 text that depend on the secret alone, if `offset` bytes precede it modulo three.
fn base64_part(secret: &[u8], offset: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |index: usize| (secret[index / 8] >> (7 - index % 8)) & 1;
    // The first letter that begins in the secret.
    let first = (6 - (offset * 8) % 6) % 6;
    let letters = (first..).step_by(6).take_while(|start| start + 6 <= secret.len() * 8);
    letters
        .map(|start| (start..start + 6).fold(0, |value, index| value << 1 | bit(index)))
        .map(|value| char::from(LETTERS[usize::from(value)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "p\u{e4}ss/w\"ord +1";

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut text = text.to_owned();
        SecretForms::new([SECRET].into_iter()).hide(&mut text);
        assert_eq!(text, expected);
    }

    #[test]
    fn hides_usual_forms() {
        check(&format!("a {SECRET} b"), "a *** b");
        check(&serde_json::to_string(SECRET).unwrap(), "\"***\"");
        check(&serde_json::to_string(&serde_json::to_string(SECRET).unwrap()).unwrap(), r#""\"***\"""#);
        check("x=p%C3%A4ss%2Fw%22ord%20%2B1&y", "x=***&y");
        check("x=p%c3%a4ss%2fw%22ord+%2b1&y", "x=***&y");
        check("x=p%C3%A4ss/w%22ord%20%2B1&y", "x=***&y");
    }

    #[test]
    fn hides_base64_at_every_offset() {
        let secret = "correct-horse-battery";
        for (text, kept) in [
            ("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5", "***"),
            ("dTpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=", "dT***"),
            ("dXNlcjpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=", "dXNlcj"),
        ] {
            let mut hidden = text.to_owned();
            SecretForms::new([secret].into_iter()).hide(&mut hidden);
            assert!(
                hidden.contains(MASK) && hidden.starts_with(&kept[..2].replace('*', "")),
                "{text} {hidden}"
            );
            assert!(hidden.len() < text.len() / 2, "{text} {hidden}");
        }
    }

    #[test]
    fn hides_secrets_that_overlap() {
        let forms = SecretForms::new(["first-second", "second-third"].into_iter());
        let mut text = "a first-second-third, first-secondfirst-second b".to_owned();
        forms.hide(&mut text);
        assert_eq!(text, "a ***, *** b");
    }

    #[test]
    fn leaves_short_words_and_other_texts() {
        let forms = SecretForms::new(["Bearer abc", "12345"].into_iter());
        let mut text = "abc 12345 Bearer".to_owned();
        forms.hide(&mut text);
        assert_eq!(text, "abc 12345 ***");
        assert!(!forms.occur_in("abc 12345"));
    }
}
