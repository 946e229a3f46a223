//! Servers that are kept up: what a bridge that stays does when they are lost, stop listening, change or are replaced.
//!
//! Most of it happens in the test's own process (`listening`), where every event is heard; what belongs to the program
//! is asked of a running `bascule serve` (`serving`).

mod deafness;
mod door;
mod events;
mod held;
mod limits;
mod listening;
mod loss;
mod proxy;
mod reload;
mod remote;
mod retry;
mod serve;
pub mod serving;
mod starting;
mod tools;
mod watched;

use std::process::Command;

use serde_json::{Value, json};

/// An entry of a configuration which also says this.
fn with(mut entry: Value, also: Value) -> Value {
    entry.as_object_mut().unwrap().extend(also.as_object().unwrap().clone());
    entry
}

/// The same for a server that is brought back as soon as it is lost.
fn eager(entry: Value) -> Value {
    with(entry, json!({ "reconnectBackoffMs": 10 }))
}

/// A tool that may be called any number of times, by its own word.
fn harmless(name: &str, hint: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { hint: true } })
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
    assert!(sent.success(), "{pid} could not be sent {name}");
}

/// How often requests of this method arrived.
fn count(methods: &[String], method: &str) -> usize {
    methods.iter().filter(|own| *own == method).count()
}
