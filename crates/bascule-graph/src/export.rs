//! The graph as `bascule graph` prints it. The names of the members are a contract.

use std::collections::HashSet;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde::{Serialize, Serializer};

use crate::{EdgeKind, ToolGraph};

/// The most important tools of a graph and the relations between them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphExport {
    /// The most important first.
    pub nodes: Vec<ExportedNode>,
    /// Sorted by `from`, `to` and `kind`.
    pub edges: Vec<ExportedEdge>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExportedNode {
    /// The tool as `server:tool`.
    pub id: String,
    pub calls: u64,
    pub successes: u64,
    /// The importance of the tool (PageRank). The sum over the whole graph is 1.
    pub rank: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedEdge {
    pub from: String,
    pub to: String,
    pub kind: EdgeKind,
    pub count: u64,
    pub successes: u64,
    /// Microseconds since 1970; written as RFC 3339 in UTC.
    #[serde(serialize_with = "serialize_time")]
    pub last_seen: i64,
}

impl ToolGraph {
    /// Returns the tools with the highest ranks, at most `limit`, and all edges between them.
    pub fn export(&self, limit: usize) -> GraphExport {
        let nodes = self.ranked_nodes(limit);
        let kept: HashSet<&str> = nodes.iter().map(|node| &*node.id).collect();
        let rows = self.rows().edges.into_iter();
        let edges = rows.filter(|row| kept.contains(&*row.from) && kept.contains(&*row.to));
        let export = |row: crate::EdgeRow| {
            let crate::EdgeRow { from, to, kind, count, successes, last_seen, .. } = row;
            ExportedEdge { from: from.to_string(), to: to.to_string(), kind, count, successes, last_seen }
        };
        let edges = edges.map(export).collect();
        GraphExport { nodes, edges }
    }

    /// Returns the `k` tools with the highest ranks, the highest first.
    pub fn ranked_nodes(&self, k: usize) -> Vec<ExportedNode> {
        let ranks = self.ranks();
        let nodes = self.table.nodes().map(|(id, node)| ExportedNode {
            id: node.tool.to_string(),
            calls: node.tally.count,
            successes: node.tally.successes,
            rank: ranks[id as usize],
        });
        let mut nodes: Vec<ExportedNode> = nodes.collect();
        nodes.sort_by(|a, b| b.rank.total_cmp(&a.rank).then_with(|| a.id.cmp(&b.id)));
        nodes.truncate(k);
        nodes
    }
}

fn serialize_time<S: Serializer>(time: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&rfc3339(*time))
}

/// Formats microseconds since 1970 in UTC. Years outside of 0000…9999 are cut to the nearest.
fn rfc3339(time: i64) -> String {
    const FIRST: DateTime = DateTime::constant(0, 1, 1, 0, 0, 0, 0);
    const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    format!("{:.3}Z", EPOCH.saturating_add(SignedDuration::from_micros(time)).max(FIRST))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-02
    #[test]
    fn times_are_written_as_rfc_3339() {
        for (time, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_709_210_096_789_999, "2024-02-29T12:34:56.789Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_868_799_000_000, "2000-02-29T23:59:59.000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(time), expected);
        }
    }
}
