//! Spells the keys of arguments as a tool's schema does, where the script spelled them the other way.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::names;

/// How deep keys are looked at. Deeper ones go as they are.
const DEPTH: usize = 8;

/// How many schemas are looked at for one tool: those that refer to themselves have no end.
const SCHEMAS: usize = 10_000;

/// The keys that a schema knows, and those of the objects inside.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    properties: HashMap<String, Keys>,
    /// Those of an array's items.
    items: Option<Box<Keys>>,
}

impl Keys {
    /// A schema that cannot be read knows no keys, so nothing is respelled for it.
    pub(crate) fn of(schema: Option<&RawValue>) -> Self {
        let root = schema.and_then(|schema| serde_json::from_str::<Value>(schema.get()).ok());
        let (mut keys, mut left) = (Self::default(), SCHEMAS);
        if let Some(root) = &root {
            keys.read(root, root, DEPTH, &mut left);
        }
        keys
    }

    /// Adds what a schema knows, and what it knows by others: those that it refers to, and its alternatives.
    fn read(&mut self, schema: &Value, root: &Value, depth: usize, left: &mut usize) {
        let (Some(depth), Some(fewer)) = (depth.checked_sub(1), left.checked_sub(1)) else { return };
        *left = fewer;
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.properties.entry(name.clone()).or_default().read(property, root, depth, left);
        }
        if schema["items"].is_object() {
            self.items.get_or_insert_default().read(&schema["items"], root, depth, left);
        }
        let referred = schema["$ref"].as_str().and_then(|place| root.pointer(place.strip_prefix('#')?));
        let among = |word| schema[word].as_array().into_iter().flatten();
        for other in referred.into_iter().chain(["anyOf", "oneOf", "allOf"].into_iter().flat_map(among)) {
            self.read(other, root, depth, left);
        }
    }

    fn knows_nothing(&self) -> bool {
        self.properties.is_empty() && self.items.as_ref().is_none_or(|items| items.knows_nothing())
    }

    /// The arguments with their keys as the schema has them. Nothing but keys is changed, and no key that the schema
    /// knows, or whose other spelling is given too.
    pub(crate) fn fit(&self, arguments: &str) -> Option<String> {
        if self.knows_nothing() {
            return None;
        }
        match arguments.as_bytes().first() {
            Some(b'{') => self.fit_object(arguments),
            Some(b'[') => self.fit_array(arguments),
            _ => None,
        }
    }

    fn fit_object(&self, object: &str) -> Option<String> {
        let Entries(entries) = serde_json::from_str(object).ok()?;
        let given = |name: &str| entries.iter().any(|(key, _)| key == name);
        let mut used = HashSet::new();
        let fitted: Vec<_> = entries
            .iter()
            .map(|(key, value)| {
                let known = self.respell(key).filter(|known| !given(known) && used.insert(*known));
                let inner = self.properties.get(known.unwrap_or(key)).and_then(|keys| keys.fit(value.get()));
                (known, inner)
            })
            .collect();
        if fitted.iter().all(|(known, inner)| known.is_none() && inner.is_none()) {
            return None;
        }
        let parts = entries.iter().zip(&fitted).map(|((key, value), (known, inner))| {
            let name = serde_json::Value::from(known.unwrap_or(key));
            format!("{name}:{}", inner.as_deref().unwrap_or(value.get()))
        });
        Some(format!("{{{}}}", parts.collect::<Vec<_>>().join(",")))
    }

    fn fit_array(&self, array: &str) -> Option<String> {
        let keys = self.items.as_ref()?;
        let items: Vec<&RawValue> = serde_json::from_str(array).ok()?;
        let fitted: Vec<_> = items.iter().map(|item| keys.fit(item.get())).collect();
        if fitted.iter().all(Option::is_none) {
            return None;
        }
        let parts = items.iter().zip(&fitted).map(|(item, fitted)| fitted.as_deref().unwrap_or(item.get()));
        Some(format!("[{}]", parts.collect::<Vec<_>>().join(",")))
    }

    /// The one key of the schema that is this one, spelled otherwise.
    fn respell(&self, key: &str) -> Option<&str> {
        if self.properties.contains_key(key) {
            return None;
        }
        let snake = names::snake(key);
        let mut alike = self.properties.keys().filter(|known| names::snake(known) == snake);
        let (one, other) = (alike.next(), alike.next());
        one.filter(|_| other.is_none()).map(String::as_str)
    }
}

