//! The trace and the baggage that a client gives with a request (W3C Trace Context and Baggage), and their way to the server of a
//! call.

use bascule_mcp::{TraceHeaders, patch};
use bascule_model::{SpanContext, TraceParent};

/// The lengths up to which the standards ask for a value to be passed on. Longer ones are left out.
const MAX_STATE: usize = 512;
const MAX_BAGGAGE: usize = 8_192;
/// The flags of a span that is sent to a collector.
const SAMPLED: &str = "01";

/// The trace and the baggage of a client's request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientTrace {
    span: Option<ClientSpan>,
    baggage: Option<String>,
}

/// The client's own span.
#[derive(Debug, PartialEq, Eq)]
struct ClientSpan {
    parent: TraceParent,
    flags: String,
    state: Option<String>,
}

/// The members of `_meta` that this is about, as JSON.
#[derive(Clone, Copy, Default)]
pub(crate) struct TraceMeta<'a> {
    pub(crate) parent: Option<&'a str>,
    pub(crate) state: Option<&'a str>,
    pub(crate) baggage: Option<&'a str>,
}

impl ClientTrace {
    /// Finds the trace and the baggage of a request: each in its `_meta`, else in the headers. Unusable values are ignored: the
    /// request is not about them.
    pub(crate) fn find(meta: TraceMeta<'_>, headers: Option<&TraceHeaders>) -> Option<Self> {
        let text = |json: Option<&str>| serde_json::from_str::<String>(json?).ok();
        let in_meta = text(meta.parent).and_then(|parent| ClientSpan::new(&parent, text(meta.state)));
        let in_headers = || {
            let TraceHeaders { parent, state, .. } = headers?;
            ClientSpan::new(parent.as_deref()?, state.clone())
        };
        let baggage = text(meta.baggage).or_else(|| headers?.baggage.clone());
        let found = Self { span: in_meta.or_else(in_headers), baggage: passable(baggage, MAX_BAGGAGE) };
        (found.span.is_some() || found.baggage.is_some()).then_some(found)
    }

    /// Returns the client's own span, which is the parent of the call's.
    pub(crate) fn parent(&self) -> Option<TraceParent> {
        self.span.as_ref().map(|span| span.parent)
    }

    /// Adds trace and baggage to the parameters of a call, with the call's span as the parent of the server's. A `traceparent`
    /// that the client has put there is replaced; its `tracestate` and `baggage` stay as they are.
    fn add_to(&self, params: String, span: &SpanContext) -> String {
        let params = match &self.span {
            Some(client) => client.add_to(params, span),
            None => params,
        };
        add_missing(params, "baggage", self.baggage.as_deref())
    }
}

/// Adds the trace of a call to its parameters: that of the client, or else, if the span of the call is sent to a collector, the
/// bridge's own. The server's spans are then below it.
pub(crate) fn add_trace(
    params: String,
    client: Option<&ClientTrace>,
    span: &SpanContext,
    is_exported: bool,
) -> String {
    let has_parent = client.is_some_and(|client| client.span.is_some());
    let params = match is_exported && !has_parent {
        true => add_parent(&params, span, SAMPLED),
        false => params,
    };
    match client {
        Some(client) => client.add_to(params, span),
        None => params,
    }
}

fn add_parent(params: &str, span: &SpanContext, flags: &str) -> String {
    let parent = format!("\"00-{}-{}-{flags}\"", span.trace_id, span.span_id);
    patch::insert(params, &["_meta", "traceparent"], &parent)
}

impl ClientSpan {
    fn new(parent: &str, state: Option<String>) -> Option<Self> {
        let flags = parent.trim().split('-').nth(3).unwrap_or_default().to_owned();
        let state = passable(state, MAX_STATE);
        Some(Self { parent: TraceParent::parse(parent)?, flags, state })
    }

    fn add_to(&self, params: String, span: &SpanContext) -> String {
        let params = add_parent(&params, span, &self.flags);
        add_missing(params, "tracestate", self.state.as_deref())
    }
}

/// Adds a text to `_meta`, unless it has a member of this name.
fn add_missing(params: String, name: &str, text: Option<&str>) -> String {
    match text {
        Some(text) if patch::find(&params, &["_meta", name]).is_none() => {
            let text = serde_json::to_string(text).expect("text is always JSON");
            patch::insert(&params, &["_meta", name], &text)
        }
        _ => params,
    }
}

/// Returns a value that a header can hold and that is not too long.
fn passable(text: Option<String>, limit: usize) -> Option<String> {
    let is_visible = |text: &String| text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    text.filter(|text| (1..=limit).contains(&text.len()) && is_visible(text))
}

#[cfg(test)]
mod tests {
    use bascule_model::{SpanId, TraceId};

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    const PASSED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-00";

    fn headers() -> TraceHeaders {
        TraceHeaders { parent: Some(PARENT.into()), state: Some("a=1".into()), baggage: None }
    }

    fn find(meta: &str, headers: Option<&TraceHeaders>) -> Option<ClientTrace> {
        let [parent, state, baggage] =
            ["traceparent", "tracestate", "baggage"].map(|name| patch::find(meta, &[name]));
        ClientTrace::find(TraceMeta { parent, state, baggage }, headers)
    }

