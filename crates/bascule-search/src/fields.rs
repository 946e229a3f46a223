//! The texts of a tool that a search looks at.

use bascule_model::{ToolDefinition, clip};
use serde_json::Value;

/// The number of texts of a tool.
pub(crate) const FIELDS: usize = 5;
/// The importance of words in name, server, description, parameter names and parameter descriptions.
pub(crate) const WEIGHTS: [f32; FIELDS] = [3.0, 1.0, 1.0, 0.7, 0.7];
/// The degree to which a long text makes each of its words less important, from 0 to 1.
pub(crate) const LENGTH_PENALTIES: [f32; FIELDS] = [0.3, 0.0, 0.6, 0.6, 0.7];
/// Deeper parameters are not read.
const MAX_DEPTH: usize = 6;
/// The bytes of a field that are read.
const MAX_FIELD: usize = 8_000;
/// The bytes of all fields of a tool that are read.
const MAX_TEXT: usize = 16_000;

/// The texts of one tool, in the order of `WEIGHTS`.
pub(crate) struct ToolFields(pub(crate) [String; FIELDS]);

impl ToolFields {
    pub(crate) fn new(server: &str, tool: &ToolDefinition) -> Self {
        let (mut names, mut descriptions) = (String::new(), String::new());
        if let Ok(schema) = serde_json::from_str(tool.input_schema.get()) {
            add_parameters(&schema, MAX_DEPTH, &mut names, &mut descriptions);
        }
        let description = tool.description.as_deref().unwrap_or_default();
        let texts = [tool.name.as_str(), server, description, names.as_str(), descriptions.as_str()];
        let mut room = MAX_TEXT;
        Self(texts.map(|text| {
            let read = clip(text, MAX_FIELD.min(room));
            room -= read.len();
            read.to_owned()
        }))
    }

    pub(crate) fn description(&self) -> &str {
        &self.0[2]
    }

    /// Returns the names and descriptions of the parameters.
    #[cfg(test)]
    fn parameters(&self) -> [&str; 2] {
        [&self.0[3], &self.0[4]]
    }
}

fn add_parameters(schema: &Value, depth: usize, names: &mut String, descriptions: &mut String) {
    if depth == 0 {
        return;
    }
    for (name, parameter) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if names.len() > MAX_FIELD {
            return;
        }
        add(names, name);
        add(descriptions, parameter.get("description").and_then(Value::as_str).unwrap_or_default());
        add_parameters(parameter, depth - 1, names, descriptions);
    }
    let choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.get(key)?.as_array());
    for part in choices.flatten().chain(schema.get("items")) {
        add_parameters(part, depth - 1, names, descriptions);
    }
}

/// Adds as much of a text as a field may have.
fn add(text: &mut String, more: &str) {
    let more = clip(more, MAX_FIELD.saturating_sub(text.len()));
    if !more.is_empty() {
        text.push_str(more);
        text.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn check(definition: &str, names: &str, descriptions: &str) {
        let definition = ToolDefinition::parse(RawValue::from_string(definition.into()).unwrap()).unwrap();
        assert_eq!(ToolFields::new("s", &definition).parameters(), [names, descriptions]);
    }

    // req: SE-01
    #[test]
    fn reads_nested_parameters() {
        check(
            r#"{"name":"t","inputSchema":{"properties":{
                "files":{"description":"Paths","items":{"properties":{"path":{"description":"One path"}}}},
                "mode":{"anyOf":[{"properties":{"fast":{}}}]}}}}"#,
            "files path mode fast ",
            "Paths One path ",
        );
    }

    // req: SE-01
    #[test]
    fn text_of_one_tool_is_bounded() {
        let long = "word ".repeat(100_000);
        let definition = format!(
            r#"{{"name":"t","description":"{long}","inputSchema":{{"properties":{{"p":{{"description":"{long}"}},"{long}":{{}}}}}}}}"#
        );
        let definition = ToolDefinition::parse(RawValue::from_string(definition).unwrap()).unwrap();
        let ToolFields(fields) = ToolFields::new("s", &definition);
        assert_eq!(fields.iter().map(String::len).sum::<usize>(), MAX_TEXT);
        assert!(fields.iter().all(|field| field.len() <= MAX_FIELD));
    }

    // req: SE-01
    #[test]
    fn accepts_odd_schemas() {
        for schema in ["true", "7", r#"{"properties":[1]}"#, r#"{"properties":{},"items":[],"anyOf":7}"#] {
            check(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#), "", "");
        }
    }
}
