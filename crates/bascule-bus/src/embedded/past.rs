//! The recent past of a bus: always the last messages without a gap, bounded in number and bytes.

use std::collections::VecDeque;

use super::{Message, Recall};
use crate::TopicPattern;

pub(super) struct Past {
    limits: Recall,
    messages: VecDeque<Message>,
    /// What they weigh together.
    weight: usize,
}

impl Past {
    pub(super) fn new(limits: Recall) -> Self {
        Self { limits, messages: VecDeque::new(), weight: 0 }
    }

    /// Remembers a message and forgets the oldest. One that is too heavy by itself makes the past begin anew:
    /// with a gap it would tell a wrong story.
    pub(super) fn push(&mut self, message: Message) {
        self.weight += message.weight;
        self.messages.push_back(message);
        while self.messages.len() > self.limits.messages || self.weight > self.limits.bytes {
            let Some(oldest) = self.messages.pop_front() else { return };
            self.weight -= oldest.weight;
        }
    }

    /// The last `count` messages that match, oldest first.
    pub(super) fn recent(&self, pattern: &TopicPattern, count: usize) -> Vec<Message> {
        let newest_first = self.messages.iter().rev().filter(|message| pattern.matches(&message.topic));
        let mut recent: Vec<_> = newest_first.take(count).cloned().collect();
        recent.reverse();
        recent
    }
}
