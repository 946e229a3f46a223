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

/// What a server says cannot move the cursor or colour the screen.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
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
        assert_eq!(clean("a\u{1b}[2Jb\tc\n"), "a\u{fffd}[2Jb\tc\n");
    }
}
