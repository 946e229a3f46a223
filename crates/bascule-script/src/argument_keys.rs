//! Respells argument keys as the tool's schema spells them (`perPage` for `per_page` and the reverse).

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::names;
use crate::tool_lookup::similarity;

/// Keys below this depth are not respelled.
const MAX_DEPTH: usize = 8;

/// Number of schemas to read for one tool: a schema that refers to itself has no end.
const MAX_SCHEMAS: usize = 10_000;

/// Number of unknown keys to name.
const MAX_UNKNOWN: usize = 5;

/// The keys of a schema, with those of nested objects and array items.
#[derive(Debug, Default)]
pub(crate) struct ArgumentKeys {
    /// The schema describes keys that it does not name.
    is_open: bool,
    properties: HashMap<String, ArgumentKeys>,
    items: Option<Box<ArgumentKeys>>,
}

impl ArgumentKeys {
    /// An unreadable schema has no keys, so nothing is respelled for it.
    pub(crate) fn from_schema(schema: Option<&RawValue>) -> Self {
        let root = schema.and_then(|schema| serde_json::from_str::<Value>(schema.get()).ok());
        let (mut keys, mut schemas_left) = (Self::default(), MAX_SCHEMAS);
        if let Some(root) = &root {
            keys.add_schema(root, root, MAX_DEPTH, &mut schemas_left);
        }
        keys
    }

    /// Adds the keys of a schema, of the schema it refers to and of its alternatives.
    fn add_schema(&mut self, schema: &Value, root: &Value, depth: usize, schemas_left: &mut usize) {
        let (Some(depth), Some(fewer)) = (depth.checked_sub(1), schemas_left.checked_sub(1)) else { return };
        *schemas_left = fewer;
        self.is_open |= schema["patternProperties"].is_object()
            || !matches!(schema["additionalProperties"], Value::Null | Value::Bool(false));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let keys = self.properties.entry(name.clone()).or_default();
            keys.add_schema(property, root, depth, schemas_left);
        }
        if schema["items"].is_object() {
            self.items.get_or_insert_default().add_schema(&schema["items"], root, depth, schemas_left);
        }
        let referenced = schema["$ref"].as_str().and_then(|pointer| root.pointer(pointer.strip_prefix('#')?));
        let alternatives = |keyword| schema[keyword].as_array().into_iter().flatten();
        let alternatives = ["anyOf", "oneOf", "allOf"].into_iter().flat_map(alternatives);
        for other in referenced.into_iter().chain(alternatives) {
            self.add_schema(other, root, depth, schemas_left);
        }
    }

    fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.items.as_ref().is_none_or(|items| items.is_empty())
    }

    /// Returns the arguments with respelled keys, or `None` if no key changes. Values stay as they are. So does a key that
    /// is in the schema, or whose other spelling is given too.
    pub(crate) fn respell(&self, arguments: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        match arguments.as_bytes().first() {
            Some(b'{') => self.respell_object(arguments),
            Some(b'[') => self.respell_array(arguments),
            _ => None,
        }
    }

    fn respell_object(&self, object: &str) -> Option<String> {
        let Entries(entries) = serde_json::from_str(object).ok()?;
        let given: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        let respelled: Vec<_> = entries
            .iter()
            .zip(self.respelled_keys(&given))
            .map(|((key, value), new_key)| {
                let nested = self.properties.get(new_key.unwrap_or(key));
                (new_key, nested.and_then(|keys| keys.respell(value.get())))
            })
            .collect();
        if respelled.iter().all(|(new_key, new_value)| new_key.is_none() && new_value.is_none()) {
            return None;
        }
        let parts = entries.iter().zip(&respelled).map(|((key, value), (new_key, new_value))| {
            let key = serde_json::Value::from(new_key.unwrap_or(key));
            format!("{key}:{}", new_value.as_deref().unwrap_or(value.get()))
        });
        Some(format!("{{{}}}", parts.collect::<Vec<_>>().join(",")))
    }

    /// Returns the new spelling of each key of an object, `None` for a key that stays as it is.
    pub(crate) fn respelled_keys(&self, given: &[&str]) -> Vec<Option<&str>> {
        let mut used = HashSet::new();
        let new_key = |key: &&str| {
            let new_key = self.schema_key(key)?;
            (!given.contains(&new_key) && used.insert(new_key)).then_some(new_key)
        };
        given.iter().map(new_key).collect()
    }

    /// Returns the keys of the object that a property holds.
    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name)
    }

    /// Returns the keys of the objects that an array holds.
    pub(crate) fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    fn respell_array(&self, array: &str) -> Option<String> {
        let keys = self.items.as_ref()?;
        let items: Vec<&RawValue> = serde_json::from_str(array).ok()?;
        let respelled: Vec<_> = items.iter().map(|item| keys.respell(item.get())).collect();
        if respelled.iter().all(Option::is_none) {
            return None;
        }
        let parts = items.iter().zip(&respelled).map(|(item, new)| new.as_deref().unwrap_or(item.get()));
        Some(format!("[{}]", parts.collect::<Vec<_>>().join(",")))
    }

    /// Names the keys that the schema does not have, each with the nearest that it has.
    pub(crate) fn unknown_keys(&self, arguments: &str) -> Option<String> {
        if self.properties.is_empty() || self.is_open {
            return None;
        }
        let Entries(entries) = serde_json::from_str(arguments).ok()?;
        let unknown = entries.iter().map(|(key, _)| key).filter(|key| !self.properties.contains_key(*key));
        let named: Vec<String> = unknown.take(MAX_UNKNOWN).map(|key| self.unknown_key(key)).collect();
        (!named.is_empty()).then(|| named.join("; "))
    }

    /// Returns true if the schema has no such key, in any spelling.
    pub(crate) fn is_unknown(&self, key: &str) -> bool {
        let is_known = self.properties.contains_key(key) || self.schema_key(key).is_some();
        !self.properties.is_empty() && !self.is_open && !is_known
    }

    /// Describes one unknown key.
    pub(crate) fn unknown_key(&self, key: &str) -> String {
        let lower = key.to_ascii_lowercase();
        let ranked = self.properties.keys().map(|known| (similarity(&lower, known), known));
        let nearest = ranked.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(similarity, _)| *similarity > 0.7);
        let mut known: Vec<&str> = self.properties.keys().map(String::as_str).collect();
        known.sort_unstable();
        match nearest {
            Some((_, nearest)) => format!("unknown argument `{key}`: did you mean `{nearest}`?"),
            None => format!("unknown argument `{key}`: the tool has `{}`", known.join("`, `")),
        }
    }

    /// Returns the only schema key that differs from this one in spelling alone.
    fn schema_key(&self, key: &str) -> Option<&str> {
        if self.properties.contains_key(key) {
            return None;
        }
        self.only_key(|known| names::to_snake_case(known) == names::to_snake_case(key))
            .or_else(|| self.only_key(|known| letters(known).eq(letters(key))))
    }

    fn only_key(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
        let mut candidates = self.properties.keys().map(String::as_str).filter(|known| is_wanted(known));
        let (only, second) = (candidates.next(), candidates.next());
        only.filter(|_| second.is_none())
    }
}

