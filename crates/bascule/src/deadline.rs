//! The deadline of a call: the earliest of three time limits, one of which progress restarts.

use std::time::Duration;

use bascule_model::CallTimeout;
use tokio::time::Instant;

/// The name of the caller's limit in errors.
pub(crate) const CALLER: &str = "the caller's timeout";

const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    /// The caller's timeout or `maxExecutionMs`, whichever ends first. Nothing restarts it.
    hard: Bound,
    /// `timeoutMs`, counted from the last progress.
    silence: Bound,
}

#[derive(Debug, Clone, Copy)]
struct Bound {
    at: Instant,
    length: Duration,
    name: &'static str,
}

/// The limit that was reached.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("within {} ms ({name})", length.as_millis())]
pub(crate) struct TimedOut {
    length: Duration,
    name: &'static str,
}

impl Deadline {
    pub(crate) fn new(
        now: Instant,
        caller: Option<CallTimeout>,
        silence: Duration,
        execution: Duration,
    ) -> Self {
        let execution = Bound::new(now, execution, "`maxExecutionMs`");
        let caller = caller.map(|CallTimeout { since, duration }| Bound::new(since.into(), duration, CALLER));
        let hard = caller.filter(|caller| caller.at < execution.at).unwrap_or(execution);
        Self { hard, silence: Bound::new(now, silence, "`timeoutMs`") }
    }

    /// Restarts `timeoutMs`.
    pub(crate) fn on_progress(&mut self, now: Instant) {
        self.silence = Bound::new(now, self.silence.length, self.silence.name);
    }

    /// Returns the time at which the call times out.
    pub(crate) fn next(&self) -> Instant {
        self.first().at
    }

    /// Returns the limit that ends first.
    pub(crate) fn passed(&self) -> TimedOut {
        let Bound { length, name, .. } = self.first();
        TimedOut { length, name }
    }

    fn first(&self) -> Bound {
        if self.hard.at <= self.silence.at { self.hard } else { self.silence }
    }
}

impl Bound {
    fn new(now: Instant, length: Duration, name: &'static str) -> Self {
        // The caller's timeout may exceed what an `Instant` can hold.
        let at = now.checked_add(length).unwrap_or_else(|| now + FOR_EVER);
        Self { at, length, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(caller: Option<u64>, silence: u64, execution: u64, signs: &[u64], expected: (u64, &str)) {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let millis = Duration::from_millis;
        let timeout =
            caller.map(|duration| CallTimeout { since: start.into_std(), duration: millis(duration) });
        let mut deadline = Deadline::new(start, timeout, millis(silence), millis(execution));
        for sign in signs {
            deadline.on_progress(at(*sign));
        }
        assert_eq!((deadline.next(), deadline.passed().to_string().as_str()), (at(expected.0), expected.1));
    }

    #[test]
    fn ends_with_the_smallest_limit() {
        check(Some(10), 20, 30, &[], (10, "within 10 ms (the caller's timeout)"));
        check(Some(40), 20, 30, &[], (20, "within 20 ms (`timeoutMs`)"));
        check(None, 50, 30, &[], (30, "within 30 ms (`maxExecutionMs`)"));
        check(Some(u64::MAX), 50, 30, &[], (30, "within 30 ms (`maxExecutionMs`)"));
    }

    #[test]
    fn counts_the_time_that_the_caller_has_waited_before() {
        let start = Instant::now() + Duration::from_millis(30);
        let timeout = CallTimeout {
            since: start.into_std() - Duration::from_millis(30),
            duration: Duration::from_millis(50),
        };
        let deadline = Deadline::new(start, Some(timeout), Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(deadline.next(), start + Duration::from_millis(20));
        assert_eq!(deadline.passed().to_string(), "within 50 ms (the caller's timeout)");
    }

    #[test]
    fn progress_restarts_only_the_silence_limit() {
        check(None, 20, 100, &[15, 30], (50, "within 20 ms (`timeoutMs`)"));
        check(None, 20, 100, &[15, 30, 45, 60, 75, 90], (100, "within 100 ms (`maxExecutionMs`)"));
        check(Some(40), 20, 100, &[15, 30], (40, "within 40 ms (the caller's timeout)"));
    }
}
