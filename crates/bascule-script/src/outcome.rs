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
    #[serde(default)]
    text: Option<String>,
}

/// Whether the tool reports failure.
pub(crate) fn is_error(result: &str) -> bool {
    serde_json::from_str::<Result>(result).is_ok_and(|result| result.is_error)
}

/// The structured content where there is some, else the text as JSON where it is JSON, else the text. A result without
/// either is worth its content.
pub(crate) fn worth(result: &str) -> Worth<'_> {
    let Ok(Result { structured_content, content, .. }) = serde_json::from_str(result) else {
        return Worth::Json(result);
    };
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
pub(crate) fn texts(content: &str) -> Option<String> {
    let blocks: Vec<Block> = serde_json::from_str(content).ok()?;
    let is_text = |block: &Block| block.kind.as_deref() == Some("text");
    let texts: Vec<String> = blocks.into_iter().filter(is_text).filter_map(|block| block.text).collect();
    if texts.is_empty() { None } else { Some(texts.join("\n")) }
}

/// What a tool says of its failure.
pub(crate) fn complaint(result: &str) -> String {
    let content = serde_json::from_str::<Result>(result).ok().and_then(|result| result.content);
    content.and_then(|content| texts(content.get())).unwrap_or_else(|| "the tool reported failure".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_content_comes_first() {
        let result = r#"{"content":[{"type":"text","text":"{\"a\":2}"}],"structuredContent":{"a":1.0}}"#;
        assert_eq!(worth(result), Worth::Json(r#"{"a":1.0}"#));
    }

    #[test]
    fn text_that_is_json_is_json() {
        let result = r#"{"content":[{"type":"text","text":" [1, 2] "}]}"#;
        assert_eq!(worth(result), Worth::Inner(" [1, 2] ".into()));
    }

    #[test]
    fn other_text_is_text() {
        let result =
            r#"{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        assert_eq!(worth(result), Worth::Text("a\nb".into()));
    }

    #[test]
    fn without_text_the_content_is_the_value() {
        assert_eq!(worth(r#"{"content":[{"type":"image"}]}"#), Worth::Json(r#"[{"type":"image"}]"#));
    }

    #[test]
    fn a_complaint_is_the_text() {
        let result = r#"{"isError":true,"content":[{"type":"text","text":"no such file"}]}"#;
        assert!(is_error(result));
        assert_eq!(complaint(result), "no such file");
    }
}
