//! Observes the results of finished calls: learns the types of tools that declare none, and publishes an event when answers
//! differ from the known type.
//!
//! No call waits for it. A short answer is looked at in place, a longer one on another thread, a very long one not at all.

use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::{CatalogTool, Look, ResultData};
use bascule_mcp::{is_large, may_walk, run_large};
use bascule_model::{BridgeError, CorrelationId, Event, ExpectedResult, ToolResult};
use bascule_script::{ResultValue, result_value};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::McpBridgeAdapter;
use crate::blocking::run_blocking;
use crate::fleet::Fleet;
use crate::listing_store::ListingKey;

/// A longer answer is looked at on another thread.
const MAX_IN_PLACE: usize = 8 << 10;
/// A longer answer is not looked at.
const MAX_BYTES: usize = 1 << 20;
/// Bounds the looks on other threads, and so the copies of answers. Beyond it an answer is not looked at.
static LOOKS: Semaphore = Semaphore::const_new(4);
/// New types are written after this time, together with those that follow.
const WRITE_DELAY: Duration = Duration::from_secs(2);

impl McpBridgeAdapter {
    /// Learns from the result of a call.
    pub(crate) fn observe_result(&self, tool: &Arc<CatalogTool>, result: &ToolResult, id: &CorrelationId) {
        let is_declared = tool.definition().output_schema.is_some();
        if result.is_error
            || is_declared
            || !tool.observed().is_look_due()
            || !self.fleet.learns_result_types()
        {
            return;
        }
        let raw = result.raw.get();
        let observer = ResultObserver { fleet: self.fleet.clone(), tool: tool.clone(), id: id.clone() };
        match raw.len() {
            ..=MAX_IN_PLACE => observer.look(raw),
            length if length > MAX_BYTES => {}
            length if is_large(length) && may_walk(length) => observer.look(raw),
            length => {
                let Ok(permit) = LOOKS.try_acquire() else { return };
                let raw = raw.to_owned();
                let look = move || {
                    observer.look(&raw);
                    drop(permit);
                };
                self.fleet.actors.spawn(async move {
                    match is_large(length) {
                        true => run_large(look).await,
                        false => run_blocking(look).await,
                    }
                });
            }
        }
    }

    /// Publishes that a result violates its output schema, once for each set of places.
    pub(crate) fn observe_violations(&self, tool: &CatalogTool, error: &BridgeError, id: &CorrelationId) {
        if error.violations.is_empty() {
            return;
        }
        let pointers = tool.observed().drift_from_declared(&error.violations);
        publish_drift(&self.fleet, tool, id, ExpectedResult::Declared, pointers);
    }
}

/// One look at the result of a call.
struct ResultObserver {
    fleet: Arc<Fleet>,
    tool: Arc<CatalogTool>,
    id: CorrelationId,
}

impl ResultObserver {
    fn look(&self, result: &str) {
        let Some(value) = result_value(result) else { return };
        let data = match &value {
            ResultValue::Json(json) => ResultData::Json(json),
            ResultValue::Text => ResultData::Text,
        };
        let own = self.tool.observed().look(data);
        // Clients with capabilities may have a server of their own. The catalog's tool learns from it too.
        let Look { has_news, drift } = match self.listed_tool() {
            Some(listed) => listed.observed().look(data),
            None => own,
        };
        publish_drift(&self.fleet, &self.tool, &self.id, ExpectedResult::Observed, drift);
        if has_news {
            store_observations(&self.fleet, self.tool.id().server());
        }
    }

    /// Returns the tool of the catalog, if it is another version of the called one with the same definition.
    fn listed_tool(&self) -> Option<Arc<CatalogTool>> {
        let snapshot = self.fleet.snapshot.load();
        let listed = snapshot.catalog.get(self.tool.id())?;
        let is_other = !std::ptr::eq(listed.observed(), self.tool.observed());
        let has_same_definition = listed.definition().raw.get() == self.tool.definition().raw.get();
        (is_other && has_same_definition).then(|| listed.clone())
    }
}

fn publish_drift(
    fleet: &Fleet,
    tool: &CatalogTool,
    id: &CorrelationId,
    expected: ExpectedResult,
    pointers: Vec<String>,
) {
    if !pointers.is_empty() {
        let (correlation_id, tool) = (id.clone(), tool.id().clone());
        fleet.events.offer(Event::ResultDrifted { correlation_id, tool, expected, pointers });
    }
}

/// Writes the types of a server's tools in a while, or when the bridge stops.
fn store_observations(fleet: &Fleet, server: &str) {
    let snapshot = fleet.snapshot.load();
    let (Some(last), Some(running), Some(tools)) =
        (&fleet.last_listings, snapshot.servers.get(server), snapshot.catalog.server(server))
    else {
        return;
    };
    let key = ListingKey::new(&running.settings, &running.profile.capabilities);
    if !last.observations.begin_waiting(&key) {
        return;
    }
    let (store, stop, tools) = (last.observations.clone(), fleet.stop.clone(), tools.clone());
    let server = running.settings.name.clone();
    fleet.actors.spawn(async move {
        let _ = tokio::time::timeout(WRITE_DELAY, stop.cancelled()).await;
        store.end_waiting(&key);
        if let Err(error) = run_blocking(move || store.write(&key, &tools)).await {
            warn!(%server, %error, "could not store the observed types for the next start");
        }
    });
}
