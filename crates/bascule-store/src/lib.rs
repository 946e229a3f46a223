//! The bridge's memory on disk: the spans of calls and scripts, the log lines of servers and the graph of tools, in one SQLite
//! file.
//!
//! Reading order: [`Span`] and [`LogLine`] are the entries. A [`Store`] accepts them: offering one never waits, a bounded queue
//! feeds one writer thread, and entries without room are dropped and counted. A [`Reader`] reads the same file, also while
//! bridges write to it. The writer thread owns the graph (`graph_keeper`), which learns from an [`ObservedCall`]. `file` opens it and sets a damaged one aside, `schema` has its tables, `retention` bounds it.
//! Neither side depends on a runtime.

mod file;
mod graph_keeper;
mod graph_rows;
mod insert;
mod log_line;
mod observed_call;
mod queue;
mod reader;
mod retention;
mod schema;
mod span;
mod statistics;
mod writer;

pub use file::StoreError;
pub use log_line::{LogLine, LogSource};
pub use observed_call::ObservedCall;
pub use reader::{Found, LogFilter, Reader, SpanFilter};
pub use retention::Retention;
pub use span::{CapturableContent, Captured, ClientLabel, Face, Isolation, Outcome, Span, SpanKind};
pub use statistics::ToolStatistics;
pub use writer::{Store, StoreStatus};
