//! Ranks the tools of several servers for an intent.
//!
//! Words (BM25 over fields) and meaning (cosine) are each scaled to 0…1 and count about half. An intent of several steps is scored as a
//! whole and by its best step: the sum decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::fields::FIELDS;
use crate::intent::MAX_PARTS;
use crate::scores::Scores;
use crate::{Intent, ServerIndex};

/// The tools of several servers. Cheap to make: it shares the servers' indexes.
#[derive(Debug, Clone, Default)]
pub struct SearchIndex {
    pub(crate) servers: Vec<Arc<ServerIndex>>,
    /// The number of tools before each server.
    pub(crate) offsets: Vec<usize>,
    pub(crate) tools: usize,
    pub(crate) average_lengths: [f32; FIELDS],
}

/// A tool that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedTool {
    /// The position of the server in the index.
    pub server: usize,
    /// The position of the tool in the list of its server.
    pub tool: usize,
    /// The quality of the match, from 0 to 1. Scores of different intents do not compare.
    pub score: f32,
}

impl FromIterator<Arc<ServerIndex>> for SearchIndex {
    fn from_iter<I: IntoIterator<Item = Arc<ServerIndex>>>(servers: I) -> Self {
        let mut index = Self { servers: servers.into_iter().collect(), ..Self::default() };
        let mut totals = [0_u64; FIELDS];
        for server in &index.servers {
            index.offsets.push(index.tools);
            index.tools += server.len();
            totals.iter_mut().zip(server.total_lengths).for_each(|(total, length)| *total += length);
        }
        let tools = index.tools.max(1) as f32;
        index.average_lengths = totals.map(|total| (total as f32 / tools).max(1e-3));
        index
    }
}

impl SearchIndex {
    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.tools
    }

    pub fn is_empty(&self) -> bool {
        self.tools == 0
    }

    /// Returns the best `k` tools for which `is_wanted` (server, tool) returns true, best first.
    pub fn search(
        &self,
        intent: &Intent,
        k: usize,
        is_wanted: impl Fn(usize, usize) -> bool,
    ) -> Vec<RankedTool> {
        match intent.parts().len() {
            0 | 1 => self.best::<1>(intent, k, is_wanted),
            2..=4 => self.best::<4>(intent, k, is_wanted),
            _ => self.best::<MAX_PARTS>(intent, k, is_wanted),
        }
    }

    /// Ranks with room for `N` parts of the intent.
    fn best<const N: usize>(
        &self,
        intent: &Intent,
        k: usize,
        is_wanted: impl Fn(usize, usize) -> bool,
    ) -> Vec<RankedTool> {
        let mut best = BinaryHeap::with_capacity(k.min(self.tools) + 1);
        for (position, score) in Scores::<N>::new(self, intent.parts()).totals().enumerate() {
            // Of equal scores the first in the catalog is better. Scores are not negative, so their bits compare as they do.
            let entry = (score.to_bits(), Reverse(position));
            let is_better = best.len() < k || best.peek().is_some_and(|Reverse(worst)| entry > *worst);
            if is_better && is_wanted(self.server_of(position), self.tool_of(position)) {
                best.push(Reverse(entry));
                if best.len() > k {
                    best.pop();
                }
            }
        }
        let ranked = best.into_sorted_vec();
        ranked
            .into_iter()
            .map(|Reverse((bits, Reverse(position)))| self.ranked(position, f32::from_bits(bits)))
            .collect()
    }

    fn ranked(&self, position: usize, score: f32) -> RankedTool {
        RankedTool { server: self.server_of(position), tool: self.tool_of(position), score }
    }

    fn server_of(&self, position: usize) -> usize {
        self.offsets.partition_point(|offset| *offset <= position) - 1
    }

    fn tool_of(&self, position: usize) -> usize {
        position - self.offsets[self.server_of(position)]
    }
}
