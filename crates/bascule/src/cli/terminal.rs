//! Colours and a spinner, on a terminal only.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Colours text, or leaves it alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn for_stdout() -> Self {
        Self(io::stdout().is_terminal() && wanted())
    }

    pub(crate) fn for_stderr() -> Self {
        Self(io::stderr().is_terminal() && wanted())
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31;1", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What a server says cannot move the cursor, colour the screen or turn the writing round. It keeps its lines.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && c != '\t' && is_tricky(c) { '\u{fffd}' } else { c }).collect()
}

/// The same for what has one line of ours to stand in: it cannot make another.
pub(crate) fn clean_line(text: &str) -> String {
    text.chars().map(|c| if is_tricky(c) { '\u{fffd}' } else { c }).collect()
}

fn is_tricky(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Fills a word up to a column, which no word of a server's can push far to the right.
pub(crate) fn pad(word: &str, width: usize) -> String {
    let width = width.min(40);
    format!("{word:width$}")
}

/// Shows that something goes on, until the work is done.
pub(crate) async fn spin<T>(quiet: bool, what: &str, work: impl Future<Output = T>) -> T {
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
                let _ = write!(io::stderr(), "\r\u{1b}[K{frame} {what}");
                let _ = io::stderr().flush();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals() {
        assert_eq!(Paint(false).bad("x"), "x");
        assert_eq!(Paint(true).good("x"), "\u{1b}[32mx\u{1b}[0m");
    }

    #[test]
    fn a_server_cannot_paint_the_screen() {
        assert_eq!(clean("a\u{1b}[2Jb\tc\n\u{202e}"), "a\u{fffd}[2Jb\tc\n\u{fffd}");
        assert_eq!(clean_line("a\nb\u{9b}"), "a\u{fffd}b\u{fffd}");
        assert_eq!(pad(&"x".repeat(70_000), 70_000).len(), 70_000);
    }
}
