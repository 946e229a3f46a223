//! The words and vectors of one server's tools. Immutable: a new list of tools makes a new index.

use bascule_model::{ToolDefinition, clip};

use crate::Embedding;
use crate::fields::{FIELDS, ToolFields};
use crate::vectors::VectorList;
use crate::word_reader::{WordId, WordReader};
use crate::words::{Term, TermMap};

/// The weights of name, first sentence, description and parameters in the vector of a tool.
const VECTOR_WEIGHTS: [f32; 4] = [1.0, 0.2, 0.7, 0.3];
/// The part of a description that an encoder gets, in bytes.
const MAX_ENCODED: usize = 1_000;

/// The searchable form of one server's tools.
#[derive(Debug)]
pub struct ServerIndex {
    /// The number of words of each tool's fields.
    pub(crate) lengths: Vec<[u16; FIELDS]>,
    /// The sums of `lengths`.
    pub(crate) total_lengths: [u64; FIELDS],
    postings: Vec<Posting>,
    /// The postings of each term: the first, and one after the last.
    ranges: TermMap<(u32, u32)>,
    pub(crate) vectors: VectorList,
}

/// The occurrences of one term in one tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posting {
    /// The position of the tool in the server's list.
    pub(crate) tool: u32,
    pub(crate) counts: [u8; FIELDS],
}

impl ServerIndex {
    /// Indexes tools with the built-in vectors.
    pub fn new<'t>(server: &str, tools: impl IntoIterator<Item = &'t ToolDefinition>) -> Self {
        Self::build(server, tools, None)
    }

    /// Indexes tools with the vectors of another encoder, in the order of the tools.
    pub fn with_embeddings<'t>(
        server: &str,
        tools: impl IntoIterator<Item = &'t ToolDefinition>,
        embeddings: &[Embedding],
    ) -> Self {
        Self::build(server, tools, Some(embeddings))
    }

    /// Returns the text of a tool that an encoder embeds.
    pub fn encoded_text(tool: &ToolDefinition) -> String {
        let mut text = String::new();
        crate::words::for_each_word(&tool.name, |word| {
            text.push_str(word);
            text.push(' ');
        });
        let description = clip(tool.description.as_deref().unwrap_or_default(), MAX_ENCODED);
        format!("{}: {description}", text.trim_end())
    }

    fn build<'t>(
        server: &str,
        tools: impl IntoIterator<Item = &'t ToolDefinition>,
        given: Option<&[Embedding]>,
    ) -> Self {
        let mut reader = WordReader::new();
        let (mut lengths, mut total_lengths) = (Vec::new(), [0; FIELDS]);
        let (mut found, mut embeddings) = (Vec::new(), Vec::new());
        for (tool, definition) in tools.into_iter().enumerate() {
            let fields = ToolFields::new(server, definition);
            let words = fields.0.each_ref().map(|text| reader.words(text));
            let mut counts = [0_u16; FIELDS];
            for (field, words) in words.iter().enumerate() {
                let start = found.len();
                found.extend(reader.terms(words).map(|term| (term, tool as u32, field as u8)));
                total_lengths[field] += (found.len() - start) as u64;
                counts[field] = u16::try_from(found.len() - start).unwrap_or(u16::MAX);
            }
            lengths.push(counts);
            embeddings.push(match given {
                Some(given) => given.get(tool).cloned().unwrap_or_default(),
                None => embed_tool(&mut reader, fields.description(), &words),
            });
        }
        let (postings, ranges) = collect_postings(found);
        Self { lengths, total_lengths, postings, ranges, vectors: VectorList::new(&embeddings) }
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    pub(crate) fn postings(&self, term: Term) -> &[Posting] {
        self.ranges.get(&term).map_or(&[], |(start, end)| &self.postings[*start as usize..*end as usize])
    }
}

/// Groups occurrences by term and tool.
fn collect_postings(mut found: Vec<(Term, u32, u8)>) -> (Vec<Posting>, TermMap<(u32, u32)>) {
    found.sort_unstable();
    let (mut postings, mut ranges) = (Vec::<Posting>::new(), TermMap::default());
    for occurrences in found.chunk_by(|a, b| a.0 == b.0) {
        let start = postings.len();
        for in_tool in occurrences.chunk_by(|a, b| a.1 == b.1) {
            let mut counts = [0_u8; FIELDS];
            in_tool.iter().for_each(|(_, _, field)| {
                let count = &mut counts[usize::from(*field)];
                *count = count.saturating_add(1);
            });
            postings.push(Posting { tool: in_tool[0].1, counts });
        }
        ranges.insert(occurrences[0].0, (start as u32, postings.len() as u32));
    }
    postings.shrink_to_fit();
    (postings, ranges)
}

fn embed_tool(reader: &mut WordReader, description: &str, words: &[Vec<WordId>; FIELDS]) -> Embedding {
    let first_sentence = reader.words(first_sentence(description));
    let [name, _, description, names, descriptions] = words;
    let vectors = [
        reader.embed(name),
        reader.embed(&first_sentence),
        reader.embed(description),
        reader.embed(names.iter().chain(descriptions)),
    ];
    let weighted: Vec<_> = VECTOR_WEIGHTS.into_iter().zip(vectors).collect();
    Embedding::sum(&weighted)
}

/// Returns the first sentence of a description, or its first line if that is shorter.
pub(crate) fn first_sentence(text: &str) -> &str {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(". ").map_or(line.len(), |dot| dot + 1);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SE-01
    #[test]
    fn first_sentence_ends_at_full_stop_or_line() {
        for (text, expected) in [
            ("Reads a file. Needs a path.", "Reads a file."),
            ("  Reads v1.2 files\nand more.", "Reads v1.2 files"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), expected);
        }
    }
}
