//! Writes JSON values as YAML that people read.

use serde_json::Value;

/// Fields that come first, in this order. Others follow by their names.
const FIRST: &[&str] = &[
    "asyncapi",
    "info",
    "title",
    "version",
    "name",
    "summary",
    "defaultContentType",
    "servers",
    "channels",
    "operations",
    "components",
    "address",
    "action",
    "channel",
    "$ref",
    "messageId",
    "type",
    "const",
    "enum",
    "format",
    "pattern",
    "description",
    "correlationId",
    "replyTo",
    "source",
    "destination",
    "timestamp",
    "required",
    "properties",
    "items",
    "toolCallId",
    "toolName",
    "headers",
    "payload",
    "body",
];

pub(crate) fn write(document: &Value) -> String {
    let mut text = "# Made from the message types by `BASCULE_UPDATE=1 cargo test -p bascule-bus --test asyncapi`. Do not edit.\n".to_owned();
    write_fields(document, 0, &mut text);
    text
}

/// Writes the fields of an object, or the items of a list, each on its line.
fn write_fields(value: &Value, indent: usize, text: &mut String) {
    let space = " ".repeat(indent);
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            let rank = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
            fields.sort_by_key(|(name, _)| (rank(name), (*name).clone()));
            for (name, value) in fields {
                text.push_str(&format!("{space}{}:", scalar(&Value::String(name.clone()))));
                write_value(value, indent, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut inner = String::new();
                write_value(item, indent, &mut inner);
                // The first field of an object stands beside the dash.
                let inner = inner.strip_prefix('\n').map_or(inner.as_str(), str::trim_start);
                text.push_str(&format!("{space}- {}", inner.trim_start()));
            }
        }
        _ => unreachable!("only lists and objects have fields"),
    }
}

/// Writes a value after its name.
fn write_value(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            write_fields(value, indent + 2, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            write_fields(value, indent + 2, text);
        }
        _ => text.push_str(&format!(" {}\n", scalar(value))),
    }
}

/// Quotes a text, unless no reader of YAML can take it for anything else.
fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let is_plain_byte = |byte: u8| byte.is_ascii_alphanumeric() || b" _-.,;/()'$".contains(&byte);
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && text.bytes().all(is_plain_byte)
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&&*text.to_lowercase());
    if is_plain { text.clone() } else { value.to_string() }
}
