//! Learns from finished calls which tools belong together.
//!
//! Reading order: a [`TracedCall`] is one finished call. A [`ToolGraph`] observes calls and holds tools (nodes) and their
//! relations (edges: [`EdgeKind`]). `session` decides which relations a call has with the calls before it, `fingerprint` and
//! `telling` recognise a value that one tool returned and another was given, `table` holds the bounded nodes and edges. `suggest`
//! and `rank` answer questions, `rows` is the form for a database, `export` and `text` the form for people and programs.
//!
//! This crate does no I/O and reads no clock: calls carry their times, and the caller provides the key of the fingerprints.

mod export;
mod fingerprint;
mod graph;
mod rank;
mod rows;
mod session;
mod suggest;
mod table;
mod tally;
mod telling;
mod text;
mod traced_call;

pub use export::{ExportedEdge, ExportedNode, GraphExport};
pub use fingerprint::{Fingerprint, FingerprintKey, fingerprints};
pub use graph::{GraphLimits, ToolGraph};
pub use rows::{EdgeRow, GraphChanges, GraphRows, NodeRow};
pub use suggest::SuggestedTool;
pub use table::{EdgeKind, RemovedEdge};
pub use traced_call::{CallSession, TracedCall};
