//! The ids that a client gives with a request: the parent of its span (W3C `traceparent`), and its correlation id, which is the
//! trace id if the client has none of its own.

use bascule_mcp::{TraceHeaders, patch};
use bascule_model::CorrelationId;

use crate::client_trace::{ClientTrace, TraceMeta};

/// The member of `_meta`, and of the `data` of the bridge's errors, that holds the id.
pub(super) const MEMBER: &str = "bascule/correlationId";

/// The ids in the `_meta` of a request, or in the headers of an HTTP request.
#[derive(Default)]
pub(super) struct ClientIds {
    pub(super) correlation_id: Option<CorrelationId>,
    pub(super) trace: Option<ClientTrace>,
}

impl ClientIds {
    /// Finds the ids. An unusable one is ignored: the request is not about it.
    pub(super) fn find(meta: Option<&str>, headers: Option<&TraceHeaders>) -> Self {
        let members = [MEMBER, "traceparent", "tracestate", "baggage"];
        let [own, parent, state, baggage] = members.map(|name| patch::find(meta?, &[name]));
        let text = |json: &str| serde_json::from_str::<String>(json).ok();
        let own = own.and_then(text).and_then(|id| CorrelationId::parse(&id).ok());
        let trace = ClientTrace::find(TraceMeta { parent, state, baggage }, headers);
        let of_trace = || Some(CorrelationId::from_random(trace.as_ref()?.parent()?.trace_id.0));
        Self { correlation_id: own.or_else(of_trace), trace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[track_caller]
    fn check(meta: &str, expected: Option<&str>) {
        assert_eq!(
            ClientIds::find(Some(meta), None).correlation_id.as_ref().map(CorrelationId::as_str),
            expected,
            "{meta}"
        );
    }

    // req: BR-06
    #[test]
    fn prefers_the_clients_own_id() {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        check(r#"{"bascule/correlationId":"order-17"}"#, Some("order-17"));
        check(&format!(r#"{{"traceparent":"{parent}"}}"#), Some(TRACE));
        check(&format!(r#"{{"traceparent":"{parent}","bascule/correlationId":"a"}}"#), Some("a"));
        check(&format!(r#"{{"traceparent":"{parent}","bascule/correlationId":"a b"}}"#), Some(TRACE));
    }

    #[test]
    fn ignores_ids_that_are_no_ids() {
        for meta in ["{}", "7", r#"{"bascule/correlationId":7}"#, r#"{"traceparent":"x"}"#] {
            check(meta, None);
        }
        for parent in ["ff-{}-00f067aa0ba902b7-01", "00-{}-0000000000000000-01", "00-{}-00f067aa0ba902b7"] {
            check(&format!(r#"{{"traceparent":"{}"}}"#, parent.replace("{}", TRACE)), None);
        }
        check(&format!(r#"{{"traceparent":"00-{}-00f067aa0ba902b7-01"}}"#, "0".repeat(32)), None);
    }
}
