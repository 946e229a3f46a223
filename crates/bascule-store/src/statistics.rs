//! Counts and percentiles for each tool.

use std::collections::HashMap;

/// The calls of one tool. Durations are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStatistics {
    /// `server:tool`.
    pub tool: String,
    pub calls: u64,
    /// Calls without a result.
    pub errors: u64,
    /// Calls whose result reports failure.
    pub tool_errors: u64,
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
}

/// Collects the durations of calls.
#[derive(Default)]
pub(crate) struct Durations<K>(HashMap<K, (Vec<u64>, u64, u64)>);

impl<K: std::hash::Hash + Eq> Durations<K> {
    pub(crate) fn add(&mut self, tool: K, duration: u64, is_error: bool, is_tool_error: bool) {
        let (durations, errors, tool_errors) = self.0.entry(tool).or_default();
        durations.push(duration);
        *errors += u64::from(is_error);
        *tool_errors += u64::from(is_tool_error);
    }

    /// Returns the statistics, the tools with the most calls first.
    pub(crate) fn finish(self, name: impl Fn(K) -> String) -> Vec<ToolStatistics> {
        let summary = |(tool, (mut durations, errors, tool_errors)): (K, (Vec<u64>, u64, u64))| {
            durations.sort_unstable();
            ToolStatistics {
                tool: name(tool),
                calls: durations.len() as u64,
                errors,
                tool_errors,
                p50: percentile(&durations, 50),
                p95: percentile(&durations, 95),
                p99: percentile(&durations, 99),
                max: durations.last().copied().unwrap_or(0),
            }
        };
        let mut all: Vec<_> = self.0.into_iter().map(summary).collect();
        all.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.tool.cmp(&b.tool)));
        all
    }
}

/// Returns the smallest value that at least this share of the sorted values does not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<u64> = (1..=200).collect();
        let of = |percent| percentile(&sorted, percent);
        assert_eq!((of(50), of(95), of(99)), (100, 190, 198));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 99), percentile(&[], 50)), (7, 7, 0));
    }
}
