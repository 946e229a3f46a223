//! Declares a demo's tool as `tools/list` shows it.

use serde_json::{Value, json};

/// A tool under declaration. Nothing is allowed in its arguments and results but what is named.
pub(super) struct Tool(Value);

impl Tool {
    pub(super) fn new(name: &str, description: &str) -> Tool {
        Tool(json!({"name": name, "description": description, "inputSchema": object(json!({}), json!([]))}))
    }

    /// An argument that must be there.
    pub(super) fn takes(self, name: &str, schema: Value) -> Tool {
        self.member("inputSchema", name, schema, true)
    }

    /// An argument that may be there.
    pub(super) fn may_take(self, name: &str, schema: Value) -> Tool {
        self.member("inputSchema", name, schema, false)
    }

    /// A member of the structured result, always there.
    pub(super) fn returns(mut self, name: &str, schema: Value) -> Tool {
        if self.0.get("outputSchema").is_none() {
            self.0["outputSchema"] = object(json!({}), json!([]));
        }
        self.member("outputSchema", name, schema, true)
    }

    /// It changes nothing, and may be called again at will.
    pub(super) fn read_only(self) -> Tool {
        self.hints(json!({"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}))
    }

    /// It adds something, each time it is called.
    pub(super) fn additive(self) -> Tool {
        self.hints(json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false}))
    }

    /// It takes something away; `idempotent` if a second call takes no more.
    pub(super) fn destructive(self, idempotent: bool) -> Tool {
        self.hints(json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": idempotent, "openWorldHint": false}))
    }

    pub(super) fn definition(&self) -> &Value {
        &self.0
    }

    fn hints(mut self, hints: Value) -> Tool {
        self.0["annotations"] = hints;
        self
    }

    fn member(mut self, object: &str, name: &str, schema: Value, required: bool) -> Tool {
        let object = &mut self.0[object];
        object["properties"][name] = schema;
        if let Some(names) = object["required"].as_array_mut().filter(|_| required) {
            names.push(name.into());
        }
        self
    }
}

pub(super) fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn integer() -> Value {
    json!({"type": "integer"})
}

/// A whole number from nought to this.
pub(super) fn up_to(maximum: u64) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": maximum})
}

pub(super) fn list_of(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// Adds a description.
pub(super) fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_becomes_a_definition() {
        let tool = Tool::new("x", "Does x").takes("a", text()).may_take("b", integer()).returns("c", text());
        let expected = json!({
            "name": "x",
            "description": "Does x",
            "inputSchema": object(json!({"a": text(), "b": integer()}), json!(["a"])),
            "outputSchema": object(json!({"c": text()}), json!(["c"])),
        });
        assert_eq!(tool.definition(), &expected);
    }
}
