//! The catalog of all servers' tools: filters tools, validates arguments and results, and suggests similar names
//! for unknown ones.
//!
//! This crate does no I/O, reads no clock and uses no random source. The types of the JSON Schema validator are
//! private to `schema`.

mod arguments;
mod catalog;
mod filter;
mod name_pattern;
mod nearest;
mod observed;
mod schema;
mod server;
mod tool;
mod typescript;

pub use catalog::{Catalog, ResolveError};
pub use filter::ToolFilter;
pub use name_pattern::NamePattern;
pub use nearest::nearest_name;
pub use observed::{Look, ObservedResult, ResultData, StoredObservation};
pub use schema::{Schema, SchemaError, Validation};
pub use server::{ServerTools, SharedResult};
pub use tool::CatalogTool;
pub use typescript::{DeclaredServer, DeclaredTool, declarations};
