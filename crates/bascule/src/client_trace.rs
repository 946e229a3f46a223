//! The trace that a client gives with a request (W3C Trace Context), and its way to the server of a call.

use bascule_mcp::{TraceHeaders, patch};
use bascule_model::{SpanContext, TraceParent};

/// The trace of a client's request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientTrace {
    /// The client's own span.
    pub(crate) parent: TraceParent,
    flags: String,
    state: Option<String>,
    /// The request has a `traceparent` in `_meta`, which reaches the server unchanged.
    is_in_meta: bool,
}

impl ClientTrace {
    /// Finds the trace of a request: in its `_meta`, else in the headers.
    pub(crate) fn find(
        meta: Option<&str>,
        in_meta: Option<&str>,
        headers: Option<&TraceHeaders>,
    ) -> Option<Self> {
        let text = |json: &str| serde_json::from_str::<String>(json).ok();
        let own = in_meta.and_then(text).and_then(|parent| {
            let state = meta.and_then(|meta| patch::find_string(meta, &["tracestate"]));
            Self::new(&parent, state, true)
        });
        own.or_else(|| {
            let TraceHeaders { parent, state } = headers?;
            Self::new(parent, state.clone(), in_meta.is_some())
        })
    }

    fn new(parent: &str, state: Option<String>, is_in_meta: bool) -> Option<Self> {
        let flags = parent.trim().split('-').nth(3).unwrap_or_default().to_owned();
        Some(Self { parent: TraceParent::parse(parent)?, flags, state, is_in_meta })
    }

    /// Adds the trace to the parameters of a call, with the call's span as the parent of the server's.
    /// `is_clients_own` says that the parameters are those of the client: a `traceparent` in them stays as it is.
    pub(crate) fn add_to(&self, params: String, span: &SpanContext, is_clients_own: bool) -> String {
        if is_clients_own && self.is_in_meta {
            return params;
        }
        let parent = format!("\"00-{}-{}-{}\"", span.trace_id, span.span_id, self.flags);
        let params = patch::insert(&params, &["_meta", "traceparent"], &parent);
        match &self.state {
            Some(state) if patch::find(&params, &["_meta", "tracestate"]).is_none() => {
                let state = serde_json::to_string(state).expect("text is always JSON");
                patch::insert(&params, &["_meta", "tracestate"], &state)
            }
            _ => params,
        }
    }
}

#[cfg(test)]
mod tests {
    use bascule_model::{SpanId, TraceId};

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    const PASSED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-00";

    fn headers() -> TraceHeaders {
        TraceHeaders { parent: PARENT.into(), state: Some("a=1".into()) }
    }

    #[track_caller]
    fn check(meta: &str, params: &str, expected: &str) {
        let trace = ClientTrace::find(Some(meta), patch::find(meta, &["traceparent"]), Some(&headers()));
        let trace = trace.unwrap();
        let span =
            SpanContext { trace_id: trace.parent.trace_id, span_id: SpanId(7), parent: Some(SpanId(1)) };
        assert_eq!(trace.add_to(params.into(), &span, true), expected);
    }

    // req: GW-03
    #[test]
    fn own_trace_of_the_parameters_stays_as_it_is() {
        for own in [PARENT, "not a trace"] {
            let params = format!(r#"{{"_meta":{{"traceparent":"{own}","progressToken":1}}}}"#);
            check(&format!(r#"{{"traceparent":"{own}"}}"#), &params, &params);
        }
    }

    // req: TR-01
    #[test]
    fn trace_of_the_headers_reaches_the_server_with_the_span_of_the_call() {
        let added =
            format!(r#"{{"_meta":{{"progressToken":1,"traceparent":"{PASSED}","tracestate":"a=1"}}}}"#);
        check("{}", r#"{"_meta":{"progressToken":1}}"#, &added);
        let kept = format!(r#"{{"_meta":{{"tracestate":"b=2","traceparent":"{PASSED}"}}}}"#);
        check(r#"{"tracestate":"b=2"}"#, r#"{"_meta":{"tracestate":"b=2"}}"#, &kept);
    }

    // req: TR-01
    #[test]
    fn meta_counts_before_headers() {
        let other = PARENT.replace("4bf9", "0000");
        let json = format!("\"{other}\"");
        let trace = ClientTrace::find(None, Some(&json), Some(&headers())).unwrap();
        assert_eq!(trace.parent.trace_id, TraceId::parse(&other[3..35]).unwrap());
        assert_eq!(ClientTrace::find(None, Some("7"), None), None);
    }
}
