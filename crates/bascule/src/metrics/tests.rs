//! Tests of the names under which calls are counted.

use bascule_model::{CorrelationId, Delivery, ErrorCode};

use super::*;

fn refused(tool: &str) -> CallRecord {
    let mut record = CallRecord::testing(ToolId::parse(tool).unwrap(), CorrelationId::parse("c").unwrap());
    let result = RecordedResult::Failed {
        code: ErrorCode::ToolNotFound,
        retryable: false,
        delivery: Delivery::NotSent,
        message: String::new(),
    };
    record.end = Some(CallEnd { duration: Duration::ZERO, result });
    record
}

fn counts(metrics: &CallMetrics) -> Vec<(String, u64)> {
    let tools = metrics.tools.load();
    let mut all: Vec<_> =
        tools.iter().map(|(id, series)| (id.to_string(), series.counts().total().calls())).collect();
    all.sort();
    all
}

// req: TR-01
#[test]
fn names_that_callers_invent_get_no_counters_of_their_own() {
    let metrics = CallMetrics::default();
    metrics.server(&ServerName::parse("clock").unwrap());
    for number in 0..100 {
        metrics.on_end(&refused(&format!("clock:invented{number}")));
        metrics.on_end(&refused(&format!("server{number}:now")));
    }
    assert_eq!(counts(&metrics), [("clock:other".to_owned(), 100), ("other:other".to_owned(), 100)]);
}

// req: TR-01
#[test]
fn tools_beyond_the_limit_are_counted_together() {
    let metrics = CallMetrics::default();
    assert!(metrics.has_room("x") && !metrics.has_room("a\rb") && !metrics.has_room(&"x".repeat(129)));
    for number in 0..MAX_TOOLS {
        entry(&metrics.tools, &ToolId::parse(&format!("clock:t{number}")).unwrap());
    }
    assert!(!metrics.has_room("x"));
}

// req: TR-01
#[test]
fn server_load_counts_until_the_end_of_the_call() {
    let metrics = CallMetrics::default();
    let name = ServerName::parse("clock").unwrap();
    let (one, same) = (metrics.server(&name), metrics.server(&name));
    let call = one.count_in_flight();
    assert_eq!(same.in_flight.load(Ordering::Relaxed), 1);
    drop(call);
    assert_eq!(same.in_flight.load(Ordering::Relaxed), 0);
}
