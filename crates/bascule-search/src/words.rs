//! Cuts texts and names into words, and recognises stop words.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Words that do not distinguish tools, in alphabetical order: those of English, and those of polite requests.
const STOP_WORDS: &[&str] = &[
    "a", "able", "about", "above", "after", "again", "against", "all", "also", "am", "an", "and", "any",
    "are", "as", "at", "be", "because", "been", "before", "being", "below", "between", "both", "but", "by",
    "can", "cannot", "cant", "could", "did", "do", "does", "doing", "dont", "down", "during", "each", "few",
    "for", "from", "further", "get", "give", "had", "has", "have", "having", "he", "help", "her", "here",
    "hers", "him", "his", "how", "i", "if", "im", "in", "into", "is", "it", "its", "ive", "just", "know",
    "let", "lets", "like", "may", "me", "might", "more", "most", "must", "my", "myself", "need", "no", "nor",
    "not", "now", "of", "off", "on", "once", "only", "or", "other", "our", "ours", "out", "over", "own",
    "please", "s", "same", "shall", "she", "should", "so", "some", "such", "t", "tell", "than", "that",
    "the", "their", "theirs", "them", "then", "there", "these", "they", "this", "those", "through", "to",
    "too", "under", "until", "up", "us", "use", "used", "using", "very", "via", "want", "was", "we", "were",
    "what", "whats", "when", "where", "which", "while", "who", "whom", "why", "will", "with", "would", "you",
    "your", "yours",
];

/// The longest word that is stemmed; longer ones are keys or encoded data.
const MAX_WORD: usize = 40;

/// The hash of a stemmed word.
pub(crate) type Term = u64;

/// A map by term.
pub(crate) type TermMap<V> = HashMap<Term, V, TermHashing>;

/// Mixes a secret number into terms, which are hashes already, so that nobody can choose words that slow a map down.
#[derive(Debug, Clone)]
pub(crate) struct TermHashing(u64);

impl Default for TermHashing {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for TermHashing {
    type Hasher = TermHasher;

    fn build_hasher(&self) -> TermHasher {
        TermHasher(self.0)
    }
}

pub(crate) struct TermHasher(u64);

impl Hasher for TermHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(hash(bytes));
    }

    fn write_u64(&mut self, term: u64) {
        let product = u128::from(self.0 ^ term) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns true for a word that does not distinguish tools.
pub(crate) fn is_stop_word(word: &str) -> bool {
    word.len() > MAX_WORD || STOP_WORDS.binary_search(&word).is_ok()
}

/// Passes every word of a text to `on_word`, in lower case. `readTextFile`, `read_text-file` and `Read text file` have the same
/// words; `HTTPServer` has two; an apostrophe is no boundary.
pub(crate) fn for_each_word(text: &str, mut on_word: impl FnMut(&str)) {
    let mut word = String::new();
    let mut previous = LetterKind::Other;
    let mut letters = text.chars().filter(|letter| !matches!(letter, '\'' | '’')).peekable();
    while let Some(letter) = letters.next() {
        let kind = LetterKind::of(letter);
        let before_lower_case = letters.peek().is_some_and(|next| LetterKind::of(*next) == LetterKind::Lower);
        if !word.is_empty() && is_boundary(previous, kind, before_lower_case) {
            on_word(&word);
            word.clear();
        }
        if kind != LetterKind::Other {
            push_lower_case(&mut word, letter);
        }
        previous = kind;
    }
    if !word.is_empty() {
        on_word(&word);
    }
}

fn push_lower_case(word: &mut String, letter: char) {
    match letter.is_ascii() {
        true => word.push(letter.to_ascii_lowercase()),
        false => word.extend(letter.to_lowercase()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LetterKind {
    Upper,
    Lower,
    Digit,
    /// A letter of a script that writes no spaces: a word of its own.
    Ideograph,
    Other,
}

impl LetterKind {
    fn of(letter: char) -> Self {
        match letter {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{20000}'..='\u{2fa1f}' => Self::Ideograph,
            _ if letter.is_uppercase() => Self::Upper,
            _ if letter.is_alphanumeric() => Self::Lower,
            _ => Self::Other,
        }
    }
}

/// Returns true if a word ends between two letters. Digits stay with the letters before them, as in `base64`.
fn is_boundary(previous: LetterKind, kind: LetterKind, before_lower_case: bool) -> bool {
    match (previous, kind) {
        (_, LetterKind::Other | LetterKind::Ideograph) | (LetterKind::Ideograph | LetterKind::Other, _) => {
            true
        }
        (LetterKind::Lower | LetterKind::Digit, LetterKind::Upper)
        | (LetterKind::Digit, LetterKind::Lower) => true,
        (LetterKind::Upper, LetterKind::Upper) => before_lower_case,
        _ => false,
    }
}

/// FNV-1a with 64 bits.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut words = Vec::new();
        for_each_word(text, |word| words.push(word.to_owned()));
        assert_eq!(words, expected, "{text}");
    }

    // req: SE-01
    #[test]
    fn splits_names_of_any_spelling() {
        check("readTextFile", &["read", "text", "file"]);
        check("read_text-file", &["read", "text", "file"]);
        check("HTTPServer.v2/list", &["http", "server", "v2", "list"]);
        check("base64Encode", &["base64", "encode"]);
        check("the user's s3-bucket", &["the", "users", "s3", "bucket"]);
        check("Größe 読む", &["größe", "読", "む"]);
        check("", &[]);
    }

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }
}
