//! An intent: what somebody wants to do, as a whole and step by step.

use crate::Embedding;
use crate::word_reader::{WordId, WordReader};
use crate::words::Term;

/// Further steps are joined with their neighbours.
const MAX_STEPS: usize = 7;
/// The whole and its steps.
pub(crate) const MAX_PARTS: usize = 1 + MAX_STEPS;
/// The part of an intent that is read. Longer texts are documents, not intents.
const MAX_CHARS: usize = 4_000;
/// A step with fewer terms belongs to its neighbour.
const MIN_TERMS: usize = 2;
/// Words between two steps, the longer ones first.
const CONNECTIVES: &[&[&str]] = &[
    &["as", "well", "as"],
    &["after", "that"],
    &["and", "then"],
    &["and", "also"],
    &["and"],
    &["then"],
    &["also"],
    &["afterwards"],
];

/// A search text, its steps and their vectors.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The whole first, then the steps if there are several.
    parts: Vec<IntentPart>,
}

#[derive(Debug, Clone)]
pub(crate) struct IntentPart {
    text: String,
    pub(crate) terms: Vec<Term>,
    pub(crate) embedding: Embedding,
}

impl Intent {
    /// Reads an intent and embeds its parts with the built-in table.
    pub fn new(text: &str) -> Self {
        Self::read(text, |reader, words| reader.embed(words))
    }

    /// Reads an intent without embedding its parts.
    pub fn without_embeddings(text: &str) -> Self {
        Self::read(text, |_, _| Embedding::default())
    }

    fn read(text: &str, embed: impl Fn(&WordReader, &[WordId]) -> Embedding) -> Self {
        let text: String = text.chars().take(MAX_CHARS).collect();
        let mut reader = WordReader::new();
        let steps = steps(&text, &mut reader);
        let texts = std::iter::once(text).chain(steps);
        let part = |text: String| {
            let words = reader.words(&text);
            let terms = reader.terms(&words).collect();
            IntentPart { terms, embedding: embed(&reader, &words), text }
        };
        Self { parts: texts.map(part).collect() }
    }

    /// Returns the texts to embed: the whole, then the steps.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.text.as_str())
    }

    /// Replaces the vectors, for those of another encoder. `embeddings` are in the order of `texts`.
    pub fn with_embeddings(mut self, embeddings: impl IntoIterator<Item = Embedding>) -> Self {
        for (part, embedding) in self.parts.iter_mut().zip(embeddings) {
            part.embedding = embedding;
        }
        self
    }

    pub(crate) fn parts(&self) -> &[IntentPart] {
        &self.parts
    }
}

/// Returns the steps of a text; none if it has only one.
fn steps(text: &str, reader: &mut WordReader) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    // The text before the first step that is long enough.
    let mut short = String::new();
    for clause in clauses(text) {
        let words = reader.words(&clause);
        let is_short = reader.terms(&words).count() < MIN_TERMS;
        match steps.last_mut() {
            Some(step) if is_short => *step = format!("{step} {clause}"),
            None if is_short => short = format!("{short} {clause}"),
            _ => steps.push(format!("{} {clause}", std::mem::take(&mut short)).trim().to_owned()),
        }
    }
    while steps.len() > MAX_STEPS {
        merge_shortest(&mut steps);
    }
    if steps.len() < 2 { Vec::new() } else { steps }
}

/// Joins the two neighbours that are shortest together.
fn merge_shortest(steps: &mut Vec<String>) {
    let shortest = (1..steps.len()).min_by_key(|second| steps[second - 1].len() + steps[*second].len());
    if let Some(second) = shortest {
        let step = steps.remove(second);
        steps[second - 1] = format!("{} {step}", steps[second - 1]);
    }
}

/// Splits a text at the ends of sentences, at commas and at connectives.
fn clauses(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut clauses, mut clause, mut next) = (Vec::new(), Vec::new(), 0);
    while let Some(word) = words.get(next) {
        let connective = connective_length(&words[next..]);
        if connective == 0 {
            clause.push(*word);
        }
        if connective > 0 || word.ends_with([',', '.', ';', ':', '!', '?']) {
            clauses.push(std::mem::take(&mut clause).join(" "));
        }
        next += connective.max(1);
    }
    clauses.push(clause.join(" "));
    clauses.retain(|clause| !clause.is_empty());
    clauses
}

fn connective_length(words: &[&str]) -> usize {
    let is_at_start = |connective: &&&[&str]| {
        words.len() >= connective.len()
            && connective.iter().zip(words).all(|(a, b)| b.trim_end_matches(',').eq_ignore_ascii_case(a))
    };
    CONNECTIVES.iter().find(is_at_start).map_or(0, |connective| connective.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let intent = Intent::without_embeddings(text);
        assert_eq!(intent.texts().skip(1).collect::<Vec<_>>(), expected, "{text}");
    }

    // req: SE-01
    #[test]
    fn splits_intent_into_steps() {
        check(
            "Read the log file, then open an issue about it and post the link to the team channel.",
            &["Read the log file,", "open an issue about it", "post the link to the team channel."],
        );
        check(
            "Fetch the page. After that, save its text as well as its images",
            &["Fetch the page.", "save its text its images"],
        );
    }

    // req: SE-01
    #[test]
    fn joins_short_steps_of_long_intent() {
        let steps = ["open file one", "open file two", "close the main window of the editor"];
        let long = "compare the two tables of yearly results".to_owned();
        let text = [&steps.map(str::to_owned)[..], &vec![long; 5]].concat().join(", then ");
        let intent = Intent::without_embeddings(&text);
        let found: Vec<_> = intent.texts().skip(1).collect();
        assert_eq!(found.len(), MAX_STEPS);
        assert_eq!(found[..2], ["open file one, open file two,", "close the main window of the editor,"]);
        assert_eq!(found[MAX_STEPS - 1], "compare the two tables of yearly results");
    }

    // req: SE-01
    #[test]
    fn keeps_single_step_whole() {
        for text in
            ["", "list files", "search and replace", "please, tell me the time in Tokyo", "🦀, 🦀 and 🦀"]
        {
            check(text, &[]);
        }
    }

    #[test]
    fn bounds_steps_and_text() {
        let intent = Intent::without_embeddings(&"open the file, ".repeat(10_000));
        assert_eq!(intent.texts().count(), 1 + MAX_STEPS);
        assert!(intent.texts().all(|text| text.len() <= MAX_CHARS));
    }
}
