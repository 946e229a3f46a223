//! Scripts in a worker, as the bridge sees them: messages in, messages out.
//!
//! The worker runs in a thread here, so nothing is confined: what it may do to the machine is tested with the program.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

#[path = "scripts/errors.rs"]
mod errors;
#[path = "scripts/furniture.rs"]
mod furniture;
#[path = "scripts/hostile.rs"]
mod hostile;
#[path = "scripts/tools.rs"]
mod tools;
