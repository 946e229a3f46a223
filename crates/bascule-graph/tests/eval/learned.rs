//! The knowledge from a training part: the graph, and counts for the baselines.

use std::collections::{HashMap, HashSet};

use bascule_graph::{CallSession, GraphLimits, ToolGraph, TracedCall};

use crate::Task;

const START: i64 = 1_790_000_000_000_000;
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// The knowledge that is added to search. Popularity is the control: the graph must win against it, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Source {
    Popularity,
    Graph,
}

/// Two halves of a training part, each with the knowledge of the other: they choose the share of a source.
pub(crate) fn folds<'a>(training: &[&'a Task]) -> [(Learned, Vec<&'a Task>); 2] {
    let half = |from: usize| training.iter().skip(from).step_by(2).copied().collect::<Vec<_>>();
    [(Learned::new(&half(0)), half(1)), (Learned::new(&half(1)), half(0))]
}

pub(crate) struct Learned {
    pub(crate) graph: ToolGraph,
    /// The most frequent first, with its frequency relative to the first.
    pub(crate) popular: Vec<(String, f64)>,
    /// Pairs of neighbours.
    pub(crate) pairs: HashSet<(String, String)>,
}

impl Learned {
    pub(crate) fn new(tasks: &[&Task]) -> Self {
        let mut graph = ToolGraph::new(GraphLimits::default());
        let (mut counts, mut pairs) = (HashMap::<&str, usize>::new(), HashSet::new());
        for (at, task) in tasks.iter().enumerate() {
            graph.update_from_execution(execution(at, task));
            task.tools.iter().for_each(|tool| *counts.entry(tool).or_default() += 1);
            pairs.extend(task.tools.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())));
        }
        let mut popular: Vec<&str> = counts.keys().copied().collect();
        popular.sort_by_key(|tool| (std::cmp::Reverse(counts[tool]), *tool));
        let most = popular.first().map_or(1, |tool| counts[tool]) as f64;
        let popular = popular.into_iter().map(|tool| (tool.to_owned(), counts[tool] as f64 / most)).collect();
        Self { graph, popular, pairs }
    }

    /// Returns the scores of tools after (or beside) some others.
    pub(crate) fn hints(&self, source: Source, others: &[&str]) -> HashMap<String, f64> {
        match source {
            Source::Popularity => self.popular.iter().cloned().collect(),
            Source::Graph => {
                let next = self.graph.next_tools(others.iter().copied(), usize::MAX);
                next.into_iter().map(|tool| (tool.tool, tool.score)).collect()
            }
        }
    }
}

/// Returns the calls of a task: one script in a session of its own, one call after the other.
fn execution(at: usize, task: &Task) -> Vec<TracedCall> {
    let start = START + at as i64 * HOUR;
    let call = |(step, tool): (i64, &String)| TracedCall {
        span: at as u64 * 100 + step.cast_unsigned(),
        script: Some(at as u64),
        session: CallSession::Client(at as u64),
        tool: tool.as_str().into(),
        started_at: start + 2 * step * SECOND,
        ended_at: start + (2 * step + 1) * SECOND,
        success: true,
        given: Vec::new(),
        returned: Vec::new(),
    };
    (0..).zip(&task.tools).map(call).collect()
}
