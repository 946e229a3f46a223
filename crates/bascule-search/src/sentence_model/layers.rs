//! The forward pass of BERT: embeddings of word pieces, and layers of attention and dense networks.

use super::ModelError;
use super::tensors::TensorFile;
use crate::kernel::matrix::{MatrixPair, multiply};

/// The sizes of a model, from its `config.json`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ModelSizes {
    /// Numbers of a vector.
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    /// Numbers between the two matrices of a dense network.
    pub(super) intermediate: usize,
    pub(super) vocabulary: usize,
    /// The longest sequence of word pieces.
    pub(super) positions: usize,
    pub(super) types: usize,
    /// Keeps the division by a deviation of zero away.
    pub(super) epsilon: f32,
}

/// The weights of a model.
pub(super) struct BertModel {
    sizes: ModelSizes,
    words: Vec<f32>,
    /// The vectors of the positions, each with that of the first token type.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

/// One layer: attention among the pieces, then a dense network for each piece.
struct Layer {
    query: Dense,
    key: Dense,
    value: Dense,
    attended: Dense,
    attention_norm: Norm,
    intermediate: Dense,
    output: Dense,
    output_norm: Norm,
}

/// A matrix with a row for each output, and what is added to the outputs.
struct Dense {
    weights: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
}

/// Scales vectors to mean 0 and deviation 1, then by learned numbers.
struct Norm {
    factors: Vec<f32>,
    bias: Vec<f32>,
    epsilon: f32,
}

impl BertModel {
    pub(super) fn read(file: &TensorFile<'_>, sizes: ModelSizes) -> Result<Self, ModelError> {
        let ModelSizes { hidden, vocabulary, positions, types, epsilon, .. } = sizes;
        // A model that was saved with a head for a task has the prefix.
        let prefix = if file.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let embeddings = |name: &str, rows: usize| {
            file.numbers(&format!("{prefix}embeddings.{name}_embeddings.weight"), &[rows, hidden])
        };
        let (words, mut places) = (embeddings("word", vocabulary)?, embeddings("position", positions)?);
        let types = embeddings("token_type", types)?;
        for place in places.chunks_exact_mut(hidden) {
            add(place, &types[..hidden]);
        }
        let norm = Norm::read(file, &format!("{prefix}embeddings.LayerNorm"), hidden, epsilon)?;
        let layer = |at: usize| Layer::read(file, &format!("{prefix}encoder.layer.{at}"), sizes);
        let layers = (0..sizes.layers).map(layer).collect::<Result<_, _>>()?;
        Ok(Self { sizes, words, positions: places, norm, layers })
    }

    /// Returns the vectors of a text's pieces, one after the other. Ids are those of the vocabulary, not more than `positions`.
    pub(super) fn run(&self, tokens: &[u32]) -> Vec<f32> {
        let hidden = self.sizes.hidden;
        let mut states = Vec::with_capacity(tokens.len() * hidden);
        for (token, position) in tokens.iter().zip(self.positions.chunks_exact(hidden)) {
            let start = states.len();
            states.extend_from_slice(&self.words[*token as usize * hidden..][..hidden]);
            add(&mut states[start..], position);
        }
        self.norm.apply(&mut states);
        for layer in &self.layers {
            states = layer.run(states, self.sizes.heads);
        }
        states
    }
}

impl Layer {
    fn read(file: &TensorFile<'_>, prefix: &str, sizes: ModelSizes) -> Result<Self, ModelError> {
        let ModelSizes { hidden, intermediate, epsilon, .. } = sizes;
        let dense = |name: &str, inputs: usize, outputs: usize| {
            Dense::read(file, &format!("{prefix}.{name}"), inputs, outputs)
        };
        let norm = |name: &str| Norm::read(file, &format!("{prefix}.{name}"), hidden, epsilon);
        Ok(Self {
            query: dense("attention.self.query", hidden, hidden)?,
            key: dense("attention.self.key", hidden, hidden)?,
            value: dense("attention.self.value", hidden, hidden)?,
            attended: dense("attention.output.dense", hidden, hidden)?,
            attention_norm: norm("attention.output.LayerNorm")?,
            intermediate: dense("intermediate.dense", hidden, intermediate)?,
            output: dense("output.dense", intermediate, hidden)?,
            output_norm: norm("output.LayerNorm")?,
        })
    }

    fn run(&self, states: Vec<f32>, heads: usize) -> Vec<f32> {
        let attention = self.attend(&states, heads);
        let mut attended = self.attended.apply(&attention);
        add(&mut attended, &states);
        self.attention_norm.apply(&mut attended);
        let mut inner = self.intermediate.apply(&attended);
        inner.iter_mut().for_each(|number| *number = gelu(*number));
        let mut output = self.output.apply(&inner);
        add(&mut output, &attended);
        self.output_norm.apply(&mut output);
        output
    }

