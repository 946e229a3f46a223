//! The store as its users see it: real files, real writers, damage, limits.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bascule_model::{CorrelationId, Delivery, SpanContext, SpanId};
use bascule_store::{
    CapturableContent, Captured, ClientLabel, Face, Found, Isolation, LogFilter, LogLine, LogSource, Outcome,
    Reader, Retention, Span, SpanFilter, SpanKind, Store,
};
use support::{now, sample_span};

const LONG: Duration = Duration::from_secs(30);

fn refused(number: u64) -> Span {
    Span {
        name: "files:nothing".into(),
        isolation: None,
        attempts: 0,
        result_bytes: None,
        outcome: Outcome::Error,
        code: Some("TOOL_NOT_FOUND".into()),
        delivery: Some(Delivery::NotSent),
        message: Some("there is no tool".into()),
        correlation_id: CorrelationId::parse(&format!("order-{number}")).unwrap(),
        ..sample_span(number)
    }
}

fn store_at(path: &Path) -> Store {
    Store::new(path.to_owned(), Retention::default()).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/traces.db");
    (folder, path)
}

fn read(path: &Path) -> Vec<Span> {
    let mut reader = Reader::open(path).unwrap();
    reader.spans(&SpanFilter::default()).unwrap().into_iter().map(|(_, span)| span).collect()
}

// req: TR-01
#[test]
fn spans_survive_the_store_and_are_private() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(sample_span(1));
    store.offer_span(refused(2));
    assert!(store.close(LONG));
    assert_eq!((store.status().written, store.status().dropped), (2, 0));
    let spans = read(&path);
    assert_eq!(spans.len(), 2);
    assert_eq!((&*spans[0].name, &*spans[1].name), ("files:nothing", "files:read"));
    assert_eq!(spans[0].code.as_deref(), Some("TOOL_NOT_FOUND"));
    assert_eq!(spans[1].correlation_id.as_str(), spans[1].context.trace_id.to_string());
    assert_eq!(spans[1].client.as_ref().unwrap().name, "c");
    assert_eq!((spans[1].delivery, spans[1].result_bytes), (Some(Delivery::Answered), Some(20)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

// req: TR-01
#[test]
fn every_column_of_a_span_is_read_as_it_was_written() {
    let ordinary = sample_span(1);
    let parent = Some(SpanId(77));
    // Each differs from an ordinary call in one column.
    let written = [
        ordinary.clone(),
        Span { client: None, face: Face::Cli, ..sample_span(2) },
        Span { agent: Some("research".into()), face: Face::Bus, ..sample_span(3) },
        Span { correlation_id: CorrelationId::parse("order-4").unwrap(), ..sample_span(4) },
        Span { context: SpanContext { parent, ..sample_span(5).context }, ..sample_span(5) },
        Span { outcome: Outcome::ToolError, ..sample_span(6) },
        Span { code: Some("X".into()), ..sample_span(7) },
        Span { message: Some("a hint".into()), ..sample_span(8) },
        Span { delivery: None, ..sample_span(9) },
        Span { delivery: Some(Delivery::Unknown), ..sample_span(10) },
        Span { isolation: Some(Isolation::PerCall), attempts: 3, result_bytes: None, ..sample_span(11) },
        Span { kind: SpanKind::Script, isolation: None, ..sample_span(12) },
    ];
    let (_folder, path) = folder();
    let store = store_at(&path);
    written.iter().for_each(|span| store.offer_span(span.clone()));
    assert!(store.close(LONG));
    let columns = |span: &Span| {
        let Span { context, kind, face, client, agent, correlation_id, name, started_at, duration, .. } =
            span;
        let Span { waited, attempts, isolation, argument_bytes, result_bytes, .. } = span;
        let Span { outcome, code, delivery, message, .. } = span;
        let identity = format!("{context:?} {kind} {face} {client:?} {agent:?} {correlation_id} {name}");
        let measures = format!("{started_at} {duration} {waited} {attempts} {isolation:?} {argument_bytes}");
        format!("{identity} {measures} {result_bytes:?} {outcome} {code:?} {delivery:?} {message:?}")
    };
    let read: Vec<String> = read(&path).iter().rev().map(columns).collect();
    assert_eq!(read, written.iter().map(columns).collect::<Vec<_>>());
}

// req: TR-01
#[test]
fn finds_a_trace_by_any_of_its_ids_or_a_beginning() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    let script = Span { kind: SpanKind::Script, name: "a.ts".into(), isolation: None, ..sample_span(7) };
    let mut call = sample_span(8);
    call.context =
        SpanContext { parent: Some(script.context.span_id), span_id: SpanId(u64::MAX - 5), ..script.context };
    call.correlation_id = CorrelationId::parse("mine-1").unwrap();
    let (trace, other) = (script.context.trace_id.to_string(), refused(9));
    [script, call, other].into_iter().for_each(|span| store.offer_span(span));
    assert!(store.close(LONG));
    let mut reader = Reader::open(&path).unwrap();
    for id in [&*trace, &trace[..20], &trace[..9], "mine-1", "min", "fffffffffffffffa", "ffffffff"] {
        let Found::Trace(spans) = reader.find(id).unwrap() else { panic!("{id}") };
        let kinds: Vec<_> = spans.iter().map(|span| span.kind.as_str()).collect();
        assert_eq!(kinds, ["script", "call"], "{id}");
        assert_eq!(spans[1].context.parent, Some(spans[0].context.span_id));
    }
    assert!(matches!(reader.find("nothing").unwrap(), Found::Nothing));
    assert!(matches!(reader.find("00000000000000").unwrap(), Found::Ambiguous(traces) if traces.len() == 2));
}

// req: TR-01
#[test]
fn filters_spans_and_counts_them_by_tool() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    (0..100).for_each(|number| store.offer_span(sample_span(number)));
    store.offer_span(Span { name: "web:get".into(), outcome: Outcome::ToolError, ..sample_span(500) });
    store.offer_span(refused(600));
    assert!(store.close(LONG));
    let mut reader = Reader::open(&path).unwrap();
    let mut count = |filter: SpanFilter| reader.spans(&filter).unwrap().len();
    let all = SpanFilter::default;
    assert_eq!(count(SpanFilter { tool: Some("files:read".into()), ..all() }), 100);
    assert_eq!(count(SpanFilter { tool: Some("get".into()), ..all() }), 1);
    assert_eq!(count(SpanFilter { tool: Some("files:nothing".into()), ..all() }), 1);
    assert_eq!(count(SpanFilter { server: Some("files".into()), ..all() }), 101);
    assert_eq!(count(SpanFilter { failed: true, ..all() }), 2);
    assert_eq!(count(SpanFilter { slower_than: Some(90), ..all() }), 12);
    assert_eq!(count(SpanFilter { since: Some(now() + 1_000_000), ..all() }), 0);
    assert_eq!(count(SpanFilter { limit: Some(7), ..all() }), 7);
    assert_eq!(count(SpanFilter { after: Some(100), ..all() }), 2);
    let statistics = reader.statistics(&all()).unwrap();
    let files = &statistics[0];
    assert_eq!((&*files.tool, files.calls, files.errors), ("files:read", 100, 0));
    assert_eq!((files.p50, files.p95, files.p99, files.max), (49, 94, 98, 99));
    assert_eq!(statistics.iter().map(|tool| tool.errors + tool.tool_errors).sum::<u64>(), 2);
}

