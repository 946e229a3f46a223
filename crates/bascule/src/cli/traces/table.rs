//! One line for each span.

use bascule_store::{Outcome, Span, SpanKind};

use super::super::terminal::{TerminalStyle, fit, sanitize_line};

/// The columns of the name.
const NAME: usize = 32;
const MESSAGE: usize = 80;
const CODE: usize = 40;

/// Formats a span: when, the id for `bascule trace`, who, what, how long, and how it ended.
pub(super) fn line(span: &Span, style: TerminalStyle) -> String {
    let id = style.dim(&span.context.span_id.to_string());
    let name = match span.kind {
        SpanKind::Call => sanitize_line(&span.name),
        SpanKind::Script => format!("script {}", sanitize_line(&span.name)),
    };
    let indent = if span.context.parent.is_some() { "  " } else { "" };
    let name = fit(&format!("{indent}{name}"), NAME);
    let (when, face, duration) = (local_time(span.started_at), span.face.as_str(), duration(span.duration));
    format!("{when}  {id}  {face:7}  {name:NAME$}  {duration:>9}  {}", ending(span, style))
}

/// Formats the end of a span.
pub(super) fn ending(span: &Span, style: TerminalStyle) -> String {
    let mut text = match span.outcome {
        Outcome::Ok => style.green("ok"),
        Outcome::ToolError if span.kind == SpanKind::Call => style.red("the tool reported failure"),
        Outcome::ToolError => style.red("failed"),
        // A store may hold any text as a code.
        Outcome::Error => style.red(&fit(&sanitize_line(span.code.as_deref().unwrap_or("error")), CODE)),
    };
    if span.attempts > 1 {
        text += &format!("  sent {}×", span.attempts);
    }
    if let Some(message) = &span.message {
        let first = message.lines().next().unwrap_or_default();
        text += &format!("  {}", style.dim(&fit(&sanitize_line(first), MESSAGE)));
    }
    text
}

/// Formats microseconds with three significant digits or so.
pub(super) fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// Formats a time in the zone of the machine.
pub(super) fn local_time(micros: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S.%3f").to_string()
}

#[cfg(test)]
mod tests {
    use bascule_model::{CorrelationId, SpanContext, SpanId, TraceId};
    use bascule_store::Face;

    use super::*;

    // req: TR-01
    #[test]
    fn code_cannot_control_the_terminal() {
        let context = SpanContext { trace_id: TraceId(1), span_id: SpanId(1), parent: None };
        let span = Span {
            context,
            kind: SpanKind::Script,
            face: Face::Cli,
            client: None,
            agent: None,
            correlation_id: CorrelationId::from_random(1),
            name: "a.ts".into(),
            started_at: 0,
            duration: 1,
            waited: 0,
            attempts: 1,
            isolation: None,
            argument_bytes: 0,
            result_bytes: None,
            outcome: Outcome::Error,
            code: Some(format!("\u{1b}]0;owned\u{7}\n{}", "X".repeat(65_536)).into()),
            delivery: None,
            message: None,
            content: None,
        };
        let text = ending(&span, TerminalStyle::new(&tempfile::tempfile().unwrap()));
        assert!(!text.contains(char::is_control) && text.chars().count() <= CODE, "{text:?}");
    }
}