/// The letters and digits of a key in lower case: `maxcount` means `max_count`.
fn letters(key: &str) -> impl Iterator<Item = char> {
    key.chars().filter(|letter| letter.is_alphanumeric()).map(|letter| letter.to_ascii_lowercase())
}

/// The entries of an object, in order.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
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
        from.deserialize_map(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, arguments: &str, expected: &str) {
        let schema = RawValue::from_string(schema.into()).unwrap();
        let respelled = ArgumentKeys::from_schema(Some(&schema)).respell(arguments);
        assert_eq!(respelled.as_deref().unwrap_or(arguments), expected);
    }

    // req: CM-02
    #[test]
    fn respells_keys_as_in_schema() {
        let snake = r#"{"properties":{"per_page":{},"page":{}}}"#;
        check(snake, r#"{"perPage":1.0,"page":2}"#, r#"{"per_page":1.0,"page":2}"#);
        check(snake, r#"{"per-page":1}"#, r#"{"per_page":1}"#);
        check(snake, r#"{"perpage":1}"#, r#"{"per_page":1}"#);
        check(r#"{"properties":{"perPage":{}}}"#, r#"{"per_page":1}"#, r#"{"perPage":1}"#);
        check(r#"{"properties":{"per-page":{}}}"#, r#"{"perPage":1}"#, r#"{"per-page":1}"#);
    }

    // req: CM-02
    #[test]
    fn respells_nested_keys() {
        let schema = r#"{"properties":{"all_of":{"items":{"properties":{"entity_type":{}}}}}}"#;
        check(schema, r#"{"allOf":[{"entityType":"x"},{}]}"#, r#"{"all_of":[{"entity_type":"x"},{}]}"#);
    }

    // req: CM-02
    #[test]
    fn reads_keys_of_referenced_schemas() {
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

    // req: CM-14
    #[test]
    fn names_unknown_keys() {
        let unknown = |schema: &str, arguments: &str| {
            let schema = RawValue::from_string(schema.into()).unwrap();
            ArgumentKeys::from_schema(Some(&schema)).unknown_keys(arguments)
        };
        let schema = r#"{"properties":{"per_page":{},"repo":{}}}"#;
        let hint = "unknown argument `perPages`: did you mean `per_page`?; unknown argument `zzz`: the tool has `per_page`, `repo`";
        assert_eq!(unknown(schema, r#"{"perPages":1,"zzz":2,"repo":3}"#).as_deref(), Some(hint));
        assert_eq!(unknown(schema, r#"{"repo":3}"#), None);
        let file = r#"{"properties":{"path":{},"tail":{}}}"#;
        let hint = "unknown argument `file`: the tool has `path`, `tail`";
        assert_eq!(unknown(file, r#"{"file":1}"#).as_deref(), Some(hint));
        assert_eq!(unknown(r#"{"properties":{"a":{}},"additionalProperties":{}}"#, r#"{"b":1}"#), None);
        assert_eq!(unknown("{}", r#"{"b":1}"#), None);
    }

    // req: CM-02
    #[test]
    fn keeps_known_and_ambiguous_keys() {
        check(r#"{"properties":{"a_b":{},"aB":{}}}"#, r#"{"aB":1}"#, r#"{"aB":1}"#);
        check(r#"{"properties":{"a_b":{},"a-b":{}}}"#, r#"{"aB":1}"#, r#"{"aB":1}"#);
        check(r#"{"properties":{"a_b":{}}}"#, r#"{"aB":1,"a_b":2}"#, r#"{"aB":1,"a_b":2}"#);
        check(r#"{"properties":{"a_b":{}}}"#, r#"{"aB":1,"a-b":2}"#, r#"{"a_b":1,"a-b":2}"#);
        check(r#"{"properties":{"a_b":{}}}"#, r#"{"unknown":1}"#, r#"{"unknown":1}"#);
        check(r#"{"properties":{"a_b":{},"aB":{}}}"#, r#"{"AB":1}"#, r#"{"AB":1}"#);
        check("true", r#"{"aB":1}"#, r#"{"aB":1}"#);
    }
}
