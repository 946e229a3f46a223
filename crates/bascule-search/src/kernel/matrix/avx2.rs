//! Products of matrices with AVX2 and FMA.

#![allow(unsafe_code, reason = "the processor's vector instructions are unsafe functions")]

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehdup_ps, _mm_movehl_ps, _mm256_castps256_ps128,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
};

use super::{MatrixPair, multiply_blocks};

const LANES: usize = 8;
/// Sixteen registers hold the sums of four rows times two, and the rows.
const ROWS: usize = 4;
const COLUMNS: usize = 2;

/// Returns false if the processor has not the instructions.
pub(super) fn multiply(matrices: &MatrixPair<'_>, output: &mut [f32]) -> bool {
    let is_possible =
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    if is_possible {
        // SAFETY: the processor has AVX2 and FMA, as was just asked.
        multiply_blocks(matrices, output, |lefts, rights| unsafe { block(lefts, rights) });
    }
    is_possible
}

/// All rows have the same length.
#[target_feature(enable = "avx2,fma")]
fn block(lefts: &[&[f32]; ROWS], rights: &[&[f32]; COLUMNS]) -> [[f32; COLUMNS]; ROWS] {
    let width = lefts.iter().chain(rights).map(|row| row.len()).min().unwrap_or(0);
    let whole = width / LANES * LANES;
    let mut sums = [[_mm256_setzero_ps(); COLUMNS]; ROWS];
    for start in (0..whole).step_by(LANES) {
        // SAFETY: every row has at least `start + 8` numbers, and the load needs no alignment.
        let load = |row: &[f32]| unsafe { _mm256_loadu_ps(row.as_ptr().add(start)) };
        let others = rights.map(load);
        for (left, sums) in lefts.iter().zip(&mut sums) {
            let numbers = load(left);
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = _mm256_fmadd_ps(numbers, other, *sum);
            }
        }
    }
    let mut products = [[0.0; COLUMNS]; ROWS];
    for (r, products) in products.iter_mut().enumerate() {
        for (c, product) in products.iter_mut().enumerate() {
            let rest = lefts[r][whole..].iter().zip(&rights[c][whole..]).map(|(a, b)| a * b).sum::<f32>();
            *product = sum_of_eight(sums[r][c]) + rest;
        }
    }
    products
}

#[target_feature(enable = "avx2")]
fn sum_of_eight(numbers: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(numbers), _mm256_extractf128_ps::<1>(numbers));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}
