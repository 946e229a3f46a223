//! The MCP clients whose configuration files `install` and `import` know.
//!
//! `table` describes each client as data. `machine` finds its files, `entry` builds and recognises the entry of Bascule,
//! `translate` turns the entries of other servers into ours, and `login_path` finds the programs that a login shell finds.

mod entry;
mod login_path;
mod machine;
mod table;
mod translate;

pub(crate) use entry::{EntryTarget, command_line, fields_of, is_bascule, stale_keys};
pub(crate) use login_path::ProgramSearch;
pub(crate) use machine::{ClientFile, Machine};
pub(crate) use table::{CLIENTS, ClientProgram};
pub(crate) use translate::{Imported, translate};
