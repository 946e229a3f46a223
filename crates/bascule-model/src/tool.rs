//! The definition of a tool, as its server lists it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// One entry of a server's `tools/list`: the fields that the bridge uses, and the unchanged text.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The server's own name for the tool.
    pub name: String,
    pub description: Option<String>,
    /// The JSON Schema of the arguments; `{}`, which allows everything, if the server sends none.
    pub input_schema: Box<RawValue>,
    /// The JSON Schema of `structuredContent`.
    pub output_schema: Option<Box<RawValue>>,
    pub hints: ToolHints,
    /// The entry, byte for byte.
    pub raw: Box<RawValue>,
}

/// The server's annotations on side effects. The protocol calls them untrusted hints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolHints {
    /// The tool changes nothing.
    pub read_only_hint: bool,
    /// Repeating a call has no further effect.
    pub idempotent_hint: bool,
}

impl ToolDefinition {
    /// Parses one entry of a tool list. Fails only if the name is missing; malformed optional fields are dropped.
    pub fn parse(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let entry: ListedTool = serde_json::from_str(raw.get())?;
        let hints = entry.annotations.and_then(|a| serde_json::from_str(a.get()).ok()).unwrap_or_default();
        Ok(Self {
            name: entry.name,
            description: entry.description.and_then(|d| serde_json::from_str(d.get()).ok()),
            input_schema: entry.input_schema.map_or_else(empty_schema, ToOwned::to_owned),
            output_schema: entry.output_schema.filter(|s| s.get() != "null").map(ToOwned::to_owned),
            hints,
            raw,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool<'a> {
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

fn empty_schema() -> Box<RawValue> {
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
    fn keeps_entry_byte_for_byte() {
        let text = r#"{"name":"t","x-vendor":{"n":1.0},"annotations":{"readOnlyHint":true,"x":1}}"#;
        let tool = parse(text).unwrap();
        assert_eq!(tool.raw.get(), text);
        assert!(tool.hints.read_only_hint && !tool.hints.idempotent_hint);
        assert_eq!(tool.input_schema.get(), "{}");
    }

    #[test]
    fn drops_malformed_fields_and_refuses_missing_name() {
        let tool = parse(r#"{"name":"t","description":7,"annotations":"none","outputSchema":null}"#).unwrap();
        assert_eq!((tool.description, tool.hints), (None, ToolHints::default()));
        assert!(tool.output_schema.is_none());
        assert!(parse(r#"{"description":"nameless"}"#).is_err());
    }
}
