//! Bascule, the drawbridge between agents and MCP tools, as a library.
//!
//! Reading order: [`config`] is what the user wrote, [`McpBridgeAdapter`] holds the servers, `call` is the
//! one road to a tool, `fleet` the servers at the end of it, `gateway` the way in for MCP clients, `control` the one
//! for commands. The command line ([`cli`]) stands on these.

pub mod cli;
pub mod config;

mod adapter;
mod api;
mod blocking;
mod call;
mod call_record;
mod client;
mod control;
mod deadline;
mod fleet;
mod gateway;
mod in_flight;
mod launch;
mod logging_level;
mod normalise;
mod post_mortem;
mod redaction;
mod relay;
mod reload;
mod script;
mod token;
mod warm_pool;

pub use adapter::{BridgeConfig, McpBridgeAdapter};
pub use reload::{Plan, Reloaded};
pub use script::{ScriptMode, ScriptOutcome, ScriptRequest, ScriptTrace, ToolSelection, ToolSelectionError};
