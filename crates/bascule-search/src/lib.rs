//! Finds the tools for an intent, by words and by meaning.
//!
//! Reading order: [`Intent`] is the question, split into its steps. [`ServerIndex`] holds the words and vectors of one server's
//! tools; a [`SearchIndex`] joins several of them and ranks their tools. `scores` has the
//! formula. `words` and `word_pieces` cut texts, `word_reader` remembers their words, `token_table` is the built-in knowledge of
//! meaning, `kernel` compares vectors. `sentence_model` (feature `local-model`) computes stronger vectors from a model's files.
//!
//! This crate does no I/O, reads no clock and uses no random source. Its `unsafe` blocks are in `kernel`, and one is in
//! `token_table::pages`.

mod fields;
mod intent;
mod kernel;
mod ranking;
mod scores;
#[cfg(feature = "local-model")]
mod sentence_model;
mod server_index;
mod token_table;
mod vectors;
mod word_pieces;
mod word_reader;
mod words;

pub use intent::Intent;
#[doc(hidden)]
pub use kernel::use_baseline_kernel;
pub use ranking::{RankedTool, SearchIndex};
#[cfg(feature = "local-model")]
pub use sentence_model::{ModelError, ModelFiles, SentenceModel};
pub use server_index::ServerIndex;
pub use token_table::release_table;
pub use vectors::Embedding;
pub use word_reader::embed_text;
