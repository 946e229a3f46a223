//! A request on its way to a server, which may have to be sent more than once.

use std::sync::{Arc, OnceLock};

use bascule_mcp::OnProgress;
use serde_json::value::RawValue;

/// Hears reports of progress, as they came.
pub(crate) type ProgressSink = Arc<dyn Fn(&RawValue, Option<&str>) + Send + Sync>;

/// What stands in a request and in its answer that JSON-RPC does not know: members, as they are spelled.
#[derive(Default)]
pub(crate) struct ExtraMembers {
    pub(crate) request: Option<String>,
    pub(crate) answer: OnceLock<String>,
}

/// What is to be asked, and who hears how it goes.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) method: &'a str,
    /// The tool that is called, if it is a call.
    pub(crate) tool: Option<&'a str>,
    /// Spells the parameters, given the id of the request, which is its progress token too.
    pub(crate) params: &'a (dyn Fn(u64) -> Option<String> + Send + Sync),
    pub(crate) progress: Option<ProgressSink>,
    pub(crate) extra: Option<&'a ExtraMembers>,
}

impl UpstreamRequest<'_> {
    pub(crate) fn on_progress(&self) -> Option<OnProgress> {
        let hear = self.progress.clone()?;
        Some(Box::new(move |params, more| hear(params, more)))
    }

    /// What it is called in errors.
    pub(crate) fn name(&self) -> &str {
        self.tool.unwrap_or(self.method)
    }
}
