//! The graph of tools in the store: real files, several writers, a file of an earlier version, a disk that fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use bascule_graph::{CallSession, EdgeKind, FingerprintKey, GraphRows};
use bascule_model::{CorrelationId, SpanContext, SpanId, TraceId};
use bascule_store::{ObservedCall, Reader, Retention, Span, SpanFilter, Store};
use support::{now, sample_span};

const LONG: Duration = Duration::from_secs(30);

/// Microseconds since 1970. The store removes old spans.
static BEGIN: LazyLock<i64> = LazyLock::new(|| now() - 1_000_000);

/// A call that begins when the one with the number before it has ended.
fn span(number: u64, tool: &str) -> Span {
    Span {
        context: SpanContext { trace_id: TraceId(1), span_id: SpanId(number + 1), parent: None },
        client: None,
        correlation_id: CorrelationId::from_random(number.into()),
        name: tool.into(),
        started_at: *BEGIN + (number * 10) as i64,
        duration: 5,
        ..sample_span(number)
    }
}

fn store_at(path: &Path) -> Store {
    Store::with_graph(path.to_owned(), Retention::default(), FingerprintKey::new([7; 16])).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.db");
    (folder, path)
}

/// Two calls of a session: `a:make` returns a value that `b:use` is given.
fn offer_pair(store: &Store, session: u64) {
    let (session, first) = (CallSession::Client(session), session * 2);
    let made = ObservedCall::new(session.clone(), None, Some("{}"), Some(r#"{"id":"basilisk-48213"}"#));
    store.offer_call(span(first, "a:make"), made);
    let used = ObservedCall::new(session, None, Some(r#"{"of":"basilisk-48213"}"#), Some("{}"));
    store.offer_call(span(first + 1, "b:use"), used);
}

fn read(path: &Path) -> GraphRows {
    Reader::open(path).unwrap().graph().unwrap()
}

fn counts(rows: &GraphRows) -> (Vec<u64>, Vec<(EdgeKind, u64)>) {
    let edges = rows.edges.iter().map(|edge| (edge.kind, edge.count));
    let mut edges: Vec<(EdgeKind, u64)> = edges.collect();
    edges.sort_unstable();
    (rows.nodes.iter().map(|node| node.calls).collect(), edges)
}

fn each_kind(count: u64) -> Vec<(EdgeKind, u64)> {
    EdgeKind::ALL.into_iter().map(|kind| (kind, count)).collect()
}

// req: TR-03
#[test]
fn flush_saves_the_graph() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    offer_pair(&store, 1);
    assert!(store.flush(LONG));
    assert_eq!(counts(&read(&path)), (vec![1, 1], each_kind(1)));
    store.end_session(CallSession::Client(1));
    offer_pair(&store, 2);
    assert!(store.close(LONG));
    assert_eq!(counts(&read(&path)), (vec![2, 2], each_kind(2)));
}

// req: TR-03
#[test]
fn graph_is_saved_without_a_request() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    offer_pair(&store, 1);
    let end = std::time::Instant::now() + LONG;
    while !Reader::open(&path).is_ok_and(|reader| !reader.graph().unwrap().nodes.is_empty()) {
        assert!(std::time::Instant::now() < end, "the graph is not saved");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(counts(&read(&path)), (vec![1, 1], each_kind(1)));
}

// req: TR-03
#[test]
fn stores_on_one_file_add_up_over_restarts() {
    let (_folder, path) = folder();
    for round in 1..=3 {
        let stores = [store_at(&path), store_at(&path)];
        std::thread::scope(|scope| {
            for store in &stores {
                scope.spawn(|| (0..20).for_each(|session| offer_pair(store, session)));
            }
        });
        assert!(stores.iter().all(|store| store.close(LONG)));
        assert_eq!(counts(&read(&path)), (vec![round * 40, round * 40], each_kind(round * 40)));
    }
}

// req: TR-03
#[test]
fn file_of_an_earlier_version_is_read_and_extended() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(span(1, "a:make"));
    assert!(store.close(LONG));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("DROP TABLE graph_nodes; DROP TABLE graph_edges; PRAGMA user_version = 1")
        .unwrap();
    drop(connection);
    assert_eq!(read(&path), GraphRows::default());
    assert_eq!(Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap().len(), 1);
    let store = store_at(&path);
    offer_pair(&store, 1);
    assert!(store.close(LONG));
    assert_eq!(counts(&read(&path)), (vec![1, 1], each_kind(1)));
    assert_eq!(Reader::open(&path).unwrap().spans(&SpanFilter::default()).unwrap().len(), 3);
}

// req: TR-02
#[test]
fn store_without_a_key_has_no_graph() {
    let (_folder, path) = folder();
    let store = Store::new(path.clone(), Retention::default()).unwrap();
    offer_pair(&store, 1);
    assert!(store.close(LONG));
    assert_eq!(read(&path), GraphRows::default());
    assert_eq!(Reader::open(&path).unwrap().dropped_values().unwrap(), 0);
}

// req: TR-02
#[test]
fn session_that_ends_without_calls_leaves_no_file() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.end_session(CallSession::Client(1));
    assert!(store.flush(LONG) && store.close(LONG));
    assert!(!path.exists());
}

// req: TR-02
#[test]
fn ended_session_is_forgotten() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    let call = |text: &str| ObservedCall::new(CallSession::Client(1), None, Some(text), Some(text));
    store.offer_call(span(1, "a:make"), call(r#"["basilisk-48213"]"#));
    store.end_session(CallSession::Client(1));
    assert!(store.flush(LONG));
    store.offer_call(span(2, "b:use"), call(r#"["basilisk-48213"]"#));
    assert!(store.close(LONG));
    assert_eq!(counts(&read(&path)), (vec![1, 1], vec![]));
}

// req: TR-02
#[test]
fn calls_without_a_session_have_no_relation() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    for (number, tool) in [(1, "a:make"), (2, "b:use")] {
        let call = ObservedCall::new(CallSession::Single, None, Some(r#"["basilisk-48213"]"#), None);
        store.offer_call(span(number, tool), call);
    }
    assert!(store.close(LONG));
    assert_eq!(counts(&read(&path)), (vec![1, 1], vec![]));
}

// req: TR-02
#[test]
fn failed_save_is_made_up_for() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    offer_pair(&store, 1);
    assert!(store.flush(LONG));
    // A trigger makes writes to the tables of the graph fail, and no others.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.busy_timeout(LONG).unwrap();
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON graph_edges BEGIN SELECT RAISE(ABORT, 'refused'); END";
    connection.execute_batch(refuse).unwrap();
    offer_pair(&store, 2);
    assert!(store.flush(LONG));
    assert_eq!(counts(&read(&path)), (vec![1, 1], each_kind(1)), "nothing of a failed save is there");
    connection.execute_batch("DROP TRIGGER refuse").unwrap();
    drop(connection);
    assert!(store.close(LONG));
    drop(store);
    assert_eq!(counts(&read(&path)), (vec![2, 2], each_kind(2)), "the last save has it");
}
