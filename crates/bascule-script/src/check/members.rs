//! The members that values of a JSON Schema have in JavaScript.

use serde_json::Value;

use crate::tool_lookup::similarity;

/// Members of every object.
pub(super) const OF_OBJECTS: [&str; 7] = [
    "toString",
    "hasOwnProperty",
    "valueOf",
    "constructor",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
];
const OF_ARRAYS: [&str; 38] = [
    "length",
    "at",
    "concat",
    "copyWithin",
    "entries",
    "every",
    "fill",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "findLastIndex",
    "flat",
    "flatMap",
    "forEach",
    "includes",
    "indexOf",
    "join",
    "keys",
    "lastIndexOf",
    "map",
    "pop",
    "push",
    "reduce",
    "reduceRight",
    "reverse",
    "shift",
    "slice",
    "some",
    "sort",
    "splice",
    "toReversed",
    "toSorted",
    "toSpliced",
    "unshift",
    "values",
    "with",
    "toLocaleString",
];
/// Members of text, besides those of every object.
const OF_TEXT: [&str; 47] = [
    "length",
    "at",
    "charAt",
    "charCodeAt",
    "codePointAt",
    "concat",
    "endsWith",
    "includes",
    "indexOf",
    "isWellFormed",
    "lastIndexOf",
    "localeCompare",
    "match",
    "matchAll",
    "normalize",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "search",
    "slice",
    "split",
    "startsWith",
    "substr",
    "substring",
    "toLocaleLowerCase",
    "toLocaleUpperCase",
    "toLowerCase",
    "toUpperCase",
    "toWellFormed",
    "trim",
    "trimEnd",
    "trimLeft",
    "trimRight",
    "trimStart",
    "anchor",
    "big",
    "blink",
    "bold",
    "fixed",
    "fontcolor",
    "fontsize",
    "italics",
    "link",
    "strike",
    "sup",
];
const OF_NUMBERS: [&str; 3] = ["toFixed", "toExponential", "toPrecision"];

/// Returns true for members that all values of a JSON type have.
pub(crate) fn is_member_of_type(kind: &str, name: &str) -> bool {
    let own = match kind {
        "array" => &OF_ARRAYS[..],
        "string" => &OF_TEXT,
        "number" => &OF_NUMBERS,
        _ => &[],
    };
    own.contains(&name) || OF_OBJECTS.contains(&name)
}

/// Returns the description of a schema that names no such member.
pub(super) fn missing_member(schema: &Value, name: &str) -> Option<String> {
    if ["anyOf", "oneOf", "allOf", "$ref", "enum", "const"].iter().any(|key| schema.get(key).is_some()) {
        return None;
    }
    let has_member = match schema["type"].as_str()? {
        "object" => {
            let is_open = schema.get("patternProperties").is_some()
                || !matches!(schema["additionalProperties"], Value::Null | Value::Bool(false));
            is_open || schema["properties"].as_object()?.contains_key(name)
        }
        "array" => OF_ARRAYS.contains(&name),
        "string" => OF_TEXT.contains(&name),
        "number" | "integer" => OF_NUMBERS.contains(&name),
        _ => return None,
    };
    let is_missing = !has_member && !OF_OBJECTS.contains(&name);
    is_missing.then(|| format!("{}{}", description(schema), nearest(schema, name)))
}

pub(super) fn description(schema: &Value) -> String {
    match schema["type"].as_str() {
        Some("object") => match schema["properties"].as_object() {
            Some(properties) => {
                let names: Vec<&str> = properties.keys().take(12).map(String::as_str).collect();
                format!("an object with `{}`", names.join("`, `"))
            }
            None => "an object".into(),
        },
        Some("array") => "an array".into(),
        Some("string") => "text".into(),
        Some(other) => format!("a {other}"),
        None => "of another type".into(),
    }
}

fn nearest(schema: &Value, name: &str) -> String {
    let Some(properties) = schema["properties"].as_object() else { return String::new() };
    let lower = name.to_ascii_lowercase();
    let ranked = properties.keys().map(|known| (similarity(&lower, known), known));
    match ranked.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(similarity, _)| *similarity > 0.75) {
        Some((_, known)) => format!("; did you mean `{known}`?"),
        None => String::new(),
    }
}
