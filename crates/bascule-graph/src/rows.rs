//! The graph as plain rows, for a database: all of them, and the changes since the last save.
//!
//! Changes are differences, which a database adds to its rows, so that several bridges can share one file.

use std::sync::Arc;

use crate::tally::Tally;
use crate::{EdgeKind, GraphLimits, RemovedEdge, ToolGraph};

/// One tool. In changes the numbers are differences, except `last_seen`, of which the later counts.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRow {
    pub tool: Arc<str>,
    pub calls: u64,
    pub successes: u64,
    /// Microseconds since 1970.
    pub last_seen: i64,
    /// The weight of the calls, of which later ones weigh more. Weights add up.
    pub weight: f64,
}

/// One relation. Its key is `from`, `to` and `kind`.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeRow {
    pub from: Arc<str>,
    pub to: Arc<str>,
    pub kind: EdgeKind,
    pub count: u64,
    pub successes: u64,
    /// Microseconds since 1970.
    pub last_seen: i64,
    /// The weight of the observations, of which later ones weigh more. Weights add up.
    pub weight: f64,
}

/// All rows of a graph, sorted by their keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphRows {
    pub nodes: Vec<NodeRow>,
    pub edges: Vec<EdgeRow>,
}

/// The changes since the last save. Removals are applied first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphChanges {
    /// Tools to delete with all their edges.
    pub removed_nodes: Vec<Arc<str>>,
    pub removed_edges: Vec<RemovedEdge>,
    /// Numbers to add.
    pub added: GraphRows,
}

impl GraphChanges {
    pub fn is_empty(&self) -> bool {
        self.removed_nodes.is_empty() && self.removed_edges.is_empty() && self.added == GraphRows::default()
    }
}

impl ToolGraph {
    /// Returns all rows.
    pub fn rows(&self) -> GraphRows {
        let nodes = self.table.nodes().map(|(_, node)| node_row(node.tool.clone(), &node.tally));
        let edges = self.table.edges().map(|edge| {
            let (from, to) = self.table.ends(edge);
            edge_row(from, to, edge.kind, &edge.tally)
        });
        GraphRows { nodes: nodes.collect(), edges: edges.collect() }.sorted()
    }

    /// Builds a graph from saved rows. Rows beyond the limits, and edges of unknown tools, are dropped, the weakest first.
    pub fn from_rows(limits: GraphLimits, rows: &GraphRows) -> Self {
        let mut graph = Self::new(limits);
        let mut nodes: Vec<&NodeRow> = rows.nodes.iter().collect();
        nodes.sort_by(|a, b| b.tally().compare(&a.tally()).then_with(|| a.tool.cmp(&b.tool)));
        for row in nodes.into_iter().take(limits.nodes) {
            graph.table.add_to_node(&row.tool, &row.tally(), &limits);
        }
        // A node that is full loses its weakest edges, so the strongest come last.
        let mut edges: Vec<&EdgeRow> = rows.edges.iter().collect();
        edges.sort_by(|a, b| a.tally().compare(&b.tally()));
        for row in edges {
            if let (Some(from), Some(to)) = (graph.table.find(&row.from), graph.table.find(&row.to)) {
                graph.table.add_to_edge((from, to), row.kind, &row.tally(), false);
                graph.table.trim(from, &limits);
                graph.table.trim(to, &limits);
            }
        }
        graph
    }

    /// Returns the changes since the last call of this function. A caller that cannot save them puts them back.
    pub fn take_changes(&mut self) -> GraphChanges {
        let removed_nodes = std::mem::take(&mut self.table.removed_nodes);
        let removed_edges = std::mem::take(&mut self.table.removed_edges);
        let changed = self.table.nodes_mut().filter(|node| node.unsaved.count > 0);
        let nodes =
            changed.map(|node| node_row(node.tool.clone(), &std::mem::take(&mut node.unsaved))).collect();
        let mut edges = Vec::new();
        self.table.take_unsaved_edges(|from, to, kind, tally| edges.push(edge_row(from, to, kind, &tally)));
        GraphChanges { removed_nodes, removed_edges, added: GraphRows { nodes, edges }.sorted() }
    }

    /// Returns changes that could not be saved to the graph, for the next save.
    pub fn put_back(&mut self, changes: GraphChanges) {
        for row in &changes.added.nodes {
            self.table.put_back_node(&row.tool, &row.tally());
        }
        for row in &changes.added.edges {
            self.table.put_back_edge(&row.from, &row.to, row.kind, &row.tally());
        }
        self.table.put_back_removals(changes.removed_nodes, changes.removed_edges);
    }
}

impl GraphRows {
    fn sorted(mut self) -> Self {
        self.nodes.sort_by(|a, b| a.tool.cmp(&b.tool));
        self.edges.sort_by(|a, b| (&a.from, &a.to, a.kind).cmp(&(&b.from, &b.to, b.kind)));
        self
    }
}

impl NodeRow {
    fn tally(&self) -> Tally {
        let Self { calls: count, successes, last_seen, weight, .. } = *self;
        Tally { count, successes, last_seen, weight }.sanitized()
    }
}

impl EdgeRow {
    fn tally(&self) -> Tally {
        let Self { count, successes, last_seen, weight, .. } = *self;
        Tally { count, successes, last_seen, weight }.sanitized()
    }
}

fn node_row(tool: Arc<str>, tally: &Tally) -> NodeRow {
    let Tally { count: calls, successes, last_seen, weight } = *tally;
    NodeRow { tool, calls, successes, last_seen, weight }
}

fn edge_row(from: Arc<str>, to: Arc<str>, kind: EdgeKind, tally: &Tally) -> EdgeRow {
    let Tally { count, successes, last_seen, weight } = *tally;
    EdgeRow { from, to, kind, count, successes, last_seen, weight }
}
