//! Describes what happens to one server, for the person who runs the bridge: one line for each event, repeated failures
//! counted.
//!
//! The actor decides when, and writes the lines to the log with the target [`OPERATIONS`]. `bascule serve` shows them;
//! other commands report failures themselves.

use std::fmt;
use std::time::Duration;

use bascule_model::{BridgeError, ServerName};
use tokio::time::Instant;

use super::restart_policy::NextStep;
use super::start_clock::InstallProgress;

/// The log target of these lines.
pub(crate) const OPERATIONS: &str = "bascule::operations";
/// The log target of lines about an installation, which every command shows.
pub(crate) const INSTALLS: &str = "bascule::installs";

/// Every so many equal failures have one line.
const REMINDER: u32 = 25;
/// The part of a server's stderr that a line quotes.
const EXCERPT_LINES: usize = 6;
const EXCERPT_CHARS: usize = 600;
const MAX_OUTPUT_CHARS: usize = 120;
/// An installation that ends sooner has no line.
const QUICK_INSTALL: Duration = Duration::from_secs(3);
/// The time between two lines about an installation, if it has printed something, and if not.
const INSTALL_NEWS: Duration = Duration::from_secs(5);
const INSTALL_SILENCE: Duration = Duration::from_secs(30);

/// The failures of one server that have a log line, and the number of those that have none.
#[derive(Debug, Default)]
pub(crate) struct ServerLog {
    /// Failed starts since the server was last up.
    failures: u32,
    /// The message of the last failure that has a line.
    logged: Option<String>,
    down_since: Option<Instant>,
    /// The last progress of an installation that has a line.
    installing: Option<InstallProgress>,
}

/// A server that is up.
pub(crate) struct UpServer {
    pub(crate) tools: usize,
    pub(crate) pid: Option<u32>,
    /// The duration of the start.
    pub(crate) took: Duration,
}

impl ServerLog {
    /// Describes a start that has succeeded.
    pub(crate) fn on_up(&mut self, server: &ServerName, up: &UpServer, now: Instant) -> String {
        let state = if self.down_since.is_some() { "back" } else { "up" };
        let down_for = self.down_since.map(|since| format_duration(now.saturating_duration_since(since)));
        let failures = Some(self.failures as usize).filter(|count| *count > 0);
        let failures = failures.map(|count| format_count(count, "failed attempt"));
        let delays: Vec<String> = down_for.into_iter().chain(failures).collect();
        let after =
            if delays.is_empty() { String::new() } else { format!(" after {}", delays.join(" and ")) };
        let mut line = format!("server `{server}` is {state}{after}: {}", format_count(up.tools, "tool"));
        up.pid.iter().for_each(|pid| line += &format!(", process {pid}"));
        line += &format!(", started in {}", format_duration(up.took));
        *self = Self::default();
        line
    }

    /// Describes a loss.
    pub(crate) fn on_lost(&mut self, error: &BridgeError, next: NextStep, now: Instant) -> String {
        *self = Self { down_since: Some(now), ..Self::default() };
        describe_failure(error, next, now)
    }

    /// Describes a failed start. Returns `None` for one that equals the last: it is counted.
    pub(crate) fn on_failed(&mut self, error: &BridgeError, next: NextStep, now: Instant) -> Option<String> {
        self.failures += 1;
        self.installing = None;
        let is_repeated = self.logged.as_ref() == Some(&error.message);
        match next {
            NextStep::Retry { at, .. } if is_repeated => self.failures.is_multiple_of(REMINDER).then(|| {
                let wait = format_duration(at.saturating_duration_since(now));
                format!(
                    "{}; {} attempts have failed, the next one is in {wait}",
                    error.message, self.failures
                )
            }),
            _ => {
                self.logged = Some(error.message.clone());
                Some(describe_failure(error, next, now))
            }
        }
    }
}

