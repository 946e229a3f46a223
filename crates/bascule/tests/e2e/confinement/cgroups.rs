//! Memory limits that control groups enforce, measured by the kernel's own counters. `memory` tests the watchdog, which
//! enforces them where no control group can be created.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, User};
use super::limits::check_limit;
use super::memory::SIX_PROCESSES;
use crate::support::{CommandOutput, TIMEOUT, cgroups_of};

/// In MB.
const LIMIT: u64 = 200;
/// Highest accepted peak, in percent of the limit.
const MAX_PEAK_PERCENT: u64 = 110;
/// On a busy machine the counter may not be read near the peak. One round that sees it is enough.
const ROUNDS: usize = 5;

/// Returns true if `bascule check` reports control groups for servers; otherwise it must report that they are missing.
fn has_cgroups(hostile: &HostileServer) -> bool {
    let ran = CommandOutput::from(hostile.command(&["check", "--json"]).output().unwrap());
    let report = ran.document();
    let confinement = &report["servers"][0]["confinement"];
    assert!(confinement["inForce"].is_array(), "{report:#}");
    let in_force = confinement["inForce"].to_string();
    let has = ["memory of the whole tree (cgroup", "memory and tasks of the whole tree (cgroup"]
        .iter()
        .any(|protection| in_force.contains(protection));
    let missing = confinement["missing"].to_string();
    let is_explained = missing.contains("no control group can be created here")
        || in_force.contains("tasks of the whole tree (cgroup");
    assert!(has || is_explained, "{report:#}");
    has
}

/// Runs code that allocates too much. Returns the call's error and the peak memory of its group, in MB.
fn run_hog(hostile: &HostileServer, code: &str) -> (Value, u64) {
    let mut command = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string(), "--json"]);
    let mut bridge = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut peak, mut file, begin) = (0, None, Instant::now());
    while bridge.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < TIMEOUT, "the command does not end");
        // The first group is a trial, which is removed soon.
        file = file.filter(|file: &PathBuf| file.exists()).or_else(|| peak_file(bridge.id()));
        let read = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        peak = peak.max(read.map_or(0, |text| text.trim().parse::<u64>().unwrap() >> 20));
        std::thread::sleep(Duration::from_millis(1));
    }
    let ran = CommandOutput::from(bridge.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    (ran.document()["error"].clone(), peak)
}

/// The file with the peak memory of a group, in either version.
fn peak_file(bridge: u32) -> Option<PathBuf> {
    let files = cgroups_of(bridge)
        .into_iter()
        .flat_map(|group| [group.join("memory.max_usage_in_bytes"), group.join("memory.peak")]);
    files.into_iter().find(|file| file.exists())
}

/// The server dies, the error contains `detail`, and the group stayed within the limit.
fn check_hog(settings: Value, code: &str, detail: &str, label: &str) {
    let hostile = HostileServer::new(User::Current, settings);
    if !has_cgroups(&hostile) {
        // The watchdog enforces the same limit; `memory` tests how closely.
        let (error, _) = run_hog(&hostile, code);
        return check_limit(&error, "`maxMemoryMb`", "");
    }
    for _ in 0..ROUNDS {
        let (error, peak) = run_hog(&hostile, code);
        println!("{label}: peak {peak} MB, limit {LIMIT} MB: {}", error["limit"]);
        check_limit(&error, "`maxMemoryMb`", detail);
        assert!(peak <= LIMIT * MAX_PEAK_PERCENT / 100, "{label}: {peak} MB of {LIMIT}");
        if peak >= LIMIT / 4 {
            return;
        }
    }
    panic!("{label}: no round saw the peak");
}

fn python() -> Value {
    json!({ "limits": { "maxMemoryMb": LIMIT } })
}

fn node() -> Value {
    json!({ "command": "node", "args": ["server.mjs"], "limits": { "maxMemoryMb": LIMIT } })
}

// req: SB-02, SB-03
#[test]
fn node_server_in_cgroup_stays_within_limit() {
    check_hog(node(), "const held = []; for (;;) held.push(new Array(1e5).fill({}));", "", "node, objects");
    check_hog(node(), "const held = []; for (;;) held.push(Buffer.alloc(1 << 20, 1));", "", "node, buffers");
}

// req: SB-02, SB-03
#[test]
fn python_server_in_cgroup_stays_within_limit() {
    let code = "held = []
try:
    while True: held.append(b'x' * (1 << 20))
except MemoryError as e: print(repr(e), file=sys.stderr, flush=True); os._exit(1)";
    check_hog(python(), code, "", "python");
}

// req: SB-02, SB-03
#[test]
fn shared_memory_counts_in_cgroup() {
    let code = "import mmap\nheld = []\nfor _ in range(1000): held.append(mmap.mmap(-1, 1 << 20)); held[-1].write(b'x' * (1 << 20))";
    check_hog(python(), code, "cgroup", "python, shared memory");
}

// req: SB-02, SB-03
#[test]
fn processes_in_cgroup_count_together() {
    check_hog(python(), SIX_PROCESSES, "cgroup", "python, six processes");
}
