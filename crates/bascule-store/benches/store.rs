//! Speed of the store: spans a second into the file, the processor time of each with and without the graph of tools, and
//! questions over a million spans.
//!
//! `make bench`. Processor time is that of the whole process: offering, the writer thread and SQLite.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_graph::{CallSession, FingerprintKey};
use bascule_model::{SpanContext, SpanId};
use bascule_store::{ClientLabel, ObservedCall, Outcome, Reader, Retention, Span, SpanFilter, Store};
use rustix::time::{ClockId, clock_gettime};
use support::sample_span;

const LONG: Duration = Duration::from_secs(600);

fn main() {
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let count = if quick { 20_000 } else { 1_000_000 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.db");
    let cost = write(&path, count);
    read(&path, count);
    observe(&folder.path().join("graph.db"), count / 5, cost);
    if !quick {
        retain(&folder.path().join("bounded.db"));
    }
}

fn target(name: &str, value: f64, limit: f64, unit: &str) {
    let verdict = if value <= limit { "met" } else { "MISSED" };
    println!("{name:62}{value:12.2} {unit}  (target {limit} {unit}: {verdict})");
}

/// Returns the processor time of a span in microseconds.
fn write(path: &Path, count: u64) -> f64 {
    let store =
        Store::new(path.to_owned(), Retention { max_spans: 10_000_000, ..Retention::default() }).unwrap();
    let (begin, before, tools) = (Instant::now(), cpu_time(), tools());
    let client =
        Arc::new(ClientLabel { name: "bench".into(), version: "1".into(), session: "0123456789ab".into() });
    for number in 0..count {
        store.offer_span(span(number, &tools, &client));
        // Sustained: never more waits than the queue holds.
        if number % 8_000 == 7_999 {
            assert!(store.flush(LONG));
        }
    }
    assert!(store.flush(LONG));
    let (took, used) = (begin.elapsed(), cpu_time() - before);
    assert_eq!((store.status().written, store.status().dropped), (count, 0));
    assert!(store.close(LONG));
    let rate = count as f64 / took.as_secs_f64();
    println!(
        "{count} spans in {took:?}: {rate:.0} spans/s (target 20000: {})",
        if rate >= 20_000.0 { "met" } else { "MISSED" }
    );
    let cost = used.as_secs_f64() * 1e6 / count as f64;
    target("processor time of a span, all threads", cost, 3.0, "µs");
    let bytes = std::fs::metadata(path).unwrap().len();
    println!("{:62}{:12.1} bytes", "file, for each span", bytes as f64 / count as f64);
    cost
}

/// The same spans with values, in sessions of 40 calls. Each call is given a value of the one before it.
fn observe(path: &Path, count: u64, cost_of_span: f64) {
    let (key, retention) = (FingerprintKey::new([7; 16]), Retention::default());
    let store = Store::with_graph(path.to_owned(), retention, key).unwrap();
    let client =
        Arc::new(ClientLabel { name: "bench".into(), version: "1".into(), session: "0123456789ab".into() });
    let (before, tools) = (cpu_time(), tools());
    for number in 0..count {
        let given = format!(r#"{{"id":"item-{number}","limit":10}}"#);
        let next = number + 1;
        let text = format!(r#"{{"id":"item-{next}","path":"/srv/data/{next}.json","size":{next}}}"#);
        let result =
            format!(r#"{{"content":[{{"type":"text","text":{text:?}}}],"structuredContent":{text}}}"#);
        let call = ObservedCall::new(CallSession::Client(number / 40), None, Some(&given), Some(&result));
        store.offer_call(span(number, &tools, &client), call);
        if number % 8_000 == 7_999 {
            assert!(store.flush(LONG));
        }
    }
    assert!(store.close(LONG));
    let cost = (cpu_time() - before).as_secs_f64() * 1e6 / count as f64;
    assert_eq!((store.status().dropped, Reader::open(path).unwrap().dropped_values().unwrap()), (0, 0));
    target("processor time of the graph, for each span", cost - cost_of_span, 20.0, "µs");
    let graph = Reader::open(path).unwrap().graph().unwrap();
    let took = best(|| drop(Reader::open(path).unwrap().graph().unwrap()));
    let name = format!("read a graph of {} tools, {} edges", graph.nodes.len(), graph.edges.len());
    println!("{name:62}{:12.2} ms", took.as_secs_f64() * 1e3);
}

fn read(path: &Path, count: u64) {
    let all = SpanFilter::default;
    let limit = Some(50);
    let questions = [
        ("newest 50", SpanFilter { limit, ..all() }),
        ("newest 50 of a rare tool", SpanFilter { tool: Some("s0:rare".into()), limit, ..all() }),
        ("newest 50 of a tool", SpanFilter { tool: Some("s1:tool7".into()), limit, ..all() }),
        ("newest 50 failed", SpanFilter { failed: true, limit, ..all() }),
        ("newest 50 slow (none)", SpanFilter { slower_than: Some(u64::MAX >> 1), limit, ..all() }),
        ("since the future (none)", SpanFilter { since: Some(i64::MAX), limit, ..all() }),
    ];
    for (name, filter) in questions {
        let took = best(|| drop(Reader::open(path).unwrap().spans(&filter).unwrap()));
        target(&format!("traces over {count} spans: {name}"), took.as_secs_f64() * 1e3, 100.0, "ms");
    }
    let id = Reader::open(path).unwrap().spans(&SpanFilter { limit: Some(1), ..all() }).unwrap()[0]
        .1
        .context
        .trace_id;
    let took = best(|| drop(Reader::open(path).unwrap().find(&id.to_string()[..12]).unwrap()));
    println!("{:62}{:12.2} ms", "trace by the beginning of its id", took.as_secs_f64() * 1e3);
    let took = best(|| drop(Reader::open(path).unwrap().statistics(&all()).unwrap()));
    println!("{:62}{:12.2} ms", "statistics of all tools", took.as_secs_f64() * 1e3);
}

/// Ten times as many spans as may stay.
fn retain(path: &Path) {
    let store =
        Store::new(path.to_owned(), Retention { max_spans: 100_000, ..Retention::default() }).unwrap();
    let (tools, client) =
        (tools(), Arc::new(ClientLabel { name: "b".into(), version: "1".into(), session: "s".into() }));
    let begin = Instant::now();
    for number in 0..1_000_000 {
        store.offer_span(span(number, &tools, &client));
        if number % 8_000 == 7_999 {
            assert!(store.flush(LONG));
        }
    }
    assert!(store.close(LONG));
    let left = Reader::open(path).unwrap().spans(&SpanFilter::default()).unwrap().len();
    let rate = 1e6 / begin.elapsed().as_secs_f64();
    println!(
        "1000000 spans with room for 100000: {left} left, {rate:.0} spans/s, {} bytes",
        std::fs::metadata(path).unwrap().len()
    );
}

fn best(mut run: impl FnMut()) -> Duration {
    let once = |run: &mut dyn FnMut()| {
        let begin = Instant::now();
        run();
        begin.elapsed()
    };
    (0..5).map(|_| once(&mut run)).min().unwrap()
}

fn tools() -> Vec<Arc<str>> {
    (0..200).map(|number| format!("s{}:tool{}", number % 20, number / 20).into()).collect()
}

fn span(number: u64, tools: &[Arc<str>], client: &Arc<ClientLabel>) -> Span {
    let (sample, is_failed) = (sample_span(number), number.is_multiple_of(50));
    Span {
        context: SpanContext { span_id: SpanId(sample.context.trace_id.0 as u64 | 1), ..sample.context },
        client: Some(client.clone()),
        name: if number == 17 { "s0:rare".into() } else { tools[number as usize * 7 % tools.len()].clone() },
        duration: 100 + number % 5_000,
        outcome: if is_failed { Outcome::Error } else { Outcome::Ok },
        code: is_failed.then(|| "PROVIDER_TIMEOUT".into()),
        message: is_failed.then(|| "the server did not respond within 30 s".into()),
        ..sample
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
