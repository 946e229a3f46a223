//! Draws calls as a waterfall of bars over time.

use super::terminal::{fit, sanitize_line};
use crate::ScriptTrace;

/// The columns of the time axis, if there is room.
const MAX_BAR: usize = 32;
const MIN_BAR: usize = 8;
/// The columns of the duration with its unit.
const DURATION: usize = 13;
/// The columns of a line where there is no terminal.
const DEFAULT_WIDTH: usize = 160;

/// One bar. Times are in milliseconds.
pub(crate) struct Bar<'a> {
    pub(crate) label: &'a str,
    pub(crate) start: f64,
    pub(crate) duration: f64,
    pub(crate) error: Option<&'a str>,
}

/// Returns one line per call of a script, in order of their start, for a terminal of this width.
pub(crate) fn waterfall(traces: &[ScriptTrace], width: Option<usize>) -> Vec<String> {
    let bars: Vec<Bar> =
        traces.iter().filter(|trace| trace.success.is_none()).map(|trace| call_bar(trace, traces)).collect();
    draw(&bars, width)
}

/// Returns one line per bar, for a terminal of this width.
pub(crate) fn draw(bars: &[Bar], width: Option<usize>) -> Vec<String> {
    let width = width.unwrap_or(DEFAULT_WIDTH);
    let begin = bars.iter().map(|bar| bar.start).fold(f64::INFINITY, f64::min);
    let end = bars.iter().map(|bar| bar.start + bar.duration).fold(0.0, f64::max);
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let name = longest.min(width.saturating_sub(MIN_BAR + DURATION).max(MIN_BAR));
    let axis = width.saturating_sub(name + DURATION).clamp(MIN_BAR, MAX_BAR);
    let column = |at: f64| (((at - begin) / (end - begin).max(0.001)) * axis as f64).round() as usize;
    let draw = |bar: &Bar| {
        let from = column(bar.start).min(axis - 1);
        let to = column(bar.start + bar.duration).clamp(from + 1, axis);
        let (before, during, after) = (" ".repeat(from), "█".repeat(to - from), " ".repeat(axis - to));
        let error = bar.error.map_or(String::new(), |error| format!("  ✗ {}", truncate(error)));
        let label = fit(bar.label, name);
        fit(&format!("{label:name$} {before}{during}{after} {:8.1} ms{error}", bar.duration), width)
    };
    bars.iter().map(draw).collect()
}

/// Returns the first line of a server's error, sanitized and truncated.
fn truncate(text: &str) -> String {
    const MAX_CHARS: usize = 100;
    sanitize_line(text.lines().next().unwrap_or_default()).chars().take(MAX_CHARS).collect()
}

fn call_bar<'a>(start: &'a ScriptTrace, traces: &'a [ScriptTrace]) -> Bar<'a> {
    let end = traces.iter().find(|trace| trace.success.is_some() && trace.trace_id == start.trace_id);
    Bar {
        label: &start.tool,
        start: start.ts,
        duration: end.and_then(|end| end.duration_ms).unwrap_or(0.0),
        error: end.and_then(|end| end.error.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(
        kind: &str,
        tool: &str,
        id: u32,
        ts: f64,
        took: Option<f64>,
        error: Option<&str>,
    ) -> ScriptTrace {
        serde_json::from_value(serde_json::json!({
            "type": kind, "tool": tool, "trace_id": id.to_string(), "parent_trace_id": "p", "ts": ts,
            "duration_ms": took, "success": took.map(|_| error.is_none()), "error": error,
        }))
        .unwrap()
    }

    // req: TR-01
    #[test]
    fn draws_calls_at_their_time() {
        let traces = [
            trace("tool_start", "a:b", 1, 0.0, None, None),
            trace("tool_start", "c:long", 2, 0.0, None, None),
            trace("tool_end", "a:b", 1, 4.0, Some(4.0), None),
            trace("tool_start", "a:b", 3, 4.0, None, None),
            trace("tool_end", "c:long", 2, 8.0, Some(8.0), Some("PROVIDER_ERROR: no\u{1b}[31m\nmore")),
            trace("tool_end", "a:b", 3, 8.0, Some(4.0), None),
        ];
        let drawn = waterfall(&traces, None);
        assert_eq!(drawn[0], format!("a:b    {}{}      4.0 ms", "█".repeat(16), " ".repeat(16)));
        assert_eq!(
            drawn[1],
            format!("c:long {}      8.0 ms  ✗ PROVIDER_ERROR: no\u{fffd}[31m", "█".repeat(32))
        );
        assert_eq!(drawn[2], format!("a:b    {}{}      4.0 ms", " ".repeat(16), "█".repeat(16)));
        assert!(waterfall(&[], None).is_empty());
        for width in [24, 40, 60] {
            assert!(waterfall(&traces, Some(width)).iter().all(|line| line.chars().count() <= width));
        }
    }
}
