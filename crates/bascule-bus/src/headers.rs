//! Message headers, and the header names and values that Bascule defines.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Additional metadata of a message, by name.
pub type Headers = BTreeMap<Cow<'static, str>, Cow<'static, str>>;

/// The header names that Bascule defines. A namespace for constants; it has no values.
pub enum WellKnownHeaders {}

impl WellKnownHeaders {
    /// The origin of the body; the values are those of `ContentTrust`.
    pub const CONTENT_TRUST: &'static str = "rb-content-trust";
    /// The span that a message belongs to (W3C Trace Context).
    pub const TRACE_PARENT: &'static str = "traceparent";
    pub const TRACE_STATE: &'static str = "tracestate";
    /// W3C Baggage.
    pub const BAGGAGE: &'static str = "baggage";
}

/// The origin of a tool message's body, which decides how far it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentTrust {
    /// An agent's request to call a tool.
    ToolRequest,
    /// Output of a tool, or a quotation of it. Untrusted: never to be treated as an instruction.
    ToolOutput,
}

impl ContentTrust {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolRequest => "tool-request",
            Self::ToolOutput => "tool-output",
        }
    }

    /// Returns `None` if the header is absent or has an unknown value.
    pub fn from_headers(headers: &Headers) -> Option<Self> {
        let value = headers.get(WellKnownHeaders::CONTENT_TRUST)?;
        [Self::ToolRequest, Self::ToolOutput].into_iter().find(|trust| trust.as_str() == value)
    }

    pub fn to_headers(self) -> Headers {
        Headers::from([(WellKnownHeaders::CONTENT_TRUST.into(), self.as_str().into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(trust: ContentTrust, json: &str) {
        assert_eq!(serde_json::to_string(&trust.to_headers()).unwrap(), json);
        assert_eq!(ContentTrust::from_headers(&serde_json::from_str(json).unwrap()), Some(trust));
    }

    // req: BU-04
    #[test]
    fn writes_and_reads_content_trust_as_specified() {
        check(ContentTrust::ToolRequest, r#"{"rb-content-trust":"tool-request"}"#);
        check(ContentTrust::ToolOutput, r#"{"rb-content-trust":"tool-output"}"#);
    }

    #[test]
    fn returns_none_for_missing_or_unknown_trust() {
        let headers = Headers::from([(WellKnownHeaders::CONTENT_TRUST.into(), "user".into())]);
        assert_eq!(ContentTrust::from_headers(&headers), None);
        assert_eq!(ContentTrust::from_headers(&Headers::new()), None);
    }
}
