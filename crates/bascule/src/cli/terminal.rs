//! Terminal output: colours, a spinner, and sanitized text of servers.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Colours text if the stream is a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalStyle(bool);

impl TerminalStyle {
    pub(crate) fn new(stream: &impl IsTerminal) -> Self {
        let is_colour_enabled = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self(stream.is_terminal() && is_colour_enabled)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31;1", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Replaces control and bidirectional characters, so that a server cannot move the cursor, colour the screen or reverse
/// text. Keeps line breaks and tabs.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && c != '\t' && is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

/// Replaces line breaks and tabs too.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Pads a word to a width of at most 40, so that a server's long name does not shift the column.
pub(crate) fn pad(word: &str, width: usize) -> String {
    let width = width.min(40);
    format!("{word:width$}")
}

/// Shows a spinner on stderr until the work is done.
pub(crate) async fn with_spinner<T>(quiet: bool, activity: &str, work: impl Future<Output = T>) -> T {
    if quiet || !io::stderr().is_terminal() {
        return work.await;
    }
    tokio::pin!(work);
    let mut tick = tokio::time::interval(Duration::from_millis(80));
    let mut frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏".chars().cycle();
    loop {
        tokio::select! {
            done = &mut work => {
                let _ = write!(io::stderr(), "\r\u{1b}[K");
                return done;
            }
            _ = tick.tick() => {
                let frame = frames.next().unwrap_or('·');
                let _ = write!(io::stderr(), "\r\u{1b}[K{frame} {activity}");
                let _ = io::stderr().flush();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_text_only_on_a_terminal() {
        assert_eq!(TerminalStyle(false).red("x"), "x");
        assert_eq!(TerminalStyle(true).green("x"), "\u{1b}[32mx\u{1b}[0m");
    }

    #[test]
    fn replaces_control_characters() {
        assert_eq!(sanitize("a\u{1b}[2Jb\tc\n\u{202e}"), "a\u{fffd}[2Jb\tc\n\u{fffd}");
        assert_eq!(sanitize_line("a\nb\u{9b}"), "a\u{fffd}b\u{fffd}");
        assert_eq!(pad(&"x".repeat(70_000), 70_000).len(), 70_000);
    }
}
