//! The graph as `bascule graph` prints it. The names of the members are a contract.

use std::collections::HashSet;

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
    const FIRST: i64 = -62_167_219_200_000;
    const LAST: i64 = 253_402_300_799_999;
    let millis = time.div_euclid(1_000).clamp(FIRST, LAST);
    let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", of_day % 1_000)
}

/// Converts days since 1970 to year, month and day. A year is counted from March, so that a leap day is its last day.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (era * 400 + year + i64::from(is_next_year), month, day)
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
