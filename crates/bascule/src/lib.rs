//! Bascule, the bridge between agents and MCP tools, as a library.
//!
//! Reading order: [`config`] reads the configuration file. [`McpBridgeAdapter`] is the bridge. `call` makes every tool call
//! and `call_record` records it; `in_flight` registers the requests. `fleet` runs the servers. `gateway` serves MCP clients
//! (`client`), `control` serves the commands of other processes through `api`, and `script` runs scripts. [`cli`] is the
//! command line.

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
