//! The importance of tools (PageRank): a tool is important if important tools lead to it.

use crate::{EdgeKind, ToolGraph};

/// The probability of going on along an edge instead of to any tool.
const DAMPING: f64 = 0.85;
const MAX_ROUNDS: usize = 50;
/// The ranks are final when a round changes their sum by less.
const TOLERANCE: f64 = 1e-9;

/// A directed edge, with the share of its source's rank that it passes on.
struct WeightedLink {
    from: usize,
    to: usize,
    share: f64,
}

impl ToolGraph {
    /// Returns the ranks by position in the table. Their sum is 1; free positions have rank 0.
    pub(crate) fn ranks(&self) -> Vec<f64> {
        let capacity = self.table.capacity();
        let nodes: Vec<usize> = self.table.nodes().map(|(id, _)| id as usize).collect();
        let (links, has_links) = self.links(capacity);
        let start = 1.0 / nodes.len().max(1) as f64;
        let mut ranks = vec![0.0; capacity];
        nodes.iter().for_each(|node| ranks[*node] = start);
        for _ in 0..MAX_ROUNDS {
            let lost: f64 = nodes.iter().filter(|node| !has_links[**node]).map(|node| ranks[*node]).sum();
            let base = (1.0 - DAMPING + DAMPING * lost) * start;
            let mut next = vec![0.0; capacity];
            nodes.iter().for_each(|node| next[*node] = base);
            links.iter().for_each(|link| next[link.to] += DAMPING * link.share * ranks[link.from]);
            let change: f64 = nodes.iter().map(|node| (next[*node] - ranks[*node]).abs()).sum();
            ranks = next;
            if change < TOLERANCE {
                break;
            }
        }
        ranks
    }

    /// Returns all links, and which nodes have one. Co-occurrence leads both ways.
    fn links(&self, capacity: usize) -> (Vec<WeightedLink>, Vec<bool>) {
        let mut links = Vec::with_capacity(2 * self.edge_count());
        let mut totals = vec![0.0; capacity];
        for edge in self.table.edges().filter(|edge| edge.from != edge.to) {
            let (from, to) = (edge.from as usize, edge.to as usize);
            links.push(WeightedLink { from, to, share: edge.tally.weight });
            totals[from] += edge.tally.weight;
            if edge.kind == EdgeKind::CoOccurrence {
                links.push(WeightedLink { from: to, to: from, share: edge.tally.weight });
                totals[to] += edge.tally.weight;
            }
        }
        links.retain(|link| totals[link.from] > 0.0);
        links.iter_mut().for_each(|link| link.share /= totals[link.from]);
        (links, totals.into_iter().map(|total| total > 0.0).collect())
    }
}