// req: TR-01
#[test]
fn damaged_file_is_set_aside() {
    for damage in ["text", "header", "pages"] {
        let (_folder, path) = folder();
        let store = store_at(&path);
        (0..2_000).for_each(|number| store.offer_span(sample_span(number)));
        assert!(store.close(LONG));
        drop(store);
        match damage {
            "text" => fs::write(&path, "this is no database, and it is long enough to be looked at").unwrap(),
            position => {
                let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                let length = file.metadata().unwrap().len();
                file.seek(SeekFrom::Start(if position == "header" { 0 } else { 4096 })).unwrap();
                file.write_all(&vec![0xAB; length as usize - 4096]).unwrap();
            }
        }
        let store = store_at(&path);
        store.offer_span(sample_span(1));
        assert!(store.close(LONG));
        assert_eq!((store.status().stopped, store.status().written), (None, 1), "{damage}");
        assert_eq!(read(&path).len(), 1, "{damage}");
        let names = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        let aside = names.filter(|name| name.to_string_lossy().contains(".db.damaged-")).count();
        assert!(aside >= 1, "{damage}");
    }
}

// req: TR-01
#[test]
fn unusable_folder_stops_the_store_alone() {
    let (folder, _) = folder();
    let blocked = folder.path().join("file");
    fs::write(&blocked, "").unwrap();
    let store = store_at(&blocked.join("traces.db"));
    (0..10).for_each(|number| store.offer_span(sample_span(number)));
    assert!(store.flush(LONG));
    let status = store.status();
    assert_eq!((status.written, status.dropped), (0, 10));
    assert!(status.stopped.is_some());
}

