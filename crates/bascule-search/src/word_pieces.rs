//! Cuts texts into the word pieces of uncased BERT models.

use icu_normalizer::DecomposingNormalizerBorrowed;

/// Longer words are unknown: they are keys or encoded data.
const MAX_WORD_CHARS: usize = 40;
/// Marks a piece that continues a word.
pub(crate) const CONTINUATION: &str = "##";

/// A vocabulary of word pieces.
pub(crate) trait Vocabulary {
    /// Returns the end and the id of the longest piece at the beginning of a text. It looks only at as many letters as the longest
    /// piece has. Pieces that continue a word have the prefix `##` in the vocabulary.
    fn longest(&self, text: &str, continues: bool) -> Option<(usize, u32)>;
}

/// Passes the piece ids of a text to `on_piece`, `None` for a word that the vocabulary cannot express.
pub(crate) fn for_each_piece(
    text: &str,
    vocabulary: &impl Vocabulary,
    mut on_piece: impl FnMut(Option<u32>),
) {
    for word in basic_words(text) {
        match pieces(&word, vocabulary) {
            Some(pieces) => pieces.into_iter().for_each(|piece| on_piece(Some(piece))),
            None => on_piece(None),
        }
    }
}

/// Cuts a text at spaces and around punctuation and ideographs, in lower case and without accents.
fn basic_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let plain = text.is_ascii();
    let lower: Box<dyn Iterator<Item = char>> = match plain {
        true => Box::new(text.chars().map(|letter| letter.to_ascii_lowercase())),
        false => Box::new(without_accents(text)),
    };
    for letter in lower {
        let stands_alone = is_punctuation(letter) || is_ideograph(letter);
        let is_new = stands_alone || letter.is_whitespace();
        if is_new && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (false, Some(word)) = (letter.is_whitespace() || letter.is_control(), words.last_mut()) {
            word.push(letter);
        }
        if stands_alone {
            words.push(String::new());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn without_accents(text: &str) -> impl Iterator<Item = char> {
    let decomposer = DecomposingNormalizerBorrowed::new_nfd();
    decomposer.normalize_iter(text.chars()).filter(|letter| !is_accent(*letter)).flat_map(char::to_lowercase)
}

/// Returns true for a mark that stands on the letter before it.
fn is_accent(letter: char) -> bool {
    matches!(letter, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}')
}

fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || matches!(letter, '¡' | '§' | '«' | '¶' | '·' | '»' | '¿' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}')
        || matches!(letter, '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}')
}

fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2fa1f}')
}

/// Takes the longest known piece from the beginning of the rest, again and again.
fn pieces(word: &str, vocabulary: &impl Vocabulary) -> Option<Vec<u32>> {
    if word.chars().nth(MAX_WORD_CHARS).is_some() {
        return None;
    }
    let (mut rest, mut pieces) = (word, Vec::new());
    while !rest.is_empty() {
        let (end, id) = vocabulary.longest(rest, !pieces.is_empty())?;
        pieces.push(id);
        rest = &rest[end..];
    }
    Some(pieces)
}

/// Returns the ends of the letters of a text, in bytes.
pub(crate) fn letter_ends(text: &str) -> impl DoubleEndedIterator<Item = usize> {
    text.char_indices().map(|(start, letter)| start + letter.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [&str; 9] = ["un", "##aff", "##able", "cafe", "!", "run", "##ning", "読", "##s"];

    struct Pieces;

    impl Vocabulary for Pieces {
        fn longest(&self, text: &str, continues: bool) -> Option<(usize, u32)> {
            let prefix = if continues { CONTINUATION } else { "" };
            let id = |piece: &str| PIECES.iter().position(|known| *known == format!("{prefix}{piece}"));
            letter_ends(text).rev().find_map(|end| Some((end, id(&text[..end])? as u32)))
        }
    }

    fn check(text: &str, expected: &[&str]) {
        let mut found = Vec::new();
        for_each_piece(text, &Pieces, |id| {
            found.push(id.map_or("?", |id| PIECES[id as usize]));
        });
        assert_eq!(found, expected, "{text}");
    }

    // req: SE-01
    #[test]
    fn cuts_words_into_longest_pieces() {
        check("unaffable", &["un", "##aff", "##able"]);
        check("Running cafés!", &["run", "##ning", "cafe", "##s", "!"]);
        check("Café読読", &["cafe", "読", "読"]);
        check("zebra run", &["?", "run"]);
        check(" \n", &[]);
        check(&"x".repeat(1_000), &["?"]);
        check(&format!("cafe{}", "s".repeat(37)), &["?"]);
    }
}
