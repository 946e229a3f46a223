//! The counters of one tool: its calls by outcome and duration.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bascule_model::ErrorCode;

use crate::call_record::RecordedResult;

/// The upper bounds of the histogram in microseconds, and as labels in seconds. The last bucket has no bound. The conventions of
/// OpenTelemetry for MCP have the bounds from 10 ms on; most calls through a bridge are faster.
pub(crate) const BOUNDS: [(u64, &str); 17] = [
    (1_000, "0.001"),
    (2_000, "0.002"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (20_000, "0.02"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (200_000, "0.2"),
    (500_000, "0.5"),
    (1_000_000, "1.0"),
    (2_000_000, "2.0"),
    (5_000_000, "5.0"),
    (10_000_000, "10.0"),
    (30_000_000, "30.0"),
    (60_000_000, "60.0"),
    (120_000_000, "120.0"),
    (300_000_000, "300.0"),
];
const BUCKETS: usize = BOUNDS.len() + 1;

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

/// The counters of one tool.
#[derive(Default)]
pub(super) struct ToolSeries {
    /// All calls.
    ended: OutcomeSeries,
    /// The calls of MCP clients among them, those of their scripts excepted.
    served: OutcomeSeries,
}

/// The durations of calls by outcome.
#[derive(Default)]
struct OutcomeSeries {
    ok: Histogram,
    /// Made at the first failure with the code.
    failed: [OnceLock<Box<Histogram>>; CODES.len() + 1],
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// The sum of all durations in microseconds.
    micros: AtomicU64,
}

/// The counters of a tool at one moment.
pub(crate) struct ToolCounts {
    pub(crate) ended: Vec<OutcomeCounts>,
    pub(crate) served: Vec<OutcomeCounts>,
}

/// The calls with one outcome.
pub(crate) struct OutcomeCounts {
    /// `None` for success; the failure of a tool itself is `TOOL_ERROR`.
    pub(crate) code: Option<String>,
    pub(crate) durations: HistogramCounts,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct HistogramCounts {
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) micros: u64,
}

impl ToolSeries {
    /// Counts an ended call. `is_served` says that an MCP client made it.
    pub(super) fn count(&self, duration: Duration, result: &RecordedResult, is_served: bool) {
        let outcome = match result {
            RecordedResult::Completed { is_error: false, .. } => None,
            RecordedResult::Completed { .. } => Some(TOOL_ERROR),
            RecordedResult::Failed { code, .. } => Some(*code as usize),
        };
        let micros = duration.as_micros() as u64;
        self.ended.count(outcome, micros);
        if is_served {
            self.served.count(outcome, micros);
        }
    }

    pub(super) fn counts(&self) -> ToolCounts {
        ToolCounts { ended: self.ended.counts(), served: self.served.counts() }
    }
}

impl OutcomeSeries {
    fn count(&self, outcome: Option<usize>, micros: u64) {
        match outcome {
            None => self.ok.count(micros),
            Some(code) => self.failed[code].get_or_init(Box::default).count(micros),
        }
    }

    /// Returns the outcomes that occurred.
    fn counts(&self) -> Vec<OutcomeCounts> {
        let codes = CODES.iter().map(ToString::to_string).chain(["TOOL_ERROR".to_owned()]).map(Some);
        let failed = codes.zip(&self.failed).filter_map(|(code, series)| Some((code, &**series.get()?)));
        let all = std::iter::once((None, &self.ok)).chain(failed);
        let all = all.map(|(code, series)| OutcomeCounts { code, durations: series.counts() });
        all.filter(|outcome| outcome.durations.calls() > 0).collect()
    }
}

impl Histogram {
    fn count(&self, micros: u64) {
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn counts(&self) -> HistogramCounts {
        let buckets = array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed));
        HistogramCounts { buckets, micros: self.micros.load(Ordering::Relaxed) }
    }
}

impl ToolCounts {
    /// Returns the durations of all calls.
    pub(super) fn total(&self) -> HistogramCounts {
        self.ended.iter().fold(HistogramCounts::default(), |sum, outcome| sum.plus(&outcome.durations))
    }
}

impl HistogramCounts {
    pub(crate) fn calls(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.micros as f64 / 1e6
    }

    /// Returns the calls up to each bound, and all of them at the end.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }

    fn plus(self, other: &Self) -> Self {
        let buckets = array::from_fn(|bucket| self.buckets[bucket] + other.buckets[bucket]);
        Self { buckets, micros: self.micros + other.micros }
    }
}

#[cfg(test)]
mod tests {
    use bascule_model::Delivery;

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

    fn completed(is_error: bool) -> RecordedResult {
        RecordedResult::Completed { is_error, result_bytes: 0, summary: String::new(), hint: None }
    }

    // req: TR-01
    #[test]
    fn call_is_counted_in_its_bucket_and_all_above() {
        let series = ToolSeries::default();
        for micros in [0, 1_000, 1_001, 300_000_000, 300_000_001] {
            series.count(Duration::from_micros(micros), &completed(false), false);
        }
        let counts = series.counts();
        let total = counts.total();
        let cumulative: Vec<u64> = total.cumulative().collect();
        assert_eq!((cumulative[0], cumulative[1], cumulative[15], cumulative[16]), (2, 3, 3, 4));
        assert_eq!((cumulative[17], total.calls(), total.micros), (5, 5, 600_002_002));
        assert_eq!((counts.ended.len(), counts.served.len()), (1, 0));
    }

    // req: TR-01
    #[test]
    fn outcomes_and_callers_are_counted_apart() {
        let series = ToolSeries::default();
        let refused = RecordedResult::Failed {
            code: ErrorCode::RateLimited,
            retryable: true,
            delivery: Delivery::NotSent,
            message: String::new(),
        };
        for (result, is_served) in [(completed(false), true), (completed(true), false), (refused, true)] {
            series.count(Duration::from_micros(1), &result, is_served);
        }
        let shown = |outcomes: Vec<OutcomeCounts>| -> Vec<(Option<String>, u64)> {
            outcomes.into_iter().map(|outcome| (outcome.code, outcome.durations.calls())).collect()
        };
        let (limited, failed) = (Some("RATE_LIMITED".to_owned()), Some("TOOL_ERROR".to_owned()));
        let counts = series.counts();
        assert_eq!(shown(counts.ended), [(None, 1), (limited.clone(), 1), (failed, 1)]);
        assert_eq!(shown(counts.served), [(None, 1), (limited, 1)]);
    }
}
