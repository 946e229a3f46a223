//! Bascule, the bridge between agents and MCP tools, as a library. "The bridge" is this program, or an
//! [`McpBridgeAdapter`] inside another program.
//!
//! Reading order:
//!
//! - [`config`] reads the configuration file, and [`McpBridgeAdapter`] is the bridge.
//! - `call` makes every tool call. `call_record` records it, `metrics` counts it, `audit` logs it, and `result_observer` learns
//!   from its result. `in_flight` registers the requests.
//! - `fleet` runs the servers.
//! - `gateway` serves MCP clients (`client`), `bus_face` serves an agent over a message bus, and `control` serves the commands of
//!   other processes through `api`.
//! - `script` runs scripts. `search` finds tools, if configured with the vectors of an `encoder`; `tool_queries` answers queries
//!   about them.
//! - [`cli`] is the command line. `clients` knows the configuration files of MCP clients, and `document` edits them.

pub mod cli;
pub mod config;

mod adapter;
mod api;
mod audit;
mod blocking;
mod bus_face;
mod call;
mod call_record;
mod capture;
mod client;
mod client_trace;
mod clients;
mod command_output;
mod control;
mod deadline;
mod document;
mod encoder;
mod fleet;
mod gateway;
mod hexadecimal;
mod in_flight;
mod launch;
mod listing_store;
mod logging_level;
mod metrics;
mod normalise;
mod observation_store;
mod otlp;
mod post_mortem;
mod private_file;
mod redaction;
mod refusal;
mod relay;
mod reload;
mod remote_bridge;
mod result_observer;
mod sanitize;
mod script;
mod script_types;
mod search;
mod settings_file;
mod start_hints;
#[cfg(test)]
mod testing;
mod token;
mod tool_queries;
mod tool_spelling;
mod trace_recorder;
mod trust_store;
mod unique_number;
mod warm_pool;

pub use adapter::{BridgeConfig, LastListings, McpBridgeAdapter};
pub use bus_face::{BusService, BusServiceOptions};
#[doc(hidden)]
pub use metrics::count_calls_for_benchmark;
pub use otlp::{InvalidOtlpSettings, OtlpSettings};
pub use reload::{Plan, Reloaded};
pub use script::{ScriptMode, ScriptOutcome, ScriptRequest, ScriptTrace, ToolSelection, ToolSelectionError};
pub use search::ToolIntent;
