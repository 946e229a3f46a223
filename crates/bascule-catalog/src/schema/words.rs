//! Says in one short sentence what is wrong with a value, for a person or a model to mend it.
//!
//! Only the sentence: which errors are told, and where they are, is `findings`. Numbers are repeated to the
//! reader, texts are not: they may be long, or secret.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

/// The longest sentence, in characters.
pub(super) const SENTENCE: usize = 200;
/// The longest quotation within one.
const QUOTE: usize = 60;

/// What is wrong, without where.
pub(super) fn sentence(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind::*;
    let value = error.instance().as_ref();
    match error.kind() {
        Type { kind } => type_sentence(&expected_types(kind), value),
        Required { property } => format!("{} is required", quote(property)),
        Constant { expected_value } => format!("must be {}", quote(expected_value)),
        Enum { options } => format!("must be {}", one_of(options.as_array().into_iter().flatten())),
        Minimum { limit } => format!("must be at least {limit}, is {value}"),
        Maximum { limit } => format!("must be at most {limit}, is {value}"),
        ExclusiveMinimum { limit } => format!("must be more than {limit}, is {value}"),
        ExclusiveMaximum { limit } => format!("must be less than {limit}, is {value}"),
        MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}, is {value}"),
        MinLength { limit } => too_few(*limit, "character", value),
        MaxLength { limit } => too_many(*limit, "character", value),
        MinItems { limit } => too_few(*limit, "item", value),
        MaxItems { limit } => too_many(*limit, "item", value),
        AdditionalItems { limit } => too_many(*limit as u64, "item", value),
        MinProperties { limit } => too_few(*limit, "property", value),
        MaxProperties { limit } => too_many(*limit, "property", value),
        Pattern { pattern } => format!("must match the pattern `{}`", brief(pattern, 120)),
        UniqueItems => "must not hold the same item twice".into(),
        Contains => "does not hold the items it must".into(),
        FalseSchema => "is not allowed".into(),
        Not { schema } => format!("must not match {}", quote(schema)),
        OneOfMultipleValid { .. } => "fits more than one alternative, must fit exactly one".into(),
        Format { format } => format!("is no valid {format}"),
        Referencing(error) => error.to_string(),
        Custom { message, .. } => message.clone(),
        other => format!("breaks the rule `{}`", other.keyword()),
    }
}

/// "must be a string, is a number (7)", with a hint where models often go wrong.
pub(super) fn type_sentence(expected: &[JsonType], value: &Value) -> String {
    let expected_names: Vec<_> = expected.iter().map(|kind| name_of(*kind)).collect();
    format!("must be {}, is {}{}", listed(&expected_names), describe(value), hint(expected, value))
}

/// Every kind of value that would do.
pub(super) fn expected_types(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(kind) => vec![*kind],
        TypeKind::Multiple(kinds) => kinds.iter().collect(),
    }
}

/// A property that the schema does not know.
pub(super) fn unknown_property(name: &str, nearest: Option<&str>) -> String {
    let name = brief(name, QUOTE);
    match nearest {
        Some(nearest) => format!("unknown property `{name}`; did you mean `{}`?", brief(nearest, QUOTE)),
        None => format!("unknown property `{name}`"),
    }
}

/// The beginning of a text, in characters.
pub(super) fn brief(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.into(),
        Some(_) => text.chars().take(longest - 1).chain(['…']).collect(),
    }
}

/// A value of the schema, never of the caller.
fn quote(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", brief(text, QUOTE)),
        other => format!("`{}`", brief(&other.to_string(), QUOTE)),
    }
}

/// "one of `a`, `b` and 7 more", as far as a sentence goes.
pub(super) fn one_of<'v>(options: impl Iterator<Item = &'v Value>) -> String {
    let options: Vec<_> = options.map(quote).collect();
    let mut room = SENTENCE * 3 / 4;
    let fits = |option: &&String| {
        let length = option.chars().count() + 2;
        let fits = room >= length;
        room = room.saturating_sub(length);
        fits
    };
    let shown: Vec<_> = options.iter().take_while(fits).map(String::as_str).collect();
    match (shown.as_slice(), options.len() - shown.len()) {
        ([only], 0) => (*only).into(),
        (_, 0) => format!("one of {}", shown.join(", ")),
        (_, rest) => format!("one of {} and {rest} more", shown.join(", ")),
    }
}

fn name_of(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => format!("a boolean ({truth})"),
        Value::Number(number) => format!("a number ({number})"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Models like to wrap what is wanted in quotes.
fn hint(expected: &[JsonType], value: &Value) -> &'static str {
    let wants = |kind| expected.contains(&kind);
    let text = value.as_str().map_or("", str::trim);
    match text.as_bytes().first() {
        Some(b'{') if wants(JsonType::Object) => "; pass the object itself, not its JSON as text",
        Some(b'[') if wants(JsonType::Array) => "; pass the array itself, not its JSON as text",
        Some(b'0'..=b'9' | b'-')
            if (wants(JsonType::Number) || wants(JsonType::Integer)) && text.parse::<f64>().is_ok() =>
        {
            "; leave out the quotes"
        }
        Some(b't' | b'f') if wants(JsonType::Boolean) && matches!(text, "true" | "false") => {
            "; leave out the quotes"
        }
        _ => "",
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "nothing".into(),
        [only] => (*only).into(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn too_few(limit: u64, unit: &str, value: &Value) -> String {
    format!("must have at least {}, has {}", counted(limit, unit), size_of(value))
}

fn too_many(limit: u64, unit: &str, value: &Value) -> String {
    format!("must have at most {}, has {}", counted(limit, unit), size_of(value))
}

fn counted(count: u64, unit: &str) -> String {
    match (count, unit) {
        (1, unit) => format!("1 {unit}"),
        (count, "property") => format!("{count} properties"),
        (count, unit) => format!("{count} {unit}s"),
    }
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}
