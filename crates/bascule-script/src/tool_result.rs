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
    /// The text blocks as JSON, which they are or which their Python literals mean: the script gets the parsed value
    /// instead of a string.
    JsonText(String),
    /// The joined texts of text blocks and embedded resources, which the script gets as a string.
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
    #[serde(borrow, default)]
    resource: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EmbeddedResource<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

impl ContentBlock<'_> {
    /// Returns the text of a text block.
    fn text(&self) -> Option<String> {
        let is_text = self.kind.as_deref() == Some("text");
        parse_string(self.text.filter(|_| is_text)?.get())
    }

    /// Returns the text of an embedded resource.
    fn resource_text(&self) -> Option<String> {
        let is_resource = self.kind.as_deref() == Some("resource");
        let resource = self.resource.filter(|_| is_resource)?;
        parse_string(serde_json::from_str::<EmbeddedResource>(resource.get()).ok()?.text?.get())
    }
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

/// Returns the structured content, else the text (as data if it is JSON or a Python literal), else the content, else the
/// whole result. Data of several text blocks is an array. [`left_out`] names the other content blocks (images, say).
fn script_value<'a>(
    result: &'a str,
    RawToolResult { structured_content, content, .. }: RawToolResult<'a>,
) -> ScriptValue<'a> {
    if let Some(structured) = structured_content.filter(|value| value.get() != "null") {
        return ScriptValue::Json(structured.get());
    }
    let Some(content) = content else { return ScriptValue::Json(result) };
    let blocks = content_blocks(content.get());
    let texts: Vec<String> = blocks.iter().filter_map(ContentBlock::text).collect();
    match data(&texts) {
        _ if texts.is_empty() => ScriptValue::Json(content.get()),
        Some(data) => ScriptValue::JsonText(data),
        None => ScriptValue::Text(joined_text(&blocks)),
    }
}

/// Returns the blocks of the content; none if it has another form.
fn content_blocks(content: &str) -> Vec<ContentBlock<'_>> {
    serde_json::from_str(content).unwrap_or_default()
}

/// Returns texts that are data as JSON: several that are each data as an array, else the data that they are together.
fn data(texts: &[String]) -> Option<String> {
    let each = || texts.iter().map(|text| text_data(text)).collect::<Option<Vec<_>>>();
    match texts {
        [text] => text_data(text).map(Cow::into_owned),
        texts => match each() {
            Some(all) => Some(format!("[{}]", all.join(","))),
            None => text_data(&texts.join("\n")).map(Cow::into_owned),
        },
    }
}

/// Returns text that is JSON or a Python literal as JSON. A number in another spelling than that of the script's number (`1.10`,
/// `007`, `1e3`, or more digits than a number holds) is text: the number would lose it.
fn text_data(text: &str) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(json) if json.get().starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            is_canonical_number(text).then(|| text.into())
        }
        Ok(_) => Some(text.into()),
        Err(_) => python_literal::to_json(text).map(Cow::from),
    }
}

/// Returns true if a script writes the number with this text: `String(number) === text`.
fn is_canonical_number(text: &str) -> bool {
    let Ok(number) = text.parse::<f64>() else { return false };
    match number.abs() {
        0.0 => text == "0",
        1e-6..1e21 => number.to_string() == text,
        size if size < 1.0 => format!("{number:e}") == text,
        _ => format!("{number:e}").replace('e', "e+") == text,
    }
}

