//! Spans as one `ExportTraceServiceRequest`, by the semantic conventions for MCP.

use bascule_store::{Outcome, Span, SpanKind};
use serde_json::Value;

use super::message::{FieldValue, OtlpMessage, attribute, number, scope};
use super::settings::OtlpResource;

/// Values of the protocol.
const KIND_INTERNAL: u32 = 1;
const KIND_CLIENT: u32 = 3;
const STATUS_UNSET: u32 = 0;
const STATUS_ERROR: u32 = 2;

/// Returns spans as OTLP JSON, for a file.
pub(crate) fn spans_json(spans: &[Span]) -> Value {
    spans_message(spans, &OtlpResource::default()).to_json()
}

pub(super) fn spans_message(spans: &[Span], resource: &OtlpResource) -> OtlpMessage {
    let spans: Vec<OtlpMessage> = spans.iter().map(span_message).collect();
    let in_scope = OtlpMessage::default().with(1, "scope", scope()).with(2, "spans", spans);
    let of_resource = OtlpMessage::default().with(1, "resource", resource.to_message()).with(
        2,
        "scopeSpans",
        vec![in_scope],
    );
    OtlpMessage::default().with(1, "resourceSpans", vec![of_resource])
}

fn span_message(span: &Span) -> OtlpMessage {
    let start = span.started_at.max(0).cast_unsigned().saturating_mul(1_000);
    let end = start.saturating_add(span.duration.saturating_mul(1_000));
    let is_call = span.kind == SpanKind::Call;
    let name =
        if is_call { format!("tools/call {}", tool_of(span)) } else { format!("script {}", span.name) };
    let code = if span.outcome == Outcome::Ok { STATUS_UNSET } else { STATUS_ERROR };
    let context = &span.context;
    let message = OtlpMessage::default()
        .with(1, "traceId", FieldValue::Id(context.trace_id.0.to_be_bytes().into()))
        .with(2, "spanId", FieldValue::Id(context.span_id.0.to_be_bytes().into()));
    let message = match context.parent {
        Some(parent) => message.with(4, "parentSpanId", FieldValue::Id(parent.0.to_be_bytes().into())),
        None => message,
    };
    let status = OtlpMessage::default().with(2, "message", span.message.as_deref().unwrap_or_default()).with(
        3,
        "code",
        FieldValue::Enum(code),
    );
    message
        .with(5, "name", name.as_str())
        .with(6, "kind", FieldValue::Enum(if is_call { KIND_CLIENT } else { KIND_INTERNAL }))
        .with(7, "startTimeUnixNano", FieldValue::Fixed(start))
        .with(8, "endTimeUnixNano", FieldValue::Fixed(end))
        .with(9, "attributes", attributes(span))
        .with(15, "status", status)
}

/// Returns the tool's own name.
fn tool_of(span: &Span) -> &str {
    span.name.split_once(':').map_or(&span.name, |(_, tool)| tool)
}

fn attributes(span: &Span) -> Vec<OtlpMessage> {
    let mut all = vec![
        attribute("bascule.face", span.face.as_str()),
        attribute("bascule.correlation_id", span.correlation_id.as_str()),
        number("bascule.waited_us", span.waited),
    ];
    if span.kind == SpanKind::Call {
        all.extend([
            attribute("mcp.method.name", "tools/call"),
            attribute("gen_ai.tool.name", tool_of(span)),
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
        all.push(attribute("bascule.client.session", &client.session));
    }
    all
}
