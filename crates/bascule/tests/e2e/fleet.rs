//! Supervision of servers by a running bridge: restarts, reconnects, limits, reloads.
//!
//! Most tests run the bridge inside the test process (`observed_bridge`), where every event can be waited for. Tests of
//! the program itself start `bascule serve` (`serve_process`).

mod call_events;
mod config_watch;
mod control_socket;
pub mod held_server;
mod install;
mod last_listing;
mod limits;
mod observed_bridge;
mod observed_results;
mod proxy;
mod reconnect;
mod reload;
mod remote;
mod retry;
mod serve;
mod serve_log;
pub mod serve_process;
mod startup;
mod tool_changes;
mod unresponsive;

use serde_json::{Value, json};

use crate::support::with_settings;

/// Returns an entry whose server is restarted almost immediately.
fn with_fast_reconnect(entry: Value) -> Value {
    with_settings(entry, json!({ "reconnectBackoffMs": 10 }))
}

/// Defines a tool with an annotation such as `readOnlyHint`.
fn tool_with_hint(name: &str, hint: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { hint: true } })
}

/// Counts the messages with this method.
fn count(methods: &[String], method: &str) -> usize {
    methods.iter().filter(|own| *own == method).count()
}
