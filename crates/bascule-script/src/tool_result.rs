//! Turns the result of a tool into the value that its call returns in the script.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::python_literal;

/// The result of a tool as its call sees it: a value to return, or a failure to throw.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedResult<'a> {
    Value(ScriptValue<'a>),
    /// The tool reported failure (`isError`), with this text.
    Failure(String),
}

/// The value of a call in the script, before the engine creates it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScriptValue<'a> {
    /// A part of the result, as JSON.
    Json(&'a str),
    /// The joined text blocks as JSON, which they are or which their Python literal means: the script gets the parsed value
    /// instead of a string.
    JsonText(String),
    /// The joined text blocks, which the script gets as a string.
    Text(String),
}

/// The data that a script receives from a call.
#[derive(Debug, PartialEq, Eq)]
pub enum ResultValue<'a> {
    /// A value, as JSON.
    Json(Cow<'a, str>),
    /// Text that is neither JSON nor a Python literal.
    Text,
}

/// Returns the data that a script receives from a call with this result; `None` if the tool reports failure.
pub fn result_value(result: &str) -> Option<ResultValue<'_>> {
    match ParsedResult::parse(result) {
        ParsedResult::Failure(_) => None,
        ParsedResult::Value(ScriptValue::Json(json)) => Some(ResultValue::Json(json.into())),
        ParsedResult::Value(ScriptValue::JsonText(json)) => Some(ResultValue::Json(json.into())),
        ParsedResult::Value(ScriptValue::Text(_)) => Some(ResultValue::Text),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawToolResult<'a> {
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct ContentBlock<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

impl<'a> ParsedResult<'a> {
    /// Parses a result, which must be valid JSON. One that has not the form of a tool result becomes the value as it is.
    pub(crate) fn parse(result: &'a str) -> Self {
        match serde_json::from_str(result) {
            Ok(RawToolResult { is_error: true, content, .. }) => Self::Failure(failure_text(content)),
            Ok(parsed) => Self::Value(script_value(result, parsed)),
            Err(_) => Self::Value(ScriptValue::Json(result)),
        }
    }
}

/// Returns the structured content, else the text (as data if it is JSON or a Python literal), else the content, else the whole result. Where
/// there is text, other content blocks (images, say) are left out.
fn script_value<'a>(
    result: &'a str,
    RawToolResult { structured_content, content, .. }: RawToolResult<'a>,
) -> ScriptValue<'a> {
    if let Some(structured) = structured_content.filter(|value| value.get() != "null") {
        return ScriptValue::Json(structured.get());
    }
    let Some(content) = content else { return ScriptValue::Json(result) };
    match joined_text(content.get()) {
        Some(text) if serde_json::from_str::<&RawValue>(&text).is_ok() => ScriptValue::JsonText(text),
        Some(text) => python_literal::to_json(&text).map_or(ScriptValue::Text(text), ScriptValue::JsonText),
        None => ScriptValue::Json(content.get()),
    }
}

/// Joins the text blocks of the content; `None` if there are none.
fn joined_text(content: &str) -> Option<String> {
    let blocks: Vec<ContentBlock> = serde_json::from_str(content).ok()?;
    let is_text = |block: &ContentBlock| block.kind.as_deref() == Some("text");
    let texts: Vec<String> =
        blocks.into_iter().filter(is_text).filter_map(|block| parse_string(block.text?.get())).collect();
    if texts.is_empty() { None } else { Some(texts.join("\n")) }
}

/// Parses a JSON string. Each lone surrogate, which Rust text cannot hold, becomes U+FFFD.
fn parse_string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).or_else(|_| serde_json::from_str(&replace_lone_surrogates(raw))).ok()
}

/// Replaces each escaped lone surrogate of a JSON string by U+FFFD. Surrogate pairs and other escapes stay as they are.
fn replace_lone_surrogates(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (length, is_lone) = match (escaped_unit(rest), rest.get(6..).and_then(escaped_unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, false),
            (Some(0xD800..=0xDFFF), _) => (6, true),
            // The backslash and the character after it, which may be another backslash.
            _ => (2, false),
        };
        let (escape, after) = rest.split_at(length);
        out.push_str(if is_lone { "\\ufffd" } else { escape });
        rest = after;
    }
    out + rest
}

/// Returns the UTF-16 unit of a `\uXXXX` at the beginning of the text.
fn escaped_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

fn failure_text(content: Option<&RawValue>) -> String {
    content
        .and_then(|content| joined_text(content.get()))
        .unwrap_or_else(|| "the tool reported failure".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: &str, expected: ScriptValue<'_>) {
        assert_eq!(ParsedResult::parse(result), ParsedResult::Value(expected));
    }

    #[test]
    fn prefers_structured_content() {
        let result = r#"{"content":[{"type":"text","text":"{\"a\":2}"}],"structuredContent":{"a":1.0}}"#;
        check(result, ScriptValue::Json(r#"{"a":1.0}"#));
    }

    #[test]
    fn parses_text_that_is_json() {
        let result = r#"{"content":[{"type":"text","text":" [1, 2] "}]}"#;
        check(result, ScriptValue::JsonText(" [1, 2] ".into()));
    }

    // req: CM-15
    #[test]
    fn parses_text_that_is_a_python_literal() {
        let result = r#"{"content":[{"type":"text","text":"[{'id': 1, 'email': None}]"}]}"#;
        check(result, ScriptValue::JsonText(r#"[{"id":1,"email":null}]"#.into()));
    }

    #[test]
    fn joins_other_text() {
        let result =
            r#"{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        check(result, ScriptValue::Text("a\nb".into()));
    }

    #[test]
    fn replaces_lone_surrogates() {
        let result = r#"{"content":[{"type":"text","text":"a\ud800b\u00e9"}]}"#;
        check(result, ScriptValue::Text("a\u{fffd}bé".into()));
    }

    // req: CM-02
    #[test]
    fn keeps_surrogate_pairs_beside_lone_surrogates() {
        let text = |raw: &str| parse_string(&format!("\"{raw}\"")).unwrap();
        assert_eq!(text(r"\ud83d\ude00 \ud800"), "😀 \u{fffd}");
        assert_eq!(text(r"\ud800\ud83d\ude00\udc00"), "\u{fffd}😀\u{fffd}");
        assert_eq!(text(r"\uD800\u0041"), "\u{fffd}A");
    }

    // req: CM-02
    #[test]
    fn keeps_escaped_backslashes_beside_lone_surrogates() {
        let text = |raw: &str| parse_string(&format!("\"{raw}\"")).unwrap();
        assert_eq!(text(r"\\udata \ud800"), "\\udata \u{fffd}");
        assert_eq!(text(r"\\up é\n\ud800"), "\\up é\n\u{fffd}");
        assert_eq!(text(r"\\\ud800\\"), "\\\u{fffd}\\");
    }

    #[test]
    fn returns_content_without_text() {
        check(r#"{"content":[{"type":"image"}]}"#, ScriptValue::Json(r#"[{"type":"image"}]"#));
    }

    #[test]
    fn reports_failure_with_its_text() {
        let result = r#"{"isError":true,"content":[{"type":"text","text":"no such file"}]}"#;
        assert_eq!(ParsedResult::parse(result), ParsedResult::Failure("no such file".into()));
    }
}
