//! Small MCP servers inside our own program, so that a demo needs neither Node nor network.
//!
//! Each is a real child process (`bascule __demo NAME`) that speaks MCP over stdin and stdout, and knows
//! nothing of the bridge.

mod clock;
mod counter;
mod message;
mod notes;
mod reply;
mod serve;
mod tool;
mod trouble;
mod zones;

use std::process::ExitCode;

/// The names that [`run`] knows.
pub const NAMES: &[&str] = &["notes", "clock", "counter", "trouble"];

/// Serves until stdin ends.
pub fn run(name: &str) -> ExitCode {
    match name {
        "notes" => serve::run(notes::Notes::with_examples()),
        "clock" => serve::run(clock::Clock::default()),
        "counter" => counter::Counter::open().map_or_else(refuse, serve::run),
        "trouble" => serve::run(trouble::Trouble::default()),
        _ => refuse(format!("there is no demo server `{name}`: try {}", NAMES.join(", "))),
    }
}

fn refuse(problem: String) -> ExitCode {
    eprintln!("bascule: {problem}");
    ExitCode::from(2)
}