// req: TR-01
#[test]
fn opens_no_pipe_in_place_of_a_file() {
    for suffix in ["", ".lock"] {
        let (_folder, path) = folder();
        let mut pipe = path.as_os_str().to_owned();
        pipe.push(suffix);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let is_made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success();
        assert!(is_made, "mkfifo of coreutils must work");
        let store = store_at(&path);
        store.offer_span(sample_span(1));
        assert!(store.flush(LONG), "{suffix}: the store waits for the other end of the pipe");
        assert!(store.status().stopped.is_some(), "{suffix}");
    }
}

// req: TR-01
#[test]
fn file_of_a_later_version_stays_untouched() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(sample_span(1));
    assert!(store.close(LONG));
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let store = store_at(&path);
    store.offer_span(sample_span(2));
    assert!(store.close(LONG));
    assert!(store.status().stopped.unwrap().contains("use a newer bascule"));
    assert!(Reader::open(&path).err().unwrap().to_string().contains("use a newer bascule"));
    let count = |connection: rusqlite::Connection| {
        connection.query_row("SELECT count(*) FROM spans", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(count(rusqlite::Connection::open(&path).unwrap()), 1);
}

// req: TR-01
#[test]
fn two_stores_write_one_file() {
    let (_folder, path) = folder();
    let write = |first: u64| {
        let path = path.clone();
        std::thread::spawn(move || {
            let store = store_at(&path);
            for number in first..first + 5_000 {
                store.offer_span(sample_span(number));
                if number.is_multiple_of(1_000) {
                    assert!(store.flush(LONG));
                }
            }
            assert!(store.close(LONG));
            store.status().written
        })
    };
    let (one, two) = (write(0), write(1_000_000));
    assert_eq!((one.join().unwrap(), two.join().unwrap()), (5_000, 5_000));
    assert_eq!(read(&path).len(), 10_000);
}

// req: TR-01
#[test]
fn keeps_to_the_limits_of_number_and_age() {
    let (_folder, path) = folder();
    let store = Store::new(path.clone(), Retention { max_spans: 1_000, ..Retention::default() }).unwrap();
    for number in 0..25_000 {
        store.offer_span(sample_span(number));
        if number % 5_000 == 4_999 {
            assert!(store.flush(LONG));
        }
    }
    assert!(store.close(LONG));
    let spans = read(&path);
    // The limits are applied once for 5,000 entries.
    assert!(spans.len() < 1_000 + 5_000, "{}", spans.len());
    assert_eq!(spans[0].context.span_id, SpanId(25_000));
    fs::remove_file(&path).unwrap();
    let store =
        Store::new(path.clone(), Retention { max_age: Duration::from_secs(60), ..Retention::default() })
            .unwrap();
    store.offer_span(Span { started_at: now() - 120_000_000, ..sample_span(1) });
    store.offer_span(sample_span(2));
    assert!(store.close(LONG));
    assert!(read(&path).iter().all(|span| span.started_at > now() - 100_000_000));
}

// req: TR-01
#[test]
fn keeps_to_the_limit_of_bytes() {
    let (_folder, path) = folder();
    let limit = 1 << 20;
    let store = Store::new(path.clone(), Retention { max_bytes: limit, ..Retention::default() }).unwrap();
    for number in 0..30_000 {
        store.offer_span(Span { message: Some("x".repeat(200)), ..sample_span(number) });
        if number % 5_000 == 4_999 {
            assert!(store.flush(LONG));
        }
    }
    assert!(store.close(LONG));
    let spans = read(&path);
    assert!((1_000..6_000).contains(&spans.len()), "{}", spans.len());
    assert_eq!(spans[0].context.span_id, SpanId(30_000));
}

// req: TR-01
#[test]
fn keeps_the_newest_lines_of_each_server() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    let line = |server: &str, number: usize| LogLine {
        server: server.into(),
        at: now(),
        source: LogSource::Stderr,
        level: None,
        text: format!("line {number}"),
    };
    store.offer_log(line("quiet", 0));
    (0..6_000).for_each(|number| store.offer_log(line("loud", number)));
    assert!(store.close(LONG));
    let mut reader = Reader::open(&path).unwrap();
    let filter = |server: &str| LogFilter { server: server.into(), after: None, since: None, limit: 10_000 };
    assert_eq!(reader.logs(&filter("quiet")).unwrap().len(), 1);
    let loud = reader.logs(&filter("loud")).unwrap();
    assert!((1_000..=5_000).contains(&loud.len()), "{}", loud.len());
    assert_eq!(loud.last().unwrap().1.text, "line 5999");
}

