//! Reads the file, whether or not a bridge writes to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bascule_graph::GraphRows;
use bascule_model::{CorrelationId, SpanContext, SpanId, TraceId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use crate::file::{self, FileId, StoreError};
use crate::graph_rows;
use crate::log_line::{LogLine, LogSource};
use crate::span::{
    CapturableContent, Captured, ClientLabel, Face, Isolation, Outcome, Span, SpanKind, delivery_from,
};
use crate::statistics::{Durations, ToolStatistics};

/// The columns of a span, in the order of `read_span`.
const COLUMNS: &str = "id, kind, outcome, name, own_name, started_at, duration, trace_high, trace_low, span, parent, face, client,
  agent, correlation, waited, attempts, isolation, argument_bytes, result_bytes, code, delivery, message, arguments, result";
/// The most spans of one trace that are read.
const MAX_TRACE: usize = 20_000;

/// Chooses spans. The default chooses all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanFilter {
    /// `server:tool`, or the name of a tool of any server.
    pub tool: Option<String>,
    pub server: Option<String>,
    pub correlation_id: Option<String>,
    /// Spans with an error only.
    pub failed: bool,
    /// Spans that started at this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// Spans that took at least this many microseconds.
    pub slower_than: Option<u64>,
    /// Spans with a greater number only.
    pub after: Option<i64>,
    /// The number of spans. `None`: all.
    pub limit: Option<usize>,
}

/// Chooses log lines.
#[derive(Debug, Clone)]
pub struct LogFilter {
    pub server: String,
    /// Lines with a greater number only.
    pub after: Option<i64>,
    pub since: Option<i64>,
    /// The number of lines.
    pub limit: usize,
}

/// The result of a search for an id.
pub enum Found {
    /// All spans of one trace, in the order of their start.
    Trace(Vec<Span>),
    /// The traces of a correlation id that was used more than once, newest first.
    Correlated(Vec<Vec<Span>>),
    Nothing,
    /// The traces that the id may mean.
    Ambiguous(Vec<TraceId>),
}

/// Reads one file.
pub struct Reader {
    path: PathBuf,
    file: Option<FileId>,
    connection: Connection,
    names: HashMap<i64, Arc<str>>,
    clients: HashMap<i64, Arc<ClientLabel>>,
}

