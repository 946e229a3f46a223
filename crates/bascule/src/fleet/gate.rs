//! Limits the calls to a server: concurrent ones, waiting ones, and their rate.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::config::ResourceLimits;
use crate::deadline::Deadline;

/// The retry time before any call has been measured.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// The gate of a server, or of one of its tools.
#[derive(Debug)]
pub(crate) struct Gate {
    slots: Semaphore,
    max_concurrent: usize,
    queue: Semaphore,
    max_queue: usize,
    rate: Option<Mutex<Bucket>>,
    /// The moving average of a call's duration in microseconds, of the calls that are measured; 0 before the first one.
    average: AtomicU64,
}

/// The permit of one call.
#[derive(Debug)]
pub(crate) struct GatePermit<'a> {
    _slot: SemaphorePermit<'a>,
    gate: &'a Gate,
    /// The beginning of a call that is measured: the first one, and one that took the last slot. Any call's end lets the next one
    /// in, but the clock is not read for each call of a server that has room.
    since: Option<Instant>,
}

impl Gate {
    pub(crate) fn new(limits: &ResourceLimits) -> Self {
        Self {
            slots: Semaphore::new(limits.max_concurrent.min(Semaphore::MAX_PERMITS)),
            max_concurrent: limits.max_concurrent,
            queue: Semaphore::new(limits.max_queue.min(Semaphore::MAX_PERMITS)),
            max_queue: limits.max_queue,
            rate: limits.rate_per_second.map(|rate| Mutex::new(Bucket::full(rate, Instant::now()))),
            average: AtomicU64::new(0),
        }
    }

    /// Waits for a slot until the deadline, first come first served. An error names the time to retry.
    pub(crate) async fn enter(&self, deadline: &Deadline) -> BridgeResult<GatePermit<'_>> {
        self.check_rate()?;
        let slot = match self.slots.try_acquire() {
            Ok(slot) => slot,
            Err(_) => self.wait(deadline).await?,
        };
        let is_measured = self.slots.available_permits() == 0 || self.average.load(Ordering::Relaxed) == 0;
        let since = is_measured.then(Instant::now);
        Ok(GatePermit { _slot: slot, gate: self, since })
    }

    fn check_rate(&self) -> BridgeResult<()> {
        let Some(bucket) = &self.rate else { return Ok(()) };
        let mut bucket = bucket.lock().expect("no code panics while it holds the lock");
        bucket.take(Instant::now()).map_err(|wait| {
            rate_limited(format!("more than {} calls a second (`ratePerSecond`)", bucket.rate), wait)
        })
    }

    async fn wait(&self, deadline: &Deadline) -> BridgeResult<SemaphorePermit<'_>> {
        let _place = self.join_queue()?;
        match timeout_at(deadline.next(), self.slots.acquire()).await {
            Ok(slot) => Ok(slot.expect("the semaphore is never closed")),
            Err(_) => {
                let message = format!("the call got no slot {} (`maxConcurrent`)", deadline.passed());
                Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message))
            }
        }
    }

    fn join_queue(&self) -> BridgeResult<SemaphorePermit<'_>> {
        self.queue.try_acquire().map_err(|_| {
            let reason = format!(
                "{} calls are in flight (`maxConcurrent`) and {} are waiting (`maxQueue`)",
                self.max_concurrent, self.max_queue
            );
            rate_limited(reason, self.expected_wait())
        })
    }

    fn expected_wait(&self) -> Duration {
        match self.average.load(Ordering::Relaxed) {
            0 => DEFAULT_RETRY,
            micros => Duration::from_micros(micros).max(Duration::from_millis(1)),
        }
    }
}

impl Drop for GatePermit<'_> {
    fn drop(&mut self) {
        let Some(since) = self.since else { return };
        let duration = since.elapsed();
        let average = match self.gate.average.load(Ordering::Relaxed) {
            // The first call may have waited for the start of its server.
            0 => duration.min(DEFAULT_RETRY).as_micros().max(1) as u64,
            old => (old * 7 + duration.as_micros() as u64) / 8 + 1,
        };
        // Two concurrent updates may overwrite each other: the average is an estimate.
        self.gate.average.store(average, Ordering::Relaxed);
    }
}

