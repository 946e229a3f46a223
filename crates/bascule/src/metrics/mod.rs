//! The counters of calls, for operators: fed by the record of each call, shown as the text that Prometheus reads.
//!
//! Reading order: [`CallMetrics`] owns the counters, `tool_series` has those of one tool. `figures` has the state of servers,
//! scripts and traces at a moment. `page` makes the text of both, and `exposition` is its format; `otlp` sends both to a
//! collector. A call costs a lookup and two atomic additions, four if an MCP client made it.

mod exposition;
mod figures;
mod page;
mod tool_series;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bascule_model::{ServerName, ToolId};

use crate::call_record::{CallEnd, CallRecord, Face, RecordedResult};
pub(crate) use figures::{Figure, FigurePoint, figures};
use foldhash::HashMap;
pub(crate) use page::{METRICS_TYPE, metrics_page, starting_servers};
use tool_series::ToolSeries;
pub(crate) use tool_series::{BOUNDS, OutcomeCounts, ToolCounts};

/// The most tools with counters of their own. Further ones are counted together, for each server.
const MAX_TOOLS: usize = 512;
/// A tool with a longer name is counted with the other ones.
const MAX_NAME_BYTES: usize = 128;
/// The label of tools without counters of their own, and of servers that do not exist.
const OTHER: &str = "other";

/// Owns the counters of a bridge.
#[derive(Default)]
pub(crate) struct CallMetrics {
    /// Read at each call, replaced at the first call of a tool.
    tools: ArcSwap<HashMap<ToolId, Arc<ToolSeries>>>,
    servers: ArcSwap<HashMap<ServerName, Arc<ServerLoad>>>,
}

/// The calls that a server has at the moment, and its restarts. All processes and connections of one name share it, also those
/// after a reload.
#[derive(Default)]
pub(crate) struct ServerLoad {
    waiting: AtomicU64,
    in_flight: AtomicU64,
    restarts: AtomicU64,
}

/// Counts one call until it is dropped.
pub(crate) struct Counted<'a>(&'a AtomicU64);

impl CallMetrics {
    /// Returns the counters of a server.
    pub(crate) fn server(&self, name: &ServerName) -> Arc<ServerLoad> {
        entry(&self.servers, name)
    }

    /// Counts an ended call.
    pub(crate) fn on_end(&self, record: &CallRecord) {
        let Some(CallEnd { duration, result }) = &record.end else { return };
        let is_served = record.caller.recorded_face() == Face::Mcp;
        if let Some(series) = self.tools.load().get(&record.tool) {
            return series.count(*duration, result, is_served);
        }
        entry(&self.tools, &self.series_id(record)).count(*duration, result, is_served);
    }

    /// Returns the counters of all tools, ordered by their ids.
    pub(crate) fn tool_counts(&self) -> Vec<(ToolId, ToolCounts)> {
        let tools = self.tools.load();
        let mut all: Vec<_> = tools.iter().map(|(id, series)| (id.clone(), series.counts())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Returns the id under which the first call of a tool is counted. The caller of a refused call has chosen its names, which
    /// may be any.
    fn series_id(&self, record: &CallRecord) -> ToolId {
        let known = |server: &ServerName| self.servers.load().contains_key(server);
        match ServerName::parse(record.tool.server()).ok().filter(known) {
            Some(_) if record.meter.tool().is_some() && self.has_room(record.tool.tool()) => {
                record.tool.clone()
            }
            Some(server) => ToolId::new(&server, OTHER),
            None => ToolId::new(&ServerName::parse(OTHER).expect("it is a valid name"), OTHER),
        }
    }

    fn has_room(&self, tool: &str) -> bool {
        tool.len() <= MAX_NAME_BYTES
            && !tool.contains(char::is_control)
            && self.tools.load().len() < MAX_TOOLS
    }
}

impl ServerLoad {
    /// Counts a call that waits for a slot.
    pub(crate) fn count_waiting(&self) -> Counted<'_> {
        Counted::new(&self.waiting)
    }

    /// Counts a call that has a slot.
    pub(crate) fn count_in_flight(&self) -> Counted<'_> {
        Counted::new(&self.in_flight)
    }

    pub(crate) fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}

impl<'a> Counted<'a> {
    fn new(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the value of a key, after adding it where it is missing.
fn entry<K, V>(map: &ArcSwap<HashMap<K, Arc<V>>>, key: &K) -> Arc<V>
where
    K: Clone + Eq + std::hash::Hash,
    V: Default,
{
    if let Some(value) = map.load().get(key) {
        return value.clone();
    }
    let new = Arc::new(V::default());
    map.rcu(|map| {
        let mut map = HashMap::clone(map);
        // Another thread may have added it in the meantime.
        map.entry(key.clone()).or_insert_with(|| new.clone());
        map
    });
    map.load().get(key).cloned().unwrap_or(new)
}

/// Counts calls of several tools, like the pipeline, for a benchmark.
#[doc(hidden)]
pub fn count_calls_for_benchmark(tools: u64, calls: u64) {
    let metrics = CallMetrics::default();
    let result =
        RecordedResult::Completed { is_error: false, result_bytes: 9, summary: String::new(), hint: None };
    let ids: Vec<ToolId> =
        (0..tools).filter_map(|n| ToolId::parse(&format!("s{}:tool{n}", n % 20)).ok()).collect();
    ids.iter().for_each(|id| drop(entry(&metrics.tools, id)));
    for number in 0..calls {
        let id = &ids[number as usize % ids.len()];
        if let Some(series) = metrics.tools.load().get(id) {
            series.count(Duration::from_micros(number % 5_000), &result, true);
        }
    }
}

#[cfg(test)]
mod tests;
