//! Writes entries into the tables, in one transaction for each batch.

use std::sync::Arc;

use bascule_model::{Delivery, clip};
use foldhash::HashMap;
use rusqlite::{Connection, Statement, Transaction, TransactionBehavior, params};

use crate::file::StoreError;
use crate::log_line::{LogLine, MAX_TEXT};
use crate::queue::{Batch, QueueEntry};
use crate::reader::halves;
use crate::retention;
use crate::span::{ClientLabel, Outcome, Span, SpanKind, delivery_number};

/// Longer error messages are cut.
const MAX_MESSAGE: usize = 1 << 10;
/// Longer names are cut.
const MAX_NAME: usize = 512;
/// Beyond this number the ids of names are looked up again, and likewise those of clients.
const MAX_KNOWN: usize = 10_000;

const SPAN: &str = "INSERT INTO spans (kind, outcome, server, name, own_name, started_at, duration, trace_high, trace_low, span,
  parent, face, client, agent, correlation, waited, attempts, isolation, argument_bytes, result_bytes, code, delivery, message,
  arguments, result)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)";
/// An ordinary call, see [`is_ordinary`]. A column that is not bound costs nothing, and most spans are ordinary.
const ORDINARY_CALL: &str =
    "INSERT INTO spans (kind, outcome, delivery, server, name, started_at, duration, trace_high,
  trace_low, span, face, client, waited, attempts, isolation, argument_bytes, result_bytes)
  VALUES (0, 0, 2, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
const LOG: &str = "INSERT INTO logs (server, at, source, level, text) VALUES (?1, ?2, ?3, ?4, ?5)";
const DROPPED: &str = "INSERT INTO counters (name, value) VALUES ('dropped', ?1)
  ON CONFLICT (name) DO UPDATE SET value = value + ?1";

/// The ids of texts that repeat. They hold while the file is open and every transaction is committed.
#[derive(Default)]
pub(crate) struct KnownIds {
    names: HashMap<Arc<str>, i64>,
    clients: HashMap<Arc<ClientLabel>, i64>,
    /// The client of the last span, which most often is that of the next one.
    last_client: Option<(Arc<ClientLabel>, i64)>,
    /// The file's count of removals when the ids were looked up.
    removals: i64,
}

impl KnownIds {
    /// Forgets all ids: a transaction was rolled back, or clients were removed.
    pub(crate) fn clear(&mut self) {
        *self = Self { removals: self.removals, ..Self::default() };
    }

    /// Forgets all ids if names were removed meanwhile, by this bridge or another. A transaction must be open.
    fn check(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let removals = retention::removals(connection)?;
        if std::mem::replace(&mut self.removals, removals) != removals {
            self.clear();
        }
        Ok(())
    }

    fn name(&mut self, connection: &Connection, text: &str) -> rusqlite::Result<i64> {
        let text = clip(text, MAX_NAME);
        if let Some(id) = self.names.get(text) {
            return Ok(*id);
        }
        if self.names.len() >= MAX_KNOWN {
            self.names.clear();
        }
        connection.execute("INSERT OR IGNORE INTO names (text) VALUES (?1)", [text])?;
        let id = connection.query_row("SELECT id FROM names WHERE text = ?1", [text], |row| row.get(0))?;
        self.names.insert(text.into(), id);
        Ok(id)
    }

    fn client(
        &mut self,
        connection: &Connection,
        client: &Arc<ClientLabel>,
        now: i64,
    ) -> rusqlite::Result<i64> {
        if let Some((_, id)) = self.last_client.as_ref().filter(|(last, _)| Arc::ptr_eq(last, client)) {
            return Ok(*id);
        }
        let id = match self.clients.get(client) {
            Some(id) => *id,
            None => self.insert_client(connection, client, now)?,
        };
        self.last_client = Some((client.clone(), id));
        Ok(id)
    }

    fn insert_client(
        &mut self,
        connection: &Connection,
        client: &Arc<ClientLabel>,
        now: i64,
    ) -> rusqlite::Result<i64> {
        if self.clients.len() >= MAX_KNOWN {
            self.clients.clear();
        }
        let ClientLabel { name, version, session } = &**client;
        let sql = "INSERT INTO clients (name, version, session, seen) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT DO UPDATE SET seen = ?4 RETURNING id";
        let id = connection.query_row(sql, params![name, version, session, now], |row| row.get(0))?;
        self.clients.insert(client.clone(), id);
        Ok(id)
    }
}

/// Writes a batch, or nothing of it. `dropped` is the number of entries that were lost before it.
pub(crate) fn write(
    connection: &mut Connection,
    ids: &mut KnownIds,
    batch: &Batch,
    dropped: u64,
) -> Result<(), StoreError> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    ids.check(&transaction)?;
    {
        let mut ordinary_calls = transaction.prepare_cached(ORDINARY_CALL)?;
        let (mut spans, mut logs) = (transaction.prepare_cached(SPAN)?, transaction.prepare_cached(LOG)?);
        for entry in &batch.entries {
            match entry {
                QueueEntry::Span(span, _) if is_ordinary(span) => {
                    insert_ordinary_call(&transaction, &mut ordinary_calls, ids, span)?
                }
                QueueEntry::Span(span, _) => insert_span(&transaction, &mut spans, ids, span)?,
                QueueEntry::Log(line) => insert_log(&transaction, &mut logs, ids, line)?,
            }
        }
        if dropped > 0 {
            transaction.execute(DROPPED, [dropped as i64])?;
        }
    }
    Ok(transaction.commit()?)
}

