//! Formats messages as SSE events with the features that a script selects.

use crate::padded_text::PaddedText;
use crate::script::Script;

/// The selected features.
pub(super) struct SseStyle(Vec<String>);

impl SseStyle {
    pub(super) fn of(script: &Script) -> SseStyle {
        SseStyle(script.list("sse"))
    }

    /// Returns the bytes before the first event.
    pub(super) fn opening(&self) -> &'static str {
        if self.has("Bom") { "\u{feff}" } else { "" }
    }

    /// Returns the first event without data, if selected.
    pub(super) fn priming(&self, number: usize) -> Option<PaddedText> {
        let end = self.line_end();
        self.has("Primed").then(|| PaddedText::from(format!("id: {number}{end}data:{end}{end}")))
    }

    /// Formats one event; `number` is its id.
    pub(super) fn event(&self, line: &PaddedText, number: usize) -> PaddedText {
        let end = self.line_end();
        let mut head: String = self.fields(number).into_iter().map(|field| field + end).collect();
        head.push_str("data: ");
        head.push_str(&self.split_lines(&line.head));
        PaddedText { head, padding: line.padding, tail: format!("{}{end}{end}", line.tail) }
    }

    /// Returns the lines before the data. An empty line ends a separate event.
    fn fields(&self, number: usize) -> Vec<String> {
        let retry = "retry: 2500".to_owned();
        let soon = "retry: 300".to_owned();
        let comment = ": keep-alive".to_owned();
        let unknown = ["event: weather", r#"data: {"rain":true}"#, ""].map(str::to_owned);
        let mut fields = Vec::new();
        fields.extend(self.has("Comments").then_some(comment));
        fields.extend(unknown.into_iter().filter(|_| self.has("UnknownEvents")));
        fields.extend(self.has("Ids").then(|| format!("id: {number}")));
        fields.extend(self.has("Retry").then_some(retry));
        fields.extend(self.has("RetrySoon").then_some(soon));
        fields
    }

    /// Splits the JSON after its first brace.
    fn split_lines(&self, text: &str) -> String {
        match text.strip_prefix('{').filter(|_| self.has("MultiLine")) {
            Some(rest) => format!("{{{}data:{rest}", self.line_end()),
            None => text.to_owned(),
        }
    }

    fn line_end(&self) -> &'static str {
        if self.has("Crlf") { "\r\n" } else { "\n" }
    }

    fn has(&self, feature: &str) -> bool {
        self.0.iter().any(|name| name == feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SseFeature::{self, *};

    fn check(features: &[SseFeature], expected: &str) {
        let style = SseStyle::of(&Script::new().sse(features.iter().copied()));
        let event = style.event(&PaddedText::from(r#"{"id":1}"#.to_owned()), 7);
        assert_eq!(format!("{}{}{}", style.opening(), event.head, event.tail), expected);
    }

    #[test]
    fn plain_event_is_one_data_line() {
        check(&[], "data: {\"id\":1}\n\n");
    }

    #[test]
    fn splits_message_over_lines() {
        check(&[MultiLine, Crlf], "data: {\r\ndata:\"id\":1}\r\n\r\n");
    }

    #[test]
    fn adds_all_legal_fields() {
        let expected = "\u{feff}: keep-alive\nevent: weather\ndata: {\"rain\":true}\n\nid: 7\nretry: 2500\ndata: {\"id\":1}\n\n";
        check(&[Bom, Comments, UnknownEvents, Ids, Retry], expected);
    }
}