    /// Mixes the values of all pieces, for each piece and head by the similarity of queries and keys.
    fn attend(&self, states: &[f32], heads: usize) -> Vec<f32> {
        let hidden = self.query.bias.len();
        let (pieces, width) = (states.len() / hidden, hidden / heads);
        let [queries, keys, values] = [&self.query, &self.key, &self.value].map(|dense| dense.apply(states));
        let mut mixed = vec![0.0; states.len()];
        let (mut weights, mut of_head) = (vec![0.0; pieces * pieces], vec![0.0; pieces * width]);
        for head in 0..heads {
            let columns = head * width..(head + 1) * width;
            let part = |states: &[f32]| -> Vec<f32> {
                states.chunks_exact(hidden).flat_map(|state| &state[columns.clone()]).copied().collect()
            };
            let (queries, keys) = (part(&queries), part(&keys));
            multiply(&MatrixPair { left: &queries, right: &keys, width }, &mut weights);
            weights.chunks_exact_mut(pieces).for_each(|row| to_shares(row, 1.0 / (width as f32).sqrt()));
            let turned: Vec<f32> = columns
                .clone()
                .flat_map(|column| values.chunks_exact(hidden).map(move |state| state[column]))
                .collect();
            multiply(&MatrixPair { left: &weights, right: &turned, width: pieces }, &mut of_head);
            for (mixed, of_head) in mixed.chunks_exact_mut(hidden).zip(of_head.chunks_exact(width)) {
                mixed[columns.clone()].copy_from_slice(of_head);
            }
        }
        mixed
    }
}

impl Dense {
    fn read(file: &TensorFile<'_>, name: &str, inputs: usize, outputs: usize) -> Result<Self, ModelError> {
        let weights = file.numbers(&format!("{name}.weight"), &[outputs, inputs])?;
        Ok(Self { weights, bias: file.numbers(&format!("{name}.bias"), &[outputs])?, inputs })
    }

    fn apply(&self, states: &[f32]) -> Vec<f32> {
        let mut output = vec![0.0; states.len() / self.inputs * self.bias.len()];
        multiply(&MatrixPair { left: states, right: &self.weights, width: self.inputs }, &mut output);
        output.chunks_exact_mut(self.bias.len()).for_each(|row| add(row, &self.bias));
        output
    }
}

impl Norm {
    fn read(file: &TensorFile<'_>, name: &str, size: usize, epsilon: f32) -> Result<Self, ModelError> {
        let numbers = |part: &str| file.numbers(&format!("{name}.{part}"), &[size]);
        Ok(Self { factors: numbers("weight")?, bias: numbers("bias")?, epsilon })
    }

    fn apply(&self, states: &mut [f32]) {
        let size = self.factors.len();
        for state in states.chunks_exact_mut(size) {
            let mean = state.iter().sum::<f32>() / size as f32;
            let variance = state.iter().map(|number| (number - mean).powi(2)).sum::<f32>() / size as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            for (number, (factor, bias)) in state.iter_mut().zip(self.factors.iter().zip(&self.bias)) {
                *number = (*number - mean) * scale * factor + bias;
            }
        }
    }
}

fn add(sum: &mut [f32], other: &[f32]) {
    sum.iter_mut().zip(other).for_each(|(sum, number)| *sum += number);
}

/// Scales numbers and turns them into shares of 1 (softmax).
fn to_shares(row: &mut [f32], scale: f32) {
    let largest = row.iter().fold(f32::NEG_INFINITY, |largest, number| largest.max(*number));
    row.iter_mut().for_each(|number| *number = ((*number - largest) * scale).exp());
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|number| *number /= sum);
}

/// The activation function of BERT.
fn gelu(number: f32) -> f32 {
    0.5 * number * (1.0 + erf(number * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function, with an error below 2e-7 (Abramowitz and Stegun, 7.1.26).
fn erf(number: f32) -> f32 {
    const FACTORS: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let magnitude = number.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let sum = FACTORS.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    (1.0 - sum * (-magnitude * magnitude).exp()).copysign(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SE-01
    #[test]
    fn functions_have_known_values() {
        let check =
            |found: f32, expected: f32| assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        check(erf(0.0), 0.0);
        check(erf(0.5), 0.520_499_9);
        check(erf(-1.0), -0.842_700_8);
        check(erf(9.0), 1.0);
        check(gelu(1.0), 0.841_344_7);
        check(gelu(-10.0), 0.0);
        let mut row = [1.0, 1.0 + 2.0_f32.ln(), f32::NEG_INFINITY];
        to_shares(&mut row, 1.0);
        check(row[0], 1.0 / 3.0);
        check(row[2], 0.0);
    }

    // req: SE-01
    #[test]
    fn norm_has_mean_zero_and_deviation_one() {
        let mut states = [1.0, 3.0, 5.0, 5.0];
        Norm { factors: vec![1.0, 2.0], bias: vec![0.0, 1.0], epsilon: 1e-12 }.apply(&mut states);
        assert_eq!(states, [-1.0, 3.0, 0.0, 1.0]);
    }
}