impl Reader {
    /// Opens an existing file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = FileId::at(path);
        let connection = file::open_for_reading(path)?;
        Ok(Self { path: path.to_owned(), file, connection, names: HashMap::new(), clients: HashMap::new() })
    }

    /// Returns false if the file was moved or removed since it was opened: no bridge writes to it any more.
    pub fn is_current(&self) -> bool {
        FileId::at(&self.path) == self.file
    }

    /// Returns the chosen spans with their numbers, newest first.
    pub fn spans(&mut self, filter: &SpanFilter) -> Result<Vec<(i64, Span)>, StoreError> {
        let Some((condition, values)) = self.condition(filter)? else { return Ok(Vec::new()) };
        let limit = filter.limit.map_or(-1, |limit| limit as i64);
        self.query(&format!("WHERE {condition} ORDER BY id DESC LIMIT {limit}"), values)
    }

    /// Returns the number of the newest span.
    pub fn last_span(&self) -> Result<i64, StoreError> {
        Ok(self.connection.query_row("SELECT coalesce(max(id), 0) FROM spans", [], |row| row.get(0))?)
    }

    /// Finds the trace of an id: that of a trace or a span, a correlation id, or the beginning of one of them.
    pub fn find(&mut self, id: &str) -> Result<Found, StoreError> {
        let mut traces = self.traces_of_correlation(id, false)?;
        if traces.len() > 1 {
            let traces = traces.into_iter().map(|trace| self.trace(trace)).collect::<Result<_, _>>()?;
            return Ok(Found::Correlated(traces));
        }
        if traces.is_empty() {
            traces = self.traces_of_number(id)?;
        }
        if traces.is_empty() {
            traces = self.traces_of_correlation(id, true)?;
        }
        match &traces[..] {
            [] => Ok(Found::Nothing),
            [trace] => self.trace(*trace).map(Found::Trace),
            _ => Ok(Found::Ambiguous(traces)),
        }
    }

    /// Returns the spans of a trace in the order of their start.
    pub fn trace(&mut self, id: TraceId) -> Result<Vec<Span>, StoreError> {
        let [high, low] = halves(id.0);
        let rest = format!("WHERE trace_high = ? AND trace_low = ? ORDER BY id LIMIT {MAX_TRACE}");
        let spans = self.query(&rest, vec![high.into(), low.into()])?;
        let mut spans: Vec<Span> = spans.into_iter().map(|(_, span)| span).collect();
        spans.sort_by_key(|span| (span.started_at, span.kind == SpanKind::Call));
        Ok(spans)
    }

    /// Returns the graph of tools.
    pub fn graph(&self) -> Result<GraphRows, StoreError> {
        graph_rows::read(&self.connection)
    }

    /// Returns the number of calls that the graph has observed without their values, because there was no room.
    pub fn dropped_values(&self) -> Result<u64, StoreError> {
        graph_rows::dropped_values(&self.connection)
    }

    /// Returns the statistics of the chosen calls.
    pub fn statistics(&mut self, filter: &SpanFilter) -> Result<Vec<ToolStatistics>, StoreError> {
        let Some((condition, values)) = self.condition(filter)? else { return Ok(Vec::new()) };
        let sql =
            format!("SELECT name, own_name, duration, outcome FROM spans WHERE kind = 0 AND {condition}");
        let names = self.all_names()?;
        let ids: HashMap<&str, i64> = names.iter().map(|(id, text)| (text.as_str(), *id)).collect();
        let mut durations = Durations::default();
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let (mut id, mut own): (Option<i64>, Option<String>) = (row.get(0)?, row.get(1)?);
            // A refused call of a tool that has other calls belongs to them.
            if let Some(known) = own.as_deref().and_then(|own| ids.get(own)) {
                (id, own) = (Some(*known), None);
            }
            let outcome = Outcome::from_number(row.get(3)?);
            let (is_error, is_tool_error) = (outcome == Outcome::Error, outcome == Outcome::ToolError);
            durations.add((id, own), row.get::<_, i64>(2)? as u64, is_error, is_tool_error);
        }
        let shown = |(id, own): (Option<i64>, Option<String>)| {
            own.or_else(|| names.get(&id?).cloned()).unwrap_or_default()
        };
        Ok(durations.finish(shown))
    }

    fn all_names(&self) -> Result<HashMap<i64, String>, StoreError> {
        let mut statement = self.connection.prepare("SELECT id, text FROM names")?;
        let names = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    /// Returns the number of entries that were dropped because there was no room, or the file could not be written.
    pub fn dropped(&self) -> Result<u64, StoreError> {
        let sql = "SELECT value FROM counters WHERE name = 'dropped'";
        let count: Option<i64> = self.connection.query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(count.unwrap_or(0) as u64)
    }

    /// Returns the newest chosen log lines with their numbers, oldest first.
    pub fn logs(&mut self, filter: &LogFilter) -> Result<Vec<(i64, LogLine)>, StoreError> {
        let sql =
            "SELECT logs.id, at, source, level, logs.text FROM logs JOIN names ON names.id = logs.server
                   WHERE names.text = ?1 AND logs.id > ?2 AND at >= ?3 ORDER BY logs.id DESC LIMIT ?4";
        let LogFilter { server, after, since, limit } = filter;
        let shared: Arc<str> = server.as_str().into();
        let read = |row: &Row<'_>| {
            let line = LogLine {
                server: shared.clone(),
                at: row.get(1)?,
                source: LogSource::from_number(row.get(2)?),
                level: row.get(3)?,
                text: row.get(4)?,
            };
            Ok((row.get(0)?, line))
        };
        let mut statement = self.connection.prepare(sql)?;
        let chosen = (server, after.unwrap_or(0), since.unwrap_or(i64::MIN), *limit as i64);
        let mut lines: Vec<_> = statement.query_map(chosen, read)?.collect::<Result<_, _>>()?;
        lines.reverse();
        Ok(lines)
    }

    /// Returns the condition of a filter and its values; `None` if no span can meet it.
    fn condition(&self, filter: &SpanFilter) -> Result<Option<(String, Vec<Value>)>, StoreError> {
        let (mut terms, mut values) = (vec!["1".to_owned()], Vec::new());
        let mut add = |term: &str, value: Value| {
            terms.push(term.to_owned());
            values.push(value);
        };
        if let Some(tool) = &filter.tool {
            add(&self.tool_term(tool)?, tool.clone().into());
        }
        if let Some(server) = &filter.server {
            add(&self.server_term(server)?, server.clone().into());
        }
        if let Some(id) = &filter.correlation_id {
            add(&correlation_term(id), id.clone().into());
        }
        if let Some(since) = filter.since {
            add("started_at >= ?", since.into());
        }
        if let Some(slower_than) = filter.slower_than {
            add("duration >= ?", (slower_than as i64).into());
        }
        if let Some(after) = filter.after {
            add("id > ?", after.into());
        }
        if filter.failed {
            terms.push("outcome > 0".into());
        }
        Ok(Some((terms.join(" AND "), values)))
    }

    /// Returns the condition that a span is a call of the tool, whose name is its value.
    fn tool_term(&self, tool: &str) -> Result<String, StoreError> {
        let ids = self.ids_of_tool(tool)?;
        let own = if tool.contains(':') {
            "own_name = ?"
        } else {
            "instr(own_name, ':') > 0 AND substr(own_name, instr(own_name, ':') + 1) = ?"
        };
        Ok(format!("((name IN ({ids})) OR (kind = 0 AND {own}))"))
    }

    /// Returns the condition that a span is a call of the server, whose name is its value.
    fn server_term(&self, server: &str) -> Result<String, StoreError> {
        let sql = "SELECT id FROM names WHERE text = ?1";
        let id: Option<i64> = self.connection.query_row(sql, [server], |row| row.get(0)).optional()?;
        let id = id.unwrap_or(-1);
        Ok(format!("(server = {id} OR (kind = 0 AND substr(own_name, 1, instr(own_name, ':') - 1) = ?))"))
    }

    /// Returns the ids of a tool's names, separated by commas. A name without a server is that of all servers.
    fn ids_of_tool(&self, tool: &str) -> Result<String, StoreError> {
        let condition = if tool.contains(':') {
            "text = ?1"
        } else {
            "instr(text, ':') > 0 AND substr(text, instr(text, ':') + 1) = ?1"
        };
        let mut statement = self.connection.prepare(&format!("SELECT id FROM names WHERE {condition}"))?;
        let ids: Vec<i64> = statement.query_map([tool], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }

    fn traces_of_correlation(&self, id: &str, is_prefix: bool) -> Result<Vec<TraceId>, StoreError> {
        let condition = match is_prefix {
            true => "substr(correlation, 1, length(?1)) = ?1",
            false => "correlation = ?1",
        };
        self.traces(condition, vec![id.to_owned().into()])
    }

    /// Finds traces by the beginning of a trace id or a span id.
    fn traces_of_number(&self, id: &str) -> Result<Vec<TraceId>, StoreError> {
        let Some((first, last)) = range_of_prefix(id) else { return Ok(Vec::new()) };
        // Columns are signed, so a range of unsigned numbers may be two ranges: it never is for a prefix of hexadecimal digits.
        let [first_high, first_low] = halves(first);
        let [last_high, last_low] = halves(last);
        let (trace, mut values) = match id.len() > 16 {
            true => ("trace_high = ? AND trace_low BETWEEN ? AND ?", vec![first_high, first_low, last_low]),
            false => ("trace_high BETWEEN ? AND ?", vec![first_high, last_high]),
        };
        let mut condition = format!("({trace})");
        if id.len() <= 16 {
            condition += " OR span BETWEEN ? AND ?";
            values.extend([first_high, last_high]);
        }
        self.traces(&condition, values.into_iter().map(Value::from).collect())
    }

    fn traces(&self, condition: &str, values: Vec<Value>) -> Result<Vec<TraceId>, StoreError> {
        const MAX: usize = 10;
        let sql = format!(
            "SELECT trace_high, trace_low FROM spans WHERE {condition}
             GROUP BY trace_high, trace_low ORDER BY max(id) DESC LIMIT {MAX}"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let read = |row: &Row<'_>| Ok(trace_id(row.get(0)?, row.get(1)?));
        Ok(statement.query_map(params_from_iter(values), read)?.collect::<Result<_, _>>()?)
    }

    fn query(&mut self, rest: &str, values: Vec<Value>) -> Result<Vec<(i64, Span)>, StoreError> {
        let Self { connection, names, clients, .. } = self;
        let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM spans {rest}"))?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut texts = Texts { connection, names, clients };
        let mut spans = Vec::new();
        while let Some(row) = rows.next()? {
            spans.push((row.get(0)?, read_span(row, &mut texts)?));
        }
        Ok(spans)
    }
}

/// Looks up the texts that spans refer to.
struct Texts<'a> {
    connection: &'a Connection,
    names: &'a mut HashMap<i64, Arc<str>>,
    clients: &'a mut HashMap<i64, Arc<ClientLabel>>,
}