    /// Checks the parameters of a call with this `_meta` and these headers.
    #[track_caller]
    fn check(meta: &str, headers: &TraceHeaders, is_clients_own: bool, expected: &str) {
        let trace = find(meta, Some(headers)).unwrap();
        let trace_id = trace.parent().map_or(TraceId(1), |parent| parent.trace_id);
        let span = SpanContext { trace_id, span_id: SpanId(7), parent: Some(SpanId(1)) };
        let params = format!(r#"{{"_meta":{}}}"#, if is_clients_own { meta } else { "{}" });
        let expected = format!(r#"{{"_meta":{expected}}}"#);
        assert_eq!(trace.add_to(params, &span), expected);
    }

    // req: TR-01, GW-03
    #[test]
    fn own_trace_of_the_parameters_gets_the_span_of_the_call() {
        let others = TraceHeaders { baggage: Some("other=1".into()), ..headers() };
        for own in [PARENT, "not a trace"] {
            let meta = |parent: &str| {
                format!(
                    r#"{{"traceparent":"{parent}","progressToken":1,"tracestate":"b=2","baggage":"k=v"}}"#
                )
            };
            check(&meta(own), &others, true, &meta(PASSED));
        }
        // Without a usable trace there is no parent to name.
        let meta = r#"{"traceparent":"not a trace","baggage":"k=v"}"#;
        check(meta, &TraceHeaders::default(), true, meta);
    }

    // req: TR-01
    #[test]
    fn trace_of_the_headers_reaches_the_server_with_the_span_of_the_call() {
        let added = format!(r#"{{"progressToken":1,"traceparent":"{PASSED}","tracestate":"a=1"}}"#);
        check(r#"{"progressToken":1}"#, &headers(), true, &added);
        let kept = format!(r#"{{"tracestate":"b=2","traceparent":"{PASSED}"}}"#);
        check(r#"{"tracestate":"b=2"}"#, &headers(), true, &kept);
    }

    // req: TR-01
    #[test]
    fn calls_of_a_script_get_all_three_values_of_its_request() {
        let meta = format!(r#"{{"traceparent":"{PARENT}","tracestate":"b=2","baggage":"user=a%20b;p=1"}}"#);
        let added = format!(r#"{{"traceparent":"{PASSED}","tracestate":"b=2","baggage":"user=a%20b;p=1"}}"#);
        check(&meta, &headers(), false, &added);
    }

    // req: TR-01
    #[test]
    fn span_that_is_exported_is_the_parent_of_the_servers_without_a_trace_of_the_client() {
        let span = SpanContext { trace_id: TraceId(1), span_id: SpanId(7), parent: None };
        let own = format!("00-{:032x}-{:016x}-01", 1, 7);
        let add = |meta: &str, client: Option<&ClientTrace>, is_exported| {
            add_trace(format!(r#"{{"_meta":{meta}}}"#), client, &span, is_exported)
        };
        let with_own = format!(r#"{{"_meta":{{"progressToken":1,"traceparent":"{own}"}}}}"#);
        assert_eq!(add(r#"{"progressToken":1}"#, None, true), with_own);
        assert_eq!(add(r#"{"progressToken":1}"#, None, false), r#"{"_meta":{"progressToken":1}}"#);
        let baggage = find(r#"{"baggage":"k=v"}"#, None).unwrap();
        let with_both = format!(r#"{{"_meta":{{"traceparent":"{own}","baggage":"k=v"}}}}"#);
        assert_eq!(add("{}", Some(&baggage), true), with_both);
        let client = find("{}", Some(&headers())).unwrap();
        assert_eq!(add("{}", Some(&client), true), add("{}", Some(&client), false));
    }

    // req: TR-01
    #[test]
    fn baggage_needs_no_trace_and_state_does() {
        let baggage = TraceHeaders { baggage: Some("k=\"v\"".into()), ..TraceHeaders::default() };
        check("{}", &baggage, true, r#"{"baggage":"k=\"v\""}"#);
        let state = TraceHeaders { state: Some("a=1".into()), ..TraceHeaders::default() };
        assert_eq!(find("{}", Some(&state)), None);
        assert_eq!(find(r#"{"tracestate":"a=1"}"#, None), None);
    }

    // req: TR-01
    #[test]
    fn long_and_unprintable_values_are_left_out() {
        let passed = |length: usize, limit| passable(Some("x".repeat(length)), limit).is_some();
        assert!(passed(MAX_STATE, MAX_STATE) && !passed(MAX_STATE + 1, MAX_STATE) && !passed(0, MAX_STATE));
        for hostile in ["a=\n", "a=\u{1b}[2J", "é=1", "a=\0"] {
            assert_eq!(passable(Some(hostile.into()), MAX_BAGGAGE), None, "{hostile:?}");
            let meta =
                serde_json::json!({ "traceparent": PARENT, "tracestate": hostile, "baggage": hostile });
            let trace = find(&meta.to_string(), None).unwrap();
            assert_eq!((&trace.baggage, &trace.span.unwrap().state), (&None, &None));
        }
        for odd in [r#"{"baggage":7}"#, r#"{"baggage":["a"]}"#, r#"{"baggage":""}"#, "7"] {
            assert_eq!(find(odd, None), None, "{odd}");
        }
    }

    // req: TR-01
    #[test]
    fn meta_counts_before_headers() {
        let other = PARENT.replace("4bf9", "0000");
        let trace = find(&format!(r#"{{"traceparent":"{other}"}}"#), Some(&headers())).unwrap();
        assert_eq!(trace.parent().unwrap().trace_id, TraceId::parse(&other[3..35]).unwrap());
        assert_eq!(find(r#"{"traceparent":7}"#, None), None);
    }
}