// req: TR-01
#[test]
fn filters_take_names_literally() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    for (number, name) in ["my_srv:get_x", "my-srv:get-x", "my%:x"].into_iter().enumerate() {
        store.offer_span(Span { name: name.into(), ..sample_span(number as u64) });
        store.offer_span(Span { name: name.into(), ..refused(number as u64) });
    }
    assert!(store.close(LONG));
    let mut reader = Reader::open(&path).unwrap();
    let mut count = |filter: SpanFilter| reader.spans(&filter).unwrap().len();
    for (name, expected) in [("get_x", 2), ("get-x", 2), ("x", 2), ("%", 0), ("GET_X", 0), ("_", 0)] {
        assert_eq!(
            count(SpanFilter { tool: Some(name.into()), ..SpanFilter::default() }),
            expected,
            "{name}"
        );
    }
    for (name, expected) in [("my_srv", 2), ("my-srv", 2), ("my%", 2), ("%", 0), ("MY_SRV", 0)] {
        assert_eq!(
            count(SpanFilter { server: Some(name.into()), ..SpanFilter::default() }),
            expected,
            "{name}"
        );
    }
}

/// Content that says during its capture whether another bridge could write to the file.
struct ObservingContent(PathBuf);

impl CapturableContent for ObservingContent {
    fn capture(&self) -> Captured {
        let other = rusqlite::Connection::open(&self.0).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        let written = other.execute_batch("BEGIN IMMEDIATE; COMMIT");
        Captured { arguments: Some(format!("{written:?}")), result: None }
    }

    fn redact_message(&self, message: &str) -> String {
        message.replace("hunter2", "***")
    }

    fn bytes(&self) -> usize {
        0
    }
}

// req: TR-01
#[test]
fn captures_contents_while_others_can_write() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(sample_span(1));
    assert!(store.flush(LONG));
    for number in 2..4 {
        store.offer_span(Span {
            content: Some(Arc::new(ObservingContent(path.clone()))),
            ..sample_span(number)
        });
    }
    assert!(store.close(LONG));
    for span in &read(&path)[..2] {
        assert_eq!(span.content.as_ref().unwrap().capture().arguments.as_deref(), Some("Ok(())"));
    }
}

fn name_lengths(path: &Path) -> Vec<i64> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement = connection.prepare("SELECT length(text) FROM names").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

// req: TR-01
#[test]
fn many_long_codes_do_not_displace_spans() {
    let (_folder, path) = folder();
    let retention = Retention { max_bytes: 1 << 20, ..Retention::default() };
    let (store, other) = (Store::new(path.clone(), retention).unwrap(), store_at(&path));
    other.offer_span(refused(0));
    assert!(other.flush(LONG));
    let coded = |number: u64| Span {
        code: Some(format!("{number}_{}", "X".repeat(1_000)).into()),
        ..refused(number)
    };
    for round in 0..11 {
        (0..1_000).for_each(|number| store.offer_span(coded(round * 1_000 + number)));
        assert!(store.flush(LONG));
    }
    // Names that were removed by one bridge are not taken for known by another.
    other.offer_span(refused(1));
    assert!(other.close(LONG) && store.close(LONG));
    let (spans, names) = (read(&path), name_lengths(&path));
    assert_eq!(spans[0].code.as_deref(), Some("TOOL_NOT_FOUND"));
    assert!(spans.len() > 300, "{}", spans.len());
    assert!(names.iter().all(|length| *length <= 512) && names.len() < 5_000, "{}", names.len());
    assert!(spans.iter().all(|span| span.code.is_some()));
}

// req: TR-01
#[test]
fn stores_messages_without_their_secrets() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(sample_span(0));
    assert!(store.flush(LONG));
    let content = Some(Arc::new(ObservingContent(path.clone())) as Arc<dyn CapturableContent>);
    store.offer_span(Span { message: Some("not hunter2".into()), content, ..sample_span(1) });
    assert!(store.close(LONG));
    assert_eq!(read(&path)[0].message.as_deref(), Some("not ***"));
}