fn rate_limited(reason: String, wait: Duration) -> Box<BridgeError> {
    let millis = wait.as_micros().div_ceil(1_000) as u64;
    let message = format!("{reason}; try again in {millis} ms");
    let mut error = BridgeError::new(ErrorCode::RateLimited, Delivery::NotSent, message);
    error.retry_after_ms = Some(millis);
    error
}

/// A token bucket that fills by `rate` tokens a second and holds those of one second, at least one.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: f64, now: Instant) -> Self {
        Self { rate, tokens: rate.max(1.0), at: now }
    }

    /// Takes a token, or returns the time until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.rate.max(1.0));
        self.at = now;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.rate));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(millis: u64) -> Deadline {
        let length = Duration::from_millis(millis);
        Deadline::new(Instant::now(), None, length, length)
    }

    fn gate(at_once: usize, waiting: usize, rate: Option<f64>) -> Gate {
        let limits = ResourceLimits {
            max_concurrent: at_once,
            max_queue: waiting,
            rate_per_second: rate,
            ..ResourceLimits::default()
        };
        Gate::new(&limits)
    }

    // req: BR-17
    #[tokio::test(start_paused = true)]
    async fn refuses_calls_beyond_slots_and_queue() {
        let gate = gate(1, 1, None);
        let first = gate.enter(&deadline(1_000)).await.unwrap();
        let limit = deadline(1_000);
        let mut second = Box::pin(gate.enter(&limit));
        assert!(futures_util::poll!(&mut second).is_pending());
        let third = gate.enter(&deadline(1_000)).await.unwrap_err();
        assert_eq!((third.code, third.retry_after_ms), (ErrorCode::RateLimited, Some(1_000)));
        drop(first);
        second.await.unwrap();
        gate.enter(&deadline(1_000)).await.unwrap();
    }

    // req: BR-17
    #[tokio::test(start_paused = true)]
    async fn retry_time_of_a_gate_that_fills_up_for_the_first_time_is_that_of_its_first_call() {
        for (first_call, retry) in [(10, 10), (20_000, 1_000)] {
            let gate = gate(2, 0, None);
            let first = gate.enter(&deadline(60_000)).await.unwrap();
            tokio::time::advance(Duration::from_millis(first_call)).await;
            drop(first);
            let _both =
                [gate.enter(&deadline(1_000)).await.unwrap(), gate.enter(&deadline(1_000)).await.unwrap()];
            let refused = gate.enter(&deadline(1_000)).await.unwrap_err();
            assert_eq!(refused.retry_after_ms, Some(retry));
        }
    }

    // req: BR-17
    #[tokio::test(start_paused = true)]
    async fn reports_call_that_waited_too_long_as_not_sent() {
        let gate = gate(1, 5, None);
        let _first = gate.enter(&deadline(1_000)).await.unwrap();
        let late = gate.enter(&deadline(50)).await.unwrap_err();
        assert_eq!((late.code, late.delivery), (ErrorCode::ProviderTimeout, Delivery::NotSent));
        assert_eq!(gate.queue.available_permits(), gate.max_queue, "the place in the queue is free again");
    }

    // req: BR-17
    #[tokio::test(start_paused = true)]
    async fn admits_call_after_the_announced_retry_time() {
        let gate = gate(9, 9, Some(2.0));
        for _ in 0..2 {
            gate.enter(&deadline(1_000)).await.unwrap();
        }
        let error = gate.enter(&deadline(1_000)).await.unwrap_err();
        assert_eq!((error.code, error.retry_after_ms), (ErrorCode::RateLimited, Some(500)));
        tokio::time::advance(Duration::from_millis(500)).await;
        gate.enter(&deadline(1_000)).await.unwrap();
        gate.enter(&deadline(1_000)).await.unwrap_err();
    }
}
