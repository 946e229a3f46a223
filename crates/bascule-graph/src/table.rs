//! The bounded table of nodes and edges.
//!
//! A node with too many edges loses its weakest quarter; a table with too many nodes loses the weakest sixteenth. Dropping several at
//! once keeps the cost of one insertion small.

use std::sync::Arc;

use foldhash::HashMap;
use serde::Serialize;

use crate::GraphLimits;
use crate::tally::Tally;

/// Removals that are remembered until the next save. Rows beyond them stay in the file until it is loaded.
const MAX_REMOVALS: usize = 10_000;

/// The kind of a relation between two tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// Both are called in one script or session. It has no direction: `from` is the smaller name.
    CoOccurrence,
    /// The second is called next after the first.
    Order,
    /// The second is given a value that the first returned.
    DataFlow,
}

/// An edge that the graph has dropped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemovedEdge {
    pub from: Arc<str>,
    pub to: Arc<str>,
    pub kind: EdgeKind,
}

/// The position of a node in the table.
pub(crate) type NodeId = u32;
type EdgeId = u32;

#[derive(Debug)]
pub(crate) struct ToolNode {
    pub(crate) tool: Arc<str>,
    pub(crate) tally: Tally,
    pub(crate) unsaved: Tally,
    edges: Vec<EdgeId>,
}

#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) kind: EdgeKind,
    pub(crate) tally: Tally,
    pub(crate) unsaved: Tally,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    nodes: Vec<Option<ToolNode>>,
    free_nodes: Vec<NodeId>,
    names: HashMap<Arc<str>, NodeId>,
    edges: Vec<Option<Edge>>,
    free_edges: Vec<EdgeId>,
    keys: HashMap<(NodeId, NodeId, EdgeKind), EdgeId>,
    pub(crate) removed_nodes: Vec<Arc<str>>,
    pub(crate) removed_edges: Vec<RemovedEdge>,
}

impl EdgeKind {
    pub const ALL: [Self; 3] = [Self::CoOccurrence, Self::Order, Self::DataFlow];

    /// Returns the name, which is a contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CoOccurrence => "co_occurrence",
            Self::Order => "order",
            Self::DataFlow => "data_flow",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl Edge {
    /// Returns the node at the other end.
    pub(crate) fn other(&self, node: NodeId) -> NodeId {
        if self.from == node { self.to } else { self.from }
    }
}

impl Table {
    pub(crate) fn find(&self, tool: &str) -> Option<NodeId> {
        self.names.get(tool).copied()
    }

