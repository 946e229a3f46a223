//! The scores of all tools for the parts of an intent.
//!
//! The scores of one tool stand side by side, one for each part, so that one pass over the tools serves all parts.

use crate::SearchIndex;
use crate::fields::{FIELDS, LENGTH_PENALTIES, WEIGHTS};
use crate::intent::IntentPart;
use crate::kernel::{QueryBlock, dot_products};
use crate::server_index::Posting;
use crate::vectors::QueryVector;
use crate::words::Term;

/// The share of meaning in a score; the rest is words.
const MEANING: f32 = 0.55;
/// Limits the effect of repeated words (`k1` of BM25).
const SATURATION: f32 = 2.0;
/// The number of scores that one step handles. `N` divides it, so that a position in a group always belongs to the same part.
const GROUP: usize = 8;

/// The scores of each tool for up to `N` parts. Those of missing parts are zero.
pub(crate) struct Scores<const N: usize>(Vec<[f32; N]>);

impl<const N: usize> Scores<N> {
    /// Scores by words and by meaning; both are scaled before they are added.
    pub(crate) fn new(index: &SearchIndex, parts: &[IntentPart]) -> Self {
        let parts = &parts[..parts.len().min(N)];
        let mut words = word_scores::<N>(index, parts);
        let meanings = meaning_scores::<N>(index, parts);
        let word_scale = Scale::new(words.as_flattened(), 1.0 - MEANING, N);
        let meaning_scale = Scale::new(meanings.as_flattened(), MEANING, N);
        let groups = words.as_flattened_mut().chunks_mut(GROUP).zip(meanings.as_flattened().chunks(GROUP));
        for (words, meanings) in groups {
            for (lane, (word, meaning)) in words.iter_mut().zip(meanings).enumerate() {
                *word = word_scale.apply(lane, *word) + meaning_scale.apply(lane, *meaning);
            }
        }
        Self(words)
    }

    /// Returns the score of each tool: for the whole intent, and half of it for the best step if there are several.
    pub(crate) fn totals(&self) -> impl Iterator<Item = f32> {
        self.0.iter().map(|scores| match N {
            1 => scores[0],
            _ => (scores[0] + scores[1..].iter().fold(0.0, |best, step| larger(best, *step))) / 2.0,
        })
    }
}

/// Returns the BM25 score of each tool for each part.
fn word_scores<const N: usize>(index: &SearchIndex, parts: &[IntentPart]) -> Vec<[f32; N]> {
    let mut scores = vec![[0.0; N]; index.tools];
    let lengths = LengthPenalties::new(index);
    let mut terms: Vec<_> = parts.iter().flat_map(|part| &part.terms).copied().collect();
    terms.sort_unstable();
    terms.dedup();
    for term in terms {
        let found = postings(index, term);
        let count: usize = found.iter().map(|server| server.postings.len()).sum();
        let rarity = rarity(index.tools, count);
        // A tool's score counts for the parts that have the term.
        let mut rarities = [0.0; N];
        parts
            .iter()
            .zip(&mut rarities)
            .filter(|(part, _)| part.terms.contains(&term))
            .for_each(|(_, of)| *of = rarity);
        for ServerPostings { offset, lengths: tool_lengths, postings } in found {
            for posting in postings {
                let tool = posting.tool as usize;
                let weight = lengths.weight(&posting.counts, &tool_lengths[tool]);
                let saturated = weight * (SATURATION + 1.0) / (weight + SATURATION);
                scores[offset + tool]
                    .iter_mut()
                    .zip(rarities)
                    .for_each(|(score, rarity)| *score += rarity * saturated);
            }
        }
    }
    scores
}

/// The postings of a term in one server.
struct ServerPostings<'i> {
    /// The position of the server's first tool.
    offset: usize,
    /// The lengths of the fields of the server's tools.
    lengths: &'i [[u16; FIELDS]],
    postings: &'i [Posting],
}