/// Tells if a span is a call that a tool has answered without an error, made by an MCP client or the command line, with nothing
/// to store but numbers and known names.
fn is_ordinary(span: &Span) -> bool {
    span.kind == SpanKind::Call
        && span.isolation.is_some()
        && span.outcome == Outcome::Ok
        && span.delivery == Some(Delivery::Answered)
        && span.context.parent.is_none()
        && (span.agent.is_none() && span.code.is_none() && span.message.is_none() && span.content.is_none())
        && has_generated_id(span)
}

/// Tells if the correlation id is the trace id, which need not be stored twice.
fn has_generated_id(span: &Span) -> bool {
    span.correlation_id.as_trace_id() == Some(span.context.trace_id)
}

fn insert_ordinary_call(
    connection: &Connection,
    statement: &mut Statement<'_>,
    ids: &mut KnownIds,
    span: &Span,
) -> Result<(), StoreError> {
    let context = &span.context;
    let [trace_high, trace_low] = halves(context.trace_id.0);
    let client =
        span.client.as_ref().map(|client| ids.client(connection, client, span.started_at)).transpose()?;
    statement.execute(params![
        ids.name(connection, span.server().unwrap_or_default())?,
        ids.name(connection, &span.name)?,
        span.started_at,
        span.duration as i64,
        trace_high,
        trace_low,
        context.span_id.0.cast_signed(),
        span.face.number(),
        client,
        span.waited as i64,
        span.attempts,
        span.isolation.map(|isolation| isolation.number()),
        span.argument_bytes as i64,
        span.result_bytes.map(|bytes| bytes as i64),
    ])?;
    Ok(())
}

/// The columns of a span's name: the ids of its server and its tool, or a name of its own.
struct SpanNames<'a> {
    server: Option<i64>,
    name: Option<i64>,
    own_name: Option<&'a str>,
}

impl<'a> SpanNames<'a> {
    fn new(connection: &Connection, ids: &mut KnownIds, span: &'a Span) -> rusqlite::Result<Self> {
        // The caller alone has chosen the name of a script, and of a tool that no server was found for.
        if span.kind == SpanKind::Script || span.isolation.is_none() {
            return Ok(Self { server: None, name: None, own_name: Some(clip(&span.name, MAX_NAME)) });
        }
        let server = ids.name(connection, span.server().unwrap_or_default())?;
        let name = ids.name(connection, &span.name)?;
        Ok(Self { server: Some(server), name: Some(name), own_name: None })
    }
}

fn insert_span(
    connection: &Connection,
    statement: &mut Statement<'_>,
    ids: &mut KnownIds,
    span: &Span,
) -> Result<(), StoreError> {
    let SpanNames { server, name, own_name } = SpanNames::new(connection, ids, span)?;
    let context = &span.context;
    let [trace_high, trace_low] = halves(context.trace_id.0);
    let client =
        span.client.as_ref().map(|client| ids.client(connection, client, span.started_at)).transpose()?;
    let agent = span.agent.as_ref().map(|agent| ids.name(connection, agent)).transpose()?;
    let code = span.code.as_ref().map(|code| ids.name(connection, code)).transpose()?;
    let correlation = Some(span.correlation_id.as_str()).filter(|_| !has_generated_id(span));
    let captured = span.content.as_ref().map(|content| content.capture()).unwrap_or_default();
    statement.execute(params![
        span.kind.number(),
        span.outcome.number(),
        server,
        name,
        own_name,
        span.started_at,
        span.duration as i64,
        trace_high,
        trace_low,
        context.span_id.0.cast_signed(),
        context.parent.map(|parent| parent.0.cast_signed()),
        span.face.number(),
        client,
        agent,
        correlation,
        span.waited as i64,
        span.attempts,
        span.isolation.map(|isolation| isolation.number()),
        span.argument_bytes as i64,
        span.result_bytes.map(|bytes| bytes as i64),
        code,
        span.delivery.map(delivery_number),
        span.message.as_deref().map(|message| clip(message, MAX_MESSAGE)),
        captured.arguments,
        captured.result,
    ])?;
    Ok(())
}

fn insert_log(
    connection: &Connection,
    statement: &mut Statement<'_>,
    ids: &mut KnownIds,
    line: &LogLine,
) -> Result<(), StoreError> {
    let server = ids.name(connection, &line.server)?;
    let text = clip(&line.text, MAX_TEXT);
    statement.execute(params![server, line.at, line.source.number(), line.level, text])?;
    Ok(())
}
