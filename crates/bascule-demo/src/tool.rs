//! Builds the definition of a tool as `tools/list` returns it.

use serde_json::{Value, json};

/// Builds the definition of a tool. Its schemas allow only the declared members.
pub(crate) struct ToolDeclaration(Value);

impl ToolDeclaration {
    pub(crate) fn new(name: &str, description: &str) -> ToolDeclaration {
        ToolDeclaration(
            json!({"name": name, "description": description, "inputSchema": object(json!({}), json!([]))}),
        )
    }

    /// Adds a required argument.
    pub(crate) fn required(self, name: &str, schema: Value) -> ToolDeclaration {
        self.member("inputSchema", name, schema, true)
    }

    /// Adds an optional argument.
    pub(crate) fn optional(self, name: &str, schema: Value) -> ToolDeclaration {
        self.member("inputSchema", name, schema, false)
    }

    /// Adds a required member of the structured result.
    pub(crate) fn returns(mut self, name: &str, schema: Value) -> ToolDeclaration {
        if self.0.get("outputSchema").is_none() {
            self.0["outputSchema"] = object(json!({}), json!([]));
        }
        self.member("outputSchema", name, schema, true)
    }

    /// Marks the tool as read-only and idempotent.
    pub(crate) fn read_only(self) -> ToolDeclaration {
        self.hints(json!({"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}))
    }

    /// Marks the tool as non-idempotent and non-destructive.
    pub(crate) fn additive(self) -> ToolDeclaration {
        self.hints(json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false}))
    }

    /// Marks the tool as destructive.
    pub(crate) fn destructive(self, idempotent: bool) -> ToolDeclaration {
        self.hints(json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": idempotent, "openWorldHint": false}))
    }

    pub(crate) fn definition(&self) -> &Value {
        &self.0
    }

    fn hints(mut self, hints: Value) -> ToolDeclaration {
        self.0["annotations"] = hints;
        self
    }

    fn member(mut self, object: &str, name: &str, schema: Value, required: bool) -> ToolDeclaration {
        let object = &mut self.0[object];
        object["properties"][name] = schema;
        if let Some(names) = object["required"].as_array_mut().filter(|_| required) {
            names.push(name.into());
        }
        self
    }
}

/// Returns the schema of an object that has no other properties.
pub(crate) fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

pub(crate) fn integer() -> Value {
    json!({"type": "integer"})
}

/// Returns the schema of an integer from zero to `maximum`.
pub(crate) fn up_to(maximum: u64) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": maximum})
}

pub(crate) fn list_of(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// Adds a description to a schema.
pub(crate) fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declaration_becomes_definition() {
        let tool = ToolDeclaration::new("x", "Does x")
            .required("a", text())
            .optional("b", integer())
            .returns("c", text());
        let expected = json!({
            "name": "x",
            "description": "Does x",
            "inputSchema": object(json!({"a": text(), "b": integer()}), json!(["a"])),
            "outputSchema": object(json!({"c": text()}), json!(["c"])),
        });
        assert_eq!(tool.definition(), &expected);
    }
}
