//! When a script's timers are due. What to do then is the harness's business.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

/// The timers of a script.
#[derive(Default)]
pub(crate) struct Timers {
    last: u32,
    /// The timers that wait, and when each is due.
    due: HashMap<u32, (Instant, u64)>,
    /// The same in order; what is no longer in `due` is passed over.
    order: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    /// Of those that are due together, the one that was started first comes first.
    started: u64,
}

impl Timers {
    pub(crate) fn start(&mut self, now: Instant, delay: Duration) -> u32 {
        self.last += 1;
        self.restart(self.last, now, delay);
        self.last
    }

    pub(crate) fn restart(&mut self, id: u32, now: Instant, delay: Duration) {
        self.started += 1;
        self.due.insert(id, (now + delay, self.started));
        self.order.push(Reverse((now + delay, self.started, id)));
    }

    pub(crate) fn stop(&mut self, id: u32) {
        self.due.remove(&id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// When the next is due.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, started, id))) = self.order.peek() {
            if self.due.get(id) == Some(&(*at, *started)) {
                return Some(*at);
            }
            self.order.pop();
        }
        None
    }

    /// Takes the next one that is due by now and was started before `before`.
    pub(crate) fn take_due(&mut self, now: Instant, before: u64) -> Option<u32> {
        self.next()?;
        let Reverse((at, started, id)) = *self.order.peek()?;
        if at > now || started > before {
            return None;
        }
        self.order.pop();
        self.due.remove(&id);
        Some(id)
    }

    /// Those started from now on come later than this.
    pub(crate) fn mark(&self) -> u64 {
        self.started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_the_order_in_which_they_are_due() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let ms = Duration::from_millis;
        let late = timers.start(now, ms(5));
        let early = timers.start(now, ms(1));
        let stopped = timers.start(now, ms(1));
        let same = timers.start(now, ms(1));
        timers.stop(stopped);
        let mark = timers.mark();
        assert_eq!(timers.next(), Some(now + ms(1)));
        assert_eq!(timers.take_due(now, mark), None);
        let all: Vec<_> = std::iter::from_fn(|| timers.take_due(now + ms(9), mark)).collect();
        assert_eq!(all, [early, same, late]);
        assert!(timers.is_empty());
    }

    #[test]
    fn one_that_is_started_meanwhile_waits_for_the_next_round() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let id = timers.start(now, Duration::ZERO);
        let mark = timers.mark();
        assert_eq!(timers.take_due(now, mark), Some(id));
        timers.restart(id, now, Duration::ZERO);
        assert_eq!(timers.take_due(now, mark), None);
        assert_eq!(timers.take_due(now, timers.mark()), Some(id));
    }
}
