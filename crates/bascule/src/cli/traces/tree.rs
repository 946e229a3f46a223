//! Prints one trace: its spans as a waterfall, and the details of those that failed.

use std::collections::HashMap;

use bascule_model::SpanId;
use bascule_store::{Span, SpanKind};

use super::super::printer::Printer;
use super::super::terminal::sanitize_line;
use super::super::waterfall::{Bar, draw};
use super::table;

pub(super) fn print(spans: &[Span], printer: &Printer) {
    let Some(first) = spans.first() else { return };
    let style = printer.style;
    printer.print_line(&format!("trace {}", style.bold(&first.context.trace_id.to_string())));
    printer.print_line(&style.dim(&origin(first)));
    let depths = depths(spans);
    let labels: Vec<String> = spans.iter().zip(&depths).map(|(span, depth)| label(span, *depth)).collect();
    let bars: Vec<Bar> = spans.iter().zip(&labels).map(|(span, label)| bar(span, label)).collect();
    draw(&bars, style.width()).iter().for_each(|line| printer.print_line(line));
    spans.iter().for_each(|span| print_details(span, printer));
}

/// Describes the caller of the first span.
fn origin(span: &Span) -> String {
    let client = span.client.as_ref().map(|client| format!(" of {} {}", client.name, client.version));
    let text = format!(
        "{} through {}{}  correlation id {}",
        table::local_time(span.started_at),
        span.face,
        client.unwrap_or_default(),
        span.correlation_id
    );
    sanitize_line(&text)
}

fn label(span: &Span, depth: usize) -> String {
    let name = match span.kind {
        SpanKind::Call => span.name.to_string(),
        SpanKind::Script => format!("script {}", span.name),
    };
    format!("{}{}", "  ".repeat(depth), sanitize_line(&name))
}

fn bar<'a>(span: &'a Span, label: &'a str) -> Bar<'a> {
    let failure =
        span.code.as_deref().or_else(|| (span.outcome != bascule_store::Outcome::Ok).then_some("failed"));
    Bar { label, start: span.started_at as f64 / 1e3, duration: span.duration as f64 / 1e3, error: failure }
}

/// Returns the number of known ancestors of each span.
fn depths(spans: &[Span]) -> Vec<usize> {
    let parents: HashMap<SpanId, Option<SpanId>> =
        spans.iter().map(|span| (span.context.span_id, span.context.parent)).collect();
    let depth = |span: &Span| {
        let (mut depth, mut at) = (0, span.context.parent);
        while let Some(parent) = at.and_then(|id| parents.get(&id)).filter(|_| depth < 8) {
            (depth, at) = (depth + 1, *parent);
        }
        depth
    };
    spans.iter().map(depth).collect()
}

/// Prints what the waterfall has no room for: attempts, the wait at the gate, the error and captured content.
fn print_details(span: &Span, printer: &Printer) {
    let mut facts = Vec::new();
    if span.attempts > 1 {
        facts.push(format!("sent {} times", span.attempts));
    }
    if span.waited >= 1_000 {
        facts.push(format!("waited {}", table::duration(span.waited)));
    }
    if let Some(delivery) = span.delivery.filter(|_| span.code.is_some()) {
        facts.push(format!("delivery {}", delivery.as_str()));
    }
    facts.extend(span.message.iter().map(|message| sanitize_line(message)));
    let captured = span.content.as_ref().map(|content| content.capture()).unwrap_or_default();
    facts.extend(captured.arguments.iter().map(|text| format!("arguments {}", sanitize_line(text))));
    facts.extend(captured.result.iter().map(|text| format!("result {}", sanitize_line(text))));
    if facts.is_empty() {
        return;
    }
    let id = printer.style.dim(&span.context.span_id.to_string());
    printer.print_line(&format!("{id} {}", sanitize_line(&span.name)));
    facts.iter().for_each(|fact| printer.print_line(&format!("  {fact}")));
}
