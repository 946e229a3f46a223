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
    if text.contains(char::is_whitespace) {
        return text.len() >= MIN_PHRASE && text.chars().any(char::is_alphanumeric) && !is_common(text);
    }
    is_telling_word(text)
}

/// Tells if the decimal text of a number is telling. Round numbers are limits and time-outs.
pub(crate) fn is_telling_number(digits: &str) -> bool {
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    count >= MIN_DIGITS && (digits.contains('.') || !digits.ends_with("000"))
}

/// Returns the telling words of a text: identifiers, file names, parts of paths and addresses. A text that is one such word itself
/// is not repeated.
pub(crate) fn telling_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(is_separator);
    let words = words.map(|word| word.trim_matches(|c| matches!(c, '.' | ':' | '!' | '?' | '#' | '*')));
    words.filter(move |word| word.len() < text.len() && is_telling_word(word))
}

fn is_separator(c: char) -> bool {
    let is_bracket = matches!(c, '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}');
    is_bracket || matches!(c, '/' | '"' | '\'' | '`' | ',' | ';' | '|' | '=') || c.is_whitespace()
}

fn is_telling_word(word: &str) -> bool {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b'-';
    if word.bytes().all(is_number) {
        return is_telling_number(word) && !is_date(word);
    }
    if word.chars().take(MIN_STRUCTURED).count() < MIN_STRUCTURED || is_common(word) {
        return false;
    }
    has_structure(word) || word.chars().take(MIN_NAME).count() == MIN_NAME
}

/// Tells if a text has a digit, a character of addresses and paths, or capitals inside small letters.
fn has_structure(word: &str) -> bool {
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let has_inner_dot = word.trim_matches('.').contains(['.', '@', '\\', ':']);
    let is_path = word.matches('/').count() >= 2;
    let changes = word.as_bytes().windows(2);
    let humps = changes.filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()).count();
    has_digit || has_inner_dot || is_path || humps >= 3
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
