//! Bounds the file: the oldest spans and log lines go first.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// The most rows that one transaction removes: another bridge may be waiting.
const STEP: i64 = 5_000;
/// The newest lines of a server that are kept.
const LINES: i64 = 1_000;
/// The share of the file that names may take before unused ones are searched for. Callers choose some of them.
const NAME_SHARE: u64 = 4;
/// The share of the file that log lines may take if it is too large. They never displace all spans.
const LOG_SHARE: u64 = 4;
/// The pages that stay in the file without content, if the limit has room for them.
const FREE_PAGES: i64 = 4_096;
/// The time between two searches for clients and names without spans. The file has the time of the last one, because most bridges
/// run for less.
const FORGET_TIME: Duration = Duration::from_secs(6 * 3600);
/// The size of a line beside its text.
const LINE_BYTES: i64 = 40;
const FORGET_NAMES: &str = "DELETE FROM names WHERE id < (SELECT max(id) FROM names) AND id NOT IN (
  SELECT server FROM spans WHERE server IS NOT NULL UNION SELECT name FROM spans WHERE name IS NOT NULL
  UNION SELECT agent FROM spans WHERE agent IS NOT NULL UNION SELECT code FROM spans WHERE code IS NOT NULL
  UNION SELECT server FROM logs)";
const COUNT_REMOVAL: &str = "INSERT INTO counters (name, value) VALUES ('removals', 1)
  ON CONFLICT (name) DO UPDATE SET value = value + 1";
/// A client is forgotten this long after it was last seen, once it has no spans.
const CLIENT: Duration = Duration::from_secs(2 * 24 * 3600);

/// The limits of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Older spans and lines are removed.
    pub max_age: Duration,
    /// The number of spans.
    pub max_spans: u64,
    /// The size of the file without its write-ahead log.
    pub max_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_age: Duration::from_secs(30 * 24 * 3600), max_spans: 1_000_000, max_bytes: 512 << 20 }
    }
}

/// Removes the rows beyond the limits. `now` is in microseconds since 1970.
pub(crate) fn apply(connection: &Connection, retention: &Retention, now: i64) -> rusqlite::Result<()> {
    let oldest = now.saturating_sub(retention.max_age.as_micros() as i64);
    while remove_aged(connection, oldest)? == STEP {}
    while let Some(surplus) = surplus_spans(connection, retention)? {
        remove_oldest(connection, surplus)?;
    }
    remove_lines(connection, oldest)?;
    remove_bytes(connection, retention.max_bytes)?;
    return_pages(connection, retention.max_bytes)
}

/// Returns free pages beyond a reserve, and those beyond the limit, to the file system.
fn return_pages(connection: &Connection, max_bytes: u64) -> rusqlite::Result<()> {
    let value = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (free, pages) = (value("freelist_count")?, value("page_count")?);
    let surplus = pages - (max_bytes / value("page_size")?.max(1) as u64) as i64;
    let mut left = if free > FREE_PAGES { surplus.max(FREE_PAGES) } else { surplus }.min(free);
    // Other bridges write between the steps.
    while left > 0 {
        let step = left.min(FREE_PAGES);
        vacuum(connection, step as usize)?;
        left -= step;
    }
    Ok(())
}

/// Frees pages at the end of the file. Each step of the statement frees one.
fn vacuum(connection: &Connection, pages: usize) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Removes the oldest spans, names that only they had, and the oldest lines of servers that write much, until the rest fits.
fn remove_bytes(connection: &Connection, max_bytes: u64) -> rusqlite::Result<()> {
    loop {
        let used = used_bytes(connection)?;
        if used <= max_bytes {
            return Ok(());
        }
        if name_bytes(connection)? > max_bytes / NAME_SHARE && forget_names(connection)? > 0 {
            continue;
        }
        let (logs, spans) = (log_bytes(connection)?, span_count(connection)?);
        let logs_left = if spans > 1 { max_bytes / LOG_SHARE } else { logs.saturating_sub(used - max_bytes) };
        if logs > logs_left {
            remove_share_of_lines(connection, (logs - logs_left) as f64 / logs as f64)?;
        } else if spans > 1 {
            remove_oldest(connection, (spans / 10).max(1))?;
        } else {
            return Ok(());
        }
    }
}

/// Removes the oldest lines of each server: this share of them, and at least one.
fn remove_share_of_lines(connection: &Connection, share: f64) -> rusqlite::Result<()> {
    let mut servers = connection.prepare("SELECT server, count(*) FROM logs GROUP BY server")?;
    let servers: Vec<(i64, i64)> =
        servers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (server, lines) in servers {
        let removed = (lines as f64 * share).ceil() as i64;
        let sql = "DELETE FROM logs WHERE id IN (SELECT id FROM logs WHERE server = ?1 ORDER BY id LIMIT ?2)";
        connection.execute(sql, [server, removed])?;
    }
    Ok(())
}

