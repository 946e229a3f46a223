//! Checks which relations calls have, the laws of the graph, and its limits.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod laws;
mod limits;
mod relations;
mod support;
