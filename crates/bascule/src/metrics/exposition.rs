//! The text format that Prometheus reads.

use std::fmt::{Display, Write as _};

/// The kind of a metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A text with the metrics written so far.
#[derive(Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Begins a metric. Its samples follow.
    pub(super) fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.write(format_args!("{label}=\"{}\"", Escaped(text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{end} {value}\n"));
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a text does not fail");
    }
}

/// The value of a label.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '\\' => f.write_str(r"\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str(r"\n"),
            letter => f.write_char(letter),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn escapes_values_of_labels() {
        let mut text = Exposition::default();
        text.metric("calls_total", Kind::Counter, "Calls.");
        text.sample("calls_total", &[("server", "s"), ("tool", "a\"b\\c\nd")], 7);
        text.sample("up", &[], 1);
        let expected = "# HELP calls_total Calls.\n# TYPE calls_total counter\n\
                        calls_total{server=\"s\",tool=\"a\\\"b\\\\c\\nd\"} 7\nup 1\n";
        assert_eq!(text.into_text(), expected);
    }
}
