//! A request to a server, which may have to be sent more than once.

use std::sync::{Arc, OnceLock};

use bascule_mcp::OnProgress;
use serde_json::value::RawValue;

use crate::call_record::CallMeter;
use crate::in_flight::InFlight;

/// Receives progress notifications as the server sent them, with their unknown members.
pub(crate) type ProgressSink = Arc<dyn Fn(&RawValue, Option<&str>) + Send + Sync>;

/// Members of a request and of its response that JSON-RPC does not know, as JSON text.
#[derive(Default)]
pub(crate) struct ExtraMembers {
    pub(crate) request: Option<String>,
    pub(crate) response: OnceLock<String>,
}

/// A request to a server.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) method: &'a str,
    /// The name of the called tool, for `tools/call`.
    pub(crate) tool: Option<&'a str>,
    /// Builds the parameters from the request's id, which is its progress token too.
    pub(crate) params: &'a (dyn Fn(u64) -> Option<String> + Send + Sync),
    pub(crate) progress: Option<ProgressSink>,
    pub(crate) extra_members: Option<&'a ExtraMembers>,
    /// Receives the attempts and the time at the gate.
    pub(crate) meter: Option<&'a CallMeter>,
}

impl UpstreamRequest<'_> {
    pub(crate) fn on_progress(&self) -> Option<OnProgress> {
        let progress = self.progress.clone()?;
        Some(Box::new(move |params, extra_members| progress(params, extra_members)))
    }

    /// Returns the name for errors.
    pub(crate) fn name(&self) -> &str {
        self.tool.unwrap_or(self.method)
    }

    /// Builds the parameters for one attempt, and marks the request as sent under this id.
    pub(crate) fn params_for(&self, id: u64, in_flight: &InFlight) -> Option<String> {
        in_flight.mark_sent(id);
        (self.params)(id)
    }
}
