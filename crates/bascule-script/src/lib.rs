//! Runs one script inside its own worker process: the wire protocol, the TypeScript transpiler, the JavaScript engine and
//! the functions that scripts call tools with.
//!
//! Reading order: [`wire`] defines the messages between bridge and worker; [`worker`] runs one script; `engine` holds the
//! JavaScript runtime and evaluates the `prelude` (the globals of scripts, written in JavaScript), which calls the functions of
//! `natives`; `typescript` removes types and maps positions back to the source; `check` finds mistakes before the first call;
//! `tool_lookup` finds a tool by the name a script uses, and [`names`] converts names; `ending` decides when a script has ended.
//!
//! This crate confines nothing: the program must lock down its process before it calls [`worker::ScriptWorker::serve`].

pub mod names;
pub mod wire;
pub mod worker;

pub use tool_lookup::display_names;
pub use tool_result::{ResultValue, replace_lone_surrogates, result_value};

mod argument_keys;
mod check;
mod collation;
mod ending;
mod engine;
mod explain;
#[cfg(test)]
mod fuzz;
mod large_integers;
mod last_results;
mod natives;
mod python_literal;
mod result_reads;
mod script_error;
mod state;
mod time_zones;
mod timers;
mod tool_lookup;
mod tool_result;
mod typescript;
mod unawaited;
mod unreturned;