/// Damages the first page of a table, which an append does not read.
fn damage_old_page(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT min(pageno) FROM dbstat WHERE name = 'spans' AND pagetype = 'leaf'";
    let page: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    drop(connection);
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start((page as u64 - 1) * 4_096)).unwrap();
    file.write_all(&[0xAB; 4_096]).unwrap();
}

fn damaged_files(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".db.damaged-")).collect()
}

// req: TR-01
#[test]
fn damage_that_only_retention_meets_is_set_aside() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    (0..2_000).for_each(|number| store.offer_span(sample_span(number)));
    assert!(store.close(LONG));
    damage_old_page(&path);
    let few = Retention { max_spans: 100, ..Retention::default() };
    let store = Store::new(path.clone(), few).unwrap();
    store.offer_span(sample_span(1));
    assert!(store.flush(LONG));
    store.offer_span(sample_span(2));
    assert!(store.close(LONG));
    assert_eq!(damaged_files(&path).len(), 1);
    assert_eq!(read(&path).len(), 1);
}

// req: TR-01
#[test]
fn keeps_one_damaged_file() {
    let (_folder, path) = folder();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for suffix in ["damaged-1", "damaged-1-wal", "damaged-2"] {
        fs::write(path.with_extension(format!("db.{suffix}")), "old").unwrap();
    }
    fs::write(&path, "this is no database, and it is long enough to be looked at").unwrap();
    let store = store_at(&path);
    store.offer_span(sample_span(1));
    assert!(store.close(LONG));
    let aside = damaged_files(&path);
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(fs::read_to_string(path.with_file_name(&aside[0])).unwrap().starts_with("this is no"));
}

// req: TR-01
#[test]
fn opens_no_file_that_another_bridge_sets_aside() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lock = fs::File::create(path.with_extension("db.lock")).unwrap();
    lock.lock().unwrap();
    store.offer_span(sample_span(1));
    assert!(!store.flush(Duration::from_millis(300)));
    drop(lock);
    assert!(store.close(LONG));
    assert_eq!(read(&path).len(), 1);
}

// req: TR-01
#[test]
fn returns_free_space_to_the_file_system() {
    let (_folder, path) = folder();
    let long = |number| Span { message: Some("x".repeat(1_000)), ..sample_span(number) };
    let store = store_at(&path);
    for round in 0..12 {
        (0..4_000).for_each(|number| store.offer_span(long(round * 4_000 + number)));
        assert!(store.flush(LONG));
    }
    assert!(store.close(LONG));
    let before = fs::metadata(&path).unwrap().len();
    let few = Retention { max_spans: 100, ..Retention::default() };
    let store = Store::new(path.clone(), few).unwrap();
    store.offer_span(sample_span(1));
    assert!(store.close(LONG));
    let after = fs::metadata(&path).unwrap().len();
    assert!(after + 4_000 * 4_096 <= before, "{before} {after}");
}

// req: TR-03
#[test]
fn stores_that_begin_one_file_at_once_lose_nothing() {
    for _ in 0..20 {
        let (_folder, path) = folder();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let path = &path;
                scope.spawn(move || {
                    let store = store_at(path);
                    store.offer_span(sample_span(number));
                    assert!(store.close(LONG));
                    assert_eq!(store.status().dropped, 0);
                });
            }
        });
        assert_eq!(read(&path).len(), 6);
    }
}

// req: TR-01
#[test]
fn goes_on_in_a_new_file_after_the_file_was_moved_or_removed() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(sample_span(0));
    assert!(store.flush(LONG));
    let moved = path.with_extension("old");
    fs::rename(&path, &moved).unwrap();
    let mut number = 1;
    // The path is looked at once a second.
    while !path.exists() {
        assert!(number < 600, "the store writes to a file without a name");
        store.offer_span(sample_span(number));
        assert!(store.flush(LONG));
        number += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    store.offer_span(sample_span(number));
    assert!(store.close(LONG));
    assert_eq!(read(&path)[0].context.span_id, SpanId(number + 1));
    assert_eq!(read(&moved).last().unwrap().context.span_id, SpanId(1));
    let reader = Reader::open(&path).unwrap();
    assert!(reader.is_current());
    fs::remove_file(&path).unwrap();
    assert!(!reader.is_current());
}

