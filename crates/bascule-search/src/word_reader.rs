//! Cuts texts into words, and remembers the stem and the pieces of each word, because the same words come again and again.

use std::ops::Range;

use rust_stemmers::{Algorithm, Stemmer};

use crate::Embedding;
use crate::kernel::add_scaled;
use crate::token_table::TokenTable;
use crate::word_pieces::for_each_piece;
use crate::words::{Term, TermMap, for_each_word, hash, is_stop_word};

/// The pieces of a text that count. Later ones repeat or digress. A word without pieces counts as one.
const MAX_PIECES: usize = 128;

/// A word that a reader has met.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordId(u32);

pub(crate) struct WordReader {
    stemmer: Stemmer,
    table: TokenTable,
    /// The words by their hash.
    ids: TermMap<WordId>,
    known: Vec<KnownWord>,
    /// The pieces of known words.
    pieces: Vec<u32>,
}

struct KnownWord {
    /// `None` for stop words.
    term: Option<Term>,
    /// The place of its pieces. They are looked up when the word is first among the pieces of a text that count, because cutting
    /// a word takes much longer than reading it.
    pieces: Option<Range<usize>>,
}

impl WordReader {
    pub(crate) fn new() -> Self {
        Self {
            stemmer: Stemmer::create(Algorithm::English),
            table: TokenTable::open(),
            ids: TermMap::default(),
            known: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// Returns the words of a text in their order.
    pub(crate) fn words(&mut self, text: &str) -> Vec<WordId> {
        let mut words = Vec::with_capacity(text.len() / 6);
        let mut room = MAX_PIECES;
        for_each_word(text, |word| {
            let id = self.id(word);
            if room > 0 {
                room = room.saturating_sub(self.cut(id, word).max(1));
            }
            words.push(id);
        });
        words
    }

    fn id(&mut self, word: &str) -> WordId {
        let hash_of_word = hash(word.as_bytes());
        if let Some(id) = self.ids.get(&hash_of_word) {
            return *id;
        }
        let id = WordId(self.known.len() as u32);
        let term = (!is_stop_word(word)).then(|| hash(self.stemmer.stem(word).as_bytes()));
        self.known.push(KnownWord { term, pieces: None });
        self.ids.insert(hash_of_word, id);
        id
    }

    /// Cuts a word into pieces unless that was done before. Returns their number.
    fn cut(&mut self, id: WordId, word: &str) -> usize {
        let known = &mut self.known[id.0 as usize];
        let pieces = known.pieces.get_or_insert_with(|| {
            let start = self.pieces.len();
            for_each_piece(word, &self.table, |piece| self.pieces.extend(piece));
            start..self.pieces.len()
        });
        pieces.len()
    }

    /// Returns the terms of words, without stop words.
    pub(crate) fn terms(&self, words: &[WordId]) -> impl Iterator<Item = Term> {
        words.iter().filter_map(|word| self.known[word.0 as usize].term)
    }

    /// Embeds words with the built-in table: the weighted sum of their pieces, with length 1. Zero if no word is known.
    pub(crate) fn embed<'w>(&self, words: impl IntoIterator<Item = &'w WordId>) -> Embedding {
        let mut sum = vec![0.0; self.table.dimensions()];
        let mut room = MAX_PIECES;
        for word in words {
            let pieces = self.pieces_of(*word);
            for piece in pieces.iter().take(room) {
                let (row, factor) = self.table.row(*piece as usize);
                add_scaled(&mut sum, row, factor);
            }
            room = room.saturating_sub(pieces.len().max(1));
        }
        Embedding::new(sum)
    }

    fn pieces_of(&self, word: WordId) -> &[u32] {
        let pieces = self.known[word.0 as usize].pieces.clone();
        pieces.map_or(&[], |pieces| &self.pieces[pieces])
    }
}

/// Embeds a text with the built-in table.
pub fn embed_text(text: &str) -> Embedding {
    let mut reader = WordReader::new();
    let words = reader.words(text);
    reader.embed(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<Term> {
        let mut reader = WordReader::new();
        let words = reader.words(text);
        reader.terms(&words).collect()
    }

    fn similarity(a: &str, b: &str) -> f32 {
        embed_text(a).cosine(&embed_text(b))
    }

    // req: SE-01
    #[test]
    fn stems_words_and_drops_stop_words() {
        assert_eq!(terms("Please list the commits"), terms("listing a commit"));
        assert!(terms("can you help me with this?").is_empty());
    }

    // req: SE-01
    #[test]
    fn cuts_only_the_words_that_count() {
        let mut reader = WordReader::new();
        let letter = |n: usize| char::from(b"qxzjvwkyuf"[n % 10]);
        let words: Vec<String> =
            (0..1_000).map(|n| [letter(n), letter(n / 10), letter(n / 100)].iter().collect()).collect();
        let ids = reader.words(&words.join(" "));
        assert!(reader.pieces.len() < MAX_PIECES + 100, "{}", reader.pieces.len());
        let again = reader.words(&words[900]);
        assert_eq!(reader.pieces_of(ids[900]), reader.pieces_of(again[0]));
        assert!(!reader.pieces_of(again[0]).is_empty());
    }

    // req: SE-01
    #[test]
    fn texts_of_similar_meaning_have_similar_vectors() {
        for (a, near, far) in [
            ("car", "automobile", "banana"),
            ("purchase a train ticket", "buy rail travel", "delete a database row"),
            ("what is the weather", "forecast of rain and temperature", "commit source code"),
            ("sendEmail", "deliver a mail message", "draw a pie chart"),
        ] {
            assert!(similarity(a, near) > similarity(a, far) + 0.1, "{a}");
        }
    }

    // req: SE-01
    #[test]
    fn text_without_words_has_no_vector() {
        for text in ["", "…", "🦀", "12 34"] {
            assert_eq!(similarity(text, "car"), 0.0, "{text}");
        }
    }
}
