//! Turns the result of a tool into the value that its call returns in the script.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedResult<'a> {
    Value(ScriptValue<'a>),
    /// The tool reported failure (`isError`), with this text.
    Failure(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScriptValue<'a> {
    Json(&'a str),
    /// JSON that was the text of a content block.
    JsonText(String),
    Text(String),
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
    kind: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

impl<'a> ParsedResult<'a> {
    pub(crate) fn parse(result: &'a str) -> Self {
        match serde_json::from_str(result) {
            Ok(RawToolResult { is_error: true, content, .. }) => Self::Failure(failure_text(content)),
            Ok(parsed) => Self::Value(value(result, parsed)),
            Err(_) => Self::Value(ScriptValue::Json(result)),
        }
    }
}

/// Returns the structured content, else the text (as JSON if it is JSON), else the content, else the whole result.
fn value<'a>(
    result: &'a str,
    RawToolResult { structured_content, content, .. }: RawToolResult<'a>,
) -> ScriptValue<'a> {
    if let Some(structured) = structured_content.filter(|value| value.get() != "null") {
        return ScriptValue::Json(structured.get());
    }
    let Some(content) = content else { return ScriptValue::Json(result) };
    match joined_text(content.get()) {
        Some(text) if serde_json::from_str::<&RawValue>(&text).is_ok() => ScriptValue::JsonText(text),
        Some(text) => ScriptValue::Text(text),
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

/// Parses a JSON string. A lone surrogate, which Rust text cannot hold, becomes U+FFFD.
fn parse_string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok().or_else(|| {
        let mut parts = raw.split("\\u");
        let mut repaired = parts.next()?.to_owned();
        for part in parts {
            let is_surrogate = part.get(..2).is_some_and(|digits| {
                matches!(digits.as_bytes()[0], b'd' | b'D') && digits.as_bytes()[1] > b'7'
            });
            repaired.push_str("\\u");
            repaired.push_str(if is_surrogate { "fffd" } else { part.get(..4)? });
            repaired.push_str(part.get(4..)?);
        }
        serde_json::from_str(&repaired).ok()
    })
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
