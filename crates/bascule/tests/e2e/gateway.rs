//! `bascule serve` as an MCP server, tested by clients that control every byte they send.

#![allow(clippy::print_stdout, reason = "measured figures, visible with `--nocapture`")]

mod access_control;
mod aggregation;
pub mod client;
mod concurrent_clients;
mod detached_calls;
mod errors;
mod fidelity;
mod fuzz;
mod hostile_clients;
mod load;
mod lookalikes;
mod routing;
mod server_requests;
mod sessions;
mod stdio;

use std::net::SocketAddr;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::support::{eventually, with_settings};
use client::Client;

/// Endpoint that merges all servers.
const AGGREGATE_PATH: &str = "/mcp";

/// `bascule serve` with one scripted server, `s`.
struct ScriptedBridge {
    server: ScriptedStdio,
    process: ServeProcess,
    address: SocketAddr,
}

impl ScriptedBridge {
    fn start(script: Script) -> Self {
        Self::start_with(script, json!({}))
    }

    /// Adds settings to the server's entry.
    fn start_with(script: Script, settings: Value) -> Self {
        let server = ScriptedStdio::new(script);
        let process = ServeProcess::start(json!({ "s": with_settings(server.entry(), settings) }));
        wait_for_first_process(&server);
        let address = process.address();
        Self { server, process, address }
    }

    /// Connects a client to the endpoint of the server.
    fn passthrough_client(&self) -> Client {
        Client::connect(self.address, &passthrough_path("s"))
    }

    /// Connects a client to the endpoint that merges all servers.
    fn aggregate_client(&self) -> Client {
        Client::connect(self.address, AGGREGATE_PATH)
    }
}

/// Waits until the bridge has started its own process of a server, so that it precedes the processes for clients.
fn wait_for_first_process(server: &ScriptedStdio) {
    eventually("the bridge has started the server", || !server.started().is_empty());
}

/// Endpoint of one server.
fn passthrough_path(name: &str) -> String {
    format!("/servers/{name}/mcp")
}

/// Parameters of `tools/call`.
fn call(tool: &str, arguments: &Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Peak resident memory of a process in MB.
fn peak_mb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