    pub(crate) fn node(&self, id: NodeId) -> &ToolNode {
        self.nodes[id as usize].as_ref().expect("an id in use names a node")
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut ToolNode {
        self.nodes[id as usize].as_mut().expect("an id in use names a node")
    }

    fn edge(&self, id: EdgeId) -> &Edge {
        self.edges[id as usize].as_ref().expect("an id in use names an edge")
    }

    pub(crate) fn node_count(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.keys.len()
    }

    /// The number of positions, used and free.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &ToolNode)> {
        (0..).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    pub(crate) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut ToolNode> {
        self.nodes.iter_mut().flatten()
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().flatten()
    }

    pub(crate) fn edges_of(&self, node: NodeId) -> impl Iterator<Item = &Edge> {
        self.node(node).edges.iter().map(|id| self.edge(*id))
    }

    /// Returns the names of both ends of an edge.
    pub(crate) fn ends(&self, edge: &Edge) -> (Arc<str>, Arc<str>) {
        (self.node(edge.from).tool.clone(), self.node(edge.to).tool.clone())
    }

    /// Calls `visit` with the names and the unsaved part of each edge that has one.
    pub(crate) fn take_unsaved_edges(&mut self, mut visit: impl FnMut(Arc<str>, Arc<str>, EdgeKind, Tally)) {
        let (nodes, edges) = (&self.nodes, &mut self.edges);
        let name = |id: NodeId| nodes[id as usize].as_ref().expect("an edge has both ends").tool.clone();
        for edge in edges.iter_mut().flatten().filter(|edge| edge.unsaved.count > 0) {
            visit(name(edge.from), name(edge.to), edge.kind, std::mem::take(&mut edge.unsaved));
        }
    }

    /// Marks observations of a node as unsaved again.
    pub(crate) fn put_back_node(&mut self, tool: &str, tally: &Tally) {
        if let Some(id) = self.find(tool) {
            self.node_mut(id).unsaved.add(tally);
        }
    }

    /// Marks observations of an edge as unsaved again.
    pub(crate) fn put_back_edge(&mut self, from: &str, to: &str, kind: EdgeKind, tally: &Tally) {
        let ends = self.find(from).zip(self.find(to));
        let id = ends.and_then(|(from, to)| self.keys.get(&(from, to, kind)).copied());
        if let Some(edge) = id.and_then(|id| self.edges[id as usize].as_mut()) {
            edge.unsaved.add(tally);
        }
    }

    /// Remembers removals again, as many as there is room for.
    pub(crate) fn put_back_removals(&mut self, nodes: Vec<Arc<str>>, edges: Vec<RemovedEdge>) {
        self.removed_nodes.extend(nodes);
        self.removed_nodes.truncate(MAX_REMOVALS);
        self.removed_edges.extend(edges);
        self.removed_edges.truncate(MAX_REMOVALS);
    }

    /// Adds observations to a node, which is created if it is new.
    pub(crate) fn add_to_node(&mut self, tool: &Arc<str>, tally: &Tally, limits: &GraphLimits) -> NodeId {
        let id = match self.find(tool) {
            Some(id) => id,
            None => {
                if self.names.len() >= limits.nodes {
                    self.drop_weak_nodes(limits.nodes / 16 + 1);
                }
                self.insert_node(tool)
            }
        };
        self.node_mut(id).tally.add(tally);
        id
    }

    fn insert_node(&mut self, tool: &Arc<str>) -> NodeId {
        let node = ToolNode {
            tool: tool.clone(),
            tally: Tally::default(),
            unsaved: Tally::default(),
            edges: Vec::new(),
        };
        let id = place(&mut self.nodes, &mut self.free_nodes, node);
        self.names.insert(tool.clone(), id);
        id
    }

    /// Adds observations to an edge, which is created if it is new. `is_unsaved` tells if a file lacks them.
    pub(crate) fn add_to_edge(
        &mut self,
        (from, to): (NodeId, NodeId),
        kind: EdgeKind,
        tally: &Tally,
        is_unsaved: bool,
    ) {
        let is_reversed = kind == EdgeKind::CoOccurrence && self.node(from).tool > self.node(to).tool;
        let (from, to) = if is_reversed { (to, from) } else { (from, to) };
        let id = match self.keys.get(&(from, to, kind)) {
            Some(id) => *id,
            None => self.insert_edge(from, to, kind),
        };
        let edge = self.edges[id as usize].as_mut().expect("an id in use names an edge");
        edge.tally.add(tally);
        if is_unsaved {
            edge.unsaved.add(tally);
        }
    }

    fn insert_edge(&mut self, from: NodeId, to: NodeId, kind: EdgeKind) -> EdgeId {
        let edge = Edge { from, to, kind, tally: Tally::default(), unsaved: Tally::default() };
        let id = place(&mut self.edges, &mut self.free_edges, edge);
        self.keys.insert((from, to, kind), id);
        self.node_mut(from).edges.push(id);
        if from != to {
            self.node_mut(to).edges.push(id);
        }
        id
    }

    /// Drops the weakest edges of a node that has too many.
    pub(crate) fn trim(&mut self, node: NodeId, limits: &GraphLimits) {
        if self.node(node).edges.len() <= limits.edges_per_node {
            return;
        }
        let mut edges = self.node(node).edges.clone();
        let dropped = (limits.edges_per_node / 4).max(edges.len() - limits.edges_per_node);
        edges.sort_by(|a, b| self.edge(*a).tally.compare(&self.edge(*b).tally));
        edges.into_iter().take(dropped).for_each(|edge| self.remove_edge(edge));
    }

    fn drop_weak_nodes(&mut self, count: usize) {
        let mut nodes: Vec<(Tally, NodeId)> = self.nodes().map(|(id, node)| (node.tally, id)).collect();
        nodes.sort_by(|a, b| a.0.compare(&b.0));
        nodes.into_iter().take(count).for_each(|(_, id)| self.remove_node(id));
    }

    fn remove_node(&mut self, id: NodeId) {
        for edge in self.node(id).edges.clone() {
            self.detach_edge(edge);
        }
        if let Some(node) = self.nodes[id as usize].take() {
            self.names.remove(&node.tool);
            self.free_nodes.push(id);
            if node.tally.count > node.unsaved.count && self.removed_nodes.len() < MAX_REMOVALS {
                self.removed_nodes.push(node.tool);
            }
        }
    }

    fn remove_edge(&mut self, id: EdgeId) {
        let edge = self.detach_edge(id);
        if edge.tally.count > edge.unsaved.count && self.removed_edges.len() < MAX_REMOVALS {
            let (from, to) = self.ends(&edge);
            self.removed_edges.push(RemovedEdge { from, to, kind: edge.kind });
        }
    }

    fn detach_edge(&mut self, id: EdgeId) -> Edge {
        let edge = self.edges[id as usize].take().expect("an id in use names an edge");
        self.keys.remove(&(edge.from, edge.to, edge.kind));
        for end in [edge.from, edge.to] {
            self.node_mut(end).edges.retain(|known| *known != id);
        }
        self.free_edges.push(id);
        edge
    }
}

/// Puts a value into a free position, or at the end.
fn place<T>(slots: &mut Vec<Option<T>>, free: &mut Vec<u32>, value: T) -> u32 {
    match free.pop() {
        Some(id) => {
            slots[id as usize] = Some(value);
            id
        }
        None => {
            slots.push(Some(value));
            u32::try_from(slots.len() - 1).expect("the limits keep the table far below 2^32 entries")
        }
    }
}
