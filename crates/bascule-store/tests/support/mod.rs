//! A span for tests and benchmarks.

use std::sync::Arc;
use std::time::SystemTime;

use bascule_model::{CorrelationId, Delivery, SpanContext, SpanId, TraceId};
use bascule_store::{ClientLabel, Face, Isolation, Outcome, Span, SpanKind};

/// Microseconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as i64
}

/// Returns a call of `files:read` that was answered, with a trace of its own. Its duration is its number.
pub(crate) fn sample_span(number: u64) -> Span {
    let trace = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) | 1;
    Span {
        context: SpanContext { trace_id: TraceId(trace), span_id: SpanId(number + 1), parent: None },
        kind: SpanKind::Call,
        face: Face::Mcp,
        client: Some(Arc::new(ClientLabel { name: "c".into(), version: "1".into(), session: "s".into() })),
        agent: None,
        correlation_id: CorrelationId::from_random(trace),
        name: "files:read".into(),
        started_at: now(),
        duration: number,
        waited: 3,
        attempts: 1,
        isolation: Some(Isolation::Shared),
        argument_bytes: 10,
        result_bytes: Some(20),
        outcome: Outcome::Ok,
        code: None,
        delivery: Some(Delivery::Answered),
        message: None,
        content: None,
    }
}
