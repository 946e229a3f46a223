//! A tool as its server describes it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// One entry of a server's `tools/list`: the fields we act on, and the whole as it came.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The server's name for it.
    pub name: String,
    /// What it does, in the server's words.
    pub description: Option<String>,
    /// The JSON Schema of its arguments. A server that sends none gets `{}`: anything goes.
    pub input_schema: Box<RawValue>,
    /// The JSON Schema of its structured result.
    pub output_schema: Option<Box<RawValue>>,
    /// What the server says about repeating it.
    pub hints: ToolHints,
    /// The entry, byte for byte.
    pub raw: Box<RawValue>,
}

/// A server's own word on side effects. Hints, not promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolHints {
    /// It changes nothing.
    pub read_only_hint: bool,
    /// Twice is the same as once.
    pub idempotent_hint: bool,
}

impl ToolDefinition {
    /// Reads one entry of a tool list. Only a missing name is fatal to it.
    pub fn parse(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let read: Wire = serde_json::from_str(raw.get())?;
        let hints = read.annotations.and_then(|a| serde_json::from_str(a.get()).ok()).unwrap_or_default();
        Ok(Self {
            name: read.name,
            description: read.description.and_then(|d| serde_json::from_str(d.get()).ok()),
            input_schema: read.input_schema.map_or_else(anything, ToOwned::to_owned),
            output_schema: read.output_schema.filter(|s| s.get() != "null").map(ToOwned::to_owned),
            hints,
            raw,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    name: String,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

fn anything() -> Box<RawValue> {
    RawValue::from_string("{}".into()).expect("`{}` is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ToolDefinition, serde_json::Error> {
        ToolDefinition::parse(RawValue::from_string(text.into()).unwrap())
    }

    // req: BR-03
    #[test]
    fn an_entry_is_kept_byte_for_byte() {
        let text = r#"{"name":"t","x-vendor":{"n":1.0},"annotations":{"readOnlyHint":true,"x":1}}"#;
        let tool = parse(text).unwrap();
        assert_eq!(tool.raw.get(), text);
        assert!(tool.hints.read_only_hint && !tool.hints.idempotent_hint);
        assert_eq!(tool.input_schema.get(), "{}");
    }

    #[test]
    fn odd_fields_do_not_lose_a_tool_but_a_missing_name_does() {
        let tool = parse(r#"{"name":"t","description":7,"annotations":"none","outputSchema":null}"#).unwrap();
        assert_eq!((tool.description, tool.hints), (None, ToolHints::default()));
        assert!(tool.output_schema.is_none());
        assert!(parse(r#"{"description":"nameless"}"#).is_err());
    }
}
