//! Spans as OTLP JSON, by the semantic conventions for MCP: one `ExportTraceServiceRequest`.

use bascule_store::{Outcome, Span, SpanKind};
use serde_json::{Value, json};

/// Values of the protocol.
const KIND_INTERNAL: u32 = 1;
const KIND_CLIENT: u32 = 3;
const STATUS_UNSET: u32 = 0;
const STATUS_ERROR: u32 = 2;

pub(crate) fn export(spans: &[Span]) -> Value {
    let resource = json!({ "attributes": [
        attribute("service.name", "bascule"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
    ] });
    let scope = json!({ "name": "bascule", "version": env!("CARGO_PKG_VERSION") });
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }] })
}

fn span(span: &Span) -> Value {
    let start = span.started_at.max(0).cast_unsigned().saturating_mul(1_000);
    let end = start.saturating_add(span.duration.saturating_mul(1_000));
    let is_call = span.kind == SpanKind::Call;
    let name = if is_call { format!("tools/call {}", span.name) } else { format!("script {}", span.name) };
    let code = if span.outcome == Outcome::Ok { STATUS_UNSET } else { STATUS_ERROR };
    let mut value = json!({
        "traceId": span.context.trace_id.to_string(),
        "spanId": span.context.span_id.to_string(),
        "name": name,
        "kind": if is_call { KIND_CLIENT } else { KIND_INTERNAL },
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes(span),
        "status": { "code": code, "message": span.message.as_deref().unwrap_or_default() },
    });
    if let Some(parent) = span.context.parent {
        value["parentSpanId"] = parent.to_string().into();
    }
    value
}

fn attributes(span: &Span) -> Vec<Value> {
    let mut all = vec![
        attribute("bascule.face", span.face.as_str()),
        attribute("bascule.correlation_id", span.correlation_id.as_str()),
        number("bascule.waited_us", span.waited),
    ];
    if span.kind == SpanKind::Call {
        let tool = span.name.split_once(':').map_or(&*span.name, |(_, tool)| tool);
        all.extend([
            attribute("mcp.method.name", "tools/call"),
            attribute("gen_ai.tool.name", tool),
            attribute("gen_ai.operation.name", "execute_tool"),
            attribute("bascule.server", span.server().unwrap_or_default()),
            number("bascule.attempts", span.attempts.into()),
            number("bascule.argument_bytes", span.argument_bytes),
        ]);
    }
    all.extend(span.result_bytes.map(|bytes| number("bascule.result_bytes", bytes)));
    all.extend(span.isolation.map(|isolation| attribute("bascule.isolation", isolation.as_str())));
    all.extend(span.delivery.map(|value| attribute("bascule.delivery", value.as_str())));
    all.extend(span.agent.as_deref().map(|agent| attribute("bascule.agent", agent)));
    let failed = (span.outcome == Outcome::ToolError).then_some("tool_error");
    all.extend(span.code.as_deref().or(failed).map(|code| attribute("error.type", code)));
    if let Some(client) = &span.client {
        all.push(attribute("bascule.client.name", &client.name));
        all.push(attribute("bascule.client.version", &client.version));
        all.push(attribute("mcp.session.id", &client.session));
    }
    all
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}