// req: TR-03
#[test]
fn idle_store_leaves_its_rows_in_the_file_that_was_moved() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    store.offer_span(sample_span(0));
    assert!(store.flush(LONG));
    let moved = path.with_extension("old");
    fs::rename(&path, &moved).unwrap();
    assert!(store.close(LONG));
    assert_eq!(read(&moved)[0].context.span_id, SpanId(1));
    assert!(!path.exists());
}

fn long_line(server: &str) -> LogLine {
    LogLine {
        server: server.into(),
        at: now(),
        source: LogSource::Stderr,
        level: None,
        text: "x".repeat(2_000),
    }
}

// req: TR-01
#[test]
fn log_lines_do_not_displace_spans() {
    let (_folder, path) = folder();
    let max_bytes = 1 << 20;
    let store = Store::new(path.clone(), Retention { max_bytes, ..Retention::default() }).unwrap();
    (0..500).for_each(|number| store.offer_span(sample_span(number)));
    assert!(store.flush(LONG));
    for server in 0..8 {
        (0..900).for_each(|_| store.offer_log(long_line(&format!("server{server}"))));
        assert!(store.flush(LONG));
    }
    assert!(store.close(LONG));
    // The limits are applied when a bridge opens the file, too.
    let store = Store::new(path.clone(), Retention { max_bytes, ..Retention::default() }).unwrap();
    store.offer_span(sample_span(500));
    assert!(store.close(LONG));
    assert_eq!(read(&path).len(), 501);
    let size = fs::metadata(&path).unwrap().len();
    assert!(size <= max_bytes, "{size}");
    let filter = |server: &str| LogFilter { server: server.into(), after: None, since: None, limit: 10_000 };
    assert!(!Reader::open(&path).unwrap().logs(&filter("server7")).unwrap().is_empty());
}

// req: TR-01
#[test]
fn a_short_run_forgets_old_clients_and_tells_other_bridges() {
    let (_folder, path) = folder();
    let client = |session: &str| {
        Some(Arc::new(ClientLabel { name: "c".into(), version: "1".into(), session: session.into() }))
    };
    let other = store_at(&path);
    other.offer_span(Span { client: client("old"), ..sample_span(0) });
    other.offer_span(Span { client: client("new"), ..sample_span(1) });
    assert!(other.flush(LONG));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DELETE FROM spans WHERE id = 1; UPDATE clients SET seen = 1;
             DELETE FROM counters WHERE name = 'forgot_at'",
        )
        .unwrap();
    let store = store_at(&path);
    store.offer_span(Span { client: client("new"), ..sample_span(2) });
    assert!(store.close(LONG));
    let clients = "SELECT count(*) FROM clients WHERE session = 'old'";
    assert_eq!(connection.query_row(clients, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    other.offer_span(Span { client: client("old"), ..sample_span(3) });
    assert!(other.close(LONG));
    assert_eq!(read(&path)[0].client, client("old"));
}

// req: TR-01
#[test]
fn file_without_its_tables_is_set_aside() {
    for table in ["spans", "graph_nodes"] {
        let (_folder, path) = folder();
        let store = store_at(&path);
        store.offer_span(sample_span(0));
        assert!(store.close(LONG));
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(&format!("DROP TABLE {table}")).unwrap();
        drop(connection);
        let store = store_at(&path);
        store.offer_span(sample_span(1));
        assert!(store.close(LONG));
        assert_eq!(damaged_files(&path).len(), 1, "{table}");
        assert_eq!(read(&path).len(), 1);
    }
}

// req: TR-01
#[test]
fn correlation_id_that_was_used_twice_finds_both_traces() {
    let (_folder, path) = folder();
    let store = store_at(&path);
    let id = CorrelationId::parse("order-1").unwrap();
    (0..15).for_each(|number| store.offer_span(Span { correlation_id: id.clone(), ..sample_span(number) }));
    assert!(store.close(LONG));
    let mut reader = Reader::open(&path).unwrap();
    let Found::Correlated(traces) = reader.find("order-1").unwrap() else { panic!("both are found") };
    let ids: Vec<u64> = traces.iter().map(|spans| spans[0].context.span_id.0).collect();
    assert_eq!(ids, (6..=15).rev().collect::<Vec<_>>(), "the newest ten");
    let of = |id: &str| SpanFilter { correlation_id: Some(id.into()), ..SpanFilter::default() };
    assert_eq!(reader.spans(&of("order-1")).unwrap().len(), 15);
    assert!(reader.spans(&of("order")).unwrap().is_empty());
}
