//! Finds keys that differ from a declared property only in letter case.
//!
//! A server whose decoder ignores letter case reads `Path` as its property `path`, but the validator does not. The tree has
//! the names of the properties that a schema declares, at each level of the value.

use std::collections::BTreeMap;

use bascule_model::differ_only_in_case;
use serde_json::Value;

/// The most levels and the most subschemas that are followed: references may be cyclic.
const MAX_DEPTH: usize = 12;
const MAX_SUBSCHEMAS: usize = 2000;

/// The declared properties of an object, and those of the items of an array. All alternatives of the schema together.
#[derive(Debug, Default)]
pub(super) struct PropertyTree {
    members: BTreeMap<String, PropertyTree>,
    items: Option<Box<PropertyTree>>,
}

impl PropertyTree {
    pub(super) fn from_schema(schema: &Value) -> Self {
        let mut tree = Self::default();
        tree.add(schema, schema, MAX_DEPTH, &mut 0);
        tree
    }

    /// Returns a key that differs from a declared one only in letter case, and the declared one.
    pub(super) fn find_lookalike<'a>(&'a self, value: &'a Value) -> Option<(&'a str, &'a str)> {
        match value {
            Value::Array(values) => {
                values.iter().find_map(|value| self.items.as_ref()?.find_lookalike(value))
            }
            Value::Object(members) => members.iter().find_map(|(key, value)| match self.members.get(key) {
                Some(declared) => declared.find_lookalike(value),
                None => {
                    let declared = self.members.keys().find(|declared| differ_only_in_case(key, declared));
                    declared.map(|declared| (&**key, &**declared))
                }
            }),
            _ => None,
        }
    }

    fn add(&mut self, schema: &Value, root: &Value, depth: usize, subschemas: &mut usize) {
        *subschemas += 1;
        let (Some(schema), true) = (schema.as_object(), depth > 0 && *subschemas <= MAX_SUBSCHEMAS) else {
            return;
        };
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.members.entry(name.clone()).or_default().add(property, root, depth - 1, subschemas);
        }
        for key in ["items", "prefixItems", "contains", "additionalItems"] {
            for item in subschemas_of(schema.get(key)) {
                self.items.get_or_insert_default().add(item, root, depth - 1, subschemas);
            }
        }
        for key in ["allOf", "anyOf", "oneOf", "if", "then", "else"] {
            for alternative in subschemas_of(schema.get(key)) {
                self.add(alternative, root, depth - 1, subschemas);
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
        if let Some(target) = reference.and_then(|pointer| root.pointer(pointer)) {
            self.add(target, root, depth - 1, subschemas);
        }
    }
}

/// Returns a schema, or all schemas of a list.
fn subschemas_of(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.chain(value.filter(|value| value.is_object()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &Value, expected: Option<(&str, &str)>) {
        let path = json!({ "type": "string" });
        let schema = json!({
            "properties": {
                "path": path,
                "options": { "items": { "$ref": "#/$defs/option" } },
                "free": { "type": "object" },
                "either": { "anyOf": [{ "type": "null" }, { "properties": { "path": path } }] },
                "both": { "properties": { "a": path, "A": path } },
            },
            "$defs": { "option": { "properties": { "path": path, "next": { "$ref": "#/$defs/option" } } } },
        });
        assert_eq!(PropertyTree::from_schema(&schema).find_lookalike(value), expected, "{value}");
    }

    // req: BR-04
    #[test]
    fn finds_lookalikes_at_every_level() {
        let found = Some(("Path", "path"));
        check(&json!({ "Path": "x" }), found);
        check(&json!({ "options": [{ "path": "x" }, { "Path": "x" }] }), found);
        check(&json!({ "options": [{ "next": { "next": { "Path": "x" } } }] }), found);
        check(&json!({ "either": { "path": 1, "Path": 2 } }), found);
    }

    // req: BR-04
    #[test]
    fn accepts_free_keys_and_declared_ones() {
        check(&json!({ "path": "x", "other": 1, "pa_th": 2 }), None);
        check(&json!({ "free": { "Path": 1, "path": 2, "PATH": 3 } }), None);
        check(&json!({ "both": { "a": 1, "A": 2 } }), None);
        check(&json!({ "undeclared": { "Path": 1 } }), None);
    }
}
