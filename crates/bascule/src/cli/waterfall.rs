//! Draws what a script called, and when, as a small waterfall.

use super::terminal::clean_line;
use crate::Trace;

/// How many columns the time has.
const WIDTH: usize = 32;

struct Bar<'a> {
    tool: &'a str,
    start: f64,
    took: f64,
    error: Option<&'a str>,
}

/// A line for each call, in the order in which they began.
pub(crate) fn waterfall(traces: &[Trace]) -> Vec<String> {
    let bars: Vec<Bar> =
        traces.iter().filter(|trace| trace.success.is_none()).map(|trace| bar(trace, traces)).collect();
    let begin = bars.iter().map(|bar| bar.start).fold(f64::INFINITY, f64::min);
    let end = bars.iter().map(|bar| bar.start + bar.took).fold(0.0, f64::max);
    let name = bars.iter().map(|bar| bar.tool.chars().count()).max().unwrap_or(0);
    let column = |at: f64| (((at - begin) / (end - begin).max(0.001)) * WIDTH as f64).round() as usize;
    let draw = |bar: &Bar| {
        let from = column(bar.start).min(WIDTH - 1);
        let to = column(bar.start + bar.took).clamp(from + 1, WIDTH);
        let (before, during, after) = (" ".repeat(from), "█".repeat(to - from), " ".repeat(WIDTH - to));
        let error = bar.error.map_or(String::new(), |error| format!("  ✗ {}", clipped(error)));
        format!("{:name$} {before}{during}{after} {:8.1} ms{error}", bar.tool, bar.took)
    };
    bars.iter().map(draw).collect()
}

/// One line of what a server may have said.
fn clipped(text: &str) -> String {
    const LONGEST: usize = 100;
    clean_line(text.lines().next().unwrap_or_default()).chars().take(LONGEST).collect()
}

fn bar<'a>(start: &'a Trace, traces: &'a [Trace]) -> Bar<'a> {
    let end = traces.iter().find(|trace| trace.success.is_some() && trace.trace_id == start.trace_id);
    Bar {
        tool: &start.tool,
        start: start.ts,
        took: end.and_then(|end| end.duration_ms).unwrap_or(0.0),
        error: end.and_then(|end| end.error.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(kind: &str, tool: &str, id: u32, ts: f64, took: Option<f64>, error: Option<&str>) -> Trace {
        serde_json::from_value(serde_json::json!({
            "type": kind, "tool": tool, "trace_id": id.to_string(), "parent_trace_id": "p", "ts": ts,
            "duration_ms": took, "success": took.map(|_| error.is_none()), "error": error,
        }))
        .unwrap()
    }

    // req: TR-01
    #[test]
    fn calls_are_drawn_where_they_happened() {
        let drawn = waterfall(&[
            trace("tool_start", "a:b", 1, 0.0, None, None),
            trace("tool_start", "c:long", 2, 0.0, None, None),
            trace("tool_end", "a:b", 1, 4.0, Some(4.0), None),
            trace("tool_start", "a:b", 3, 4.0, None, None),
            trace("tool_end", "c:long", 2, 8.0, Some(8.0), Some("PROVIDER_ERROR: no\u{1b}[31m\nmore")),
            trace("tool_end", "a:b", 3, 8.0, Some(4.0), None),
        ]);
        assert_eq!(drawn[0], format!("a:b    {}{}      4.0 ms", "█".repeat(16), " ".repeat(16)));
        assert_eq!(
            drawn[1],
            format!("c:long {}      8.0 ms  ✗ PROVIDER_ERROR: no\u{fffd}[31m", "█".repeat(32))
        );
        assert_eq!(drawn[2], format!("a:b    {}{}      4.0 ms", " ".repeat(16), "█".repeat(16)));
        assert!(waterfall(&[]).is_empty());
    }
}
