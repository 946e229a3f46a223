//! The request of a call, as an agent makes it.

use bascule_model::{CorrelationId, TraceParent};
use serde::Serialize;
use serde_json::value::RawValue;

/// A tool, its arguments, and what else belongs to the call.
#[derive(Debug, Clone)]
pub struct ToolRequest {
    pub(crate) tool: String,
    pub(crate) arguments: Result<Box<RawValue>, String>,
    pub(crate) correlation_id: Option<CorrelationId>,
    pub(crate) trace_parent: Option<TraceParent>,
    pub(crate) progress: bool,
}

impl ToolRequest {
    /// `tool` is `server:tool`. The arguments become a JSON object.
    pub fn new(tool: impl Into<String>, arguments: &impl Serialize) -> Self {
        let arguments = serde_json::value::to_raw_value(arguments).map_err(|error| error.to_string());
        let arguments = arguments.and_then(|arguments| match arguments.get().starts_with('{') {
            true => Ok(arguments),
            false => Err("they are not an object".into()),
        });
        Self { tool: tool.into(), arguments, correlation_id: None, trace_parent: None, progress: false }
    }

    /// All events, log lines and errors of the call carry this id. Without one the proxy makes it.
    pub fn with_correlation_id(self, id: CorrelationId) -> Self {
        Self { correlation_id: Some(id), ..self }
    }

    /// The span of the agent, which becomes the parent of the call's span.
    pub fn with_trace_parent(self, parent: TraceParent) -> Self {
        Self { trace_parent: Some(parent), ..self }
    }

    /// Asks the bridge for the server's progress messages.
    pub fn with_progress(self) -> Self {
        Self { progress: true, ..self }
    }
}