impl Texts<'_> {
    fn name(&mut self, id: Option<i64>) -> rusqlite::Result<Option<Arc<str>>> {
        let Some(id) = id else { return Ok(None) };
        if let Some(known) = self.names.get(&id) {
            return Ok(Some(known.clone()));
        }
        let sql = "SELECT text FROM names WHERE id = ?1";
        let text: Option<String> = self.connection.query_row(sql, [id], |row| row.get(0)).optional()?;
        let text: Option<Arc<str>> = text.map(Into::into);
        self.names.extend(text.clone().map(|text| (id, text)));
        Ok(text)
    }

    fn client(&mut self, id: Option<i64>) -> rusqlite::Result<Option<Arc<ClientLabel>>> {
        let Some(id) = id else { return Ok(None) };
        if let Some(known) = self.clients.get(&id) {
            return Ok(Some(known.clone()));
        }
        let read =
            |row: &Row<'_>| Ok(ClientLabel { name: row.get(0)?, version: row.get(1)?, session: row.get(2)? });
        let sql = "SELECT name, version, session FROM clients WHERE id = ?1";
        let client = self.connection.query_row(sql, [id], read).optional()?.map(Arc::new);
        self.clients.extend(client.clone().map(|client| (id, client)));
        Ok(client)
    }
}