fn log_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(sum(octet_length(text) + ?1), 0) FROM logs";
    connection.query_row(sql, [LINE_BYTES], |row| row.get::<_, i64>(0)).map(|bytes| bytes as u64)
}

/// Removes clients and names that have no spans any more, a few times a day.
pub(crate) fn forget_unused(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let sql = "SELECT value FROM counters WHERE name = 'forgot_at'";
    let last: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    // A clock that was put back must not stop it.
    if last.is_some_and(|last| (0..FORGET_TIME.as_micros() as i64).contains(&now.saturating_sub(last))) {
        return Ok(());
    }
    forget_clients(connection, now)?;
    forget_names(connection)?;
    let sql = "INSERT INTO counters (name, value) VALUES ('forgot_at', ?1)
               ON CONFLICT (name) DO UPDATE SET value = ?1";
    connection.execute(sql, [now]).map(drop)
}

/// Removes names that no span and no log line has any more, and returns their number. Reads all spans. The newest name stays,
/// so that numbers are not used twice.
fn forget_names(connection: &Connection) -> rusqlite::Result<usize> {
    forget(connection, FORGET_NAMES, [])
}

/// Removes clients that have no spans any more. Reads all spans. The newest client stays.
fn forget_clients(connection: &Connection, now: i64) -> rusqlite::Result<usize> {
    let before = now.saturating_sub(CLIENT.as_micros() as i64);
    let sql = "DELETE FROM clients WHERE seen < ?1 AND id < (SELECT max(id) FROM clients)
               AND id NOT IN (SELECT client FROM spans WHERE client IS NOT NULL)";
    forget(connection, sql, [before])
}

/// Removes rows whose numbers bridges may know, and counts that for them.
fn forget(connection: &Connection, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<usize> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let count = transaction.execute(sql, values)?;
    if count > 0 {
        transaction.execute(COUNT_REMOVAL, [])?;
    }
    transaction.commit()?;
    Ok(count)
}

/// Returns the number of times that names or clients were removed from the file.
pub(crate) fn removals(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT value FROM counters WHERE name = 'removals'";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Returns the size of all names: each is in the table and in its index.
fn name_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT 2 * coalesce(sum(length(text)), 0) FROM names";
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|bytes| bytes as u64)
}

/// The newest span stays, so that numbers are not used twice.
fn remove_aged(connection: &Connection, oldest: i64) -> rusqlite::Result<i64> {
    let first = connection
        .query_row("SELECT started_at FROM spans ORDER BY id LIMIT 1", [], |row| row.get::<_, i64>(0));
    if first.optional()?.is_none_or(|first| first >= oldest) {
        return Ok(0);
    }
    // Rows are in the order of their ends, so the first young one ends the search.
    let sql = "DELETE FROM spans WHERE started_at < ?1 AND id < (SELECT max(id) FROM spans)
               AND id IN (SELECT id FROM spans ORDER BY id LIMIT ?2)";
    connection.execute(sql, [oldest, STEP]).map(|count| count as i64)
}

fn surplus_spans(connection: &Connection, retention: &Retention) -> rusqlite::Result<Option<i64>> {
    let surplus = span_count(connection)? - retention.max_spans.max(1) as i64;
    Ok((surplus > 0).then_some(surplus))
}

/// Removes at most one step of the oldest spans.
fn remove_oldest(connection: &Connection, count: i64) -> rusqlite::Result<()> {
    let sql =
        "DELETE FROM spans WHERE id < (SELECT min(id) FROM spans) + ?1 AND id < (SELECT max(id) FROM spans)";
    connection.execute(sql, [count.min(STEP)]).map(drop)
}

/// Rows are removed at the old end alone, so the numbers have few gaps.
fn span_count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row(
        "SELECT coalesce((SELECT max(id) FROM spans) - (SELECT min(id) FROM spans) + 1, 0)",
        [],
        |row| row.get(0),
    )
}

fn remove_lines(connection: &Connection, oldest: i64) -> rusqlite::Result<()> {
    let mut servers = connection.prepare("SELECT DISTINCT server FROM logs")?;
    let servers: Vec<i64> = servers.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for server in servers {
        let sql = "DELETE FROM logs WHERE server = ?1 AND (at < ?3 OR id <=
                   (SELECT id FROM logs WHERE server = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2))";
        connection.execute(sql, [server, LINES, oldest])?;
    }
    Ok(())
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let value = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = value("page_count")? - value("freelist_count")?;
    Ok((pages * value("page_size")?) as u64)
}
