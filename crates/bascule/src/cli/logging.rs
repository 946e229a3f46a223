//! Log lines for the operator, on stderr: `[target] message field=value`.

use std::fmt;

use bascule_client::TARGET;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::terminal::clean_line;

/// Starts logging: warnings by default, more with every `-v`. `BASCULE_LOG` (`error` … `trace`) wins.
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
        .event_format(Line)
        .init();
}

/// Our one line format.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
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
        let mut line = Fields::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        // The library's lines are a contract: as they are, under their own name.
        let (target, level) = match event.metadata().target() {
            TARGET => (TARGET, ""),
            _ => ("bascule", level),
        };
        writeln!(writer, "[{target}] {level}{}{}", line.message, line.rest)
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // What a server says cannot forge a line.
        let value = clean_line(&format!("{value:?}"));
        match field.name() {
            "message" => self.message = value,
            name => self.rest.push_str(&format!(" {name}={value}")),
        }
    }
}
