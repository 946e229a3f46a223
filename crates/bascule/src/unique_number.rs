//! Numbers for ids. They are unique, not secret, so one random number serves all.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bascule_model::{CorrelationId, SpanId};

pub(crate) fn random_u64() -> u64 {
    let mut bits = [0; 8];
    // Nothing secret depends on these numbers: without a random source they are zero.
    let _ = getrandom::fill(&mut bits);
    u64::from_ne_bytes(bits)
}

/// Returns a number that no other call returns.
pub(crate) fn next_unique_number() -> u128 {
    static FIRST: LazyLock<u128> =
        LazyLock::new(|| u128::from(random_u64()) << 64 | u128::from(random_u64()));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Any odd step gives each call a number of its own; this one makes neighbours look different.
    const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let count = u128::from(COUNT.fetch_add(1, Ordering::Relaxed));
    FIRST.wrapping_add(count.wrapping_mul(STEP))
}

/// Returns an id for a call whose caller has given none.
pub(crate) fn next_correlation_id() -> CorrelationId {
    CorrelationId::from_random(next_unique_number())
}

/// Returns the id of a new span.
pub(crate) fn next_span_id() -> SpanId {
    static FIRST: LazyLock<u64> = LazyLock::new(random_u64);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    SpanId(FIRST.wrapping_add(count.wrapping_mul(STEP)).max(1))
}
