//! The lines that a server writes for people, to its stderr and as log messages of MCP: kept in the store, bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bascule_mcp::{StderrSink, patch};
use bascule_model::clip;
use bascule_store::LogSource;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::capture::{CaptureRules, MAX_KEPT_TEXT, MAX_READ_TEXT};
use crate::config::ServerSettings;
use crate::post_mortem::secrets_of;
use crate::redaction::SecretForms;
use crate::trace_recorder::TraceRecorder;

/// A longer line is cut, after its secrets are hidden.
const MAX_LINE: usize = MAX_KEPT_TEXT;
/// The part of a line in which secrets are searched for.
const MAX_READ: usize = MAX_READ_TEXT;
/// The lines that a server may write at once, and each second. The others are counted.
const BURST: f64 = 500.0;
const PER_SECOND: f64 = 50.0;
/// The last lines of a burst that are kept all the same: they often have the reason for an end.
const LAST_LINES: usize = 20;

/// A burst is over if all lines of this time were allowed.
const BURST_END: Duration = Duration::from_secs(1);

/// The output of one connection.
pub(crate) struct ServerOutput {
    server: Arc<str>,
    secrets: SecretForms,
    traces: Arc<TraceRecorder>,
    burst: Mutex<Burst>,
    runtime: Handle,
    /// Ends the current burst.
    timer: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct OutputLine {
    source: LogSource,
    level: Option<String>,
    /// The name of the logger.
    prefix: Option<String>,
    text: String,
}

impl ServerOutput {
    pub(crate) fn new(settings: &ServerSettings, traces: &Arc<TraceRecorder>) -> Arc<Self> {
        Arc::new(Self {
            server: settings.name.as_str().into(),
            secrets: secrets_of(settings),
            traces: traces.clone(),
            burst: Mutex::new(Burst::new(Instant::now())),
            runtime: Handle::current(),
            timer: Mutex::new(None),
        })
    }

    /// Returns a sink for the bytes of stderr.
    pub(crate) fn stderr_sink(self: &Arc<Self>) -> StderrSink {
        let mut lines = StderrLines { output: self.clone(), buffer: LineBuffer::default() };
        Box::new(move |bytes| lines.push(bytes))
    }

    /// Records a `notifications/message`.
    pub(crate) fn on_message(self: &Arc<Self>, params: &str) {
        let [level, logger, data] = ["level", "logger", "data"].map(|name| patch::find(params, &[name]));
        let text = |json: Option<&str>| {
            json.map(|json| serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()))
        };
        let clipped = |text: String| clip(&text, MAX_READ).to_owned();
        self.add(OutputLine {
            source: LogSource::Mcp,
            level: text(level).map(|level| level.chars().take(16).collect()),
            prefix: text(logger).map(clipped),
            text: text(data).map(clipped).unwrap_or_default(),
        });
    }

    fn add(self: &Arc<Self>, line: OutputLine) {
        let (kept, begins) = {
            let mut burst = lock(&self.burst);
            let was_on = burst.is_on();
            let kept = burst.add(line, Instant::now());
            (kept, burst.is_on() && !was_on)
        };
        self.record(kept);
        if begins {
            *lock(&self.timer) =
                Some(AbortOnDropHandle::new(self.runtime.spawn(watch_burst(Arc::downgrade(self)))));
        }
    }

    /// Returns true while a burst goes on.
    fn end_burst_if_over(&self) -> bool {
        let (kept, is_on) = {
            let mut burst = lock(&self.burst);
            (burst.end_if_over(Instant::now()), burst.is_on())
        };
        self.record(kept);
        is_on
    }

    fn end_burst(&self) {
        let kept = lock(&self.burst).end();
        self.record(kept);
    }

    fn record(&self, kept: Vec<KeptLine>) {
        for KeptLine { left_out, line } in kept {
            if left_out > 0 {
                let note = format!("{left_out} lines left out: the server wrote too many at once");
                self.traces.on_log(&self.server, LogSource::Bridge, None, note);
            }
            let text = visible_line(line.prefix.as_deref(), &line.text, &self.secrets, self.traces.rules());
            self.traces.on_log(&self.server, line.source, line.level, text);
        }
    }
}

impl Drop for ServerOutput {
    fn drop(&mut self) {
        self.end_burst();
    }
}

/// Records the last lines of a burst once it is over, also if the server writes no more.
async fn watch_burst(output: Weak<ServerOutput>) {
    loop {
        sleep(BURST_END).await;
        if !output.upgrade().is_some_and(|output| output.end_burst_if_over()) {
            return;
        }
    }
}

