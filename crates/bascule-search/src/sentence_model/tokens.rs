//! The vocabulary of a model, and the numbers of a text's word pieces.

use std::collections::HashMap;

use bascule_model::clip;
use serde_json::Value;

use super::ModelError;
use crate::word_pieces::{CONTINUATION, Vocabulary, for_each_piece, letter_ends};

/// The word pieces of a model by their text.
pub(super) struct ModelVocabulary {
    ids: HashMap<String, u32>,
    /// The length of the longest piece in bytes.
    longest: usize,
    unknown: u32,
    /// Stands before every text.
    start: u32,
    /// Stands after every text.
    end: u32,
}

impl ModelVocabulary {
    /// Reads `vocab.txt`: a piece in each line.
    pub(super) fn from_lines(text: &str) -> Result<Self, ModelError> {
        Self::new(text.lines().map(str::to_owned).zip(0..).collect())
    }

    /// Reads `tokenizer.json`.
    pub(super) fn from_json(text: &str) -> Result<Self, ModelError> {
        let wrong = |reason: String| ModelError::Tokenizer(reason);
        let file: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let model = &file["model"];
        // Older files do not name the type.
        if !matches!(model["type"].as_str(), Some("WordPiece") | None) {
            return Err(wrong(format!("it is of the type {}; only WordPiece is known", model["type"])));
        }
        if file["normalizer"]["lowercase"] == false {
            return Err(wrong(
                "it distinguishes upper and lower case; only models without case are known".into(),
            ));
        }
        let pieces = model["vocab"].as_object().ok_or_else(|| wrong("it has no vocabulary".into()))?;
        let id = |(piece, id): (&String, &Value)| Some((piece.clone(), u32::try_from(id.as_u64()?).ok()?));
        Self::new(pieces.iter().filter_map(id).collect())
    }

    fn new(ids: HashMap<String, u32>) -> Result<Self, ModelError> {
        let id = |piece: &str| {
            ids.get(piece)
                .copied()
                .ok_or_else(|| ModelError::Tokenizer(format!("its vocabulary has no `{piece}`")))
        };
        let (unknown, start, end) = (id("[UNK]")?, id("[CLS]")?, id("[SEP]")?);
        let longest = ids.keys().map(String::len).max().unwrap_or(0);
        Ok(Self { unknown, start, end, longest, ids })
    }

    /// The number after the largest id.
    pub(super) fn size(&self) -> usize {
        self.ids.values().max().map_or(0, |largest| *largest as usize + 1)
    }

    /// Returns the ids of a text's pieces, with the marks of its start and end, at most `limit`.
    pub(super) fn tokens(&self, text: &str, limit: usize) -> Vec<u32> {
        let mut tokens = vec![self.start];
        for_each_piece(text, self, |piece| {
            if tokens.len() + 1 < limit {
                tokens.push(piece.unwrap_or(self.unknown));
            }
        });
        tokens.push(self.end);
        tokens
    }
}

impl Vocabulary for ModelVocabulary {
    fn longest(&self, text: &str, continues: bool) -> Option<(usize, u32)> {
        let prefix = if continues { CONTINUATION } else { "" };
        let text = clip(text, self.longest);
        let marked = [prefix, text].concat();
        let id = |end: usize| self.ids.get(&marked[..prefix.len() + end]).copied();
        letter_ends(text).rev().find_map(|end| Some((end, id(end)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nrun\n##ning\ncafe\n";

    // req: SE-01
    #[test]
    fn reads_both_files() {
        let json = r###"{"normalizer":{"lowercase":true},"model":{"type":"WordPiece","vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"run":4,"##ning":5,"cafe":6}}}"###;
        for vocabulary in [ModelVocabulary::from_lines(LINES), ModelVocabulary::from_json(json)] {
            let vocabulary = vocabulary.unwrap();
            assert_eq!(vocabulary.size(), 7);
            assert_eq!(vocabulary.tokens("Running Café zebra", 9), [2, 4, 5, 6, 1, 3]);
            assert_eq!(vocabulary.tokens("run run run run", 4), [2, 4, 4, 3]);
            assert_eq!(vocabulary.tokens("", 4), [2, 3]);
        }
    }

    // req: SE-01
    #[test]
    fn refuses_other_tokenizers() {
        let check = |json: &str, part: &str| {
            let Err(error) = ModelVocabulary::from_json(json) else { panic!("{json}") };
            assert!(error.to_string().contains(part), "{error}");
        };
        check(r#"{"model":{"type":"BPE","vocab":{}}}"#, "only WordPiece");
        check(
            r#"{"normalizer":{"lowercase":false},"model":{"type":"WordPiece","vocab":{}}}"#,
            "upper and lower case",
        );
        check(r#"{"model":{"type":"WordPiece","vocab":{}}}"#, "no `[UNK]`");
        check("[", "EOF");
    }
}
