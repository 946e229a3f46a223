//! Log lines on stderr: `[target] message field=value`.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;

use bascule_client::LOG_TARGET;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal::{TerminalStyle, sanitize_line};
use crate::fleet::server_log::{INSTALLS, OPERATIONS};

/// Starts logging: warnings by default, more with each `-v`. `BASCULE_LOG` (`error` … `trace`) overrides `-v`.
pub(crate) fn start(verbose: u8, purpose: LogPurpose) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let named = std::env::var("BASCULE_LOG").ok().and_then(|name| name.parse().ok());
    let operations = match purpose {
        LogPurpose::Operations => level.max(LevelFilter::INFO),
        LogPurpose::Command if verbose == 0 => LevelFilter::OFF,
        LogPurpose::Command => level,
    };
    let targets = Targets::new().with_default(named.unwrap_or(level));
    let targets = targets
        // The client of RabbitMQ logs whole messages, which may contain secrets.
        .with_target("lapin", LevelFilter::OFF)
        .with_target(OPERATIONS, named.unwrap_or(operations))
        .with_target(INSTALLS, named.unwrap_or(level.max(LevelFilter::INFO)));
    let erases = purpose == LogPurpose::Command && TerminalStyle::new(&io::stderr()).is_enabled();
    let lines = tracing_subscriber::fmt::layer().event_format(LogFormat { erases });
    let registry = tracing_subscriber::registry();
    match purpose {
        LogPurpose::Operations => {
            registry.with(lines.with_writer(UnblockedStderr).with_filter(targets)).init()
        }
        LogPurpose::Command => registry.with(lines.with_writer(io::stderr).with_filter(targets)).init(),
    }
}

/// The use of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogPurpose {
    /// The log is the report of a running bridge: what happens to its servers.
    Operations,
    /// The command reports failures itself.
    Command,
}

/// Writes lines to stderr, and drops those that would have to wait: a client that starts the bridge may never read its
/// stderr, and must not stall it thereby.
struct UnblockedStderr;

impl<'a> MakeWriter<'a> for UnblockedStderr {
    type Writer = UnblockedWriter<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        UnblockedWriter(io::stderr())
    }
}

struct UnblockedWriter<W>(W);

/// A pipe that is writable has room for this many bytes (`PIPE_BUF`).
const MAX_LINE_BYTES: usize = 4096;

impl<W: Write + AsFd> Write for UnblockedWriter<W> {
    /// Expects a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_ready = {
            let mut stream = [PollFd::new(&self.0, PollFlags::OUT)];
            poll(&mut stream, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        };
        if is_ready && line.len() <= MAX_LINE_BYTES {
            self.0.write_all(line)?;
        } else if is_ready {
            let cut = [&line[..MAX_LINE_BYTES - 4], "…\n".as_bytes()].concat();
            self.0.write_all(&cut)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct LogFormat {
    /// Erases the terminal's line first.
    erases: bool,
}

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = LogFields::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        // The lines of the client library are a contract: they keep their target and have no level.
        let (target, level) = match event.metadata().target() {
            LOG_TARGET => (LOG_TARGET, ""),
            _ => ("bascule", level),
        };
        // The spinner of a command stands on the line; it draws itself again.
        let erase = if self.erases { "\r\u{1b}[K" } else { "" };
        writeln!(writer, "{erase}[{target}] {level}{}{}", line.message, line.rest)
    }
}

#[derive(Default)]
struct LogFields {
    message: String,
    rest: String,
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A value of a server must not forge a line.
        let value = sanitize_line(&format!("{value:?}"));
        match field.name() {
            "message" => self.message = value,
            name => self.rest.push_str(&format!(" {name}={value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    // req: US-01
    #[test]
    fn drops_lines_that_nobody_reads() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = UnblockedWriter(writer);
        // More than any pipe holds.
        for _ in 0..100_000 {
            writer.write_all(b"0123456789\n").unwrap();
        }
        writer.write_all(&[b'x'; 9_000]).unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert!(read.len() >= 4096 && read.lines().all(|line| line == "0123456789"), "{} bytes", read.len());
    }

    #[test]
    fn cuts_long_lines() {
        let (mut reader, writer) = io::pipe().unwrap();
        UnblockedWriter(writer).write_all(&[b'x'; 9_000]).unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert!(read.len() == MAX_LINE_BYTES && read.ends_with("x…\n"));
    }
}
