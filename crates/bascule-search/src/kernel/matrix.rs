//! Products of matrices of 32-bit numbers, with the widest instructions that the processor has.

#[cfg(target_arch = "x86_64")]
mod avx2;

/// Two matrices whose rows have `width` numbers each.
pub(crate) struct MatrixPair<'m> {
    pub(crate) left: &'m [f32],
    pub(crate) right: &'m [f32],
    pub(crate) width: usize,
}

/// Writes the dot product of each row of the left matrix with each row of the right one: the products of one left row stand side by
/// side. `output` has room for exactly these.
pub(crate) fn multiply(matrices: &MatrixPair<'_>, output: &mut [f32]) {
    let MatrixPair { left, right, width } = *matrices;
    assert!(width > 0 && left.len().is_multiple_of(width) && right.len().is_multiple_of(width));
    assert_eq!(output.len(), (left.len() / width) * (right.len() / width));
    #[cfg(target_arch = "x86_64")]
    if super::may_use_avx2() && avx2::multiply(matrices, output) {
        return;
    }
    // Two rows times two: each number that is read is used twice.
    multiply_blocks::<2, 2>(matrices, output, portable_block);
}

/// Multiplies `R` left rows with `C` right ones at a time. The right matrix, usually the larger one, is read once.
#[inline(always)]
fn multiply_blocks<const R: usize, const C: usize>(
    MatrixPair { left, right, width }: &MatrixPair<'_>,
    output: &mut [f32],
    block: impl Fn(&[&[f32]; R], &[&[f32]; C]) -> [[f32; C]; R],
) {
    let (rows, columns) = (left.len() / width, right.len() / width);
    let left_row = |at: usize| &left[at * width..][..*width];
    let right_row = |at: usize| &right[at * width..][..*width];
    for column in (0..columns).step_by(C) {
        // A block at the edge repeats the last row.
        let rights: [&[f32]; C] = std::array::from_fn(|at| right_row((column + at).min(columns - 1)));
        for row in (0..rows).step_by(R) {
            let lefts: [&[f32]; R] = std::array::from_fn(|at| left_row((row + at).min(rows - 1)));
            let products = block(&lefts, &rights);
            for (at, products) in products.iter().enumerate().take(rows - row) {
                let end = C.min(columns - column);
                output[(row + at) * columns + column..][..end].copy_from_slice(&products[..end]);
            }
        }
    }
}

/// The compiler turns this into the vector instructions that every processor of the architecture has.
fn portable_block(lefts: &[&[f32]; 2], rights: &[&[f32]; 2]) -> [[f32; 2]; 2] {
    const LANES: usize = 4;
    let mut sums = [[0.0_f32; LANES]; 4];
    let [first, second] = lefts.map(|row| row.chunks_exact(LANES));
    let [third, fourth] = rights.map(|row| row.chunks_exact(LANES));
    let rests = [first.remainder(), second.remainder(), third.remainder(), fourth.remainder()];
    for ((a, b), (c, d)) in first.zip(second).zip(third.zip(fourth)) {
        for lane in 0..LANES {
            sums[0][lane] += a[lane] * c[lane];
            sums[1][lane] += a[lane] * d[lane];
            sums[2][lane] += b[lane] * c[lane];
            sums[3][lane] += b[lane] * d[lane];
        }
    }
    let rest = |left: usize, right: usize| -> f32 {
        rests[left].iter().zip(rests[2 + right]).map(|(a, b)| a * b).sum()
    };
    let sum = |left: usize, right: usize| sums[2 * left + right].iter().sum::<f32>() + rest(left, right);
    [[sum(0, 0), sum(0, 1)], [sum(1, 0), sum(1, 1)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SE-01
    #[test]
    fn products_of_all_sizes_are_right() {
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            (0..count).map(|index| ((index * 7_919 + seed * 104_729) % 255) as f32 / 64.0 - 2.0).collect()
        };
        for (rows, columns, width) in [(1, 1, 1), (3, 5, 7), (4, 2, 8), (9, 7, 33), (16, 3, 384)] {
            let (left, right) = (numbers(rows * width, 1), numbers(columns * width, 2));
            let dot = |row: usize, column: usize| -> f32 {
                left[row * width..].iter().zip(&right[column * width..]).take(width).map(|(a, b)| a * b).sum()
            };
            for baseline in [true, false] {
                crate::kernel::use_baseline_kernel(baseline);
                let mut found = vec![0.0; rows * columns];
                multiply(&MatrixPair { left: &left, right: &right, width }, &mut found);
                for (at, found) in found.iter().enumerate() {
                    let expected = dot(at / columns, at % columns);
                    assert!(
                        (found - expected).abs() < 1e-3,
                        "{rows}×{columns}×{width}: {found} for {expected}"
                    );
                }
            }
        }
    }
}
