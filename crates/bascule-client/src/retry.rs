//! How long to wait before trying again. Whether to is `Cause::is_retryable`; waiting is the caller's.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(1_000);

/// The wait after the `failures`th failure: 1 s, 2 s, 4 s …
pub(crate) fn delay_after(failures: u32) -> Duration {
    FIRST.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CL-05
    #[test]
    fn each_wait_is_twice_the_one_before() {
        assert_eq!([1, 2, 3, 4, 11].map(|n| delay_after(n).as_millis()), [1000, 2000, 4000, 8000, 1_024_000]);
        assert!(delay_after(u32::MAX) > delay_after(30), "and never overflows");
    }
}
