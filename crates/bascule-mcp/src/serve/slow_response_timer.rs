//! Notices that a response takes long, with one timer for all requests of a connection.
//!
//! A timer of its own for every request would be set and removed again within microseconds. This one stays set: when it goes off
//! too early for the present request, it is set again.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Requests of a connection are handled one after the other, so one timer is enough.
#[derive(Default)]
pub(super) struct SlowResponseTimer(Mutex<Option<Pin<Box<Sleep>>>>);

impl SlowResponseTimer {
    pub(super) async fn wait_until(&self, deadline: Instant) {
        poll_fn(|context| self.poll(deadline, context)).await
    }

    fn poll(&self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let mut timer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // req: GW-01
    #[tokio::test(start_paused = true)]
    async fn goes_off_at_the_deadline_of_each_request() {
        let (timer, second) = (SlowResponseTimer::default(), Duration::from_secs(1));
        let started = Instant::now();
        for seconds in [10, 12, 11, 30] {
            // A request that is answered at once leaves the timer as it is.
            let answered = tokio::time::timeout(second / 100, timer.wait_until(Instant::now() + 15 * second));
            assert!(answered.await.is_err());
            timer.wait_until(started + seconds * second).await;
            let passed = started.elapsed();
            assert!(passed >= seconds * second, "{passed:?}");
        }
        assert_eq!(started.elapsed().as_secs(), 30);
    }
}
