//! Decides when a lost server is started again, and when it is given up.
//!
//! The policy only decides, and its time and random numbers are arguments. The actor of the server waits and restarts.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerSettings;

const MAX_WAIT: Duration = Duration::from_secs(30);
/// A server that is lost sooner than this after its start has failed to start.
const MIN_UPTIME: Duration = Duration::from_secs(10);

/// The restarts of one server: its settings, and the attempts so far.
#[derive(Debug, Clone)]
pub(crate) struct RestartPolicy {
    first_wait: Duration,
    /// 0 if a lost server is given up at once.
    max_attempts: u32,
    /// The largest share of a wait, 0 to 1, by which it is shortened at random.
    jitter: f64,
    /// Consecutive attempts, counting one that is decided but not started yet. A start that stays up for `MIN_UPTIME` ends
    /// the row.
    attempts: u32,
    up_since: Option<Instant>,
}

/// The next step for a server that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Start the attempt of this number, counted from 1, at this time.
    Retry { attempt: u32, at: Instant },
    /// Stop trying after this many attempts.
    GiveUp { attempts: u32 },
}

/// The kind of a loss, which decides whether the restart waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The server failed, and may need time to recover: it exited, say.
    Fault,
    /// The server works, but needs a new process or session, at once: it has expired the HTTP session, or the bridge ends it
    /// because it ignores cancellations.
    Renewal,
}

impl RestartPolicy {
    /// Creates the policy of a server. Without `reconnect` the server is started once: its first loss, or a failed start,
    /// gives it up.
    pub(crate) fn new(settings: &ServerSettings, reconnect: bool) -> Self {
        Self {
            first_wait: settings.reconnect_backoff,
            max_attempts: if reconnect { settings.max_retries } else { 0 },
            jitter: settings.reconnect_jitter,
            attempts: 0,
            up_since: None,
        }
    }

    /// Notes that the server has started.
    pub(crate) fn on_up(&mut self, now: Instant) {
        self.up_since = Some(now);
    }

    /// Decides after a loss or a failed start. `random` is from 0 up to 1.
    pub(crate) fn on_down(&mut self, loss: Loss, now: Instant, random: f64) -> NextStep {
        let lasted = self.up_since.take().is_some_and(|since| now - since >= MIN_UPTIME);
        if lasted {
            self.attempts = 0;
        }
        if self.attempts >= self.max_attempts {
            return NextStep::GiveUp { attempts: self.attempts };
        }
        // Without a wait, a renewed server that does not stay up would be restarted in a tight loop.
        let wait = if lasted && loss == Loss::Renewal { Duration::ZERO } else { self.wait(random) };
        self.attempts += 1;
        NextStep::Retry { attempt: self.attempts, at: now + wait }
    }

    /// Allows all attempts again: a user or program has asked for a refresh of the server.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Returns the number of consecutive attempts, counting one that is decided but not started yet.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    fn wait(&self, random: f64) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << self.attempts.min(20));
        doubled.min(MAX_WAIT).mul_f64(1.0 - self.jitter * random)
    }
}

#[cfg(test)]
mod tests {
    use bascule_model::ServerName;
    use proptest::prelude::*;

    use super::*;
    use crate::config::TransportSettings;

    fn policy(change: impl FnOnce(&mut ServerSettings)) -> RestartPolicy {
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec![], env: vec![], cwd: None };
        let mut settings = ServerSettings::new(ServerName::parse("s").unwrap(), transport);
        change(&mut settings);
        RestartPolicy::new(&settings, true)
    }

    /// Returns the waits, in milliseconds, of a server that never starts again.
    fn waits(mut policy: RestartPolicy, random: f64) -> Vec<u128> {
        let now = Instant::now();
        std::iter::from_fn(|| match policy.on_down(Loss::Fault, now, random) {
            NextStep::Retry { at, .. } => Some((at - now).as_millis()),
            NextStep::GiveUp { .. } => None,
        })
        .collect()
    }

    // req: BR-09
    #[test]
    fn waits_double_up_to_thirty_seconds_ten_times() {
        let expected = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000, 30_000];
        assert_eq!(waits(policy(|_| {}), 0.9), expected);
        let quick = policy(|settings| {
            settings.reconnect_backoff = Duration::from_millis(50);
            settings.max_retries = 3;
        });
        assert_eq!(waits(quick, 0.0), [50, 100, 200]);
    }

    // req: BR-09
    #[test]
    fn jitter_shortens_a_wait() {
        let spread = |random| waits(policy(|settings| settings.reconnect_jitter = 0.5), random)[0];
        assert_eq!((spread(0.0), spread(0.5)), (1_000, 750));
    }

    // req: BR-09
    #[test]
    fn counts_a_loss_soon_after_start_as_a_failed_start() {
        let (mut policy, begin) = (policy(|settings| settings.max_retries = 2), Instant::now());
        let soon = begin + MIN_UPTIME / 2;
        policy.on_up(begin);
        assert_eq!(
            policy.on_down(Loss::Fault, soon, 0.0),
            NextStep::Retry { attempt: 1, at: soon + Duration::from_secs(1) }
        );
        policy.on_up(soon);
        assert!(matches!(policy.on_down(Loss::Fault, soon, 0.0), NextStep::Retry { attempt: 2, .. }));
        policy.on_up(soon);
        assert_eq!(policy.on_down(Loss::Fault, soon, 0.0), NextStep::GiveUp { attempts: 2 });
        policy.on_up(soon);
        let later = soon + MIN_UPTIME;
        assert!(matches!(policy.on_down(Loss::Fault, later, 0.0), NextStep::Retry { attempt: 1, .. }));
    }

    #[test]
    fn renews_without_a_wait_unless_the_last_start_was_recent() {
        let (mut policy, begin) = (policy(|_| {}), Instant::now());
        policy.on_up(begin);
        let later = begin + MIN_UPTIME;
        assert_eq!(policy.on_down(Loss::Renewal, later, 0.0), NextStep::Retry { attempt: 1, at: later });
        policy.on_up(later);
        let turn = policy.on_down(Loss::Renewal, later, 0.0);
        assert_eq!(turn, NextStep::Retry { attempt: 2, at: later + Duration::from_secs(2) });
    }

    proptest! {
        // req: BR-09
        /// In any order of events, waits stay within their bounds, attempts are counted without a gap, and a server
        /// is given up after exactly `max_retries` attempts.
        #[test]
        fn keeps_bounds_and_counts_in_any_history(
            events in prop::collection::vec((0..4u8, 0..20_000u64, 0.0..1.0f64), 1..60),
            max in 0..5u32,
            jitter in 0.0..1.0f64,
        ) {
            let mut policy = policy(|settings| {
                settings.max_retries = max;
                settings.reconnect_jitter = jitter;
            });
            let (mut now, mut up, mut expected) = (Instant::now(), None, 0);
            for (kind, passed, random) in events {
                now += Duration::from_millis(passed);
                match kind {
                    0 => { policy.on_up(now); up = Some(now); }
                    1 => { policy.reset(); expected = 0; }
                    _ => {
                        if up.take().is_some_and(|since| now - since >= MIN_UPTIME) { expected = 0; }
                        match policy.on_down(Loss::Fault, now, random) {
                            NextStep::Retry { attempt, at } => {
                                expected += 1;
                                prop_assert_eq!(attempt, expected);
                                prop_assert!(attempt <= max && at >= now && at - now <= MAX_WAIT);
                            }
                            NextStep::GiveUp { attempts } => prop_assert_eq!((attempts, expected), (max, max)),
                        }
                    }
                }
            }
        }
    }
}
