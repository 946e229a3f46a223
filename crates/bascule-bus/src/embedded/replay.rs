//! The replay buffer of a bus: the most recent messages without a gap, bounded in number and bytes.

use std::collections::VecDeque;

use super::{BusMessage, ReplayLimits};
use crate::TopicPattern;

pub(super) struct ReplayBuffer {
    limits: ReplayLimits,
    messages: VecDeque<BusMessage>,
    bytes: usize,
}

impl ReplayBuffer {
    pub(super) fn new(limits: ReplayLimits) -> Self {
        Self { limits, messages: VecDeque::new(), bytes: 0 }
    }

    /// Appends a message and evicts the oldest ones. A message that exceeds the limit alone empties the buffer:
    /// skipping it instead would leave a gap.
    pub(super) fn push(&mut self, message: BusMessage) {
        self.bytes += message.size;
        self.messages.push_back(message);
        while self.messages.len() > self.limits.messages || self.bytes > self.limits.bytes {
            let Some(oldest) = self.messages.pop_front() else { return };
            self.bytes -= oldest.size;
        }
    }

    /// Returns the last `count` messages that match, oldest first.
    pub(super) fn recent(&self, pattern: &TopicPattern, count: usize) -> Vec<BusMessage> {
        let newest_first = self.messages.iter().rev().filter(|message| pattern.matches(&message.topic));
        let mut recent: Vec<_> = newest_first.take(count).cloned().collect();
        recent.reverse();
        recent
    }
}
