//! Keeps the due times of a script's timers. The prelude runs their callbacks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct Timers {
    last_id: u32,
    running: HashMap<u32, RunningTimer>,
    /// Timers by due time. Entries that are no longer in `running` are skipped.
    queue: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    /// Number of starts so far. Of timers due at the same time, the one started first fires first.
    starts: u64,
}

struct RunningTimer {
    due: Instant,
    /// The number of its start.
    start: u64,
    /// A script that has returned waits for the timer.
    is_held: bool,
}

impl Timers {
    pub(crate) fn start(&mut self, now: Instant, delay: Duration) -> u32 {
        self.last_id += 1;
        self.restart(self.last_id, now, delay, true);
        self.last_id
    }

    pub(crate) fn restart(&mut self, id: u32, now: Instant, delay: Duration, is_held: bool) {
        self.starts += 1;
        self.running.insert(id, RunningTimer { due: now + delay, start: self.starts, is_held });
        self.queue.push(Reverse((now + delay, self.starts, id)));
    }

    pub(crate) fn stop(&mut self, id: u32) {
        self.running.remove(&id);
    }

    pub(crate) fn hold(&mut self, id: u32, is_held: bool) {
        if let Some(timer) = self.running.get_mut(&id) {
            timer.is_held = is_held;
        }
    }

    /// Returns true if a script that has returned waits for a timer.
    pub(crate) fn has_held(&self) -> bool {
        self.running.values().any(|timer| timer.is_held)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, start, id))) = self.queue.peek() {
            if self.running.get(id).is_some_and(|timer| (timer.due, timer.start) == (*due, *start)) {
                return Some(*due);
            }
            self.queue.pop();
        }
        None
    }

    /// Removes and returns the next timer that is due, if it is among the first `starts` starts.
    pub(crate) fn take_due(&mut self, now: Instant, starts: u64) -> Option<u32> {
        self.next_due()?;
        let Reverse((due, start, id)) = *self.queue.peek()?;
        if due > now || start > starts {
            return None;
        }
        self.queue.pop();
        self.running.remove(&id);
        Some(id)
    }

    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_order_of_due_time() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let ms = Duration::from_millis;
        let late = timers.start(now, ms(5));
        let early = timers.start(now, ms(1));
        let stopped = timers.start(now, ms(1));
        let same = timers.start(now, ms(1));
        timers.stop(stopped);
        let starts = timers.starts();
        assert_eq!(timers.next_due(), Some(now + ms(1)));
        assert_eq!(timers.take_due(now, starts), None);
        let all: Vec<_> = std::iter::from_fn(|| timers.take_due(now + ms(9), starts)).collect();
        assert_eq!(all, [early, same, late]);
        assert!(timers.is_empty());
    }

    #[test]
    fn timer_started_by_callback_waits_for_next_round() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let id = timers.start(now, Duration::ZERO);
        let starts = timers.starts();
        assert_eq!(timers.take_due(now, starts), Some(id));
        timers.restart(id, now, Duration::ZERO, true);
        assert_eq!(timers.take_due(now, starts), None);
        assert_eq!(timers.take_due(now, timers.starts()), Some(id));
    }
}