/// The entries of an object in their order.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Entries<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, arguments: &str, expected: &str) {
        let schema = RawValue::from_string(schema.into()).unwrap();
        let fitted = Keys::of(Some(&schema)).fit(arguments);
        assert_eq!(fitted.as_deref().unwrap_or(arguments), expected);
    }

    // req: CM-02
    #[test]
    fn keys_are_spelled_as_the_schema_has_them() {
        let snake = r#"{"properties":{"per_page":{},"page":{}}}"#;
        check(snake, r#"{"perPage":1.0,"page":2}"#, r#"{"per_page":1.0,"page":2}"#);
        check(snake, r#"{"per-page":1}"#, r#"{"per_page":1}"#);
        check(r#"{"properties":{"perPage":{}}}"#, r#"{"per_page":1}"#, r#"{"perPage":1}"#);
        check(r#"{"properties":{"per-page":{}}}"#, r#"{"perPage":1}"#, r#"{"per-page":1}"#);
    }

    // req: CM-02
    #[test]
    fn keys_inside_objects_and_lists_are_too() {
        let schema = r#"{"properties":{"all_of":{"items":{"properties":{"entity_type":{}}}}}}"#;
        check(schema, r#"{"allOf":[{"entityType":"x"},{}]}"#, r#"{"all_of":[{"entity_type":"x"},{}]}"#);
    }

    // req: CM-02
    #[test]
    fn keys_of_schemas_that_are_referred_to_are_known() {
        let schema = r##"{"$defs":{"Order":{"properties":{"unit_price":{},"next":{"$ref":"#/$defs/Order"}}}},
            "properties":{"order":{"$ref":"#/$defs/Order"},"opt":{"anyOf":[{"properties":{"per_page":{}}},{"type":"null"}]}}}"##;
        check(
            schema,
            r#"{"order":{"unitPrice":1,"next":{"unitPrice":2}},"opt":{"perPage":3}}"#,
            r#"{"order":{"unit_price":1,"next":{"unit_price":2}},"opt":{"per_page":3}}"#,
        );
        let endless = format!(r##"{{"allOf":[{}]}}"##, vec![r##"{"$ref":"#"}"##; 100].join(","));
        check(&endless, r#"{"aB":1}"#, r#"{"aB":1}"#);
        check(r##"{"$ref":"#"}"##, r#"{"aB":1}"#, r#"{"aB":1}"#);
    }

    // req: CM-02
    #[test]
    fn what_the_schema_knows_or_cannot_tell_apart_stays() {
        check(r#"{"properties":{"a_b":{},"aB":{}}}"#, r#"{"aB":1}"#, r#"{"aB":1}"#);
        check(r#"{"properties":{"a_b":{},"a-b":{}}}"#, r#"{"aB":1}"#, r#"{"aB":1}"#);
        check(r#"{"properties":{"a_b":{}}}"#, r#"{"aB":1,"a_b":2}"#, r#"{"aB":1,"a_b":2}"#);
        check(r#"{"properties":{"a_b":{}}}"#, r#"{"aB":1,"a-b":2}"#, r#"{"a_b":1,"a-b":2}"#);
        check(r#"{"properties":{"a_b":{}}}"#, r#"{"unknown":1}"#, r#"{"unknown":1}"#);
        check("true", r#"{"aB":1}"#, r#"{"aB":1}"#);
    }
}
