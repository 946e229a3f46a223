//! `bascule-demo NAME`: small MCP servers on stdin and stdout, for the demonstration and the tests.
//!
//! They need neither Node nor a network and share no code with the bridge.

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

const USAGE: &str = "usage: bascule-demo notes|clock|counter|trouble";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("notes") => serve::run(notes::Notes::with_examples()),
        Some("clock") => serve::run(clock::Clock::default()),
        Some("counter") => counter::Counter::open().map_or_else(|problem| fail(&problem), serve::run),
        Some("trouble") => serve::run(trouble::Trouble::default()),
        _ => fail(USAGE),
    }
}

fn fail(problem: &str) -> ExitCode {
    eprintln!("bascule-demo: {problem}");
    ExitCode::from(2)
}
