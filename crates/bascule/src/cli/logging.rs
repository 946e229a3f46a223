//! Log lines on stderr: `[target] message field=value`.

use std::fmt;

use bascule_client::LOG_TARGET;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::terminal::sanitize_line;

/// Starts logging: warnings by default, more with each `-v`. `BASCULE_LOG` (`error` … `trace`) overrides `-v`.
pub(crate) fn start(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let named = std::env::var("BASCULE_LOG").ok().and_then(|name| name.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(named.unwrap_or(level))
        .with_writer(std::io::stderr)
        .event_format(LogFormat)
        .init();
}

struct LogFormat;

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
        writeln!(writer, "[{target}] {level}{}{}", line.message, line.rest)
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
