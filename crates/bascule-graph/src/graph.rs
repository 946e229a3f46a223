//! The graph of tools: observes calls, remembers sessions, counts relations.

use foldhash::HashMap;

use crate::session::SessionMemory;
use crate::table::Table;
use crate::tally::Tally;
use crate::{CallSession, TracedCall};

/// Longer names are no names of tools.
const MAX_NAME: usize = 512;

/// The limits of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphLimits {
    pub nodes: usize,
    /// The largest number of edges at one node, of all kinds and both directions.
    pub edges_per_node: usize,
    /// Sessions that are remembered at one time.
    pub sessions: usize,
    /// Calls of one session that are remembered.
    pub window_calls: usize,
    /// The longest pause between related calls of a session, in microseconds. Calls of one script have no such limit.
    pub window: i64,
    /// Fingerprints of one session that are remembered.
    pub values_per_session: usize,
    /// Fingerprints of all sessions that are remembered.
    pub values: usize,
    /// The time after which an observation counts half, in microseconds: at least a week, or weights meet their bounds within
    /// years. A stored graph keeps its half-life.
    pub half_life: i64,
}

impl Default for GraphLimits {
    fn default() -> Self {
        Self {
            nodes: 10_000,
            edges_per_node: 96,
            sessions: 256,
            window_calls: 32,
            window: 10 * 60 * 1_000_000,
            values_per_session: 1_024,
            values: 65_536,
            half_life: 30 * 24 * 3_600 * 1_000_000,
        }
    }
}

/// Tools and their relations, learned from calls.
#[derive(Debug, Default)]
pub struct ToolGraph {
    pub(crate) limits: GraphLimits,
    pub(crate) table: Table,
    /// Each session with the number of its last observation.
    sessions: HashMap<CallSession, (u64, SessionMemory)>,
    /// The sum of the sessions' remembered values.
    values: usize,
    observations: u64,
}

impl ToolGraph {
    pub fn new(limits: GraphLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Observes the calls of finished executions, in any order.
    pub fn update_from_execution(&mut self, traces: impl IntoIterator<Item = TracedCall>) {
        let mut traces: Vec<TracedCall> = traces.into_iter().collect();
        traces.sort_by_key(|call| (call.ended_at, call.started_at, call.span));
        traces.iter().for_each(|call| {
            self.observe(call);
        });
    }

    /// Observes one call. The calls of a session are observed in the order in which they end.
    ///
    /// Returns false if the call does not count: its span was observed before, or its tool has no possible name.
    pub fn observe(&mut self, call: &TracedCall) -> bool {
        if call.tool.is_empty() || call.tool.len() > MAX_NAME {
            return false;
        }
        self.observations += 1;
        let (last, session) = self.sessions.entry(call.session.clone()).or_default();
        *last = self.observations;
        let is_counted = !session.has_seen(call.span);
        if is_counted {
            count(&mut self.table, call, session, &self.limits);
            self.values -= session.values();
            session.remember(call, &self.limits);
            self.values += session.values();
        }
        self.forget_old_sessions();
        is_counted
    }

    fn forget_old_sessions(&mut self) {
        while self.sessions.len() > 1
            && (self.sessions.len() > self.limits.sessions || self.values > self.limits.values)
        {
            let oldest = self.sessions.iter().min_by_key(|(_, (last, _))| *last).map(|(id, _)| id.clone());
            oldest.iter().for_each(|id| self.forget_session(id));
        }
    }

    /// Forgets the calls of a session that has ended. Its relations stay.
    pub fn forget_session(&mut self, session: &CallSession) {
        if let Some((_, session)) = self.sessions.remove(session) {
            self.values -= session.values();
        }
    }

    /// Returns the number of tools.
    pub fn node_count(&self) -> usize {
        self.table.node_count()
    }

    /// Returns the number of relations.
    pub fn edge_count(&self) -> usize {
        self.table.edge_count()
    }

    /// Returns the number of remembered fingerprints. For tests.
    #[doc(hidden)]
    pub fn value_count(&self) -> usize {
        self.values
    }

    /// Returns the number of remembered sessions. For tests.
    #[doc(hidden)]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }
}

/// Adds a call and its relations to the table.
fn count(table: &mut Table, call: &TracedCall, session: &SessionMemory, limits: &GraphLimits) {
    let success = Tally::once(true, call.ended_at, limits.half_life);
    let failure = Tally { successes: 0, ..success };
    let tally = if call.success { success } else { failure };
    let relations = session.relations(call, limits);
    let to = table.add_to_node(&call.tool, &tally, limits);
    table.node_mut(to).unsaved.add(&tally);
    for relation in relations {
        // Most calls repeat the tool of the call before.
        let is_same = relation.earlier == call.tool;
        let from = if is_same { Some(to) } else { table.find(&relation.earlier) };
        if let Some(from) = from {
            let tally = if relation.success { success } else { failure };
            table.add_to_edge((from, to), relation.kind, &tally, true);
            table.trim(from, limits);
        }
    }
    table.trim(to, limits);
}
