//! The counters of one tool: its calls by duration, and its failures by code.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bascule_model::ErrorCode;

use crate::call_record::RecordedResult;

/// The upper bounds of the histogram in microseconds, and as labels in seconds. The last bucket has no bound.
pub(super) const BOUNDS: [(u64, &str); 15] = [
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1.0"),
    (2_500_000, "2.5"),
    (5_000_000, "5.0"),
    (10_000_000, "10.0"),
    (30_000_000, "30.0"),
    (60_000_000, "60.0"),
];

/// The codes in the order of their numbers. A failure that the tool itself reported follows them.
const CODES: [ErrorCode; 12] = [
    ErrorCode::ProviderInitFailed,
    ErrorCode::ProviderTimeout,
    ErrorCode::ProviderCrashed,
    ErrorCode::ProviderUnavailable,
    ErrorCode::ProviderError,
    ErrorCode::ToolNotFound,
    ErrorCode::InvalidInput,
    ErrorCode::InvalidOutput,
    ErrorCode::PolicyDenied,
    ErrorCode::RateLimited,
    ErrorCode::Cancelled,
    ErrorCode::OutcomeUnknown,
];
const TOOL_ERROR: usize = CODES.len();

#[derive(Default)]
pub(super) struct ToolSeries {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    errors: [AtomicU64; CODES.len() + 1],
    /// The sum of all durations in microseconds.
    micros: AtomicU64,
}

/// The counters at one moment.
pub(super) struct ToolCounts {
    /// The calls up to each bound, and all of them at the end.
    pub(super) cumulative: [u64; BOUNDS.len() + 1],
    /// The codes that occurred, and their counts.
    pub(super) errors: Vec<(String, u64)>,
    pub(super) micros: u64,
}

impl ToolSeries {
    pub(super) fn count(&self, duration: Duration, result: &RecordedResult) {
        let micros = duration.as_micros() as u64;
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        match result {
            RecordedResult::Completed { is_error: false, .. } => {}
            RecordedResult::Completed { .. } => self.count_error(TOOL_ERROR),
            RecordedResult::Failed { code, .. } => self.count_error(*code as usize),
        }
    }

    fn count_error(&self, index: usize) {
        self.errors[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> ToolCounts {
        let mut sum = 0;
        let cumulative = array::from_fn(|bucket| {
            sum += self.buckets[bucket].load(Ordering::Relaxed);
            sum
        });
        let codes = CODES.iter().map(ToString::to_string).chain(["TOOL_ERROR".to_owned()]);
        let errors = codes.zip(self.errors.iter().map(|count| count.load(Ordering::Relaxed)));
        let errors = errors.filter(|(_, count)| *count > 0).collect();
        ToolCounts { cumulative, errors, micros: self.micros.load(Ordering::Relaxed) }
    }
}

impl ToolCounts {
    pub(super) fn calls(&self) -> u64 {
        self.cumulative[BOUNDS.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn codes_are_in_the_order_of_their_numbers() {
        for (index, code) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, index, "{code}");
        }
        // A new code needs a place in the table.
        assert_eq!(ErrorCode::OutcomeUnknown as usize + 1, TOOL_ERROR);
    }

    // req: TR-01
    #[test]
    fn call_is_counted_in_its_bucket_and_all_above() {
        let series = ToolSeries::default();
        let ok = RecordedResult::Completed {
            is_error: false,
            result_bytes: 0,
            summary: String::new(),
            hint: None,
        };
        for micros in [0, 1_000, 1_001, 60_000_000, 60_000_001] {
            series.count(Duration::from_micros(micros), &ok);
        }
        let counts = series.counts();
        assert_eq!((counts.cumulative[0], counts.cumulative[1], counts.cumulative[13]), (2, 3, 3));
        assert_eq!((counts.cumulative[14], counts.calls(), counts.micros), (4, 5, 120_002_002));
        assert!(counts.errors.is_empty());
    }
}
