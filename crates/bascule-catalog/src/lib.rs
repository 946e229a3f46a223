//! Which tools exist and may be seen: assembled from what servers list, filtered, validated, and found even
//! by almost their name.
//!
//! Nothing here does I/O, reads a clock or uses chance. The JSON Schema validator stays behind `schema`:
//! none of its types are seen from outside.

mod catalog;
mod filter;
mod nearest;
mod pattern;
mod schema;
mod server;
mod tool;

pub use catalog::{Catalog, Miss};
pub use filter::ToolFilter;
pub use nearest::nearest_text;
pub use pattern::Pattern;
pub use schema::{Schema, SchemaError, Verdict};
pub use server::ServerTools;
pub use tool::CatalogTool;
