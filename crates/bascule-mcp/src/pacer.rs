//! Limits how fast the unsolicited messages of one server are read, so that a flood of them does not delay the messages of
//! other servers.
//!
//! Responses to pending requests are free: a server cannot send more of them than it was asked for. While a server exceeds its
//! rate, it is not read, so that its pipe or connection fills and the server waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time that a message costs: ten thousand a second.
const MESSAGE_COST: Duration = Duration::from_micros(100);
/// The time that a byte costs: twenty million a second.
const BYTE_COST: Duration = Duration::from_nanos(50);
/// The time that a silent server saves for a burst.
const BURST: Duration = Duration::from_secs(1);
/// Other tasks run after messages of this cost, also during a burst.
const TURN: Duration = Duration::from_micros(3_200);

/// The messages of one server.
pub(crate) struct Pacer {
    /// True if the turn is over.
    is_due: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The cost of the messages in this turn.
    turn: Duration,
    /// The time at which everything read before this turn is paid for.
    paid_at: Instant,
    /// The cost of all messages so far.
    total: Duration,
}

impl Pacer {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let paid_at = now.checked_sub(BURST).unwrap_or(now);
        let state = State { turn: Duration::ZERO, paid_at, total: Duration::ZERO };
        Self { is_due: AtomicBool::new(false), state: Mutex::new(state) }
    }

    pub(crate) fn charge_message(&self, bytes: usize) {
        self.charge(MESSAGE_COST + cost_of(bytes));
    }

    /// Charges bytes that hold no message.
    pub(crate) fn charge_bytes(&self, bytes: usize) {
        self.charge(cost_of(bytes));
    }

    /// Returns the cost of all messages so far, as reading time at the permitted rate.
    pub(crate) fn total(&self) -> Duration {
        self.state().total
    }

    fn charge(&self, cost: Duration) {
        let mut state = self.state();
        state.turn += cost;
        state.total += cost;
        if state.turn >= TURN {
            self.is_due.store(true, Ordering::Relaxed);
        }
    }

    /// To be awaited before each read. Lets other tasks run after each turn, and waits while the server exceeds its rate.
    /// Cancel-safe.
    pub(crate) async fn pace(&self) {
        if !self.is_due.load(Ordering::Relaxed) {
            return;
        }
        let paid_at = self.state().pay_turn(Instant::now());
        match paid_at > Instant::now() {
            true => sleep_until(paid_at).await,
            false => tokio::task::yield_now().await,
        }
        self.is_due.store(self.state().turn >= TURN, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl State {
    /// Ends the turn. Returns the time at which it is paid for.
    fn pay_turn(&mut self, now: Instant) -> Instant {
        let earliest = now.checked_sub(BURST).unwrap_or(self.paid_at);
        self.paid_at = self.paid_at.max(earliest) + std::mem::take(&mut self.turn);
        self.paid_at
    }
}

fn cost_of(bytes: usize) -> Duration {
    BYTE_COST.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads messages of ten bytes for this time, and returns their number.
    async fn read_for(pacer: &Pacer, time: Duration) -> u32 {
        let (until, mut count) = (Instant::now() + time, 0);
        while Instant::now() < until {
            pacer.pace().await;
            pacer.charge_message(10);
            count += 1;
        }
        count
    }

    // req: BR-12
    #[tokio::test(start_paused = true)]
    async fn allows_a_burst_and_then_the_rate() {
        let pacer = Pacer::new();
        let first = read_for(&pacer, Duration::from_secs(1)).await;
        assert!((19_500..=20_500).contains(&first), "{first}");
        let second = read_for(&pacer, Duration::from_secs(1)).await;
        assert!((9_500..=10_500).contains(&second), "{second}");
        tokio::time::advance(Duration::from_secs(3600)).await;
        let third = read_for(&pacer, Duration::from_secs(1)).await;
        assert!((19_500..=20_500).contains(&third), "silence saves one burst: {third}");
    }

    // req: BR-12
    #[tokio::test(start_paused = true)]
    async fn dropped_wait_is_not_forgotten() {
        let pacer = Pacer::new();
        let before = Instant::now();
        pacer.charge_bytes(40_000_000);
        for _ in 0..3 {
            let waited = tokio::time::timeout(Duration::from_millis(10), pacer.pace()).await;
            assert!(waited.is_err());
        }
        pacer.pace().await;
        assert_eq!(before.elapsed(), Duration::from_secs(1));
    }
}