/// The rate of lines, and the last lines of a burst, in their order. Those that the rate allows come later too, for they are
/// between the others.
struct Burst {
    allowance: Allowance,
    last: VecDeque<HeldLine>,
    /// The lines before the held ones that were not kept.
    left_out: u64,
    /// The time of the last line that the rate did not allow.
    exceeded_at: Instant,
}

struct HeldLine {
    is_allowed: bool,
    line: OutputLine,
}

/// A line to record, and the number of lines that were left out before it.
struct KeptLine {
    left_out: u64,
    line: OutputLine,
}

impl Burst {
    fn new(now: Instant) -> Self {
        let allowance = Allowance { lines: BURST, at: now };
        Self { allowance, last: VecDeque::new(), left_out: 0, exceeded_at: now }
    }

    fn is_on(&self) -> bool {
        !self.last.is_empty()
    }

    /// Returns the lines to record now.
    fn add(&mut self, line: OutputLine, now: Instant) -> Vec<KeptLine> {
        let mut kept = self.end_if_over(now);
        let is_allowed = self.allowance.take(now);
        if is_allowed && !self.is_on() {
            kept.push(KeptLine { left_out: 0, line });
            return kept;
        }
        if !is_allowed {
            self.exceeded_at = now;
        }
        if self.last.len() == LAST_LINES {
            match self.last.pop_front() {
                Some(HeldLine { is_allowed: true, line }) => kept.push(self.kept(line)),
                _ => self.left_out += 1,
            }
        }
        self.last.push_back(HeldLine { is_allowed, line });
        kept
    }

    fn end_if_over(&mut self, now: Instant) -> Vec<KeptLine> {
        let is_over = now.saturating_duration_since(self.exceeded_at) >= BURST_END;
        if is_over { self.end() } else { Vec::new() }
    }

    fn end(&mut self) -> Vec<KeptLine> {
        let last = std::mem::take(&mut self.last);
        last.into_iter().map(|held| self.kept(held.line)).collect()
    }

    fn kept(&mut self, line: OutputLine) -> KeptLine {
        KeptLine { left_out: std::mem::take(&mut self.left_out), line }
    }
}

struct Allowance {
    lines: f64,
    at: Instant,
}

