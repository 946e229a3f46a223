//! Scripts that call tools, from inside the process that runs them.
//!
//! Reading order: [`wire`] is what bridge and worker say to each other; [`worker`] is the life of one script;
//! `engine` is the JavaScript machine with what scripts expect around them (`prelude`, written in JavaScript);
//! `typescript` takes the types away and remembers where every line came from; `directory` finds a tool by the name
//! that the script uses.
//!
//! Nothing here confines anything: the program locks its process before it lets [`worker::Worker`] read.

pub mod names;
pub mod wire;
pub mod worker;

mod directory;
mod engine;
mod fit;
#[cfg(test)]
mod fuzz;
mod natives;
mod outcome;
mod state;
mod timers;
mod typescript;
