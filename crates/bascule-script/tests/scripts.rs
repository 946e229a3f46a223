//! Tests scripts in a worker through its messages.
//!
//! The worker runs in a thread and is not confined. The end-to-end tests of the program cover confinement.

#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

mod support;

#[path = "scripts/check.rs"]
mod check;
#[path = "scripts/ending.rs"]
mod ending;
#[path = "scripts/errors.rs"]
mod errors;
#[path = "scripts/globals.rs"]
mod globals;
#[path = "scripts/hostile.rs"]
mod hostile;
#[path = "scripts/mistakes.rs"]
mod mistakes;
#[path = "scripts/node.rs"]
mod node;
#[path = "scripts/queries.rs"]
mod queries;
#[path = "scripts/tools.rs"]
mod tools;
#[path = "scripts/values.rs"]
mod values;