/// Returns the line that is kept: without secrets, and cut after that. With a prefix a text that is JSON is JSON no more, so it
/// is read without it first.
fn visible_line(prefix: Option<&str>, text: &str, secrets: &SecretForms, rules: &CaptureRules) -> String {
    let mut line = rules.redact_text(text, secrets);
    if let Some(prefix) = prefix {
        line = rules.redact_text(&format!("{prefix}: {line}"), secrets);
    }
    line.truncate(clip(&line, MAX_LINE).len());
    line
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stderr of one process. Dropping it adds a last line that has no end.
struct StderrLines {
    output: Arc<ServerOutput>,
    buffer: LineBuffer,
}

impl StderrLines {
    fn push(&mut self, bytes: &[u8]) {
        let Self { output, buffer } = self;
        buffer.push(bytes, |line| {
            output.add(OutputLine {
                source: LogSource::Stderr,
                level: None,
                prefix: None,
                text: line.to_owned(),
            });
        });
    }
}

impl Drop for StderrLines {
    fn drop(&mut self) {
        self.push(b"\n");
        self.output.end_burst();
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.lines = (self.lines + passed * PER_SECOND).min(BURST);
        let is_allowed = self.lines >= 1.0;
        self.lines -= f64::from(is_allowed);
        is_allowed
    }
}

/// Cuts bytes into lines.
#[derive(Default)]
struct LineBuffer {
    line: Vec<u8>,
}

impl LineBuffer {
    fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(&str)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_READ.saturating_sub(self.line.len());
            self.line.extend(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                let text = String::from_utf8_lossy(&self.line);
                if !text.trim().is_empty() {
                    on_line(text.trim_end());
                }
                self.line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bascule_store::{LogFilter, Reader};

    use super::*;
    use crate::config::TraceSettings;
    use crate::config::testing::server;

    // req: TR-01
    #[test]
    fn joins_pieces_and_cuts_long_lines() {
        let (mut buffer, mut lines) = (LineBuffer::default(), Vec::new());
        for bytes in [&b"on"[..], b"e\n\ntwo\r\nthr", b"ee\n", &[b'x'; MAX_READ + 9], b"\nend"] {
            buffer.push(bytes, |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines[..3], ["one", "two", "three"]);
        assert_eq!((lines.len(), lines[3].len()), (4, MAX_READ));
    }

    // req: TR-01
    #[test]
    fn hides_a_secret_that_crosses_the_cut() {
        let rules = CaptureRules::new(&TraceSettings::default());
        let secrets = SecretForms::new(["hunter2-hunter2"].into_iter());
        for before in (MAX_LINE - 20..MAX_LINE + 2).chain(MAX_READ - 20..MAX_READ + 2) {
            let line =
                visible_line(None, &format!("{}hunter2-hunter2", "x".repeat(before)), &secrets, &rules);
            assert!(!line.contains('h') && line.len() <= MAX_LINE, "{before}");
        }
        let secret = "hunter2".repeat(50);
        let secrets = SecretForms::new([secret.as_str()].into_iter());
        assert_eq!(visible_line(None, &secret.repeat(99), &secrets, &rules), "(not kept: too long)");
        // Only the part before the end is far enough from a secret that is cut there.
        let text = "x".repeat(MAX_LINE - 9) + &secret.repeat(99);
        assert_eq!(visible_line(None, &text, &secrets, &rules), "(not kept: too long)");
    }

    // req: TR-01
    #[tokio::test]
    async fn keeps_cut_messages_and_a_last_line_without_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let settings = server(r#"{ "command": "x", "env": { "KEY": "hunter2-hunter2" } }"#);
        let output = ServerOutput::new(&settings, &traces);
        let mut sink = output.stderr_sink();
        sink(b"one\nthe end");
        drop(sink);
        let data = format!("{}hunter2-hunter2{}", "x".repeat(MAX_LINE - 3), "y".repeat(4 * MAX_READ));
        output.on_message(&serde_json::json!({ "level": "info", "data": data }).to_string());
        traces.close().await;
        let filter = LogFilter { server: settings.name.to_string(), after: None, since: None, limit: 9 };
        let lines = Reader::open(&path).unwrap().logs(&filter).unwrap();
        let lines: Vec<String> = lines.into_iter().map(|(_, line)| line.text).collect();
        assert_eq!(lines[..2], ["one", "the end"]);
        assert_eq!(lines[2], format!("{}***", "x".repeat(MAX_LINE - 3)));
    }

    // req: TR-01
    #[test]
    fn counts_lines_beyond_the_rate() {
        let now = Instant::now();
        let mut allowance = Allowance { lines: BURST, at: now };
        assert_eq!((0..1_000).filter(|_| allowance.take(now)).count(), 500);
        assert!(allowance.take(now + Duration::from_secs(1)));
    }

    fn line(text: String) -> OutputLine {
        OutputLine { source: LogSource::Stderr, level: None, prefix: None, text }
    }

    fn texts(kept: &[KeptLine]) -> Vec<&str> {
        kept.iter().map(|kept| &*kept.line.text).collect()
    }

    // req: TR-01
    #[test]
    fn last_lines_of_a_burst_are_kept_and_so_is_the_order() {
        let (start, mut kept) = (Instant::now(), Vec::new());
        let mut burst = Burst::new(start);
        (0..1_000).for_each(|number| kept.extend(burst.add(line(format!("line {number}")), start)));
        assert_eq!((kept.len(), texts(&kept)[499]), (500, "line 499"));
        // Allowed again, within a second.
        let soon = start + Duration::from_millis(50);
        kept = (0..2).flat_map(|number| burst.add(line(format!("soon {number}")), soon)).collect();
        assert_eq!(texts(&kept), Vec::<&str>::new());
        assert!(burst.end_if_over(soon).is_empty() && burst.is_on());
        let kept = burst.add(line("later".into()), start + BURST_END);
        let last = (982..1_000).map(|number| format!("line {number}"));
        let expected: Vec<String> = last.chain(["soon 0", "soon 1", "later"].map(str::to_owned)).collect();
        assert_eq!(texts(&kept), expected);
        assert_eq!(kept.iter().map(|kept| kept.left_out).sum::<u64>(), 482);
        assert_eq!((kept[0].left_out, burst.is_on()), (482, false));
    }

    // req: TR-01
    #[test]
    fn allowed_lines_of_a_long_burst_are_kept() {
        let start = Instant::now();
        let mut burst = Burst::new(start);
        // 100 lines a second, of which every other one is allowed in the end.
        let lines = (0..3_000).map(|number| (number, start + Duration::from_millis(10 * number)));
        let mut kept: Vec<KeptLine> =
            lines.flat_map(|(number, at)| burst.add(line(number.to_string()), at)).collect();
        assert!(burst.is_on());
        kept.extend(burst.end());
        let left_out: u64 = kept.iter().map(|kept| kept.left_out).sum();
        assert_eq!(kept.len() as u64 + left_out, 3_000);
        assert!((500 + 1_450..2_050).contains(&kept.len()), "{}", kept.len());
        let numbers: Vec<u64> = texts(&kept).iter().map(|text| text.parse().unwrap()).collect();
        assert!(numbers.is_sorted());
    }

    /// Records the lines of a process, and returns those that are kept.
    async fn kept(entry: &str, write: impl AsyncFnOnce(&mut StderrSink)) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let settings = server(entry);
        let mut sink = ServerOutput::new(&settings, &traces).stderr_sink();
        write(&mut sink).await;
        drop(sink);
        traces.close().await;
        let filter = LogFilter { server: settings.name.to_string(), after: None, since: None, limit: 9_999 };
        let lines = Reader::open(&path).unwrap().logs(&filter).unwrap();
        lines.into_iter().map(|(_, line)| line.text).collect()
    }

    // req: TR-01
    #[tokio::test]
    async fn hides_secrets_by_their_form() {
        let lines = kept(r#"{ "command": "x" }"#, async |sink| sink(b"GET /?token=hunter2 HTTP/1.1\n")).await;
        assert_eq!(lines, ["GET /?token=*** HTTP/1.1"]);
    }

    // req: TR-01
    #[tokio::test]
    async fn json_of_a_message_is_read_before_its_logger_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let settings = server(r#"{ "command": "x" }"#);
        let output = ServerOutput::new(&settings, &traces);
        let data = r#"{"token":["hunter2","hunter3"],"n":1}"#;
        output.on_message(&format!(r#"{{"logger":"app","data":{data}}}"#));
        output.on_message(&serde_json::json!({ "logger": "app", "data": data }).to_string());
        output.on_message(r#"{"logger":"password","data":"hunter2"}"#);
        traces.close().await;
        let filter = LogFilter { server: settings.name.to_string(), after: None, since: None, limit: 9 };
        let lines = Reader::open(&path).unwrap().logs(&filter).unwrap();
        let lines: Vec<String> = lines.into_iter().map(|(_, line)| line.text).collect();
        let hidden = r#"app: {"n":1,"token":"***"}"#;
        assert_eq!(lines, [hidden, hidden, "password: ***"]);
    }

    // req: TR-01
    #[tokio::test]
    async fn end_of_a_burst_is_kept() {
        let burst = |sink: &mut StderrSink| {
            (0..3_000).for_each(|number| sink(format!("line {number}\n").as_bytes()));
            sink(b"FATAL: the real reason\n");
        };
        let lines = kept(r#"{ "command": "x" }"#, async |sink| burst(sink)).await;
        assert_eq!(lines.last().unwrap(), "FATAL: the real reason");
        assert!(lines[lines.len() - 20..].iter().all(|line| !line.contains("left out")), "{lines:?}");
        // A line follows at once.
        let lines = kept(r#"{ "command": "x" }"#, async |sink| {
            burst(sink);
            sleep(Duration::from_millis(50)).await;
            sink(b"later\n");
        });
        let lines = lines.await;
        assert_eq!(lines[lines.len() - 2..], ["FATAL: the real reason", "later"]);
    }

    // req: TR-01
    #[tokio::test]
    async fn last_lines_of_a_burst_are_kept_while_the_server_is_silent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.db");
        let traces = Arc::new(TraceRecorder::new(path.clone(), &TraceSettings::default(), None).unwrap());
        let settings = server(r#"{ "command": "x" }"#);
        let output = ServerOutput::new(&settings, &traces);
        let message = |text: &str| format!(r#"{{"data":"{text}"}}"#);
        (0..600).for_each(|number| output.on_message(&message(&format!("line {number}"))));
        output.on_message(&message("FATAL: the real reason"));
        let filter = LogFilter { server: settings.name.to_string(), after: None, since: None, limit: 9_999 };
        let last = || {
            let lines = Reader::open(&path).ok()?.logs(&filter).ok()?;
            lines.last().map(|(_, line)| line.text.clone())
        };
        let written = async {
            while last().as_deref() != Some("FATAL: the real reason") {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), written).await.expect("the last line is recorded");
        traces.close().await;
    }
}
