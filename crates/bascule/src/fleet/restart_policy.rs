//! How a server's life goes on after it was lost: when to try again, and when to give up (BR-09).
//!
//! Only decides, and reads no clock and no dice: time and random_u64 are arguments. Acting on it is the actor's.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerSettings;

/// No wait between two attempts is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// What stayed up this long had started well. What did not counts as one more failed start.
const STEADY: Duration = Duration::from_secs(10);

/// What a server was promised, and what it has made of it.
#[derive(Debug, Clone)]
pub(crate) struct RestartPolicy {
    first_wait: Duration,
    most_attempts: u32,
    /// The share of a wait, 0 to 1, that is left to random_u64.
    jitter: f64,
    /// Attempts at bringing it back that have not lasted, in a row.
    attempts: u32,
    up_since: Option<Instant>,
}

/// What comes next for a server that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The attempt of this number, the first being 1, is due then.
    TryAgain { attempt: u32, at: Instant },
    /// So many attempts were enough.
    GiveUp { attempts: u32 },
}

/// Whether a loss was foreseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It may need time to recover.
    Fault,
    /// We ended it ourselves, or all it needs is a new session: there is nothing to wait for.
    Renewal,
}

impl RestartPolicy {
    pub(crate) fn new(settings: &ServerSettings, reconnect: bool) -> Self {
        Self {
            first_wait: settings.reconnect_backoff,
            most_attempts: if reconnect { settings.max_retries } else { 0 },
            jitter: settings.reconnect_jitter,
            attempts: 0,
            up_since: None,
        }
    }

    /// It is up.
    pub(crate) fn up(&mut self, now: Instant) {
        self.up_since = Some(now);
    }

    /// It was lost, or a start failed. `random_u64` is from 0 up to 1.
    pub(crate) fn down(&mut self, loss: Loss, now: Instant, random_u64: f64) -> Turn {
        let lasted = self.up_since.take().is_some_and(|since| now - since >= STEADY);
        if lasted {
            self.attempts = 0;
        }
        if self.attempts >= self.most_attempts {
            return Turn::GiveUp { attempts: self.attempts };
        }
        // Renewing what does not last would be a loop without a pause.
        let wait = if lasted && loss == Loss::Renewal { Duration::ZERO } else { self.wait(random_u64) };
        self.attempts += 1;
        Turn::TryAgain { attempt: self.attempts, at: now + wait }
    }

    /// Somebody wants it back: it is given all its attempts again.
    pub(crate) fn pardon(&mut self) {
        self.attempts = 0;
    }

    /// How many attempts have been made since it last was well.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    fn wait(&self, random_u64: f64) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << self.attempts.min(20));
        doubled.min(LONGEST_WAIT).mul_f64(1.0 - self.jitter * random_u64)
    }
}

#[cfg(test)]
mod tests {
    use bascule_model::ServerName;
    use proptest::prelude::*;

    use super::*;
    use crate::config::TransportSettings;

    fn life(change: impl FnOnce(&mut ServerSettings)) -> RestartPolicy {
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec![], env: vec![], cwd: None };
        let mut settings = ServerSettings::new(ServerName::parse("s").unwrap(), transport);
        change(&mut settings);
        RestartPolicy::new(&settings, true)
    }

    /// The waits, in milliseconds, of a server that never comes back.
    fn waits(mut life: RestartPolicy, random_u64: f64) -> Vec<u128> {
        let now = Instant::now();
        std::iter::from_fn(|| match life.down(Loss::Fault, now, random_u64) {
            Turn::TryAgain { at, .. } => Some((at - now).as_millis()),
            Turn::GiveUp { .. } => None,
        })
        .collect()
    }

    // req: BR-09
    #[test]
    fn waits_double_up_to_thirty_seconds_ten_times() {
        let expected = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000, 30_000];
        assert_eq!(waits(life(|_| {}), 0.9), expected);
        let quick = life(|settings| {
            settings.reconnect_backoff = Duration::from_millis(50);
            settings.max_retries = 3;
        });
        assert_eq!(waits(quick, 0.0), [50, 100, 200]);
    }

    // req: BR-09
    #[test]
    fn chance_shortens_a_wait_only_where_asked() {
        let spread = |random_u64| waits(life(|settings| settings.reconnect_jitter = 0.5), random_u64)[0];
        assert_eq!((spread(0.0), spread(0.5)), (1_000, 750));
    }

    // req: BR-09
    #[test]
    fn what_dies_soon_after_its_start_has_failed_to_start() {
        let (mut life, begin) = (life(|settings| settings.max_retries = 2), Instant::now());
        let soon = begin + STEADY / 2;
        life.up(begin);
        assert_eq!(
            life.down(Loss::Fault, soon, 0.0),
            Turn::TryAgain { attempt: 1, at: soon + Duration::from_secs(1) }
        );
        life.up(soon);
        assert!(matches!(life.down(Loss::Fault, soon, 0.0), Turn::TryAgain { attempt: 2, .. }));
        life.up(soon);
        assert_eq!(life.down(Loss::Fault, soon, 0.0), Turn::GiveUp { attempts: 2 });
        life.up(soon);
        let later = soon + STEADY;
        assert!(matches!(life.down(Loss::Fault, later, 0.0), Turn::TryAgain { attempt: 1, .. }));
    }

    #[test]
    fn a_renewal_waits_for_nothing_unless_it_does_not_last() {
        let (mut life, begin) = (life(|_| {}), Instant::now());
        life.up(begin);
        let later = begin + STEADY;
        assert_eq!(life.down(Loss::Renewal, later, 0.0), Turn::TryAgain { attempt: 1, at: later });
        life.up(later);
        let turn = life.down(Loss::Renewal, later, 0.0);
        assert_eq!(turn, Turn::TryAgain { attempt: 2, at: later + Duration::from_secs(2) });
    }

    proptest! {
        // req: BR-09
        /// Whatever happens in whatever order: waits stay within their bounds, attempts are counted without a gap,
        /// and a server is given up after exactly so many of them.
        #[test]
        fn no_history_breaks_the_rules(
            events in prop::collection::vec((0..4u8, 0..20_000u64, 0.0..1.0f64), 1..60),
            most in 0..5u32,
            jitter in 0.0..1.0f64,
        ) {
            let mut life = life(|settings| {
                settings.max_retries = most;
                settings.reconnect_jitter = jitter;
            });
            let (mut now, mut up, mut expected) = (Instant::now(), None, 0);
            for (kind, passed, random_u64) in events {
                now += Duration::from_millis(passed);
                match kind {
                    0 => { life.up(now); up = Some(now); }
                    1 => { life.pardon(); expected = 0; }
                    _ => {
                        if up.take().is_some_and(|since| now - since >= STEADY) { expected = 0; }
                        match life.down(Loss::Fault, now, random_u64) {
                            Turn::TryAgain { attempt, at } => {
                                expected += 1;
                                prop_assert_eq!(attempt, expected);
                                prop_assert!(attempt <= most && at >= now && at - now <= LONGEST_WAIT);
                            }
                            Turn::GiveUp { attempts } => prop_assert_eq!((attempts, expected), (most, most)),
                        }
                    }
                }
            }
        }
    }
}
