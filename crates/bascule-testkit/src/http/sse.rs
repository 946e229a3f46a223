//! Writes a message as one event of an SSE stream, with the habits a script asks for.

use crate::line::Line;
use crate::script::Script;

/// What the stream looks like.
pub(super) struct Style(Vec<String>);

impl Style {
    pub(super) fn of(script: &Script) -> Style {
        Style(script.list("sse"))
    }

    /// What stands before the first event.
    pub(super) fn opening(&self) -> &'static str {
        if self.has("Bom") { "\u{feff}" } else { "" }
    }

    /// The event before all others, if there is one, in the place of this number.
    pub(super) fn priming(&self, number: usize) -> Option<Line> {
        let end = self.line_end();
        self.has("Primed").then(|| Line::from(format!("id: {number}{end}data:{end}{end}")))
    }

    /// One event; `number` is its place in the stream.
    pub(super) fn event(&self, line: &Line, number: usize) -> Line {
        let end = self.line_end();
        let mut head: String = self.fields(number).into_iter().map(|field| field + end).collect();
        head.push_str("data: ");
        head.push_str(&self.spread(&line.head));
        Line { head, padding: line.padding, tail: format!("{}{end}{end}", line.tail) }
    }

    /// The lines before the data. An empty one ends an event of its own.
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

    /// Breaks after the first brace, where JSON does not mind.
    fn spread(&self, text: &str) -> String {
        match text.strip_prefix('{').filter(|_| self.has("MultiLine")) {
            Some(rest) => format!("{{{}data:{rest}", self.line_end()),
            None => text.to_owned(),
        }
    }

    fn line_end(&self) -> &'static str {
        if self.has("Crlf") { "\r\n" } else { "\n" }
    }

    fn has(&self, habit: &str) -> bool {
        self.0.iter().any(|own| own == habit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SseHabit::{self, *};

    fn check(habits: &[SseHabit], expected: &str) {
        let style = Style::of(&Script::new().sse(habits.iter().copied()));
        let event = style.event(&Line::from(r#"{"id":1}"#.to_owned()), 7);
        assert_eq!(format!("{}{}{}", style.opening(), event.head, event.tail), expected);
    }

    #[test]
    fn a_plain_event_is_one_data_line() {
        check(&[], "data: {\"id\":1}\n\n");
    }

    #[test]
    fn a_message_may_be_spread_over_lines() {
        check(&[MultiLine, Crlf], "data: {\r\ndata:\"id\":1}\r\n\r\n");
    }

    #[test]
    fn everything_legal_may_surround_it() {
        let expected = "\u{feff}: keep-alive\nevent: weather\ndata: {\"rain\":true}\n\nid: 7\nretry: 2500\ndata: {\"id\":1}\n\n";
        check(&[Bom, Comments, UnknownEvents, Ids, Retry], expected);
    }
}
