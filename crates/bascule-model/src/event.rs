//! What happened, told to whoever listens. Telling never waits and never fails a call.

use std::time::Duration;

use serde::Serialize;

use crate::call::millis;
use crate::{CorrelationId, ErrorCode, ServerName, ToolId};

/// Takes events. Implementations must return at once: this is called on the road of a call.
pub trait EventSink: Send + Sync {
    /// Offers one event; a sink that has no room drops it and counts.
    fn offer(&self, event: Event);
}

/// A sink for programs that do not listen.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiscardEvents;

impl EventSink for DiscardEvents {
    fn offer(&self, _: Event) {}
}

/// One thing that happened. The names are a contract (BR-03, BR-07).
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Event {
    /// A server's tools were listed.
    #[serde(rename = "provider.mcp.tools.discovered")]
    ToolsDiscovered {
        /// Whose tools.
        server: ServerName,
        /// How many.
        count: usize,
        /// Which.
        names: Vec<String>,
    },
    /// A tool answered, for better or worse.
    #[serde(rename = "provider.mcp.tool.completed")]
    ToolCompleted {
        /// Which call.
        correlation_id: CorrelationId,
        /// Which tool.
        tool: ToolId,
        /// Whether the tool said that it failed.
        is_error: bool,
        /// The beginning of the result.
        summary: String,
        /// How long it took.
        #[serde(rename = "durationMs", serialize_with = "as_millis")]
        duration: Duration,
    },
    /// A call came to a normalised error.
    #[serde(rename = "provider.mcp.tool.failed")]
    ToolFailed {
        /// Which call.
        correlation_id: CorrelationId,
        /// Which tool was asked for.
        tool: ToolId,
        /// What kind of failure.
        code: ErrorCode,
        /// Whether trying again may help.
        retryable: bool,
        /// The error's sentence.
        message: String,
    },
}

fn as_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(millis(*duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-03
    #[test]
    fn events_go_by_their_contracted_names() {
        let event = Event::ToolsDiscovered {
            server: ServerName::parse("a").unwrap(),
            count: 1,
            names: vec!["t".into()],
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"type":"provider.mcp.tools.discovered","server":"a","count":1,"names":["t"]}"#
        );
    }
}
