//! Cuts texts into words, and remembers the stem and the pieces of each word, because the same words come again and again.

use rust_stemmers::{Algorithm, Stemmer};

use crate::Embedding;
use crate::kernel::add_scaled;
use crate::token_table::TokenTable;
use crate::word_pieces::for_each_piece;
use crate::words::{Term, TermMap, for_each_word, hash, is_stop_word};

/// The pieces of a text that count. Later ones repeat or digress.
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
    /// The pieces of all known words.
    pieces: Vec<u32>,
}

struct KnownWord {
    /// `None` for stop words.
    term: Option<Term>,
    /// The end of its pieces; those of the word before it end where its own begin.
    end: usize,
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
        for_each_word(text, |word| words.push(self.id(word)));
        words
    }

    fn id(&mut self, word: &str) -> WordId {
        let hash_of_word = hash(word.as_bytes());
        if let Some(id) = self.ids.get(&hash_of_word) {
            return *id;
        }
        let id = WordId(self.known.len() as u32);
        for_each_piece(word, &self.table, |piece| self.pieces.extend(piece));
        let term = (!is_stop_word(word)).then(|| hash(self.stemmer.stem(word).as_bytes()));
        self.known.push(KnownWord { term, end: self.pieces.len() });
        self.ids.insert(hash_of_word, id);
        id
    }

    /// Returns the terms of words, without stop words.
    pub(crate) fn terms(&self, words: &[WordId]) -> impl Iterator<Item = Term> {
        words.iter().filter_map(|word| self.known[word.0 as usize].term)
    }

    /// Embeds words with the built-in table: the weighted sum of their pieces, with length 1. Zero if no word is known.
    pub(crate) fn embed<'w>(&self, words: impl IntoIterator<Item = &'w WordId>) -> Embedding {
        let mut sum = vec![0.0; self.table.dimensions()];
        for piece in words.into_iter().flat_map(|word| self.pieces_of(*word)).take(MAX_PIECES) {
            let (row, factor) = self.table.row(*piece as usize);
            add_scaled(&mut sum, row, factor);
        }
        Embedding::new(sum)
    }

    fn pieces_of(&self, word: WordId) -> &[u32] {
        let index = word.0 as usize;
        let start = if index == 0 { 0 } else { self.known[index - 1].end };
        &self.pieces[start..self.known[index].end]
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
