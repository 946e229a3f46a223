//! The bridge as an MCP server, from the clients' side: every byte that they send and get is the test's own.

#![allow(clippy::print_stdout, reason = "figures that are seen are worth a look: `--nocapture`")]

pub mod client;
mod crowd;
mod errors;
mod fuzz;
mod loss;
mod names;
mod pipe;
mod questions;
mod routing;
mod safety;
mod sessions;
mod strangers;
mod whose;

use std::net::SocketAddr;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use crate::fleet::serving::Serving;
use crate::support::eventually;
use client::Client;

/// All servers together.
const TOGETHER: &str = "/mcp";

/// A bridge with one scripted server, `s`.
struct Bridge {
    server: ScriptedStdio,
    serving: Serving,
    address: SocketAddr,
}

impl Bridge {
    fn of(script: Script) -> Self {
        Self::with(script, json!({}))
    }

    /// The server's entry also says this.
    fn with(script: Script, also: Value) -> Self {
        let server = ScriptedStdio::new(script);
        let serving = Serving::start(json!({ "s": extended(server.entry(), also) }));
        has_begun(&server);
        let address = serving.address();
        Self { server, serving, address }
    }

    /// A client of the server alone.
    fn alone(&self) -> Client {
        Client::begin(self.address, &alone("s"))
    }

    fn together(&self) -> Client {
        Client::begin(self.address, TOGETHER)
    }
}

/// Waits for the bridge's own process: else a client's could be the first, and the bridge's own the last.
fn has_begun(server: &ScriptedStdio) {
    eventually("the bridge's own process is there", || !server.started().is_empty());
}

/// The place of one server.
fn alone(name: &str) -> String {
    format!("/servers/{name}/mcp")
}

fn extended(mut entry: Value, also: Value) -> Value {
    entry.as_object_mut().unwrap().extend(also.as_object().unwrap().clone());
    entry
}

/// The parameters of a call.
fn call(tool: &str, arguments: &Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The most that a process ever held in memory, in MB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
