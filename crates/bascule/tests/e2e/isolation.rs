//! `isolation: "per-call"`: a process for each call, also where the server itself is far away.

#![allow(clippy::print_stdout, reason = "figures that are seen are worth a look: `--nocapture`")]

mod calls;
mod many;
mod remote;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use bascule::McpBridgeAdapter;
use serde_json::{Value, json};

use crate::embedded::confined;
use crate::support::{children, demo_server, is_running};

/// The variable by which a server's processes are known.
const MARK: &str = "BASCULE_TEST_MARK";

/// A bridge with one server `s`, a demo, whose calls each have a process, and a mark that all its processes bear.
async fn isolated(demo: &str, also: Value) -> (McpBridgeAdapter, String) {
    isolated_as(demo_server(demo), also).await
}

/// The same with a server that runs any Python.
async fn isolated_python(also: Value) -> (McpBridgeAdapter, String) {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/hostile.py");
    isolated_as(json!({ "command": "python3", "args": [server] }), also).await
}

async fn isolated_as(mut entry: Value, also: Value) -> (McpBridgeAdapter, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    entry["isolation"] = "per-call".into();
    entry["env"] = json!({ MARK: mark });
    entry.as_object_mut().unwrap().extend(also.as_object().unwrap().clone());
    (confined(json!({ "s": entry })).await, mark)
}

/// The processes that bear a mark, jails included.
fn marked(mark: &str) -> Vec<u32> {
    let mark = format!("{MARK}={mark}");
    let bears = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(bears).filter(|pid| is_running(*pid)).collect()
}

/// Of those, the jails: one for each process that was started.
fn jails(mark: &str) -> Vec<u32> {
    // Where a jail splits in two, both look like it until one of them becomes the server.
    let pids = called(mark, |command| command.split(|byte| *byte == 0).nth(1) == Some(b"__jail"));
    let below: Vec<u32> = pids.iter().flat_map(|pid| children(*pid)).collect();
    pids.into_iter().filter(|pid| !below.contains(pid)).collect()
}

/// Of those, the demo servers.
fn servers(mark: &str) -> Vec<u32> {
    called(mark, |command| {
        command.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"/bascule-demo"))
    })
}

fn called(mark: &str, is_wanted: fn(&[u8]) -> bool) -> Vec<u32> {
    let command = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    marked(mark).into_iter().filter(|pid| is_wanted(&command(pid))).collect()
}
