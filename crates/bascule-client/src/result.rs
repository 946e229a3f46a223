//! The result of a tool call.

use bascule_mcp::patch;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A `CallToolResult`, kept byte for byte.
#[derive(Debug, Clone)]
pub struct CallToolResult {
    raw: Box<RawValue>,
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultFields<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

impl CallToolResult {
    /// Fails if the value is not an object.
    pub fn parse(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        Self::from_raw(raw).map_err(|(_, error)| error)
    }

    /// Like `parse`, but returns an invalid value together with the error.
    pub fn from_raw(raw: Box<RawValue>) -> Result<Self, (Box<RawValue>, serde_json::Error)> {
        match read_is_error(raw.get()) {
            Ok(is_error) => Ok(Self { raw, is_error }),
            Err(error) => Err((raw, error)),
        }
    }

    /// Returns true if the tool reports a failure.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    pub fn into_raw(self) -> Box<RawValue> {
        self.raw
    }

    /// Returns the content blocks, byte for byte.
    pub fn content(&self) -> Vec<&RawValue> {
        self.fields().map_or(Vec::new(), |fields| fields.content)
    }

    pub fn structured_content(&self) -> Option<&RawValue> {
        self.fields()?.structured_content
    }

    /// Returns all text blocks, joined by line breaks.
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct TextBlock {
            text: String,
        }
        let blocks = self.content();
        let texts = blocks.iter().filter_map(|block| serde_json::from_str::<TextBlock>(block.get()).ok());
        texts.map(|block| block.text).collect::<Vec<_>>().join("\n")
    }

    fn fields(&self) -> Option<ResultFields<'_>> {
        let fields: ResultFields<'_> = serde_json::from_str(self.raw.get()).ok()?;
        debug_assert_eq!(fields.is_error.unwrap_or(false), self.is_error);
        Some(fields)
    }
}

/// Searches for the one field, because parsing a long result takes longer. Parses only unusual results.
fn read_is_error(result: &str) -> Result<bool, serde_json::Error> {
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
    fn keeps_content_and_is_error() {
        let text = r#"{"content":[{"type":"text","text":"a","x":1.0},{"type":"vendor/hologram"},{"type":"text","text":"b"}],"isError":true,"x-more":null}"#;
        let result = parse(text).unwrap();
        assert!(result.is_error());
        assert_eq!(result.text(), "a\nb");
        assert_eq!(result.content()[0].get(), r#"{"type":"text","text":"a","x":1.0}"#);
        assert_eq!(result.raw().get(), text);
        assert_eq!(result.into_raw().get(), text);
    }

    #[test]
    fn accepts_structured_and_empty_results() {
        assert_eq!(
            parse(r#"{"structuredContent":{"n":1.0}}"#).unwrap().structured_content().unwrap().get(),
            r#"{"n":1.0}"#
        );
        assert!(!parse("{}").unwrap().is_error());
        assert!(parse("7").is_err());
    }
}