fn postings(index: &SearchIndex, term: Term) -> Vec<ServerPostings<'_>> {
    let servers = index.servers.iter().zip(&index.offsets);
    let of_server = servers.map(|(server, offset)| ServerPostings {
        offset: *offset,
        lengths: &server.lengths,
        postings: server.postings(term),
    });
    of_server.filter(|found| !found.postings.is_empty()).collect()
}

/// Returns the inverse document frequency of a term that `found` of all tools have.
fn rarity(tools: usize, found: usize) -> f32 {
    (1.0 + (tools as f32 - found as f32 + 0.5) / (found as f32 + 0.5)).ln()
}

/// The part of each field's penalty that depends on its length, for one word.
struct LengthPenalties([f32; FIELDS]);

impl LengthPenalties {
    fn new(index: &SearchIndex) -> Self {
        let mut penalties = LENGTH_PENALTIES;
        penalties.iter_mut().zip(index.average_lengths).for_each(|(penalty, average)| *penalty /= average);
        Self(penalties)
    }

    /// Returns the weighted number of occurrences of a term in a tool.
    fn weight(&self, counts: &[u8; FIELDS], lengths: &[u16; FIELDS]) -> f32 {
        let weight = |field: usize| {
            let penalty = 1.0 - LENGTH_PENALTIES[field] + self.0[field] * f32::from(lengths[field]);
            WEIGHTS[field] * f32::from(counts[field]) / penalty
        };
        (0..FIELDS).filter(|field| counts[*field] > 0).map(weight).sum()
    }
}

/// Returns the cosine of each tool with each part.
fn meaning_scores<const N: usize>(index: &SearchIndex, parts: &[IntentPart]) -> Vec<[f32; N]> {
    let mut scores = vec![[0.0; N]; index.tools];
    let queries: Vec<_> = parts.iter().map(|part| QueryVector::new(&part.embedding)).collect();
    let width = queries.first().map_or(0, |query| query.values.len());
    if queries.iter().any(|query| query.values.len() != width) {
        return scores;
    }
    let mut units = [0.0; N];
    queries.iter().zip(&mut units).for_each(|(query, unit)| *unit = query.unit);
    let values: Vec<_> = queries.into_iter().map(|query| query.values).collect();
    let block = QueryBlock::<N>::new(width, &values);
    // Vectors of another encoder do not compare.
    let servers =
        index.servers.iter().zip(&index.offsets).filter(|(server, _)| server.vectors.width == width);
    for (server, offset) in servers {
        let scores = &mut scores[*offset..][..server.len()];
        let vectors = &server.vectors;
        dot_products(&vectors.values, &block, |tool, products| {
            let unit = vectors.units[tool];
            for (score, (product, query)) in scores[tool].iter_mut().zip(products.into_iter().zip(units)) {
                *score = product as f32 * unit * query;
            }
        });
    }
    scores
}

/// Scales the scores of each part to the range from 0 to its share. A lane is a position in a group.
struct Scale {
    lowest: [f32; GROUP],
    factors: [f32; GROUP],
}

impl Scale {
    fn new(scores: &[f32], share: f32, parts: usize) -> Self {
        let (mut lowest, mut highest) = ([f32::INFINITY; GROUP], [f32::NEG_INFINITY; GROUP]);
        for group in scores.chunks(GROUP) {
            for (lane, score) in group.iter().enumerate() {
                lowest[lane] = smaller(lowest[lane], *score);
                highest[lane] = larger(highest[lane], *score);
            }
        }
        let lanes = |lane: usize| (0..GROUP).filter(move |other| other % parts == lane % parts);
        let lowest =
            std::array::from_fn(|lane| lanes(lane).map(|lane| lowest[lane]).fold(f32::INFINITY, smaller));
        let factors = std::array::from_fn(|lane| {
            let range = lanes(lane).map(|lane| highest[lane]).fold(f32::NEG_INFINITY, larger) - lowest[lane];
            if range > 0.0 { share / range } else { 0.0 }
        });
        Self { lowest, factors }
    }

    fn apply(&self, lane: usize, score: f32) -> f32 {
        (score - self.lowest[lane]) * self.factors[lane]
    }
}

/// `f32::min` and `f32::max` treat NaN apart, which costs several times as much.
fn smaller(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}
