//! How many calls a server takes, at once and a second; who waits, and who is turned away (BR-17).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::config::ResourceLimits;
use crate::deadline::Deadline;

/// When nothing is known yet about how long calls take.
const A_WHILE: Duration = Duration::from_secs(1);

/// What calls pass on their way to a server, or to one of its tools.
#[derive(Debug)]
pub(crate) struct Gate {
    slots: Semaphore,
    most_at_once: usize,
    waiting: AtomicUsize,
    most_waiting: usize,
    rate: Option<Mutex<Bucket>>,
    /// How long a call has lately been inside, in microseconds: a moving average, 0 while nothing is known.
    stay: AtomicU64,
}

/// A call that is inside.
#[derive(Debug)]
pub(crate) struct GatePermit<'a> {
    _slot: SemaphorePermit<'a>,
    gate: &'a Gate,
    since: Instant,
}

impl Gate {
    pub(crate) fn new(limits: &ResourceLimits) -> Self {
        Self {
            slots: Semaphore::new(limits.max_concurrent.min(Semaphore::MAX_PERMITS)),
            most_at_once: limits.max_concurrent,
            waiting: AtomicUsize::new(0),
            most_waiting: limits.max_queue,
            rate: limits.rate_per_second.map(|rate| Mutex::new(Bucket::full(rate, Instant::now()))),
            stay: AtomicU64::new(0),
        }
    }

    /// Waits for a slot, in backend, until the deadline; or is turned away with the time to come back.
    pub(crate) async fn enter(&self, deadline: &Deadline) -> BridgeResult<GatePermit<'_>> {
        self.keep_the_rate()?;
        let slot = match self.slots.try_acquire() {
            Ok(slot) => slot,
            Err(_) => self.wait(deadline).await?,
        };
        Ok(GatePermit { _slot: slot, gate: self, since: Instant::now() })
    }

    fn keep_the_rate(&self) -> BridgeResult<()> {
        let Some(bucket) = &self.rate else { return Ok(()) };
        let mut bucket = bucket.lock().expect("nothing panics while holding it");
        bucket.take(Instant::now()).map_err(|wait| {
            turned_away(format!("more than {} calls a second (`ratePerSecond`)", bucket.rate), wait)
        })
    }

    async fn wait(&self, deadline: &Deadline) -> BridgeResult<SemaphorePermit<'_>> {
        let _place = self.queue_up()?;
        match timeout_at(deadline.next(), self.slots.acquire()).await {
            Ok(slot) => Ok(slot.expect("nobody closes it")),
            Err(_) => {
                let said = format!("the call got no slot {} (`maxConcurrent`)", deadline.passed());
                Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, said))
            }
        }
    }

    fn queue_up(&self) -> BridgeResult<Place<'_>> {
        let room = |waiting: usize| (waiting < self.most_waiting).then_some(waiting + 1);
        match self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(Place(&self.waiting)),
            Err(waiting) => Err(turned_away(
                format!(
                    "{} calls are being made (`maxConcurrent`) and {waiting} wait (`maxQueue`)",
                    self.most_at_once
                ),
                self.usual_stay(),
            )),
        }
    }

    fn usual_stay(&self) -> Duration {
        match self.stay.load(Ordering::Relaxed) {
            0 => A_WHILE,
            micros => Duration::from_micros(micros).max(Duration::from_millis(1)),
        }
    }
}

impl Drop for GatePermit<'_> {
    fn drop(&mut self) {
        let stay = self.since.elapsed().as_micros() as u64;
        let old = self.gate.stay.load(Ordering::Relaxed);
        // Two that leave at once may overwrite each other: it is an estimate.
        self.gate
            .stay
            .store(if old == 0 { stay.max(1) } else { (old * 7 + stay) / 8 + 1 }, Ordering::Relaxed);
    }
}

/// A place in the backend, given up however the wait ends.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn turned_away(why: String, wait: Duration) -> Box<BridgeError> {
    let millis = wait.as_micros().div_ceil(1_000) as u64;
    let said = format!("{why}; try again in {millis} ms");
    let mut error = BridgeError::new(ErrorCode::RateLimited, Delivery::NotSent, said);
    error.retry_after_ms = Some(millis);
    error
}

/// A bucket that fills by `rate` drops a second and holds one second's worth, at least one.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    drops: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: f64, now: Instant) -> Self {
        Self { rate, drops: rate.max(1.0), at: now }
    }

    /// Takes a drop, or says how long until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.drops = (self.drops + passed * self.rate).min(self.rate.max(1.0));
        self.at = now;
        if self.drops < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.drops) / self.rate));
        }
        self.drops -= 1.0;
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
    async fn so_many_at_once_so_many_in_line_and_no_more() {
        let gate = gate(1, 1, None);
        let first = gate.enter(&deadline(1_000)).await.unwrap();
        let patience = deadline(1_000);
        let mut second = Box::pin(gate.enter(&patience));
        assert!(futures_util::poll!(&mut second).is_pending());
        let third = gate.enter(&deadline(1_000)).await.unwrap_err();
        assert_eq!((third.code, third.retry_after_ms), (ErrorCode::RateLimited, Some(1_000)));
        drop(first);
        second.await.unwrap();
        gate.enter(&deadline(1_000)).await.unwrap();
    }

    // req: BR-17
    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_was_not_sent() {
        let gate = gate(1, 5, None);
        let _first = gate.enter(&deadline(1_000)).await.unwrap();
        let late = gate.enter(&deadline(50)).await.unwrap_err();
        assert_eq!((late.code, late.delivery), (ErrorCode::ProviderTimeout, Delivery::NotSent));
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0, "its place is free again");
    }

    // req: BR-17
    #[tokio::test(start_paused = true)]
    async fn a_rate_says_when_to_come_back_and_keeps_its_word() {
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