impl ServerLog {
    /// Describes an installation. Returns `None` if the last line is recent enough.
    pub(crate) fn on_installing(
        &mut self,
        server: &ServerName,
        progress: &InstallProgress,
    ) -> Option<String> {
        let due = match &self.installing {
            None => QUICK_INSTALL,
            Some(logged) if logged.output == progress.output => logged.elapsed + INSTALL_SILENCE,
            Some(logged) => logged.elapsed + INSTALL_NEWS,
        };
        if progress.elapsed < due {
            return None;
        }
        self.installing = Some(progress.clone());
        let elapsed = format_duration(progress.elapsed);
        Some(format!("server `{server}`: {progress}, for {elapsed} so far"))
    }
}

/// `npx` is installing it: the last line of its output.
impl fmt::Display for InstallProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is installing it", self.installer)?;
        match self.output.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.output.chars().take(MAX_OUTPUT_CHARS).collect::<String>()),
        }
    }
}

fn describe_failure(error: &BridgeError, next: NextStep, now: Instant) -> String {
    let mut line = error.message.clone();
    let excerpt = error.stderr.as_deref().map(excerpt).unwrap_or_default();
    if !excerpt.is_empty() {
        line += &format!("; the end of its stderr: {}", excerpt.join(" | "));
    }
    let server = error.server.iter().map(|server| format!(" {server}")).collect::<String>();
    line += &match next {
        NextStep::Retry { attempt, at } => {
            format!("; attempt {attempt} is in {}", format_duration(at.saturating_duration_since(now)))
        }
        NextStep::GiveUp { attempts: 0 } => format!("; `bascule refresh{server}` tries again"),
        NextStep::GiveUp { attempts } => format!(
            "; given up after {}: `bascule refresh{server}` tries again",
            format_count(attempts as usize, "attempt")
        ),
    };
    line
}

/// Returns the end of a server's stderr without stack frames and empty lines, which hide the reason.
pub(crate) fn excerpt(stderr: &str) -> Vec<String> {
    let is_reason = |line: &&str| {
        let line = line.trim();
        line.chars().any(char::is_alphanumeric) && !line.starts_with("at ") && !line.starts_with("Node.js v")
    };
    let mut left = EXCERPT_CHARS;
    let last = stderr.lines().rev().filter(is_reason).take(EXCERPT_LINES);
    let mut lines: Vec<String> = last.map_while(|line| take_end(line.trim_end(), &mut left)).collect();
    lines.reverse();
    lines
}

/// Returns at most `left` characters of a line, and subtracts them. Returns `None` if none is left.
fn take_end(line: &str, left: &mut usize) -> Option<String> {
    let (length, max) = (line.chars().count(), *left);
    *left = max.saturating_sub(length);
    match length <= max {
        true => Some(line.to_owned()),
        false if max < 20 => None,
        false => Some(format!("{}…", line.chars().take(max).collect::<String>())),
    }
}

/// Formats a duration for people: `340 ms`, `4 s`, `1.5 s`, `3 min`.
pub(crate) fn format_duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ ..950 => format!("{millis} ms"),
        millis @ ..9_950 => format!("{} s", ((millis + 50) / 100) as f64 / 10.0),
        millis @ ..120_000 => format!("{} s", (millis + 500) / 1_000),
        millis => format!("{} min", (millis + 30_000) / 60_000),
    }
}

