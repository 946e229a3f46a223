//! What happened, told to whoever listens. Telling never waits and never fails a call.

use std::time::Duration;

use serde::Serialize;

use crate::call::millis;
use crate::{CorrelationId, ErrorCode, Health, ServerName, ToolId};

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
    /// A server's tools were listed again.
    #[serde(rename = "provider.mcp.tools.refreshed")]
    ToolsRefreshed {
        /// Whose tools.
        server: ServerName,
        /// Which are new.
        added: Vec<String>,
        /// Which are gone.
        removed: Vec<String>,
        /// How many are as they were.
        unchanged: usize,
    },
    /// The configuration was changed: these are the tools there are now.
    #[serde(rename = "provider.mcp.tools.available")]
    ToolsAvailable {
        /// How many.
        count: usize,
        /// Which, as `server:tool`.
        tools: Vec<ToolId>,
    },
    /// The connection to a server was lost.
    #[serde(rename = "provider.mcp.disconnected")]
    Disconnected {
        /// Which server.
        server: ServerName,
        /// What ended it.
        cause: String,
    },
    /// A server that was lost is back.
    #[serde(rename = "provider.mcp.reconnected")]
    Reconnected {
        /// Which server.
        server: ServerName,
        /// How many attempts it took.
        attempts: u32,
    },
    /// A server that was lost is given up.
    #[serde(rename = "provider.mcp.reconnect.exhausted")]
    ReconnectExhausted {
        /// Which server.
        server: ServerName,
        /// How many attempts were made.
        attempts: u32,
        /// Why the last one failed.
        cause: String,
    },
    /// A server is in another state than before.
    #[serde(rename = "provider.mcp.health.changed")]
    HealthChanged {
        /// Which server.
        server: ServerName,
        /// How it was.
        from: Health,
        /// How it is.
        to: Health,
        /// What led there, where there is something to say.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
}

impl Event {
    /// Its contracted name: what serde writes as `type`, and the topic under which it is told.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ToolsDiscovered { .. } => "provider.mcp.tools.discovered",
            Self::ToolCompleted { .. } => "provider.mcp.tool.completed",
            Self::ToolFailed { .. } => "provider.mcp.tool.failed",
            Self::ToolsRefreshed { .. } => "provider.mcp.tools.refreshed",
            Self::ToolsAvailable { .. } => "provider.mcp.tools.available",
            Self::Disconnected { .. } => "provider.mcp.disconnected",
            Self::Reconnected { .. } => "provider.mcp.reconnected",
            Self::ReconnectExhausted { .. } => "provider.mcp.reconnect.exhausted",
            Self::HealthChanged { .. } => "provider.mcp.health.changed",
        }
    }

    /// The call it belongs to, where it belongs to one.
    pub fn correlation_id(&self) -> Option<&CorrelationId> {
        match self {
            Self::ToolCompleted { correlation_id, .. } | Self::ToolFailed { correlation_id, .. } => {
                Some(correlation_id)
            }
            Self::ToolsDiscovered { .. }
            | Self::ToolsRefreshed { .. }
            | Self::ToolsAvailable { .. }
            | Self::Disconnected { .. }
            | Self::Reconnected { .. }
            | Self::ReconnectExhausted { .. }
            | Self::HealthChanged { .. } => None,
        }
    }
}

fn as_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(millis(*duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: Event, expected: &str) {
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
        let written: serde_json::Value = serde_json::from_str(expected).unwrap();
        assert_eq!(written["type"], event.name());
        assert_eq!(written["correlationId"].as_str(), event.correlation_id().map(CorrelationId::as_str));
    }

    fn server() -> ServerName {
        ServerName::parse("a").unwrap()
    }

    fn tool() -> ToolId {
        ToolId::parse("a:t").unwrap()
    }

    fn correlation_id() -> CorrelationId {
        CorrelationId::parse("c-1").unwrap()
    }

    // req: BR-03
    #[test]
    fn a_listing_goes_by_its_contracted_name() {
        check(
            Event::ToolsDiscovered { server: server(), count: 1, names: vec!["t".into()] },
            r#"{"type":"provider.mcp.tools.discovered","server":"a","count":1,"names":["t"]}"#,
        );
    }

    // req: BR-13
    #[test]
    fn what_is_available_goes_by_its_contracted_name() {
        check(
            Event::ToolsAvailable { count: 1, tools: vec![tool()] },
            r#"{"type":"provider.mcp.tools.available","count":1,"tools":["a:t"]}"#,
        );
    }

    // req: BR-07
    #[test]
    fn a_calls_end_goes_by_its_contracted_name_and_says_which_call() {
        check(
            Event::ToolCompleted {
                correlation_id: correlation_id(),
                tool: tool(),
                is_error: false,
                summary: "{}".into(),
                duration: Duration::from_micros(1500),
            },
            r#"{"type":"provider.mcp.tool.completed","correlationId":"c-1","tool":"a:t","isError":false,"summary":"{}","durationMs":1.5}"#,
        );
        check(
            Event::ToolFailed {
                correlation_id: correlation_id(),
                tool: tool(),
                code: ErrorCode::Cancelled,
                retryable: true,
                message: "m".into(),
            },
            r#"{"type":"provider.mcp.tool.failed","correlationId":"c-1","tool":"a:t","code":"CANCELLED","retryable":true,"message":"m"}"#,
        );
    }

    // req: BR-07
    #[test]
    fn a_servers_fate_goes_by_its_contracted_names() {
        check(
            Event::ToolsRefreshed {
                server: server(),
                added: vec!["n".into()],
                removed: vec!["o".into()],
                unchanged: 3,
            },
            r#"{"type":"provider.mcp.tools.refreshed","server":"a","added":["n"],"removed":["o"],"unchanged":3}"#,
        );
        check(
            Event::Disconnected { server: server(), cause: "it exited".into() },
            r#"{"type":"provider.mcp.disconnected","server":"a","cause":"it exited"}"#,
        );
        check(
            Event::Reconnected { server: server(), attempts: 2 },
            r#"{"type":"provider.mcp.reconnected","server":"a","attempts":2}"#,
        );
        check(
            Event::ReconnectExhausted { server: server(), attempts: 5, cause: "refused".into() },
            r#"{"type":"provider.mcp.reconnect.exhausted","server":"a","attempts":5,"cause":"refused"}"#,
        );
    }

    #[test]
    fn a_change_of_health_gives_its_cause_where_there_is_one() {
        let change = |to, cause| Event::HealthChanged { server: server(), from: Health::Healthy, to, cause };
        check(
            change(Health::Degraded, Some("lost".into())),
            r#"{"type":"provider.mcp.health.changed","server":"a","from":"healthy","to":"degraded","cause":"lost"}"#,
        );
        check(
            change(Health::Stopped, None),
            r#"{"type":"provider.mcp.health.changed","server":"a","from":"healthy","to":"stopped"}"#,
        );
    }
}
