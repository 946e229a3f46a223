//! Decides which values are telling: so unlikely to appear twice by chance that their second appearance is a copy.

/// The shortest telling text with some structure, in characters.
const MIN_STRUCTURED: usize = 6;
/// The shortest telling text of several words.
const MIN_PHRASE: usize = 12;
/// The shortest telling text of letters, dashes and underscores: shorter ones are words and names of choices.
const MIN_NAME: usize = 20;
/// The shortest telling number, in digits.
const MIN_DIGITS: usize = 5;
/// Structured values that many tools share.
const COMMON: [&str; 12] = [
    "application/json",
    "application/octet-stream",
    "application/pdf",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "iso-8859-1",
    "localhost",
    "text/html; charset=utf-8",
    "text/plain; charset=utf-8",
    "127.0.0.1",
    "0.0.0.0",
];

/// Tells if a whole text is telling.
pub(crate) fn is_telling_text(text: &str) -> bool {
    // Many values are short words, which are no numbers.
    let is_short = text.len() < MIN_STRUCTURED && text.starts_with(|first: char| first.is_ascii_alphabetic());
    if is_short || text.len() < MIN_DIGITS {
        return false;
    }
    let traits = TextTraits::of(text);
    match traits.has_space {
        true => text.len() >= MIN_PHRASE && traits.has_letter_or_digit && !is_common(text),
        false => is_telling_word(text, &traits),
    }
}

/// Tells if the decimal text of a number is telling. Round numbers are limits and time-outs.
pub(crate) fn is_telling_number(digits: &str) -> bool {
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    count >= MIN_DIGITS && (digits.contains('.') || !digits.ends_with("000"))
}

/// Returns the telling words of a text: identifiers, file names, parts of paths and addresses. A text that is one such word itself
/// is not repeated.
pub(crate) fn telling_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_ascii() && is_separator(c as u8));
    // Most words are too short.
    let words = words.filter(move |word| word.len() >= MIN_DIGITS && word.len() < text.len());
    let words = words.map(|word| word.trim_matches(['.', ':', '!', '?', '#', '*']));
    words.filter(|word| is_telling_word(word, &TextTraits::of(word)))
}

fn is_separator(byte: u8) -> bool {
    let is_bracket = matches!(byte, b'<' | b'>' | b'(' | b')' | b'[' | b']' | b'{' | b'}');
    is_bracket
        || matches!(byte, b'/' | b'"' | b'\'' | b'`' | b',' | b';' | b'|' | b'=')
        || byte.is_ascii_whitespace()
}

fn is_telling_word(word: &str, traits: &TextTraits) -> bool {
    if traits.is_number {
        return is_telling_number(word) && !is_date(word);
    }
    traits.characters >= MIN_STRUCTURED
        && (traits.has_structure() || traits.characters >= MIN_NAME)
        && !is_common(word)
}

/// The traits of a text that decide if it is telling, found in one pass.
#[derive(Default)]
struct TextTraits {
    characters: usize,
    has_space: bool,
    has_letter_or_digit: bool,
    has_digit: bool,
    /// Nothing but digits, dots and dashes.
    is_number: bool,
    /// A character of addresses and paths, or a dot with something on both sides.
    has_mark: bool,
    slashes: usize,
    /// Capitals after small letters.
    humps: usize,
}

impl TextTraits {
    fn of(text: &str) -> Self {
        let mut traits = Self { is_number: true, ..Self::default() };
        let (mut before, mut has_other, mut has_dot) = (0, false, false);
        for byte in text.bytes() {
            // A character of several bytes counts at its first one.
            traits.characters += usize::from(byte & 0xc0 != 0x80);
            traits.is_number &= byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
            traits.has_digit |= byte.is_ascii_digit();
            traits.has_letter_or_digit |= byte.is_ascii_alphanumeric() || !byte.is_ascii();
            traits.has_space |= byte.is_ascii_whitespace();
            traits.has_mark |= matches!(byte, b'@' | b'\\' | b':');
            traits.slashes += usize::from(byte == b'/');
            traits.humps += usize::from(u8::is_ascii_lowercase(&before) && byte.is_ascii_uppercase());
            match byte {
                b'.' => has_dot |= has_other,
                _ => (traits.has_mark, has_other) = (traits.has_mark | has_dot, true),
            }
            before = byte;
        }
        traits
    }

    fn has_structure(&self) -> bool {
        self.has_digit || self.has_mark || self.slashes >= 2 || self.humps >= 3
    }
}

/// Tells if a text is a calendar date: today's is in many values.
fn is_date(word: &str) -> bool {
    word.len() == 10 && word.bytes().enumerate().all(|(at, byte)| (byte == b'-') == (at == 4 || at == 7))
}

fn is_common(text: &str) -> bool {
    COMMON.iter().any(|common| common.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-02
    #[test]
    fn identifiers_paths_and_phrases_are_telling() {
        for text in [
            "a1b2c3",
            "3f2a9c1e-77aa-4f0e-9d51-2f6f0c8e4b11",
            "report.csv",
            "ann@x.org",
            "/home/ann",
            "48213",
            "buy some coffee",
            "dQwFgWaXcQtT",
            "createdByTheNightlyBuildJob",
        ] {
            assert!(is_telling_text(text), "{text}");
        }
    }

    // req: TR-02
    #[test]
    fn words_choices_dates_and_short_numbers_are_not_telling() {
        for text in [
            "",
            "a1",
            "tea",
            "created",
            "in_progress",
            "not-found",
            "true",
            "text/plain",
            "Europe/Rome",
            "2026-11-18",
            "1234",
            "hi you",
            "10000",
            "application/json",
            "------------",
            "- - - - - - - -",
        ] {
            assert!(!is_telling_text(text), "{text}");
        }
    }
}
