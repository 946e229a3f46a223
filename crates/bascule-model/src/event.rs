//! Events of the bridge and the sink that receives them. Emitting an event never waits and never fails a call.

use std::time::Duration;

use serde::Serialize;

use crate::call::millis;
use crate::{CorrelationId, ErrorCode, Health, ServerName, SpanContext, ToolId};

/// Receives events. Implementations must return at once: calls run through here.
pub trait EventSink: Send + Sync {
    /// Accepts one event, or drops it if the sink has no room.
    fn offer(&self, event: Event);
}

/// A sink that drops every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiscardEvents;

impl EventSink for DiscardEvents {
    fn offer(&self, _: Event) {}
}

/// One event. The `type` names are a contract.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Event {
    /// A server's tools were listed.
    #[serde(rename = "provider.mcp.tools.discovered")]
    ToolsDiscovered { server: ServerName, count: usize, names: Vec<String> },
    /// A call returned a result, which may report a failure of the tool.
    #[serde(rename = "provider.mcp.tool.completed")]
    ToolCompleted {
        correlation_id: CorrelationId,
        tool: ToolId,
        is_error: bool,
        /// The first bytes of the result.
        summary: String,
        #[serde(rename = "durationMs", serialize_with = "serialize_millis")]
        duration: Duration,
        /// The likely refusal by the sandbox, and the setting that would allow it.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// The span of the call. Not part of the JSON: a bus carries it in a header.
        #[serde(skip)]
        span: Option<SpanContext>,
    },
    /// A call ended with a normalised error.
    #[serde(rename = "provider.mcp.tool.failed")]
    ToolFailed {
        correlation_id: CorrelationId,
        tool: ToolId,
        code: ErrorCode,
        retryable: bool,
        message: String,
        /// As above.
        #[serde(skip)]
        span: Option<SpanContext>,
    },
    /// The answer of a tool differs from the type of its earlier answers, or from its output schema.
    #[serde(rename = "provider.mcp.result.drifted")]
    ResultDrifted {
        correlation_id: CorrelationId,
        tool: ToolId,
        expected: ExpectedResult,
        /// JSON pointers to the differing places. `*` stands for any item, and for any property whose name may be data.
        pointers: Vec<String>,
    },
    /// A server's tools were listed again.
    #[serde(rename = "provider.mcp.tools.refreshed")]
    ToolsRefreshed {
        server: ServerName,
        added: Vec<String>,
        removed: Vec<String>,
        /// The number of tools that did not change.
        unchanged: usize,
    },
    /// The configuration was reloaded; lists all tools that are available now.
    #[serde(rename = "provider.mcp.tools.available")]
    ToolsAvailable { count: usize, tools: Vec<ToolId> },
    /// A changed configuration file was not applied, or one changed server of it.
    #[serde(rename = "provider.mcp.reload.refused")]
    ReloadRefused {
        /// The server that keeps its old configuration; none if the whole file was refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<ServerName>,
        cause: String,
    },
    /// The connection to a server was lost.
    #[serde(rename = "provider.mcp.disconnected")]
    Disconnected { server: ServerName, cause: String },
    /// The connection to a server was restored.
    #[serde(rename = "provider.mcp.reconnected")]
    Reconnected { server: ServerName, attempts: u32 },
    /// All attempts to restore the connection failed.
    #[serde(rename = "provider.mcp.reconnect.exhausted")]
    ReconnectExhausted {
        server: ServerName,
        attempts: u32,
        /// The failure of the last attempt.
        cause: String,
    },
    /// The state of a server changed.
    #[serde(rename = "provider.mcp.health.changed")]
    HealthChanged {
        server: ServerName,
        from: Health,
        to: Health,
        /// The reason, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
}

/// The type that an answer was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedResult {
    /// The type of earlier answers.
    Observed,
    /// The tool's output schema.
    Declared,
}

