//! Measures how many of the right tools a search finds, on intents of our own.

#![allow(clippy::print_stdout, reason = "the measurements are printed")]
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod encoder;
mod own_intents;
mod support;
