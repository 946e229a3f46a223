//! Reads one JSON-RPC message, and leaves as raw text whatever is only to be repeated.
//!
//! Raw text has no depth limit and loses nothing, so arguments nested 10,000 deep are echoed as they came.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

type Fields = BTreeMap<String, Box<RawValue>>;

/// One JSON object that may be a request, a notification or an answer.
pub(crate) struct Message {
    fields: Fields,
    params: Fields,
}

impl Message {
    /// Nothing if the text is no JSON object.
    pub(crate) fn parse(text: &str) -> Option<Message> {
        let fields = read(text)?;
        let params = fields.get("params").and_then(|params| read(params.get())).unwrap_or_default();
        Some(Message { fields, params })
    }

    /// The id's JSON text.
    pub(crate) fn id(&self) -> Option<&str> {
        self.fields.get("id").map(|id| id.get())
    }

    pub(crate) fn method(&self) -> Option<String> {
        string(&self.fields, "method")
    }

    /// Whether it is of this method.
    pub(crate) fn is(&self, method: &str) -> bool {
        self.method().as_deref() == Some(method)
    }

    /// The name of the tool that is called.
    pub(crate) fn tool(&self) -> Option<String> {
        string(&self.params, "name")
    }

    /// The arguments' JSON text.
    pub(crate) fn arguments(&self) -> &str {
        self.params.get("arguments").map_or("{}", |arguments| arguments.get())
    }

    /// A parameter that is a string.
    pub(crate) fn param(&self, name: &str) -> Option<String> {
        string(&self.params, name)
    }

    /// The progress token's JSON text.
    pub(crate) fn progress_token(&self) -> Option<String> {
        let meta = read(self.params.get("_meta")?.get())?;
        meta.get("progressToken").map(|token| token.get().to_owned())
    }
}

/// The string under this key of a JSON object.
pub(crate) fn string_in(object: &str, key: &str) -> Option<String> {
    string(&read(object)?, key)
}

fn read(text: &str) -> Option<Fields> {
    serde_json::from_str(text).ok()
}

fn string(fields: &Fields, key: &str) -> Option<String> {
    serde_json::from_str(fields.get(key)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_stays_as_it_was_written() {
        let line = r#"{"id": 1e3, "method":"tools/call","params":{"name":"x","arguments":{ "a":1.0}}}"#;
        let message = Message::parse(line).unwrap();
        assert_eq!((message.id(), message.arguments()), (Some("1e3"), r#"{ "a":1.0}"#));
    }

    #[test]
    fn depth_does_not_matter() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let line = format!(r#"{{"id":1,"method":"tools/call","params":{{"arguments":{deep}}}}}"#);
        assert_eq!(Message::parse(&line).unwrap().arguments(), deep);
    }
}
