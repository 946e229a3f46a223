//! Asks the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};

/// A longer answer is none.
const MAX_ANSWER_BYTES: u64 = 100;

/// Returns true if a person can answer: stdin and stderr are a terminal, and this process is not in its background.
pub(crate) fn has_user() -> bool {
    let is_foreground = || {
        let group = rustix::termios::tcgetpgrp(io::stdin());
        group.is_ok_and(|group| group == rustix::process::getpgrp())
    };
    io::stdin().is_terminal() && io::stderr().is_terminal() && is_foreground()
}

/// Asks on stderr. Everything except a yes is a no.
pub(crate) fn ask(question: &str) -> bool {
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let _ = io::stderr().flush();
    let mut answer = Vec::new();
    let read = io::stdin().lock().take(MAX_ANSWER_BYTES).read_until(b'\n', &mut answer);
    let answer = String::from_utf8_lossy(&answer).trim().to_lowercase();
    read.is_ok() && ["y", "yes"].contains(&answer.as_str())
}
