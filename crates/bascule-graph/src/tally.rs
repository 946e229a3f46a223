//! Counts that fade: the numbers of a node or an edge.
//!
//! An old observation counts less than a new one, by half for each half-life. Instead of shrinking old weights, a new observation
//! weighs more: 2^(age of the reference date in half-lives). The ratio of two weights is the same, nothing needs an update as time
//! passes, and weights of several bridges add up in any order.

use std::cmp::Ordering;

/// The date at which an observation weighs 1: 1 January 2024, in microseconds since 1970.
const REFERENCE: i64 = 1_704_067_200_000_000;
/// The range of exponents. A wrong clock must not make a weight infinite or zero.
const MAX_EXPONENT: f64 = 900.0;

/// The number of observations, and their weight.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) successes: u64,
    /// Microseconds since 1970.
    pub(crate) last_seen: i64,
    pub(crate) weight: f64,
}

impl Tally {
    /// Returns the tally of one observation.
    pub(crate) fn once(success: bool, at: i64, half_life: i64) -> Self {
        let age = at.saturating_sub(REFERENCE) as f64 / half_life.max(1) as f64;
        let weight = age.clamp(-MAX_EXPONENT, MAX_EXPONENT).exp2();
        Self { count: 1, successes: u64::from(success), last_seen: at, weight }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.last_seen = if self.count == 0 { other.last_seen } else { self.last_seen.max(other.last_seen) };
        self.count = self.count.saturating_add(other.count);
        self.successes = self.successes.saturating_add(other.successes);
        self.weight = (self.weight + other.weight).min(f64::MAX / 1e9);
    }

    /// Compares by weight; of equal ones the older is smaller.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.weight.total_cmp(&other.weight).then(self.last_seen.cmp(&other.last_seen))
    }

    /// Makes a tally that was read from a file safe to compute with.
    pub(crate) fn sanitized(mut self) -> Self {
        self.successes = self.successes.min(self.count);
        self.weight = if self.weight.is_finite() { self.weight.clamp(0.0, f64::MAX / 1e9) } else { 0.0 };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000;

    // req: TR-02
    #[test]
    fn an_observation_one_half_life_older_weighs_half() {
        let (old, new) = (Tally::once(true, REFERENCE, DAY), Tally::once(true, REFERENCE + DAY, DAY));
        assert_eq!(new.weight / old.weight, 2.0);
    }

    // req: TR-02
    #[test]
    fn tallies_add_up_in_any_order() {
        let (mut a, mut b) = (Tally::once(true, REFERENCE + DAY, DAY), Tally::once(false, REFERENCE, DAY));
        let (first, second) = (a, b);
        a.add(&second);
        b.add(&first);
        assert_eq!(a, b);
        assert_eq!((a.count, a.successes, a.last_seen), (2, 1, REFERENCE + DAY));
    }

    // req: TR-02
    #[test]
    fn wrong_clocks_give_finite_weights() {
        for at in [i64::MIN, -1, 0, i64::MAX] {
            let mut tally = Tally::once(true, at, 1);
            (0..1_000).for_each(|_| tally.add(&Tally::once(true, at, 1)));
            assert!(tally.weight.is_finite() && tally.weight > 0.0, "{at}");
        }
    }
}
