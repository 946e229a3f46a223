//! The tables of the graph of tools: reads them, and adds changes to them.

use std::sync::Arc;

use bascule_graph::{EdgeKind, EdgeRow, GraphChanges, GraphRows, NodeRow};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use crate::file::StoreError;
use crate::schema;

const ADD_NODE: &str =
    "INSERT INTO graph_nodes (tool, calls, successes, last_seen, weight) VALUES (?1, ?2, ?3, ?4, ?5)
  ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, successes = successes + excluded.successes,
  last_seen = max(last_seen, excluded.last_seen), weight = weight + excluded.weight";
const ADD_EDGE: &str =
    "INSERT INTO graph_edges (from_tool, to_tool, kind, count, successes, last_seen, weight)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
  ON CONFLICT DO UPDATE SET count = count + excluded.count, successes = successes + excluded.successes,
  last_seen = max(last_seen, excluded.last_seen), weight = weight + excluded.weight";
const REMOVE_NODE: [&str; 3] = [
    "DELETE FROM graph_nodes WHERE tool = ?1",
    "DELETE FROM graph_edges WHERE from_tool = ?1",
    "DELETE FROM graph_edges WHERE to_tool = ?1",
];
const REMOVE_EDGE: &str = "DELETE FROM graph_edges WHERE from_tool = ?1 AND to_tool = ?2 AND kind = ?3";
const COUNT_STRIPPED: &str = "INSERT INTO counters (name, value) VALUES ('dropped_values', ?1)
  ON CONFLICT (name) DO UPDATE SET value = value + ?1";

/// Adds changes to the tables, or nothing of them. `stripped` is the number of calls that lost their values.
pub(crate) fn save(
    connection: &mut Connection,
    changes: &GraphChanges,
    stripped: u64,
) -> Result<(), StoreError> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    remove(&transaction, changes)?;
    add(&transaction, &changes.added)?;
    if stripped > 0 {
        transaction.execute(COUNT_STRIPPED, [stripped as i64])?;
    }
    Ok(transaction.commit()?)
}

fn remove(connection: &Connection, changes: &GraphChanges) -> rusqlite::Result<()> {
    for sql in REMOVE_NODE {
        let mut statement = connection.prepare(sql)?;
        for tool in &changes.removed_nodes {
            statement.execute([tool])?;
        }
    }
    let mut remove_edge = connection.prepare(REMOVE_EDGE)?;
    for edge in &changes.removed_edges {
        remove_edge.execute(params![edge.from, edge.to, edge.kind.as_str()])?;
    }
    Ok(())
}

fn add(connection: &Connection, rows: &GraphRows) -> rusqlite::Result<()> {
    let mut add_node = connection.prepare(ADD_NODE)?;
    for NodeRow { tool, calls, successes, last_seen, weight } in &rows.nodes {
        add_node.execute(params![tool, *calls as i64, *successes as i64, last_seen, weight])?;
    }
    let mut add_edge = connection.prepare(ADD_EDGE)?;
    for EdgeRow { from, to, kind, count, successes, last_seen, weight } in &rows.edges {
        let (kind, count, successes) = (kind.as_str(), *count as i64, *successes as i64);
        add_edge.execute(params![from, to, kind, count, successes, last_seen, weight])?;
    }
    Ok(())
}

/// Returns all rows. A file of an earlier version has none.
pub(crate) fn read(connection: &Connection) -> Result<GraphRows, StoreError> {
    if schema::version(connection)? < schema::GRAPH_VERSION {
        return Ok(GraphRows::default());
    }
    // One transaction: nodes and edges are of the same moment.
    let transaction = connection.unchecked_transaction()?;
    let mut nodes =
        transaction.prepare("SELECT tool, calls, successes, last_seen, weight FROM graph_nodes")?;
    let nodes = nodes.query_map([], read_node)?.collect::<rusqlite::Result<_>>()?;
    let mut edges = transaction
        .prepare("SELECT from_tool, to_tool, kind, count, successes, last_seen, weight FROM graph_edges")?;
    let edges: rusqlite::Result<Vec<Option<EdgeRow>>> = edges.query_map([], read_edge)?.collect();
    Ok(GraphRows { nodes, edges: edges?.into_iter().flatten().collect() })
}

pub(crate) fn dropped_values(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT value FROM counters WHERE name = 'dropped_values'";
    Ok(connection.query_row(sql, [], |row| count(row, 0)).optional()?.unwrap_or(0))
}

fn read_node(row: &Row<'_>) -> rusqlite::Result<NodeRow> {
    let (calls, successes) = (count(row, 1)?, count(row, 2)?);
    Ok(NodeRow { tool: text(row, 0)?, calls, successes, last_seen: row.get(3)?, weight: row.get(4)? })
}

/// Returns `None` for a kind that this program does not know.
fn read_edge(row: &Row<'_>) -> rusqlite::Result<Option<EdgeRow>> {
    let Some(kind) = row.get_ref(2)?.as_str().ok().and_then(EdgeKind::parse) else { return Ok(None) };
    Ok(Some(EdgeRow {
        from: text(row, 0)?,
        to: text(row, 1)?,
        kind,
        count: count(row, 3)?,
        successes: count(row, 4)?,
        last_seen: row.get(5)?,
        weight: row.get(6)?,
    }))
}

fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<Arc<str>> {
    row.get(at)
}

fn count(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(at)?.max(0).cast_unsigned())
}
