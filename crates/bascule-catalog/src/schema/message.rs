//! Writes the messages of violations: one short sentence for a person or a model that corrects the value.
//!
//! `violations` selects the errors and their locations. Messages repeat numbers of the value but not its texts,
//! which may be long or secret.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

/// The maximum length of a message in characters.
pub(super) const MAX_MESSAGE: usize = 200;
/// The maximum length of a quotation in a message.
const MAX_QUOTE: usize = 60;

pub(super) fn describe_error(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind::*;
    let value = error.instance().as_ref();
    match error.kind() {
        Type { kind } => describe_type_mismatch(&expected_types(kind), value),
        Required { property } => format!("{} is required", quote(property)),
        Constant { expected_value } => format!("must be {}", quote(expected_value)),
        Enum { options } => format!("must be {}", format_choices(options.as_array().into_iter().flatten())),
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
        Pattern { pattern } => format!("must match the pattern `{}`", truncate(pattern, 120)),
        UniqueItems => "must not contain the same item twice".into(),
        Contains => "does not contain the required items".into(),
        FalseSchema => "is not allowed".into(),
        Not { schema } => format!("must not match {}", quote(schema)),
        OneOfMultipleValid { .. } => "matches more than one alternative, must match exactly one".into(),
        Format { format } => format!("is not a valid {format}"),
        Referencing(error) => error.to_string(),
        Custom { message, .. } => message.clone(),
        other => format!("violates `{}`", other.keyword()),
    }
}

/// Writes "must be a string, is a number (7)", with a hint for frequent mistakes of models.
pub(super) fn describe_type_mismatch(expected: &[JsonType], value: &Value) -> String {
    let expected_names: Vec<_> = expected.iter().map(|kind| type_name(*kind)).collect();
    format!(
        "must be {}, is {}{}",
        join_with_or(&expected_names),
        describe_value(value),
        quoting_hint(expected, value)
    )
}

pub(super) fn expected_types(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(kind) => vec![*kind],
        TypeKind::Multiple(kinds) => kinds.iter().collect(),
    }
}

pub(super) fn describe_unknown_property(name: &str, nearest: Option<&str>) -> String {
    let name = truncate(name, MAX_QUOTE);
    match nearest {
        Some(nearest) => {
            format!("unknown property `{name}`; did you mean `{}`?", truncate(nearest, MAX_QUOTE))
        }
        None => format!("unknown property `{name}`"),
    }
}

/// Truncates to `max` characters.
pub(super) fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.into(),
        Some(_) => text.chars().take(max - 1).chain(['…']).collect(),
    }
}

/// Quotes a value of the schema. Values of the caller are never quoted.
fn quote(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", truncate(text, MAX_QUOTE)),
        other => format!("`{}`", truncate(&other.to_string(), MAX_QUOTE)),
    }
}

/// Writes "one of `a`, `b` and 7 more", limited in length.
pub(super) fn format_choices<'v>(options: impl Iterator<Item = &'v Value>) -> String {
    let options: Vec<_> = options.map(quote).collect();
    let mut room = MAX_MESSAGE * 3 / 4;
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

fn type_name(kind: JsonType) -> &'static str {
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

fn describe_value(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => format!("a boolean ({truth})"),
        Value::Number(number) => format!("a number ({number})"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Models often pass JSON as a string.
fn quoting_hint(expected: &[JsonType], value: &Value) -> &'static str {
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

fn join_with_or(names: &[&str]) -> String {
    match names {
        [] => "nothing".into(),
        [only] => (*only).into(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn too_few(limit: u64, unit: &str, value: &Value) -> String {
    format!("must have at least {}, has {}", count_with_unit(limit, unit), length_of(value))
}

fn too_many(limit: u64, unit: &str, value: &Value) -> String {
    format!("must have at most {}, has {}", count_with_unit(limit, unit), length_of(value))
}

fn count_with_unit(count: u64, unit: &str) -> String {
    match (count, unit) {
        (1, unit) => format!("1 {unit}"),
        (count, "property") => format!("{count} properties"),
        (count, unit) => format!("{count} {unit}s"),
    }
}

fn length_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}
