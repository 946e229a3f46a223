//! The calls that a script did not await, and the time that its answer waits for them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of tools to name in a warning.
const MAX_NAMED: usize = 10;
/// An answer that waits for so long for calls says so.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// The calls that were in flight when the script had returned, and those that it made later.
pub(crate) struct UnawaitedCalls {
    /// Each tool with its number of calls.
    tools: BTreeMap<String, usize>,
    /// The time at which a call was in flight again after a time without one.
    waits_since: Option<Instant>,
    /// The time with calls in flight before that.
    waited: Duration,
}

impl UnawaitedCalls {
    /// Begins with the calls that are in flight when the script has returned.
    pub(crate) fn new(in_flight: BTreeMap<String, usize>, now: Instant) -> Self {
        let waits_since = (!in_flight.is_empty()).then_some(now);
        Self { tools: in_flight, waits_since, waited: Duration::ZERO }
    }

    /// Adds a call of a tool.
    pub(crate) fn add(&mut self, tool: &str, now: Instant) {
        *self.tools.entry(tool.to_owned()).or_default() += 1;
        self.waits_since = self.waits_since.or(Some(now));
    }

    /// No call is in flight any more.
    pub(crate) fn end_wait(&mut self, now: Instant) {
        let since = self.waits_since.take();
        self.waited += since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    }

    /// Returns the time with calls in flight, without those that have not ended.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns a warning that names the calls; `None` if there were none.
    pub(crate) fn warning(&self) -> Option<String> {
        let wait = match self.waited >= LONG_WAIT {
            false => String::new(),
            true => format!(
                " (the answer waited {:.1} s for them; a call goes on also if `Promise.race` no longer waits for it)",
                self.waited.as_secs_f64()
            ),
        };
        (!self.tools.is_empty()).then(|| {
            format!(
                "these calls were not awaited, and ended after the script had returned: {}{wait}",
                named_tools(&self.tools)
            )
        })
    }
}

/// Lists tools with the number of their calls.
pub(crate) fn named_tools(tools: &BTreeMap<String, usize>) -> String {
    let shown = tools.iter().take(MAX_NAMED).map(|(tool, count)| match count {
        1 => format!("`{tool}`"),
        count => format!("`{tool}` ({count} calls)"),
    });
    let rest = tools.len().saturating_sub(MAX_NAMED);
    let rest = (rest > 0).then(|| format!("{rest} more tools"));
    shown.chain(rest).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "these calls were not awaited, and ended after the script had returned: ";

    /// Checks the warning about a call from 0 s on that ends at `end`, and one that a timer makes at 60 s, in milliseconds.
    fn check(end: u64, late_end: Option<u64>, expected: &str) {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut calls = UnawaitedCalls::new(BTreeMap::from([("a:b".into(), 1)]), start);
        calls.end_wait(at(end));
        if let Some(late_end) = late_end {
            calls.add("c:d", at(60_000));
            calls.add("c:d", at(60_001));
            calls.end_wait(at(late_end));
        }
        assert_eq!(calls.warning().unwrap().strip_prefix(TEXT), Some(expected));
    }

    // req: CM-13
    #[test]
    fn warning_tells_long_wait_for_calls_but_not_for_timers() {
        let waited = |time: &str| {
            format!(
                "(the answer waited {time} s for them; a call goes on also if `Promise.race` no longer waits for it)"
            )
        };
        check(999, None, "`a:b`");
        check(1_100, None, &format!("`a:b` {}", waited("1.1")));
        check(10, Some(60_020), "`a:b`, `c:d` (2 calls)");
        check(700, Some(60_700), &format!("`a:b`, `c:d` (2 calls) {}", waited("1.4")));
        let none = UnawaitedCalls::new(BTreeMap::new(), Instant::now());
        assert_eq!(none.warning(), None);
    }
}
