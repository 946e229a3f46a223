//! Schemas of messages, checked against the types.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A field with its schema.
pub(crate) type Field = (&'static str, Value);

/// Returns the schema of a type. `full` is a value with every field set. Panics if it has other fields than `fields`.
pub(crate) fn of_type<T: Serialize + DeserializeOwned>(
    description: &str,
    full: &T,
    fields: &[Field],
) -> Value {
    let reads_without = |value: &Value, name: &str| {
        let mut without = value.clone();
        without.as_object_mut().unwrap().remove(name);
        serde_json::from_value::<T>(without).is_ok()
    };
    let full = serde_json::to_value(full).unwrap();
    let required = fields.iter().map(|(name, _)| *name).filter(|name| !reads_without(&full, name)).collect();
    object(description, &full, fields, required)
}

/// Returns the schema of a type that is only written. `short` is a value with no optional field set.
pub(crate) fn of_written(description: &str, full: &Value, short: &Value, fields: &[Field]) -> Value {
    let is_required = |name: &&str| short.get(name).is_some();
    object(description, full, fields, fields.iter().map(|(name, _)| *name).filter(is_required).collect())
}

fn object(description: &str, full: &Value, fields: &[Field], required: Vec<&str>) -> Value {
    let written: BTreeSet<_> = full.as_object().unwrap().keys().map(String::as_str).collect();
    let described: BTreeSet<_> = fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(written, described, "the fields of `{description}` are not those of its schema");
    let properties: Map<_, _> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let mut schema = json!({"type": "object", "description": description, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

pub(crate) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(crate) fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

/// A number that is not negative.
pub(crate) fn count(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": description})
}

pub(crate) fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

pub(crate) fn list(items: Value, description: &str) -> Value {
    json!({"type": "array", "items": items, "description": description})
}

/// Any JSON object: its fields are not ours.
pub(crate) fn any_object(description: &str) -> Value {
    json!({"type": "object", "description": description})
}

pub(crate) fn schema_ref(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// 1 to 128 printable ASCII characters without spaces.
pub(crate) fn id(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[!-~]{1,128}$", "description": description})
}

pub(crate) fn agent_name(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": description})
}

pub(crate) fn server_name(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "description": description})
}

pub(crate) fn tool_id(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9_-]+:.+$", "description": description})
}

/// Lets a schema allow null as well.
pub(crate) fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}