pub(crate) fn format_count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use bascule_model::{Delivery, ErrorCode};

    use super::*;

    fn server() -> ServerName {
        ServerName::parse("s").unwrap()
    }

    fn error(message: &str, stderr: Option<&str>) -> BridgeError {
        let mut error = *BridgeError::new(ErrorCode::ProviderInitFailed, Delivery::NotSent, message);
        (error.server, error.stderr) = (Some(server()), stderr.map(str::to_owned));
        error
    }

    fn up() -> UpServer {
        UpServer { tools: 1, pid: Some(7), took: Duration::from_millis(1_234) }
    }

    // req: US-01
    #[test]
    fn tells_equal_failures_once_and_counts_them() {
        let (mut log, now) = (ServerLog::default(), Instant::now());
        let retry = |attempt| NextStep::Retry { attempt, at: now + Duration::from_secs(4) };
        let logged = log.on_failed(&error("no program", Some("a\n\nb\n")), retry(1), now);
        assert_eq!(logged.unwrap(), "no program; the end of its stderr: a | b; attempt 1 is in 4 s");
        for attempt in 2..10 {
            assert_eq!(log.on_failed(&error("no program", None), retry(attempt), now), None);
        }
        let other = log.on_failed(&error("it hangs", None), retry(10), now);
        assert_eq!(other.unwrap(), "it hangs; attempt 10 is in 4 s");
        let last = log.on_failed(&error("it hangs", None), NextStep::GiveUp { attempts: 10 }, now);
        assert_eq!(last.unwrap(), "it hangs; given up after 10 attempts: `bascule refresh s` tries again");
        let line = log.on_up(&server(), &up(), now);
        assert_eq!(line, "server `s` is up after 11 failed attempts: 1 tool, process 7, started in 1.2 s");
    }

    // req: US-01
    #[test]
    fn reminds_of_failures_that_go_on() {
        let (mut log, now) = (ServerLog::default(), Instant::now());
        let next = NextStep::Retry { attempt: 3, at: now + Duration::from_secs(30) };
        let logged = (0..60).filter_map(|_| log.on_failed(&error("refused", None), next, now)).count();
        assert_eq!(logged, 3);
    }

    // req: US-01
    #[test]
    fn tells_loss_and_return() {
        let (mut log, now) = (ServerLog::default(), Instant::now());
        assert_eq!(log.on_up(&server(), &up(), now), "server `s` is up: 1 tool, process 7, started in 1.2 s");
        let next = NextStep::Retry { attempt: 1, at: now + Duration::from_secs(1) };
        assert_eq!(log.on_lost(&error("it exited", None), next, now), "it exited; attempt 1 is in 1 s");
        let back = log.on_up(&server(), &up(), now + Duration::from_secs(3));
        assert_eq!(back, "server `s` is back after 3 s: 1 tool, process 7, started in 1.2 s");
        let gone = log.on_lost(&error("it exited", None), NextStep::GiveUp { attempts: 0 }, now);
        assert_eq!(gone, "it exited; `bascule refresh s` tries again");
    }

    // req: US-02
    #[test]
    fn tells_progress_of_an_installation_now_and_then() {
        let (mut log, mut logged) = (ServerLog::default(), Vec::new());
        for second in 0..60 {
            let output = if second < 20 { format!("package {second}") } else { String::new() };
            let elapsed = Duration::from_secs(second);
            let progress = InstallProgress { installer: "npx".into(), elapsed, output };
            logged.extend(log.on_installing(&server(), &progress));
        }
        assert_eq!(logged[0], "server `s`: `npx` is installing it (package 3), for 3 s so far");
        assert_eq!(logged.last().unwrap(), "server `s`: `npx` is installing it, for 53 s so far");
        assert_eq!(logged.len(), 6, "{logged:#?}");
    }

    // req: US-01
    #[test]
    fn formats_durations() {
        let texts = [40, 999, 1_000, 1_234, 9_960, 61_400, 300_000]
            .map(|ms| format_duration(Duration::from_millis(ms)));
        assert_eq!(texts, ["40 ms", "1 s", "1 s", "1.2 s", "10 s", "61 s", "5 min"]);
    }

    // req: US-01
    #[test]
    fn excerpt_shows_the_reason_instead_of_the_stack() {
        let node = "node:internal/modules:1228\n  throw err;\n  ^\n\nError: Cannot find module 'x'\n    at a (b:1)\n    at c (d:2) {\n  code: 'MODULE_NOT_FOUND'\n}\n\nNode.js v22.1.0\n";
        assert!(excerpt(node).contains(&"Error: Cannot find module 'x'".to_owned()), "{:?}", excerpt(node));
        let long = excerpt(&"x".repeat(9_000));
        assert_eq!((long.len(), long[0].chars().count()), (1, EXCERPT_CHARS + 1));
        assert_eq!(excerpt(" \n--\n"), Vec::<String>::new());
    }
}
