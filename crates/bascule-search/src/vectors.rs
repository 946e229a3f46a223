//! Vectors of texts, as numbers and in eight bits each.

use crate::kernel::LANES;

/// The vector of a text, with length 1, or all zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Embedding(Vec<f32>);

impl Embedding {
    /// Takes the direction of a vector.
    pub fn new(mut values: Vec<f32>) -> Self {
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        let factor = if length.is_normal() { 1.0 / length } else { 0.0 };
        values.iter_mut().for_each(|value| *value *= factor);
        Self(values)
    }

    /// Returns the direction of a weighted sum.
    pub(crate) fn sum(weighted: &[(f32, Self)]) -> Self {
        let dimensions = weighted.iter().map(|(_, embedding)| embedding.0.len()).max().unwrap_or(0);
        let mut sum = vec![0.0; dimensions];
        for (weight, embedding) in weighted {
            sum.iter_mut().zip(&embedding.0).for_each(|(sum, value)| *sum += weight * value);
        }
        Self::new(sum)
    }

    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// Returns the similarity of two texts, from -1 to 1.
    pub fn cosine(&self, other: &Self) -> f32 {
        self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum()
    }

    /// Returns the values as eight-bit numbers, filled up with zeros, and their unit.
    fn quantised(&self) -> (impl Iterator<Item = i8>, f32) {
        let largest = self.0.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let unit = largest / 127.0;
        let factor = if unit > 0.0 { 1.0 / unit } else { 0.0 };
        let padding = padded(self.0.len()) - self.0.len();
        let values = self.0.iter().map(move |value| (value * factor).round() as i8);
        (values.chain(std::iter::repeat_n(0, padding)), unit)
    }
}

/// Vectors of equal size in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct VectorList {
    /// A multiple of `LANES`.
    pub(crate) width: usize,
    pub(crate) values: Vec<i8>,
    pub(crate) units: Vec<f32>,
}

impl VectorList {
    pub(crate) fn new(embeddings: &[Embedding]) -> Self {
        let dimensions = embeddings.iter().map(|embedding| embedding.0.len()).max().unwrap_or(0);
        let width = padded(dimensions);
        let mut list = Self { width, ..Self::default() };
        for (index, embedding) in embeddings.iter().enumerate() {
            let (values, unit) = embedding.quantised();
            list.values.extend(values);
            // A vector of another encoder compares with nothing.
            list.values.resize((index + 1) * width, 0);
            list.units.push(unit);
        }
        list
    }
}

/// A vector to compare with those of a list.
pub(crate) struct QueryVector {
    pub(crate) values: Vec<i16>,
    pub(crate) unit: f32,
}

impl QueryVector {
    pub(crate) fn new(embedding: &Embedding) -> Self {
        let (values, unit) = embedding.quantised();
        Self { values: values.map(i16::from).collect(), unit }
    }
}

fn padded(dimensions: usize) -> usize {
    dimensions.next_multiple_of(LANES)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SE-01
    #[test]
    fn embedding_has_length_one_or_zero() {
        assert_eq!(Embedding::new(vec![3.0, 4.0]).values(), [0.6, 0.8]);
        assert_eq!(Embedding::new(vec![0.0; 3]).values(), [0.0; 3]);
        assert_eq!(Embedding::new(vec![f32::INFINITY, 1.0]).values()[1], 0.0);
    }

    // req: SE-01
    #[test]
    fn list_fills_up_rows() {
        let list = VectorList::new(&[Embedding::new(vec![1.0, -0.5]), Embedding::default()]);
        assert_eq!((list.width, list.values.len(), list.units.len()), (LANES, 2 * LANES, 2));
        assert_eq!(list.values[..3], [127, -64, 0]);
    }
}
