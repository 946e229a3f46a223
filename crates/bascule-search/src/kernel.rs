//! Dot products of many eight-bit vectors with a few others, with the widest instructions that the processor has.

#[cfg(feature = "local-model")]
pub(crate) mod matrix;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::{AtomicBool, Ordering};

static BASELINE: AtomicBool = AtomicBool::new(false);

/// Switches to the kernel that every processor of the architecture can run, for measurements and comparisons.
#[doc(hidden)]
pub fn use_baseline_kernel(baseline: bool) {
    BASELINE.store(baseline, Ordering::Relaxed);
}

#[cfg(all(target_arch = "x86_64", feature = "local-model"))]
fn may_use_avx2() -> bool {
    !BASELINE.load(Ordering::Relaxed) && std::arch::is_x86_feature_detected!("avx2")
}

/// Widths of vectors are multiples of this.
pub(crate) const LANES: usize = 16;

/// Up to `N` vectors of equal width. The first 16 numbers of all of them come first, then the next 16 of all of them: they are read
/// in this order. Missing vectors are zero.
pub(crate) struct QueryBlock<const N: usize> {
    width: usize,
    values: Vec<i16>,
}

impl<const N: usize> QueryBlock<N> {
    pub(crate) fn new(width: usize, queries: &[Vec<i16>]) -> Self {
        assert!(width.is_multiple_of(LANES) && queries.len() <= N);
        let mut values = vec![0; width * N];
        for (nth, query) in queries.iter().enumerate() {
            assert_eq!(query.len(), width);
            for (index, chunk) in query.chunks_exact(LANES).enumerate() {
                values[(index * N + nth) * LANES..][..LANES].copy_from_slice(chunk);
            }
        }
        Self { width, values }
    }
}

/// Calls `on_row` with the index of each row and its dot products with the queries.
pub(crate) fn dot_products<const N: usize>(
    rows: &[i8],
    queries: &QueryBlock<N>,
    mut on_row: impl FnMut(usize, [i32; N]),
) {
    if queries.width == 0 {
        return;
    }
    let rows = rows.chunks_exact(queries.width).enumerate();
    #[cfg(target_arch = "x86_64")]
    x86::dot_products(rows, &queries.values, !BASELINE.load(Ordering::Relaxed), &mut on_row);
    #[cfg(not(target_arch = "x86_64"))]
    rows.for_each(|(index, row)| on_row(index, portable_products(row, &queries.values)));
}

/// The compiler turns this into the vector instructions that every processor of the architecture has.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable_products<const N: usize>(row: &[i8], queries: &[i16]) -> [i32; N] {
    let mut products = [0; N];
    for (chunk, others) in row.chunks_exact(LANES).zip(queries.chunks_exact(N * LANES)) {
        for (product, other) in products.iter_mut().zip(others.chunks_exact(LANES)) {
            let pairs = chunk.iter().zip(other);
            *product += pairs.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
        }
    }
    products
}

/// Adds a row, whose bytes are signed numbers, times `factor` to a sum.
pub(crate) fn add_scaled(sum: &mut [f32], row: &[u8], factor: f32) {
    #[cfg(target_arch = "x86_64")]
    x86::add_scaled(sum, row, factor, !BASELINE.load(Ordering::Relaxed));
    #[cfg(not(target_arch = "x86_64"))]
    portable_add_scaled(sum, row, factor);
}

#[inline(always)]
fn portable_add_scaled(sum: &mut [f32], row: &[u8], factor: f32) {
    for (sum, value) in sum.iter_mut().zip(row) {
        *sum += factor * f32::from(*value as i8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from -127 to 127 in no apparent order.
    fn numbers(count: usize, seed: usize) -> Vec<i8> {
        (0..count)
            .map(|index| ((index * 7_919 + seed * 104_729) % 255) as i16 - 127)
            .map(|n| n as i8)
            .collect()
    }

    fn check<const N: usize>(width: usize, count: usize) {
        let rows = numbers(width * 20, 7);
        let queries: Vec<Vec<i16>> =
            (0..count).map(|seed| numbers(width, 100 + seed).into_iter().map(i16::from).collect()).collect();
        let block = QueryBlock::<N>::new(width, &queries);
        for baseline in [false, true] {
            use_baseline_kernel(baseline);
            dot_products(&rows, &block, |index, found| {
                let row = &rows[index * width..][..width];
                assert_eq!(found, portable_products::<N>(row, &block.values), "row {index} of width {width}");
                let first: i32 =
                    row.iter().zip(&queries[0]).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                assert_eq!(found[0], first);
            });
        }
        use_baseline_kernel(false);
    }

    // req: SE-03
    #[test]
    fn all_kernels_compute_the_same() {
        for width in [16, 32, 256, 384, 1536] {
            check::<1>(width, 1);
            check::<4>(width, 3);
            check::<8>(width, 7);
        }
    }

    // req: SE-03
    #[test]
    fn all_kernels_add_the_same() {
        for width in [1, 31, 256] {
            let row: Vec<u8> = numbers(width, 3).into_iter().map(|number| number as u8).collect();
            let mut expected: Vec<f32> = numbers(width, 4).into_iter().map(f32::from).collect();
            let mut found = expected.clone();
            portable_add_scaled(&mut expected, &row, 0.037);
            add_scaled(&mut found, &row, 0.037);
            assert_eq!(found, expected);
        }
    }

    // req: SE-03
    #[test]
    fn largest_products_do_not_overflow() {
        let (row, block) = (vec![-128_i8; 4096], QueryBlock::<1>::new(4096, &[vec![-128_i16; 4096]]));
        dot_products(&row, &block, |_, found| assert_eq!(found, [128 * 128 * 4096]));
    }
}
