//! What a tool answered, as it was sent.

use bascule_mcp::patch;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A `CallToolResult`, byte for byte, and the few questions one asks of it.
#[derive(Debug, Clone)]
pub struct CallToolResult {
    raw: Box<RawValue>,
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

impl CallToolResult {
    /// Takes a result. One that is not even an object is no result.
    pub fn parse(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        Self::read(raw).map_err(|(_, error)| error)
    }

    /// The same, and gives back what is no result.
    pub fn read(raw: Box<RawValue>) -> Result<Self, (Box<RawValue>, serde_json::Error)> {
        match says_error(raw.get()) {
            Ok(is_error) => Ok(Self { raw, is_error }),
            Err(error) => Err((raw, error)),
        }
    }

    /// Whether the tool says that it failed.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The whole result.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The whole result, to keep.
    pub fn into_raw(self) -> Box<RawValue> {
        self.raw
    }

    /// The content blocks, each as it was sent.
    pub fn content(&self) -> Vec<&RawValue> {
        self.view().map_or(Vec::new(), |view| view.content)
    }

    /// The structured result, where there is one.
    pub fn structured_content(&self) -> Option<&RawValue> {
        self.view()?.structured_content
    }

    /// All text blocks, joined by line breaks.
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct Text {
            text: String,
        }
        let blocks = self.content();
        let texts = blocks.iter().filter_map(|block| serde_json::from_str::<Text>(block.get()).ok());
        texts.map(|block| block.text).collect::<Vec<_>>().join("\n")
    }

    fn view(&self) -> Option<View<'_>> {
        let view: View<'_> = serde_json::from_str(self.raw.get()).ok()?;
        debug_assert_eq!(view.is_error.unwrap_or(false), self.is_error);
        Some(view)
    }
}

/// A result may be long, and looking for one field is quicker than reading it: only what is odd is read.
fn says_error(result: &str) -> Result<bool, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Flag {
        is_error: Option<bool>,
    }
    match patch::find(result, &["isError"]) {
        None if result.starts_with('{') => Ok(false),
        Some("false") => Ok(false),
        _ => Ok(serde_json::from_str::<Flag>(result)?.is_error.unwrap_or(false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CallToolResult, serde_json::Error> {
        CallToolResult::parse(RawValue::from_string(text.into()).unwrap())
    }

    // req: CL-03
    #[test]
    fn content_and_failure_are_kept_as_sent() {
        let text = r#"{"content":[{"type":"text","text":"a","x":1.0},{"type":"vendor/hologram"},{"type":"text","text":"b"}],"isError":true,"x-more":null}"#;
        let result = parse(text).unwrap();
        assert!(result.is_error());
        assert_eq!(result.text(), "a\nb");
        assert_eq!(result.content()[0].get(), r#"{"type":"text","text":"a","x":1.0}"#);
        assert_eq!(result.raw().get(), text);
        assert_eq!(result.into_raw().get(), text);
    }

    #[test]
    fn a_result_may_be_structured_or_empty() {
        assert_eq!(
            parse(r#"{"structuredContent":{"n":1.0}}"#).unwrap().structured_content().unwrap().get(),
            r#"{"n":1.0}"#
        );
        assert!(!parse("{}").unwrap().is_error());
        assert!(parse("7").is_err());
    }
}
