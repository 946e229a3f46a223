//! The backoff between attempts. `ErrorCause::is_retryable` decides whether to retry.

use std::time::Duration;

const FIRST_DELAY: Duration = Duration::from_millis(1_000);

/// Returns the delay after `failures` failures: 1 s, 2 s, 4 s …
pub(crate) fn backoff_delay(failures: u32) -> Duration {
    FIRST_DELAY.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CL-05
    #[test]
    fn doubles_the_delay_after_each_failure() {
        assert_eq!(
            [1, 2, 3, 4, 11].map(|n| backoff_delay(n).as_millis()),
            [1000, 2000, 4000, 8000, 1_024_000]
        );
        assert!(backoff_delay(u32::MAX) > backoff_delay(30), "no overflow");
    }
}
