//! Where the library's log lines go: to the caller's logger, else to `tracing`, else to stderr (CL-02, CL-09).

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

/// The target of our lines in `tracing`.
pub const TARGET: &str = "mcp-bridge";

/// Takes log lines, without line breaks and without `[mcp-bridge]`.
pub type Logger = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

/// A logger or the lack of one.
#[derive(Clone, Default)]
pub(crate) struct Log(pub(crate) Option<Logger>);

impl Log {
    pub(crate) fn info(&self, line: &str) {
        self.write(LogLevel::Info, line);
    }

    pub(crate) fn warn(&self, line: &str) {
        self.write(LogLevel::Warn, line);
    }

    pub(crate) fn error(&self, line: &str) {
        self.write(LogLevel::Error, line);
    }

    fn write(&self, level: LogLevel, line: &str) {
        let line = &*one_line(line);
        match &self.0 {
            Some(logger) => logger(level, line),
            None if somebody_listens() => trace(level, line),
            // A failing stderr leaves nobody to tell.
            None => drop(writeln!(std::io::stderr().lock(), "[{TARGET}] {line}")),
        }
    }
}

fn somebody_listens() -> bool {
    tracing::dispatcher::get_default(|current| !current.is::<tracing::subscriber::NoSubscriber>())
}

fn trace(level: LogLevel, line: &str) {
    match level {
        LogLevel::Info => tracing::info!(target: TARGET, "{line}"),
        LogLevel::Warn => tracing::warn!(target: TARGET, "{line}"),
        LogLevel::Error => tracing::error!(target: TARGET, "{line}"),
    }
}

/// A server's words cannot forge a second line or colour the terminal.
fn one_line(line: &str) -> Cow<'_, str> {
    match line.contains(char::is_control) {
        true => line.replace(char::is_control, " ").into(),
        false => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    // req: CL-09
    #[test]
    fn a_line_stays_a_line() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = lines.clone();
        let log =
            Log(Some(Arc::new(move |level, line: &str| log.lock().unwrap().push((level, line.to_owned())))));
        log.warn("a\nb\u{1b}[31m");
        assert_eq!(*lines.lock().unwrap(), [(LogLevel::Warn, "a b [31m".to_owned())]);
    }
}
