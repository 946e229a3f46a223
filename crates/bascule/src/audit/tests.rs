//! Properties of the log: every change is found, and every interruption is survived.

use std::fs;
use std::path::{Path, PathBuf};

use bascule_model::{CorrelationId, ToolId};
use futures_util::FutureExt;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::chain::ChainPosition;
use super::verify::verify_around;
use super::*;

const ENTRIES: usize = 12;
/// The entries, and the first line of the chain.
const LINES: usize = ENTRIES + 1;

/// A log in a folder of its own.
struct Log {
    _folder: TempDir,
    path: PathBuf,
}

impl Log {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        Self { _folder: folder, path }
    }

    /// A log of [`LINES`] lines that two runs have written.
    fn filled() -> Self {
        let log = Self::new();
        for _ in 0..2 {
            let mut file = log.file();
            (0..ENTRIES / 4).for_each(|_| file.append(&[&entry(), &entry()], 0).unwrap());
        }
        log
    }

    fn file(&self) -> AuditFile {
        AuditFile::new(self.path.clone(), Some("/c/mcp.json".into()), false)
    }

    fn append(&self) -> io::Result<()> {
        self.file().append(&[&entry()], 0)
    }

    fn text(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        self.text().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    fn parsed(&self) -> Vec<Value> {
        self.lines().iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    fn verified(&self) -> Verified {
        verify(&self.path).unwrap().unwrap()
    }

    /// Replaces the content, and returns the line of the fault and its reason.
    fn fault_of(&self, text: &[u8]) -> (Option<u64>, String) {
        fs::write(&self.path, text).unwrap();
        let fault = verify(&self.path).unwrap().expect_err("the change is found");
        (fault.line, fault.reason)
    }

    fn head(&self) -> PathBuf {
        head_path(&self.path)
    }
}

fn entry() -> AuditEntry {
    let record = CallRecord::testing(ToolId::parse("s:x").unwrap(), CorrelationId::parse("c").unwrap());
    AuditEntry::new(LineKind::Begin, &record, &RawValue::from_string(r#"{"pin":"1234"}"#.into()).unwrap())
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).unwrap()) & 0o777
}

// req: TR-01
#[test]
fn next_run_continues_the_chain() {
    let log = Log::filled();
    let verified = log.verified();
    assert_eq!((verified.lines, verified.interrupted, verified.uncounted), (LINES as u64, 0, 0));
    let lines = log.parsed();
    assert_eq!((&lines[0]["kind"], &lines[0]["configuration"]), (&"chain".into(), &"/c/mcp.json".into()));
    assert_eq!(lines[0]["chain"], verified.chain);
    assert!((0..).zip(&lines).all(|(number, line)| line["seq"] == number));
    assert_eq!((mode(&log.path), mode(&log.head())), (0o600, 0o600));
}

// req: TR-01
#[test]
fn arguments_cannot_be_guessed_from_their_digest() {
    let (one, other) = (Log::filled(), Log::filled());
    let digest = |log: &Log, line: usize| log.parsed()[line]["argumentsHmac"].clone();
    assert_eq!(digest(&one, 1), digest(&one, 2));
    assert_ne!(digest(&one, 1), digest(&other, 1), "each chain has a key of its own");
    assert_eq!(digest(&one, 1).as_str().unwrap().len(), 64);
    assert!(!String::from_utf8(one.text()).unwrap().contains("1234"));
}

// req: TR-01
#[test]
fn log_without_its_side_file_is_refused_and_reported() {
    let log = Log::filled();
    fs::remove_file(log.head()).unwrap();
    assert!(verify(&log.path).unwrap().unwrap_err().reason.contains("is missing"));
    assert!(log.append().unwrap_err().to_string().contains("bascule audit verify"));
}

// req: TR-01
#[test]
fn log_whose_end_was_cut_is_not_continued() {
    let log = Log::filled();
    let lines = log.lines();
    fs::write(&log.path, lines[..LINES - 1].concat()).unwrap();
    assert!(log.append().unwrap_err().to_string().contains("its end was cut off"));
    // Lines of the right length in their place.
    let other = lines[..LINES - 1].concat().into_iter().chain(vec![b' '; lines[LINES - 1].len()]);
    fs::write(&log.path, other.collect::<Vec<u8>>()).unwrap();
    assert!(log.append().unwrap_err().to_string().contains("does not end as its side file says"));
}

// req: TR-01
#[test]
fn lines_of_a_killed_process_are_counted_later() {
    let log = Log::filled();
    let head = fs::read(log.head()).unwrap();
    log.append().unwrap();
    log.append().unwrap();
    fs::write(log.head(), head).unwrap();
    assert_eq!(log.verified().uncounted, 2);
    log.append().unwrap();
    let verified = log.verified();
    assert_eq!((verified.lines, verified.uncounted), (LINES as u64 + 3, 0));
}

// req: TR-01
#[test]
fn lines_that_do_not_continue_the_chain_are_not_continued() {
    let log = Log::filled();
    let text = [log.text(), log.lines()[1].clone()].concat();
    fs::write(&log.path, text).unwrap();
    assert!(log.append().unwrap_err().to_string().contains("do not continue the chain"));
}

// req: TR-01
#[test]
fn new_chain_begins_where_both_files_were_moved_away() {
    let log = Log::filled();
    let (first, mut file) = (log.verified().chain, log.file());
    file.append(&[&entry()], 0).unwrap();
    let aside = log.path.with_file_name("old");
    fs::rename(&log.path, &aside).unwrap();
    fs::rename(log.head(), head_path(&aside)).unwrap();
    file.append(&[&entry()], 0).unwrap();
    assert_ne!(log.verified().chain, first);
    assert_eq!((log.verified().lines, verify(&aside).unwrap().unwrap().lines), (2, LINES as u64 + 1));
}

// req: TR-01
#[test]
fn another_chain_or_key_in_the_side_file_is_found() {
    for name in ["chain", "key"] {
        let log = Log::filled();
        let mut head: Value = serde_json::from_slice(&fs::read(log.head()).unwrap()).unwrap();
        let changed = head[name].as_str().unwrap().chars().rev().collect::<String>();
        head[name] = changed.into();
        let text = head.to_string();
        fs::write(log.head(), format!("{text:<511}\n")).unwrap();
        let fault = verify(&log.path).unwrap().expect_err("the change is found");
        assert!(fault.reason.contains("do not belong together"), "{}", fault.reason);
        assert!(log.append().unwrap_err().to_string().contains("bascule audit verify"));
    }
}

// req: TR-01
#[test]
fn log_of_an_earlier_version_is_verified_and_continued() {
    let log = Log::filled();
    let mut head: Value = serde_json::from_slice(&fs::read(log.head()).unwrap()).unwrap();
    // A chain whose first line has no digest of the key.
    let (mut position, mut text) = (ChainPosition::START, Vec::new());
    let chain = head["chain"].as_str().unwrap();
    position.seal(&format!(r#""kind":"chain","version":1,"chain":"{chain}""#), &mut text);
    fs::write(&log.path, &text).unwrap();
    head["lines"] = 1.into();
    head["bytes"] = text.len().into();
    head["hash"] = String::from_utf8_lossy(&position.hash).into();
    let head = head.to_string();
    fs::write(log.head(), format!("{head:<511}\n")).unwrap();
    log.append().unwrap();
    assert_eq!(log.verified().lines, 2);
}

// req: TR-01
#[test]
fn lost_lines_are_counted_in_the_log() {
    let log = Log::filled();
    log.file().append(&[&entry()], 3).unwrap();
    let lines = log.parsed();
    assert_eq!((&lines[LINES]["kind"], &lines[LINES]["lines"]), (&"lost".into(), &3.into()));
    assert_eq!(log.verified().lines, LINES as u64 + 2);
}

// req: TR-01
#[tokio::test]
async fn arguments_in_the_queue_have_a_bound_of_bytes() {
    let (jobs, queue) = channel();
    let log = AuditLog::with_writer("log".into(), jobs, Arc::default());
    let record = CallRecord::testing(ToolId::parse("s:x").unwrap(), CorrelationId::parse("c").unwrap());
    let length = (MAX_ARGUMENTS_KIB as usize) << 10;
    let large = RawValue::from_string(format!("\"{}\"", "x".repeat(length / 4 * 3))).unwrap();
    let small = RawValue::from_string("{}".into()).unwrap();
    let (_ticket, _line) = log.begin(&record, &large).await.unwrap();
    let longest = RawValue::from_string(format!("\"{}\"", "x".repeat(length))).unwrap();
    assert!(log.begin(&record, &large).now_or_never().is_none(), "it waits");
    assert!(log.end(&record, &large, None).is_none() && log.end(&record, &small, None).is_some());
    assert_eq!(log.dropped.load(Ordering::Relaxed), 1);
    assert_eq!(queue.try_iter().count(), 2);
    // Written: the longest arguments have room, however long they are.
    let begun = log.begin(&record, &longest).now_or_never();
    let (_ticket, _line) = begun.expect("there is room").unwrap();
    assert!(log.end(&record, &small, None).is_some(), "no room is left, and a short refusal needs none");
}

// req: TR-01
#[test]
fn line_that_is_written_or_repaired_meanwhile_is_no_fault() {
    let log = Log::filled();
    let fragment = b"{\"seq\":9,\"kind\":\"beg";
    // A bridge was killed within its write, and another one repairs that.
    fs::write(&log.path, [log.text(), fragment.to_vec()].concat()).unwrap();
    let verified = verify_around(&log.path, || log.append().unwrap()).unwrap().unwrap();
    assert_eq!((verified.lines, verified.interrupted, verified.is_incomplete), (LINES as u64 + 2, 1, false));
    // A write of two lines has failed after the first, and was undone.
    let before = log.text();
    let head = fs::read(log.head()).unwrap();
    log.append().unwrap();
    fs::write(log.head(), head).unwrap();
    let undo = || fs::write(&log.path, &before).unwrap();
    let verified = verify_around(&log.path, undo).unwrap().unwrap();
    assert_eq!((verified.lines, verified.interrupted), (LINES as u64 + 2, 1));
}

// req: TR-01
#[test]
fn concurrent_writers_share_one_chain() {
    let log = Log::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut file = log.file();
                (0..50).for_each(|_| file.append(&[&entry()], 0).unwrap());
            });
        }
    });
    assert_eq!(log.verified().lines, 201);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // req: TR-01
    #[test]
    fn any_changed_byte_is_found(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let log = Log::filled();
        let (mut text, at) = (log.text(), at.index(log.text().len()));
        prop_assume!(text[at] != byte);
        let line = text[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        text[at] = byte;
        // A removed line break at the end leaves an incomplete line.
        prop_assert_eq!(log.fault_of(&text).0, Some(line));
    }

    // req: TR-01
    #[test]
    fn any_removed_line_is_found(at in 0..LINES) {
        let log = Log::filled();
        let mut lines = log.lines();
        lines.remove(at);
        let (line, reason) = log.fault_of(&lines.concat());
        prop_assert_eq!(line, Some(at as u64 + 1));
        let expected = if at == LINES - 1 { "the end was cut off" } else { "lines are missing" };
        prop_assert!(reason.contains(expected), "{}", reason);
    }

    // req: TR-01
    #[test]
    fn any_inserted_line_is_found(from in 0..LINES, to in 0..=LINES) {
        let log = Log::filled();
        let mut lines = log.lines();
        lines.insert(to, lines[from].clone());
        // A line that is repeated behind itself is found at the second.
        let expected = if from == to { to + 2 } else { to + 1 };
        prop_assert_eq!(log.fault_of(&lines.concat()).0, Some(expected as u64));
    }

    // req: TR-01
    #[test]
    fn any_two_swapped_lines_are_found(one in 0..LINES, other in 0..LINES) {
        prop_assume!(one != other);
        let log = Log::filled();
        let mut lines = log.lines();
        lines.swap(one, other);
        prop_assert_eq!(log.fault_of(&lines.concat()).0, Some(one.min(other) as u64 + 1));
    }

    // req: TR-01
    #[test]
    fn any_cut_of_the_end_is_found(at in any::<prop::sample::Index>()) {
        let log = Log::filled();
        let text = &log.text()[..at.index(log.text().len())];
        let line = text.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let (found, reason) = log.fault_of(text);
        prop_assert_eq!(found, Some(line));
        prop_assert!(reason.contains("the end was cut off"), "{}", reason);
    }

    // req: TR-01
    #[test]
    fn incomplete_line_is_reported_and_then_recorded(kept in any::<prop::sample::Index>()) {
        let log = Log::filled();
        let head = fs::read(log.head()).unwrap();
        let before = log.text().len();
        log.append().unwrap();
        let line = log.text().len() - before;
        // A process was killed within its write.
        let text = &log.text()[..before + 1 + kept.index(line - 1)];
        fs::write(&log.path, text).unwrap();
        fs::write(log.head(), head).unwrap();
        let verified = log.verified();
        prop_assert_eq!((verified.lines, verified.is_incomplete), (LINES as u64, true));
        log.append().unwrap();
        let verified = log.verified();
        prop_assert_eq!((verified.lines, verified.is_incomplete, verified.interrupted), (LINES as u64 + 2, false, 1));
        prop_assert_eq!(&log.parsed()[LINES]["removedBytes"], text.len() - before);
    }
}
