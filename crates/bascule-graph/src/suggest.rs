//! Suggests tools: those related to one tool, and those likely to be called next.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Serialize;

use crate::table::{Edge, NodeId};
use crate::{EdgeKind, ToolGraph};

/// Earlier calls than these have no say in the next one.
const MAX_RECENT: usize = 4;
/// The say of a call, relative to the call after it.
const RECENCY: f64 = 0.5;

/// A suggested tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuggestedTool {
    /// The tool as `server:tool`.
    #[serde(rename = "id")]
    pub tool: String,
    /// From `next_tools`, the estimated probability of the call. From `related`, the strength of the relation.
    pub score: f64,
    /// The kinds of relation behind the suggestion.
    pub kinds: Vec<EdgeKind>,
}

#[derive(Default)]
struct Candidate {
    score: f64,
    kinds: [bool; EdgeKind::ALL.len()],
}

impl ToolGraph {
    /// Returns the `k` tools with the strongest relations to a tool, strongest first.
    ///
    /// The strength is the weight of the relations divided by the geometric mean of both tools' weights, so that a tool that is
    /// called all the time is not related to everything.
    pub fn related(&self, tool: &str, k: usize) -> Vec<SuggestedTool> {
        let Some(node) = self.table.find(tool) else { return Vec::new() };
        let mut candidates = HashMap::<NodeId, Candidate>::new();
        for edge in self.table.edges_of(node).filter(|edge| edge.from != edge.to) {
            let other = edge.other(node);
            let both = self.table.node(node).tally.weight.sqrt() * self.table.node(other).tally.weight.sqrt();
            if both > 0.0 {
                let factor = importance(edge.kind) / both;
                candidates.entry(other).or_default().add(edge, factor);
            }
        }
        self.best(candidates, k)
    }

    /// Returns the `k` tools most likely to be called after `recent` ones (oldest first), the likeliest first.
    pub fn next_tools<'t, R>(&self, recent: R, k: usize) -> Vec<SuggestedTool>
    where
        R: IntoIterator<Item = &'t str, IntoIter: DoubleEndedIterator>,
    {
        let mut candidates = HashMap::new();
        let mut say = 1.0 - RECENCY;
        for tool in recent.into_iter().rev().take(MAX_RECENT) {
            if let Some(node) = self.table.find(tool) {
                self.add_successors(node, say, &mut candidates);
            }
            say *= RECENCY;
        }
        self.best(candidates, k)
    }

    fn add_successors(&self, node: NodeId, say: f64, candidates: &mut HashMap<NodeId, Candidate>) {
        let leads_on = |edge: &&Edge| edge.kind == EdgeKind::CoOccurrence || edge.from == node;
        let edges = || self.table.edges_of(node).filter(leads_on);
        let total: f64 = edges().map(|edge| likelihood(edge.kind) * edge.tally.weight).sum();
        if total > 0.0 {
            for edge in edges() {
                let factor = say * likelihood(edge.kind) / total;
                candidates.entry(edge.other(node)).or_default().add(edge, factor);
            }
        }
    }

    fn best(&self, candidates: HashMap<NodeId, Candidate>, k: usize) -> Vec<SuggestedTool> {
        let suggest = |(node, candidate): (NodeId, Candidate)| SuggestedTool {
            tool: self.table.node(node).tool.to_string(),
            score: candidate.score,
            kinds: EdgeKind::ALL.into_iter().filter(|kind| candidate.kinds[*kind as usize]).collect(),
        };
        let mut suggested: Vec<SuggestedTool> = candidates.into_iter().map(suggest).collect();
        suggested.sort_unstable_by(compare);
        suggested.truncate(k);
        suggested
    }
}

impl Candidate {
    fn add(&mut self, edge: &Edge, factor: f64) {
        self.score += factor * edge.tally.weight;
        self.kinds[edge.kind as usize] = true;
    }
}

/// The share of a kind in the strength of a relation.
fn importance(kind: EdgeKind) -> f64 {
    match kind {
        EdgeKind::CoOccurrence => 0.2,
        EdgeKind::Order => 0.3,
        EdgeKind::DataFlow => 0.5,
    }
}

/// The share of a kind in the probability of the next call.
fn likelihood(kind: EdgeKind) -> f64 {
    match kind {
        EdgeKind::CoOccurrence => 0.25,
        EdgeKind::Order | EdgeKind::DataFlow => 1.0,
    }
}

fn compare(a: &SuggestedTool, b: &SuggestedTool) -> Ordering {
    b.score.total_cmp(&a.score).then_with(|| a.tool.cmp(&b.tool))
}
