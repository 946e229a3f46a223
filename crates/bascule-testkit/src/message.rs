//! Parses one JSON-RPC message and keeps id, arguments and progress token as raw text.
//!
//! Raw text has no depth limit, so arguments nested 10,000 deep are echoed unchanged.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

type Fields = BTreeMap<String, Box<RawValue>>;

/// A request, notification or response.
pub(crate) struct ParsedMessage {
    fields: Fields,
    params: Fields,
}

impl ParsedMessage {
    /// Returns `None` if the text is not a JSON object.
    pub(crate) fn parse(text: &str) -> Option<ParsedMessage> {
        let fields = parse_fields(text)?;
        let params = fields.get("params").and_then(|params| parse_fields(params.get())).unwrap_or_default();
        Some(ParsedMessage { fields, params })
    }

    /// Returns the id as JSON text.
    pub(crate) fn id(&self) -> Option<&str> {
        self.fields.get("id").map(|id| id.get())
    }

    pub(crate) fn method(&self) -> Option<String> {
        string(&self.fields, "method")
    }

    pub(crate) fn has_method(&self, method: &str) -> bool {
        self.method().as_deref() == Some(method)
    }

    pub(crate) fn tool_name(&self) -> Option<String> {
        string(&self.params, "name")
    }

    /// Returns the arguments as JSON text.
    pub(crate) fn arguments(&self) -> &str {
        self.params.get("arguments").map_or("{}", |arguments| arguments.get())
    }

    pub(crate) fn string_param(&self, name: &str) -> Option<String> {
        string(&self.params, name)
    }

    /// Returns the progress token as JSON text.
    pub(crate) fn progress_token(&self) -> Option<String> {
        let meta = parse_fields(self.params.get("_meta")?.get())?;
        meta.get("progressToken").map(|token| token.get().to_owned())
    }
}

/// Returns the string under this key of a JSON object.
pub(crate) fn string_in(object: &str, key: &str) -> Option<String> {
    string(&parse_fields(object)?, key)
}

fn parse_fields(text: &str) -> Option<Fields> {
    serde_json::from_str(text).ok()
}

fn string(fields: &Fields, key: &str) -> Option<String> {
    serde_json::from_str(fields.get(key)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_raw_text_of_id_and_arguments() {
        let line = r#"{"id": 1e3, "method":"tools/call","params":{"name":"x","arguments":{ "a":1.0}}}"#;
        let message = ParsedMessage::parse(line).unwrap();
        assert_eq!((message.id(), message.arguments()), (Some("1e3"), r#"{ "a":1.0}"#));
    }

    #[test]
    fn accepts_deeply_nested_arguments() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let line = format!(r#"{{"id":1,"method":"tools/call","params":{{"arguments":{deep}}}}}"#);
        assert_eq!(ParsedMessage::parse(&line).unwrap().arguments(), deep);
    }
}
