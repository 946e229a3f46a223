//! The lines that a server writes for people, to its stderr and as log messages of MCP: kept in the store, bounded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bascule_mcp::{StderrSink, patch};
use bascule_store::LogSource;

use crate::config::ServerSettings;
use crate::post_mortem::secrets_of;
use crate::redaction::SecretForms;
use crate::trace_recorder::TraceRecorder;

/// A longer line is cut, after its secrets are hidden.
const MAX_LINE: usize = 2 << 10;
/// The part of a line in which secrets are searched for: a secret that crosses its end is not in the line that is kept.
const MAX_READ: usize = 16 * MAX_LINE;
/// The lines that a server may write at once, and each second. The others are counted.
const BURST: f64 = 500.0;
const PER_SECOND: f64 = 50.0;

/// The output of one connection.
pub(crate) struct ServerOutput {
    server: Arc<str>,
    secrets: SecretForms,
    traces: Arc<TraceRecorder>,
    allowance: Mutex<Allowance>,
}

struct Allowance {
    lines: f64,
    at: Instant,
    left_out: u64,
}

impl ServerOutput {
    pub(crate) fn new(settings: &ServerSettings, traces: &Arc<TraceRecorder>) -> Arc<Self> {
        Arc::new(Self {
            server: settings.name.as_str().into(),
            secrets: secrets_of(settings),
            traces: traces.clone(),
            allowance: Mutex::new(Allowance { lines: BURST, at: Instant::now(), left_out: 0 }),
        })
    }

    /// Returns a sink for the bytes of stderr.
    pub(crate) fn stderr_sink(self: &Arc<Self>) -> StderrSink {
        let mut lines = StderrLines { output: self.clone(), buffer: LineBuffer::default() };
        Box::new(move |bytes| lines.push(bytes))
    }

    /// Records a `notifications/message`.
    pub(crate) fn on_message(&self, params: &str) {
        let [level, logger, data] = ["level", "logger", "data"].map(|name| patch::find(params, &[name]));
        let text = |json: Option<&str>| {
            json.map(|json| serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()))
        };
        let prefix = text(logger).map_or_else(String::new, |logger| format!("{logger}: "));
        let level = text(level).map(|level| level.chars().take(16).collect());
        self.add(LogSource::Mcp, level, &(prefix + &text(data).unwrap_or_default()));
    }

    fn add(&self, source: LogSource, level: Option<String>, line: &str) {
        let left_out = {
            let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
            if !allowance.take(Instant::now()) {
                return;
            }
            std::mem::take(&mut allowance.left_out)
        };
        if left_out > 0 {
            let text = format!("{left_out} lines left out: the server wrote too many at once");
            self.traces.on_log(&self.server, LogSource::Bridge, None, text);
        }
        let text = visible_line(line, &self.secrets);
        self.traces.on_log(&self.server, source, level, text);
    }
}

/// Returns the line that is kept: without secrets, and cut after that.
fn visible_line(line: &str, secrets: &SecretForms) -> String {
    let mut text = clip(line, MAX_READ).to_owned();
    secrets.hide(&mut text);
    if line.len() >= MAX_READ && text.len() < MAX_LINE {
        // Almost all of it is secret, so the part of a secret at the end would be kept.
        return "(not kept: too long)".to_owned();
    }
    text.truncate(clip(&text, MAX_LINE).len());
    text
}

fn clip(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The stderr of one process. Dropping it adds a last line that has no end.
struct StderrLines {
    output: Arc<ServerOutput>,
    buffer: LineBuffer,
}

impl StderrLines {
    fn push(&mut self, bytes: &[u8]) {
        let Self { output, buffer } = self;
        buffer.push(bytes, |line| output.add(LogSource::Stderr, None, line));
    }
}

impl Drop for StderrLines {
    fn drop(&mut self) {
        self.push(b"\n");
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.lines = (self.lines + passed * PER_SECOND).min(BURST);
        let is_allowed = self.lines >= 1.0;
        if is_allowed {
            self.lines -= 1.0;
        } else {
            self.left_out += 1;
        }
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
    use std::time::Duration;

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
        let secrets = SecretForms::new(["hunter2-hunter2"].into_iter());
        for before in (MAX_LINE - 20..MAX_LINE + 2).chain(MAX_READ - 20..MAX_READ + 2) {
            let line = visible_line(&format!("{}hunter2-hunter2", "x".repeat(before)), &secrets);
            assert!(!line.contains('h') && line.len() <= MAX_LINE, "{before}");
        }
        let secret = "hunter2".repeat(50);
        let secrets = SecretForms::new([secret.as_str()].into_iter());
        assert_eq!(visible_line(&secret.repeat(99), &secrets), "(not kept: too long)");
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
        let mut allowance = Allowance { lines: BURST, at: now, left_out: 0 };
        let taken = (0..1_000).filter(|_| allowance.take(now)).count();
        assert_eq!((taken, allowance.left_out), (500, 500));
        assert!(allowance.take(now + Duration::from_secs(1)));
    }
}
