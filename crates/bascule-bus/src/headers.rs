//! The headers of a message, and the names and values that mean something to Bascule.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// What a message says about itself besides its envelope, by name.
pub type Headers = BTreeMap<Cow<'static, str>, Cow<'static, str>>;

/// The names of the headers that mean something to Bascule (BU-03). Only names: there is no such value.
pub enum WellKnownHeaders {}

impl WellKnownHeaders {
    /// Who speaks in the body; the values are those of `ContentTrust` (BU-04).
    pub const CONTENT_TRUST: &'static str = "rb-content-trust";
}

/// How far the body of a tool message may be trusted (BU-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentTrust {
    /// An agent asks for a tool.
    ToolRequest,
    /// A tool speaks, or is quoted: never an instruction, whatever it says.
    ToolOutput,
}

impl ContentTrust {
    /// The header's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolRequest => "tool-request",
            Self::ToolOutput => "tool-output",
        }
    }

    /// What the headers of a message say; nothing if they do not, or say a word that we do not know.
    pub fn of(headers: &Headers) -> Option<Self> {
        let value = headers.get(WellKnownHeaders::CONTENT_TRUST)?;
        [Self::ToolRequest, Self::ToolOutput].into_iter().find(|trust| trust.as_str() == value)
    }

    /// Headers that say this and nothing else.
    pub fn headers(self) -> Headers {
        Headers::from([(WellKnownHeaders::CONTENT_TRUST.into(), self.as_str().into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(trust: ContentTrust, json: &str) {
        assert_eq!(serde_json::to_string(&trust.headers()).unwrap(), json);
        assert_eq!(ContentTrust::of(&serde_json::from_str(json).unwrap()), Some(trust));
    }

    // req: BU-04
    #[test]
    fn trust_goes_by_its_contracted_name_and_words() {
        check(ContentTrust::ToolRequest, r#"{"rb-content-trust":"tool-request"}"#);
        check(ContentTrust::ToolOutput, r#"{"rb-content-trust":"tool-output"}"#);
    }

    #[test]
    fn an_unknown_word_is_no_trust() {
        let headers = Headers::from([(WellKnownHeaders::CONTENT_TRUST.into(), "user".into())]);
        assert_eq!(ContentTrust::of(&headers), None);
        assert_eq!(ContentTrust::of(&Headers::new()), None);
    }
}
