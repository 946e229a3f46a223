//! The tables of the file, and the steps from each version of them to the next.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::file::StoreError;

/// The steps. The version of a file, its `user_version`, is the number of steps that it has seen. Never change a step: add one.
const STEPS: [&str; 2] = [
    // Spans are appended and removed at the old end, so the rowid orders them by their end. Texts that repeat are in `names`. A
    // name that a caller has made up (`own_name`) is not: there may be any number of them.
    "CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
     CREATE TABLE clients (
       id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, session TEXT NOT NULL, seen INTEGER NOT NULL,
       UNIQUE (name, version, session)
     ) STRICT;
     CREATE TABLE spans (
       id INTEGER PRIMARY KEY,
       kind INTEGER NOT NULL, outcome INTEGER NOT NULL,
       server INTEGER, name INTEGER, own_name TEXT,
       started_at INTEGER NOT NULL, duration INTEGER NOT NULL,
       trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL, span INTEGER NOT NULL, parent INTEGER,
       face INTEGER NOT NULL, client INTEGER, agent INTEGER, correlation TEXT,
       waited INTEGER NOT NULL, attempts INTEGER NOT NULL, isolation INTEGER,
       argument_bytes INTEGER NOT NULL, result_bytes INTEGER,
       code INTEGER, delivery INTEGER, message TEXT, arguments TEXT, result TEXT
     ) STRICT;
     CREATE INDEX failed_spans ON spans (id) WHERE outcome > 0;
     CREATE TABLE logs (
       id INTEGER PRIMARY KEY, server INTEGER NOT NULL, at INTEGER NOT NULL, source INTEGER NOT NULL, level TEXT,
       text TEXT NOT NULL
     ) STRICT;
     CREATE INDEX logs_of_server ON logs (server, id);
     CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;",
    // The graph of tools. It has no values of calls.
    "CREATE TABLE graph_nodes (
       tool TEXT PRIMARY KEY, calls INTEGER NOT NULL, successes INTEGER NOT NULL, last_seen INTEGER NOT NULL, weight REAL NOT NULL
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE graph_edges (
       from_tool TEXT NOT NULL, to_tool TEXT NOT NULL, kind TEXT NOT NULL,
       count INTEGER NOT NULL, successes INTEGER NOT NULL, last_seen INTEGER NOT NULL, weight REAL NOT NULL,
       PRIMARY KEY (from_tool, to_tool, kind)
     ) STRICT, WITHOUT ROWID;
     CREATE INDEX graph_edges_to ON graph_edges (to_tool);",
];

/// The first version with the graph of tools.
pub(crate) const GRAPH_VERSION: usize = 2;

pub(crate) const VERSION: usize = STEPS.len();

/// Applies the missing steps. Refuses a file of a later version.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    if version(connection)? == VERSION {
        return Ok(());
    }
    // Another bridge may be at it too: the version counts once the lock is held.
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    if found > VERSION {
        return Err(StoreError::Newer { found, known: VERSION });
    }
    for step in &STEPS[found..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION as i64)?;
    Ok(transaction.commit()?)
}

/// Fails for a file without tables, and for one of a later version. A file of an earlier version is read as it is.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    match version(connection)? {
        0 => Err(StoreError::Empty),
        found if found > VERSION => Err(StoreError::Newer { found, known: VERSION }),
        _ => Ok(()),
    }
}

pub(crate) fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
        .map(|version| version as usize)
}