/// Joins the texts of text blocks and embedded resources.
fn joined_text(blocks: &[ContentBlock<'_>]) -> String {
    let texts = blocks.iter().filter_map(|block| block.text().or_else(|| block.resource_text()));
    texts.collect::<Vec<_>>().join("\n")
}

/// Names the content that the value of a call does not have: "1 image". `is_text` tells that the value is text.
pub(crate) fn left_out(result: &str, is_text: bool) -> Option<LeftOut> {
    const KINDS: [&str; 3] = ["\"image\"", "\"audio\"", "\"resource"];
    // Most results have text alone, and need not be parsed again.
    if !KINDS.iter().any(|kind| result.contains(kind)) {
        return None;
    }
    let RawToolResult { structured_content, content, .. } = serde_json::from_str(result).ok()?;
    let blocks = content_blocks(content?.get());
    let is_structured = structured_content.is_some_and(|value| value.get() != "null");
    if !is_structured && !blocks.iter().any(|block| block.text().is_some()) {
        return None;
    }
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for block in &blocks {
        let name = match block.kind.as_deref()? {
            "image" => "image",
            "audio" => "audio clip",
            "resource_link" => "resource link",
            "resource" if block.resource_text().is_none() => "binary resource",
            "resource" if !is_text => "resource",
            _ => continue,
        };
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let number = counts.iter().map(|(_, count)| count).sum();
    let named: Vec<String> = counts
        .into_iter()
        .map(|(name, count)| format!("{count} {name}{}", if count == 1 { "" } else { "s" }))
        .collect();
    let (last, first) = named.split_last()?;
    let blocks = if first.is_empty() { last.clone() } else { format!("{} and {last}", first.join(", ")) };
    Some(LeftOut { blocks, number })
}

/// Returns true if a text block of the result has this text in it.
pub(crate) fn has_text(result: &str, wanted: &str) -> bool {
    let parsed: Option<RawToolResult> = serde_json::from_str(result).ok();
    let blocks = parsed.and_then(|parsed| parsed.content).map(|content| content_blocks(content.get()));
    blocks.into_iter().flatten().filter_map(|block| block.text()).any(|text| text.contains(wanted))
}

/// Content blocks that the value of a call does not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Their kinds, each with its number.
    pub(crate) blocks: String,
    pub(crate) number: usize,
}

/// Parses a JSON string. Each lone surrogate, which Rust text cannot hold, becomes U+FFFD.
fn parse_string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).or_else(|_| serde_json::from_str(&replace_lone_surrogates(raw))).ok()
}

/// Replaces each escaped lone surrogate in valid JSON by U+FFFD. Surrogate pairs and other escapes stay as they are.
pub fn replace_lone_surrogates(raw: &str) -> String {
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
    let text = content.map(|content| content_blocks(content.get())).filter(|blocks| {
        // Resources alone do not tell the reason.
        blocks.iter().any(|block| block.text().is_some())
    });
    text.map_or_else(|| "the tool reported failure".into(), |blocks| joined_text(&blocks))
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

    // req: CM-02
    #[test]
    fn keeps_text_that_a_number_would_change() {
        let block = |text: &str| serde_json::json!({ "type": "text", "text": text });
        let value = |texts: &[&str]| {
            let blocks: Vec<_> = texts.iter().map(|text| block(text)).collect();
            let result = serde_json::json!({ "content": blocks }).to_string();
            match ParsedResult::parse(&result) {
                ParsedResult::Value(ScriptValue::JsonText(json)) => (json, false),
                ParsedResult::Value(ScriptValue::Text(text)) => (text, true),
                other => panic!("{other:?}"),
            }
        };
        let texts = [
            "1.10",
            "1.0",
            "-0",
            "1e3",
            "1E+21",
            "1e21",
            "42\n",
            " 42",
            "9007199254740993",
            "0.0000001",
            "1e400",
            "12345678901234567890",
            "None",
            "True",
            "False",
            "(5)",
            "('a')",
            "(None)",
        ];
        for text in texts {
            assert_eq!(value(&[text]), (text.to_owned(), true));
        }
        for json in ["0", "42", "-7", "1.5", "1e-7", "1e+21", "9007199254740992", "true", "null", "\"a\""] {
            assert_eq!(value(&[json]), (json.to_owned(), false));
        }
        assert_eq!(value(&["1", "2.5"]), ("[1,2.5]".into(), false));
        assert_eq!(value(&["1", "1.10"]), ("1\n1.10".into(), true));
        assert_eq!(value(&["(5,)"]), ("[5]".into(), false));
    }

    #[test]
    fn joins_other_text() {
        let result =
            r#"{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        check(result, ScriptValue::Text("a\nb".into()));
    }

    // req: CM-02
    #[test]
    fn resources_beside_data_are_left_out() {
        let result = r#"{"content":[{"type":"text","text":"{\"a\":1}"},{"type":"resource","resource":{"text":"notes"}},
            {"type":"audio"},{"type":"audio"},{"type":"resource_link"}]}"#;
        check(result, ScriptValue::JsonText(r#"{"a":1}"#.into()));
        let blocks = "1 resource, 2 audio clips and 1 resource link".into();
        assert_eq!(left_out(result, false), Some(LeftOut { blocks, number: 4 }));
        let text = r#"{"content":[{"type":"text","text":"an \"image\""}]}"#;
        assert_eq!(left_out(text, true), None);
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
