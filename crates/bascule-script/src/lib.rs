//! Runs one script inside its own worker process: the wire protocol, the TypeScript transpiler, the JavaScript engine and
//! the functions that scripts call tools with.
//!
//! Reading order: [`wire`] defines the messages between bridge and worker; [`worker`] runs one script; `engine` holds the
//! JavaScript runtime and evaluates the `prelude` (the globals of scripts, written in JavaScript); `typescript` removes
//! types and maps positions back to the source; `tool_lookup` finds a tool by the name a script uses.
//!
//! This crate confines nothing: the program must lock down its process before it calls [`worker::ScriptWorker::serve`].

pub mod names;
pub mod wire;
pub mod worker;

mod argument_keys;
mod engine;
#[cfg(test)]
mod fuzz;
mod natives;
mod state;
mod timers;
mod tool_lookup;
mod tool_result;
mod typescript;
