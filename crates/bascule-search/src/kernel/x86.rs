//! The kernels of x86-64: AVX2 where the processor has it, SSE2, which all of them have, elsewhere.

#![allow(unsafe_code, reason = "the processor's vector instructions are unsafe functions")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_madd_epi16, _mm_setzero_si128,
    _mm_shuffle_epi32, _mm_srai_epi16, _mm_unpackhi_epi8, _mm_unpacklo_epi8, _mm256_add_epi32,
    _mm256_castsi256_si128, _mm256_cvtepi8_epi16, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_setzero_si256,
};

use super::{LANES, portable_add_scaled};

/// `queries` has the layout of `QueryBlock`.
pub(super) fn dot_products<'r, const N: usize>(
    rows: impl Iterator<Item = (usize, &'r [i8])>,
    queries: &[i16],
    may_use_avx2: bool,
    on_row: &mut impl FnMut(usize, [i32; N]),
) {
    if may_use_avx2 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        unsafe { avx2_products(rows, queries, on_row) }
    } else {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { sse2_products(rows, queries, on_row) }
    }
}

#[target_feature(enable = "avx2")]
fn avx2_products<'r, const N: usize>(
    rows: impl Iterator<Item = (usize, &'r [i8])>,
    queries: &[i16],
    on_row: &mut impl FnMut(usize, [i32; N]),
) {
    for (index, row) in rows {
        let mut sums = [_mm256_setzero_si256(); N];
        for (chunk, others) in row.chunks_exact(LANES).zip(queries.chunks_exact(N * LANES)) {
            // SAFETY: the chunk has 16 bytes, and the load needs no alignment.
            let chunk = _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(chunk.as_ptr().cast::<__m128i>()) });
            for (sum, other) in sums.iter_mut().zip(others.chunks_exact(LANES)) {
                // SAFETY: the slice has 16 numbers of 16 bits, and the load needs no alignment.
                let other = unsafe { _mm256_loadu_si256(other.as_ptr().cast::<__m256i>()) };
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(chunk, other));
            }
        }
        let halves =
            sums.map(|sum| _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum)));
        on_row(index, halves.map(|half| sum_of_four(half)));
    }
}

#[target_feature(enable = "sse2")]
fn sse2_products<'r, const N: usize>(
    rows: impl Iterator<Item = (usize, &'r [i8])>,
    queries: &[i16],
    on_row: &mut impl FnMut(usize, [i32; N]),
) {
    for (index, row) in rows {
        let mut sums = [_mm_setzero_si128(); N];
        for (chunk, others) in row.chunks_exact(LANES).zip(queries.chunks_exact(N * LANES)) {
            // SAFETY: the chunk has 16 bytes, and the load needs no alignment.
            let chunk = unsafe { _mm_loadu_si128(chunk.as_ptr().cast::<__m128i>()) };
            // Each byte becomes the high half of 16 bits and is shifted down with its sign.
            let low = _mm_srai_epi16::<8>(_mm_unpacklo_epi8(chunk, chunk));
            let high = _mm_srai_epi16::<8>(_mm_unpackhi_epi8(chunk, chunk));
            for (sum, other) in sums.iter_mut().zip(others.chunks_exact(LANES)) {
                // SAFETY: the slice has 16 numbers of 16 bits, and the loads need no alignment.
                let (first, second) = unsafe {
                    let start = other.as_ptr().cast::<__m128i>();
                    (_mm_loadu_si128(start), _mm_loadu_si128(start.add(1)))
                };
                let both = _mm_add_epi32(_mm_madd_epi16(low, first), _mm_madd_epi16(high, second));
                *sum = _mm_add_epi32(*sum, both);
            }
        }
        on_row(index, sums.map(|sum| sum_of_four(sum)));
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn sum_of_four(lanes: __m128i) -> i32 {
    let pairs = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b00_00_11_10>(lanes));
    _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32::<0b00_00_00_01>(pairs)))
}

pub(super) fn add_scaled(sum: &mut [f32], row: &[u8], factor: f32, may_use_avx2: bool) {
    if may_use_avx2 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        unsafe { avx2_add_scaled(sum, row, factor) }
    } else {
        portable_add_scaled(sum, row, factor);
    }
}

/// The compiler uses the wider instructions here.
#[target_feature(enable = "avx2")]
fn avx2_add_scaled(sum: &mut [f32], row: &[u8], factor: f32) {
    portable_add_scaled(sum, row, factor);
}
