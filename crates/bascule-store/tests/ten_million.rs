//! Ten million spans with the limits that users have. `make test-full` runs it: it takes minutes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "measured figures, visible with `--nocapture`")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_model::{SpanContext, SpanId};
use bascule_store::{ClientLabel, Outcome, Reader, Retention, Span, SpanFilter, Store};
use support::sample_span;

const SPANS: u64 = 10_000_000;
/// The queue holds more.
const BATCH: u64 = 10_000;
/// The spans that may be written between two looks at the limits: one batch, and those that make a look due.
const SLACK: u64 = BATCH + 5_000;
const LONG: Duration = Duration::from_secs(120);

fn span(number: u64, tools: &[Arc<str>], client: &Arc<ClientLabel>) -> Span {
    let (sample, is_failed) = (sample_span(number), number.is_multiple_of(50));
    // The duration of a sample names it when it is read again.
    Span {
        context: SpanContext { span_id: SpanId(sample.context.trace_id.0 as u64 | 1), ..sample.context },
        client: Some(client.clone()),
        name: tools[number as usize % tools.len()].clone(),
        outcome: if is_failed { Outcome::Error } else { Outcome::Ok },
        code: is_failed.then(|| "PROVIDER_TIMEOUT".into()),
        message: is_failed.then(|| format!("the server did not respond to call {number} within 30 s")),
        ..sample
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Writes all spans. Returns the largest sizes of the file and of its write-ahead log.
fn write(path: &Path, retention: Retention) -> (u64, u64) {
    let store = Store::new(path.to_owned(), retention).unwrap();
    let tools: Vec<Arc<str>> =
        (0..200).map(|number| format!("s{}:tool{}", number % 20, number / 20).into()).collect();
    let client = Arc::new(ClientLabel { name: "c".into(), version: "1".into(), session: "s".into() });
    let log = path.with_extension("db-wal");
    let mut largest = (0, 0);
    for number in 0..SPANS {
        store.offer_span(span(number, &tools, &client));
        if number % BATCH == BATCH - 1 {
            assert!(store.flush(LONG));
            largest = (largest.0.max(size(path)), largest.1.max(size(&log)));
        }
    }
    assert!(store.close(LONG));
    assert_eq!((store.status().written, store.status().dropped), (SPANS, 0));
    largest
}

fn check(retention: Retention) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.db");
    let begin = Instant::now();
    let (file, log) = write(&path, retention);
    let took = begin.elapsed();
    let spans = Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap();
    println!(
        "{SPANS} spans in {took:?} ({:.0} spans/s), at most {} of them and {} MiB: {} left in {} bytes; \
         largest file {file} bytes, largest log {log} bytes",
        SPANS as f64 / took.as_secs_f64(),
        retention.max_spans,
        retention.max_bytes >> 20,
        spans.len(),
        size(&path),
    );
    let count = spans.len() as u64;
    assert!(count > 0 && count <= retention.max_spans + SLACK, "{count}");
    // The newest ones are left, without a gap.
    let numbers: Vec<u64> = spans.iter().map(|(_, span)| span.duration).collect();
    assert!(numbers.iter().rev().copied().eq(SPANS - count..SPANS), "{:?}", &numbers[..3]);
    // Between two looks the file grows by some spans, and 16 MiB of free pages are kept for the next ones.
    let room = 16 << 20;
    assert!(file <= retention.max_bytes + room && size(&path) <= retention.max_bytes + room, "{file}");
    assert!(log <= 64 << 20, "{log}");
}

// req: TR-01
#[test]
fn ten_million_spans_stay_within_retention() {
    // The number of spans bounds the file, and then its size does.
    check(Retention::default());
    check(Retention { max_bytes: 32 << 20, ..Retention::default() });
}
