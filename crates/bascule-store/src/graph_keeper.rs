//! The owner of the graph of tools, on the writer thread: observes written calls, and saves the changes now and then.
//!
//! The graph is read from the file with the first observed call. Several bridges add their changes to one file, so each has in
//! memory what was in the file at its start, and its own calls. Fingerprints and their key never leave the memory.

use std::time::{Duration, Instant};

use bascule_graph::{CallSession, FingerprintKey, GraphLimits, ToolGraph, TracedCall, fingerprints};
use rusqlite::Connection;
use tracing::warn;

use crate::file::StoreError;
use crate::graph_rows;
use crate::observed_call::ObservedCall;
use crate::queue::{Batch, QueueEntry};
use crate::span::{Outcome, Span};

/// The time from an observation to its save.
const SAVE_AFTER: Duration = Duration::from_secs(2);

pub(crate) struct GraphKeeper {
    key: FingerprintKey,
    /// `None` before the first observed call.
    graph: Option<ToolGraph>,
    /// Calls that lost their values and are not in the file's count yet.
    stripped: u64,
    /// The time of the next save, if there is something to save.
    save_at: Option<Instant>,
}

impl GraphKeeper {
    pub(crate) fn new(key: FingerprintKey) -> Self {
        Self { key, graph: None, stripped: 0, save_at: None }
    }

    /// Returns the time of the next save, if there is something to save.
    pub(crate) fn save_at(&self) -> Option<Instant> {
        self.save_at
    }

    /// Saves later.
    pub(crate) fn postpone(&mut self, wait: Duration) {
        self.save_at = self.save_at.map(|_| Instant::now() + wait);
    }

    /// Forgets everything: the file was damaged, and a new one is begun.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.key);
    }

    /// Forgets the values of a session that has ended.
    pub(crate) fn forget(&mut self, session: &CallSession) {
        if let Some(graph) = &mut self.graph {
            graph.forget_session(session);
        }
    }

    /// Observes the calls of a batch, which are in the order of their ends.
    pub(crate) fn observe(&mut self, connection: &Connection, batch: &Batch) {
        self.stripped += batch.stripped;
        for entry in &batch.entries {
            if let QueueEntry::Span(span, Some(call)) = entry {
                self.observe_call(connection, span, call);
            }
        }
    }

    fn observe_call(&mut self, connection: &Connection, span: &Span, call: &ObservedCall) {
        let graph = self.graph.get_or_insert_with(|| load(connection));
        let traced = traced_call(span, call, &self.key);
        if graph.observe(&traced) {
            self.save_at.get_or_insert_with(|| Instant::now() + SAVE_AFTER);
        }
        if call.session == CallSession::Single {
            graph.forget_session(&traced.session);
        }
    }

    /// Adds the changes to the file. A failure keeps them for the next time.
    pub(crate) fn save(&mut self, connection: &mut Connection) -> Result<(), StoreError> {
        let Some(graph) = &mut self.graph else { return Ok(()) };
        let changes = graph.take_changes();
        match graph_rows::save(connection, &changes, self.stripped) {
            Ok(()) => {
                (self.stripped, self.save_at) = (0, None);
                Ok(())
            }
            Err(error) => {
                graph.put_back(changes);
                Err(error)
            }
        }
    }
}

/// A graph that cannot be read begins anew in memory: its changes are added to the rows all the same.
fn load(connection: &Connection) -> ToolGraph {
    let rows =
        graph_rows::read(connection).inspect_err(|error| warn!("could not read the graph of tools: {error}"));
    ToolGraph::from_rows(GraphLimits::default(), &rows.unwrap_or_default())
}

fn traced_call(span: &Span, call: &ObservedCall, key: &FingerprintKey) -> TracedCall {
    TracedCall {
        span: span.context.span_id.0,
        script: call.script,
        session: call.session.clone(),
        tool: span.name.clone(),
        started_at: span.started_at,
        ended_at: span.started_at.saturating_add_unsigned(span.duration),
        success: span.outcome == Outcome::Ok,
        given: fingerprints(call.arguments(), key),
        returned: fingerprints(call.result(), key),
    }
}
