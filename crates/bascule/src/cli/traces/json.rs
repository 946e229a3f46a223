//! The JSON of a span and of a log line. The fields are a contract.

use bascule_model::Delivery;
use bascule_store::{Captured, LogLine, Span, SpanKind};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Returns a span as `bascule traces --json` prints it.
pub(super) fn span(span: &Span) -> Value {
    let is_call = span.kind == SpanKind::Call;
    let client = span.client.as_ref();
    let client = client
        .map(|client| json!({ "name": client.name, "version": client.version, "session": client.session }));
    let mut value = json!({
        "traceId": span.context.trace_id.to_string(),
        "spanId": span.context.span_id.to_string(),
        "parentSpanId": span.context.parent.map(|parent| parent.to_string()),
        "kind": span.kind.as_str(),
        "face": span.face.as_str(),
        "client": client,
        "agent": span.agent.as_deref(),
        "correlationId": span.correlation_id,
        "server": span.server(),
        "tool": is_call.then_some(&*span.name),
        "startedAt": time(span.started_at),
        "durationMs": millis(span.duration),
        "waitedMs": millis(span.waited),
        "attempts": span.attempts,
        "isolation": span.isolation.map(|isolation| isolation.as_str()),
        "outcome": span.outcome.as_str(),
        "code": span.code.as_deref(),
        "delivery": span.delivery.map(Delivery::as_str),
        "message": span.message,
        "argumentBytes": span.argument_bytes,
        "resultBytes": span.result_bytes,
    });
    if !is_call {
        value["script"] = (*span.name).into();
    }
    if let Some(content) = &span.content {
        let Captured { arguments, result } = content.capture();
        arguments.into_iter().for_each(|text| value["arguments"] = captured(text));
        result.into_iter().for_each(|text| value["result"] = captured(text));
    }
    value
}

/// Returns captured JSON as it is. A text that was cut is no JSON any more.
fn captured(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

pub(super) fn log_line(line: &LogLine) -> Value {
    json!({
        "server": &*line.server,
        "at": time(line.at),
        "source": line.source.as_str(),
        "level": line.level,
        "text": line.text,
    })
}

/// Formats microseconds since 1970 as RFC 3339.
pub(super) fn time(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default()
}

pub(super) fn millis(micros: u64) -> Value {
    // An integer of microseconds as a number without rounding errors.
    let text = format!("{}.{:03}", micros / 1_000, micros % 1_000);
    RawValue::from_string(text).ok().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}
