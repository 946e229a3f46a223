//! What the result of a tool is worth to a script.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A value as it is handed to the script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Worth<'a> {
    /// JSON text.
    Json(&'a str),
    /// Text that is JSON, written inside JSON.
    Inner(String),
    /// Text that is not.
    Text(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Result<'a> {
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

/// What a result comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    Value(Worth<'a>),
    /// The tool reports failure, and this is what it says of it.
    Failure(String),
}

pub(crate) fn read(result: &str) -> Said<'_> {
    match serde_json::from_str(result) {
        Ok(Result { is_error: true, content, .. }) => Said::Failure(complaint(content)),
        Ok(read) => Said::Value(worth(result, read)),
        Err(_) => Said::Value(Worth::Json(result)),
    }
}

/// The structured content where there is some, else the text as JSON where it is JSON, else the text. A result without
/// either is worth its content.
fn worth<'a>(result: &'a str, Result { structured_content, content, .. }: Result<'a>) -> Worth<'a> {
    if let Some(structured) = structured_content.filter(|value| value.get() != "null") {
        return Worth::Json(structured.get());
    }
    let Some(content) = content else { return Worth::Json(result) };
    match texts(content.get()) {
        Some(text) if serde_json::from_str::<&RawValue>(&text).is_ok() => Worth::Inner(text),
        Some(text) => Worth::Text(text),
        None => Worth::Json(content.get()),
    }
}

/// All text there is, if there is any.
fn texts(content: &str) -> Option<String> {
    let blocks: Vec<Block> = serde_json::from_str(content).ok()?;
    let is_text = |block: &Block| block.kind.as_deref() == Some("text");
    let texts: Vec<String> =
        blocks.into_iter().filter(is_text).filter_map(|block| string(block.text?.get())).collect();
    if texts.is_empty() { None } else { Some(texts.join("\n")) }
}

/// A JSON string as text. Half a letter, which JSON can spell and text cannot hold, becomes a mark.
fn string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok().or_else(|| {
        let mut parts = raw.split("\\u");
        let mut mended = parts.next()?.to_owned();
        for part in parts {
            let is_half = part.get(..2).is_some_and(|digits| {
                matches!(digits.as_bytes()[0], b'd' | b'D') && digits.as_bytes()[1] > b'7'
            });
            mended.push_str("\\u");
            mended.push_str(if is_half { "fffd" } else { part.get(..4)? });
            mended.push_str(part.get(4..)?);
        }
        serde_json::from_str(&mended).ok()
    })
}

/// What a tool says of its failure.
fn complaint(content: Option<&RawValue>) -> String {
    content.and_then(|content| texts(content.get())).unwrap_or_else(|| "the tool reported failure".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: &str, expected: Worth<'_>) {
        assert_eq!(read(result), Said::Value(expected));
    }

    #[test]
    fn structured_content_comes_first() {
        let result = r#"{"content":[{"type":"text","text":"{\"a\":2}"}],"structuredContent":{"a":1.0}}"#;
        check(result, Worth::Json(r#"{"a":1.0}"#));
    }

    #[test]
    fn text_that_is_json_is_json() {
        let result = r#"{"content":[{"type":"text","text":" [1, 2] "}]}"#;
        check(result, Worth::Inner(" [1, 2] ".into()));
    }

    #[test]
    fn other_text_is_text() {
        let result =
            r#"{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        check(result, Worth::Text("a\nb".into()));
    }

    #[test]
    fn half_a_letter_does_not_cost_the_text() {
        let result = r#"{"content":[{"type":"text","text":"a\ud800b\u00e9"}]}"#;
        check(result, Worth::Text("a\u{fffd}bé".into()));
    }

    #[test]
    fn without_text_the_content_is_the_value() {
        check(r#"{"content":[{"type":"image"}]}"#, Worth::Json(r#"[{"type":"image"}]"#));
    }

    #[test]
    fn a_complaint_is_the_text() {
        let result = r#"{"isError":true,"content":[{"type":"text","text":"no such file"}]}"#;
        assert_eq!(read(result), Said::Failure("no such file".into()));
    }
}
