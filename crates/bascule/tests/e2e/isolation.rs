//! `isolation: "per-call"`: each call has its own process, also for remote servers.

#![allow(clippy::print_stdout, reason = "measurements, shown with `--nocapture`")]

mod many_calls;
mod per_call;
mod relay;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use bascule::McpBridgeAdapter;
use serde_json::{Value, json};

use crate::embedded::confined;
use crate::support::{children, demo_server, is_running};

/// The environment variable that identifies a server's processes.
const MARK: &str = "BASCULE_TEST_MARK";

/// A bridge with a demo server `s` in per-call isolation, and the mark of its processes. `settings` extend its entry.
async fn isolated(demo: &str, settings: Value) -> (McpBridgeAdapter, String) {
    isolated_entry(demo_server(demo), settings).await
}

/// Like `isolated`, with a server that runs any Python.
async fn isolated_python(settings: Value) -> (McpBridgeAdapter, String) {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/hostile.py");
    isolated_entry(json!({ "command": "python3", "args": [server] }), settings).await
}

async fn isolated_entry(mut entry: Value, settings: Value) -> (McpBridgeAdapter, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    entry["isolation"] = "per-call".into();
    entry["env"] = json!({ MARK: mark });
    entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    (confined(json!({ "s": entry })).await, mark)
}

/// The processes with a mark, jails included.
fn marked(mark: &str) -> Vec<u32> {
    let mark = format!("{MARK}={mark}");
    let has_mark = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_mark).filter(|pid| is_running(*pid)).collect()
}

/// The jails with a mark: one for each server process.
fn jails(mark: &str) -> Vec<u32> {
    // After a jail forks, both processes have its command line until one of them executes the server.
    let pids = with_command(mark, |command| command.split(|byte| *byte == 0).nth(1) == Some(b"__jail"));
    let below: Vec<u32> = pids.iter().flat_map(|pid| children(*pid)).collect();
    pids.into_iter().filter(|pid| !below.contains(pid)).collect()
}

/// The demo servers with a mark.
fn servers(mark: &str) -> Vec<u32> {
    with_command(mark, |command| {
        command.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"/bascule-demo"))
    })
}

fn with_command(mark: &str, is_wanted: fn(&[u8]) -> bool) -> Vec<u32> {
    let command = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    marked(mark).into_iter().filter(|pid| is_wanted(&command(pid))).collect()
}