fn read_span(row: &Row<'_>, texts: &mut Texts<'_>) -> rusqlite::Result<Span> {
    let trace_id = trace_id(row.get(7)?, row.get(8)?);
    let span_id = |number: i64| SpanId(number.cast_unsigned());
    let own_name: Option<String> = row.get(4)?;
    let name = match own_name {
        Some(own) => own.into(),
        None => texts.name(row.get(3)?)?.unwrap_or_else(|| "".into()),
    };
    let correlation: Option<String> = row.get(14)?;
    let correlation = correlation.and_then(|text| CorrelationId::parse(&text).ok());
    let captured = Captured { arguments: row.get(23)?, result: row.get(24)? };
    let is_captured = captured != Captured::default();
    Ok(Span {
        context: SpanContext {
            trace_id,
            span_id: span_id(row.get(9)?),
            parent: row.get::<_, Option<i64>>(10)?.map(span_id),
        },
        kind: SpanKind::from_number(row.get(1)?),
        face: Face::from_number(row.get(11)?),
        client: texts.client(row.get(12)?)?,
        agent: texts.name(row.get(13)?)?,
        correlation_id: correlation.unwrap_or_else(|| CorrelationId::from_random(trace_id.0)),
        name,
        started_at: row.get(5)?,
        duration: row.get::<_, i64>(6)? as u64,
        waited: row.get::<_, i64>(15)? as u64,
        attempts: row.get(16)?,
        isolation: row.get::<_, Option<i64>>(17)?.map(Isolation::from_number),
        argument_bytes: row.get::<_, i64>(18)? as u64,
        result_bytes: row.get::<_, Option<i64>>(19)?.map(|bytes| bytes as u64),
        outcome: Outcome::from_number(row.get(2)?),
        code: texts.name(row.get(20)?)?,
        delivery: row.get::<_, Option<i64>>(21)?.map(delivery_from),
        message: row.get(22)?,
        content: is_captured.then(|| Arc::new(captured) as Arc<dyn CapturableContent>),
    })
}

/// Returns the least and the greatest 128-bit number whose hexadecimal text begins like this.
fn range_of_prefix(text: &str) -> Option<(u128, u128)> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !(1..=32).contains(&text.len()) || !text.bytes().all(is_digit) {
        return None;
    }
    let free = 128 - 4 * text.len() as u32;
    let bits = u128::from_str_radix(text, 16).ok()?;
    let first = bits.checked_shl(free).unwrap_or(0);
    Some((first, first | 1_u128.checked_shl(free).map_or(u128::MAX, |one| one - 1)))
}

/// Returns the condition that a span has the correlation id, which is its value.
fn correlation_term(id: &str) -> String {
    // The id of a call that came without one is that of its trace, and is not stored again.
    let trace = TraceId::parse(id).map(|trace| halves(trace.0));
    let own = trace.map_or_else(String::new, |[high, low]| {
        format!(" OR (correlation IS NULL AND trace_high = {high} AND trace_low = {low})")
    });
    format!("(correlation = ?{own})")
}

/// Returns the bits as the two columns of a trace id.
pub(crate) fn halves(bits: u128) -> [i64; 2] {
    [((bits >> 64) as u64).cast_signed(), (bits as u64).cast_signed()]
}

fn trace_id(high: i64, low: i64) -> TraceId {
    TraceId(u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned()))
}
