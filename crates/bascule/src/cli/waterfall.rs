//! Draws the calls of a script as a waterfall of bars over time.

use super::terminal::sanitize_line;
use crate::ScriptTrace;

/// The columns of the time axis.
const WIDTH: usize = 32;

struct CallBar<'a> {
    tool: &'a str,
    start: f64,
    duration: f64,
    error: Option<&'a str>,
}

/// Returns one line per call, in order of their start.
pub(crate) fn waterfall(traces: &[ScriptTrace]) -> Vec<String> {
    let bars: Vec<CallBar> =
        traces.iter().filter(|trace| trace.success.is_none()).map(|trace| call_bar(trace, traces)).collect();
    let begin = bars.iter().map(|bar| bar.start).fold(f64::INFINITY, f64::min);
    let end = bars.iter().map(|bar| bar.start + bar.duration).fold(0.0, f64::max);
    let name = bars.iter().map(|bar| bar.tool.chars().count()).max().unwrap_or(0);
    let column = |at: f64| (((at - begin) / (end - begin).max(0.001)) * WIDTH as f64).round() as usize;
    let draw = |bar: &CallBar| {
        let from = column(bar.start).min(WIDTH - 1);
        let to = column(bar.start + bar.duration).clamp(from + 1, WIDTH);
        let (before, during, after) = (" ".repeat(from), "█".repeat(to - from), " ".repeat(WIDTH - to));
        let error = bar.error.map_or(String::new(), |error| format!("  ✗ {}", truncate(error)));
        format!("{:name$} {before}{during}{after} {:8.1} ms{error}", bar.tool, bar.duration)
    };
    bars.iter().map(draw).collect()
}

/// Returns the first line of a server's error, sanitized and truncated.
fn truncate(text: &str) -> String {
    const MAX_CHARS: usize = 100;
    sanitize_line(text.lines().next().unwrap_or_default()).chars().take(MAX_CHARS).collect()
}

fn call_bar<'a>(start: &'a ScriptTrace, traces: &'a [ScriptTrace]) -> CallBar<'a> {
    let end = traces.iter().find(|trace| trace.success.is_some() && trace.trace_id == start.trace_id);
    CallBar {
        tool: &start.tool,
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