impl Event {
    /// Returns the name that serde writes as `type`. The bus uses it as topic.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ToolsDiscovered { .. } => "provider.mcp.tools.discovered",
            Self::ToolCompleted { .. } => "provider.mcp.tool.completed",
            Self::ToolFailed { .. } => "provider.mcp.tool.failed",
            Self::ResultDrifted { .. } => "provider.mcp.result.drifted",
            Self::ToolsRefreshed { .. } => "provider.mcp.tools.refreshed",
            Self::ToolsAvailable { .. } => "provider.mcp.tools.available",
            Self::ReloadRefused { .. } => "provider.mcp.reload.refused",
            Self::Disconnected { .. } => "provider.mcp.disconnected",
            Self::Reconnected { .. } => "provider.mcp.reconnected",
            Self::ReconnectExhausted { .. } => "provider.mcp.reconnect.exhausted",
            Self::HealthChanged { .. } => "provider.mcp.health.changed",
        }
    }

    /// Returns the span of the call that the event is about, if it is known.
    pub fn span(&self) -> Option<SpanContext> {
        match self {
            Self::ToolCompleted { span, .. } | Self::ToolFailed { span, .. } => *span,
            _ => None,
        }
    }

    /// Returns the id of the call that caused the event, if any.
    pub fn correlation_id(&self) -> Option<&CorrelationId> {
        match self {
            Self::ToolCompleted { correlation_id, .. }
            | Self::ToolFailed { correlation_id, .. }
            | Self::ResultDrifted { correlation_id, .. } => Some(correlation_id),
            _ => None,
        }
    }
}

fn serialize_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
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
    fn serializes_tools_discovered() {
        check(
            Event::ToolsDiscovered { server: server(), count: 1, names: vec!["t".into()] },
            r#"{"type":"provider.mcp.tools.discovered","server":"a","count":1,"names":["t"]}"#,
        );
    }

    // req: BR-13
    #[test]
    fn serializes_tools_available() {
        check(
            Event::ToolsAvailable { count: 1, tools: vec![tool()] },
            r#"{"type":"provider.mcp.tools.available","count":1,"tools":["a:t"]}"#,
        );
    }

    // req: US-01, BR-13
    #[test]
    fn serializes_refused_reload() {
        check(
            Event::ReloadRefused { server: None, cause: "mcp.json:1:1: broken".into() },
            r#"{"type":"provider.mcp.reload.refused","cause":"mcp.json:1:1: broken"}"#,
        );
        check(
            Event::ReloadRefused { server: Some(server()), cause: "it exited".into() },
            r#"{"type":"provider.mcp.reload.refused","server":"a","cause":"it exited"}"#,
        );
    }

    // req: BR-07
    #[test]
    fn serializes_call_events_with_correlation_id() {
        check(
            Event::ToolCompleted {
                correlation_id: correlation_id(),
                tool: tool(),
                is_error: false,
                summary: "{}".into(),
                duration: Duration::from_micros(1500),
                hint: None,
                span: None,
            },
            r#"{"type":"provider.mcp.tool.completed","correlationId":"c-1","tool":"a:t","isError":false,"summary":"{}","durationMs":1.5}"#,
        );
        check(
            Event::ToolCompleted {
                correlation_id: correlation_id(),
                tool: tool(),
                is_error: true,
                summary: "{}".into(),
                duration: Duration::ZERO,
                hint: Some("h".into()),
                span: None,
            },
            r#"{"type":"provider.mcp.tool.completed","correlationId":"c-1","tool":"a:t","isError":true,"summary":"{}","durationMs":0.0,"hint":"h"}"#,
        );
        check(
            Event::ToolFailed {
                correlation_id: correlation_id(),
                tool: tool(),
                code: ErrorCode::Cancelled,
                retryable: true,
                message: "m".into(),
                span: None,
            },
            r#"{"type":"provider.mcp.tool.failed","correlationId":"c-1","tool":"a:t","code":"CANCELLED","retryable":true,"message":"m"}"#,
        );
    }

    // req: CM-15
    #[test]
    fn serializes_drifted_result() {
        check(
            Event::ResultDrifted {
                correlation_id: correlation_id(),
                tool: tool(),
                expected: ExpectedResult::Observed,
                pointers: vec!["/rows/*/id".into()],
            },
            r#"{"type":"provider.mcp.result.drifted","correlationId":"c-1","tool":"a:t","expected":"observed","pointers":["/rows/*/id"]}"#,
        );
    }

    // req: BR-07
    #[test]
    fn serializes_server_events() {
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
    fn serializes_cause_of_health_change_if_present() {
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
