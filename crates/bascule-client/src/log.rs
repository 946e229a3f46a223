//! Writes the library's log lines to the caller's logger, else to `tracing`, else to stderr.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

/// The `tracing` target of all log lines.
pub const LOG_TARGET: &str = "mcp-bridge";

/// Receives log lines without line breaks and without the prefix `[mcp-bridge]`.
pub type Logger = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

/// The caller's logger, if any.
#[derive(Clone, Default)]
pub(crate) struct LogOutput(pub(crate) Option<Logger>);

impl LogOutput {
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
        let line = &*replace_control_characters(line);
        match &self.0 {
            Some(logger) => logger(level, line),
            None if has_tracing_subscriber() => write_to_tracing(level, line),
            // If stderr fails, there is no other place to report it.
            None => drop(writeln!(std::io::stderr().lock(), "[{LOG_TARGET}] {line}")),
        }
    }
}

fn has_tracing_subscriber() -> bool {
    tracing::dispatcher::get_default(|current| !current.is::<tracing::subscriber::NoSubscriber>())
}

fn write_to_tracing(level: LogLevel, line: &str) {
    match level {
        LogLevel::Info => tracing::info!(target: LOG_TARGET, "{line}"),
        LogLevel::Warn => tracing::warn!(target: LOG_TARGET, "{line}"),
        LogLevel::Error => tracing::error!(target: LOG_TARGET, "{line}"),
    }
}

/// Replaces control characters by spaces. Text of a server may hold line breaks, which would forge a second log line, or
/// escape sequences, which would control the terminal.
fn replace_control_characters(line: &str) -> Cow<'_, str> {
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
    fn replaces_control_characters() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = lines.clone();
        let log = LogOutput(Some(Arc::new(move |level, line: &str| {
            log.lock().unwrap().push((level, line.to_owned()))
        })));
        log.warn("a\nb\u{1b}[31m");
        assert_eq!(*lines.lock().unwrap(), [(LogLevel::Warn, "a b [31m".to_owned())]);
    }
}
