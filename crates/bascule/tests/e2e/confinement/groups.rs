//! Servers that go for memory where the kernel holds them in a control group: by its own count, none has more than
//! it may. Where there are no groups the watchdog is all there is, and `memory` tests that.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::hostile::{Hostile, User};
use super::limits::check_limit;
use crate::support::{CommandOutput, TIMEOUT, cgroups_of};

/// In MB: what the hogs may have.
const LIMIT: u64 = 200;
/// How far above that the kernel may have counted, in hundredths.
const SLACK: u64 = 110;
/// On a busy machine the count is not always looked at near the end: one good look of so many is enough.
const ROUNDS: usize = 5;

/// Whether servers get a control group here, as `bascule check` says; if not, says why nothing is tested.
fn has_groups(hostile: &Hostile) -> bool {
    let ran = CommandOutput::from(hostile.command(&["check", "--json"]).output().unwrap());
    let report = ran.document();
    let confinement = &report["servers"][0]["confinement"];
    assert!(confinement["inForce"].is_array(), "{report:#}");
    let has = confinement["inForce"].to_string().contains("memory of the whole tree (cgroup")
        || confinement["inForce"].to_string().contains("memory and tasks of the whole tree (cgroup");
    if !has {
        println!("skipped: no control group can be made here: {}", confinement["missing"]);
    }
    has
}

/// Has a hog run this. Gives the call's error and the most that the kernel counted for its group, in MB.
fn feed(hostile: &Hostile, code: &str) -> (Value, u64) {
    let mut command = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string(), "--json"]);
    let mut bridge = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut peak, mut file, begin) = (0, None, Instant::now());
    while bridge.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < TIMEOUT, "the command does not end");
        // The first is a trial, and soon gone.
        file = file.filter(|file: &PathBuf| file.exists()).or_else(|| peak_file(bridge.id()));
        let read = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        peak = peak.max(read.map_or(0, |text| text.trim().parse::<u64>().unwrap() >> 20));
        std::thread::sleep(Duration::from_millis(1));
    }
    let ran = CommandOutput::from(bridge.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    (ran.document()["error"].clone(), peak)
}

/// Where the kernel writes the most that a group ever had, in either version.
fn peak_file(bridge: u32) -> Option<PathBuf> {
    let files = cgroups_of(bridge)
        .into_iter()
        .flat_map(|group| [group.join("memory.max_usage_in_bytes"), group.join("memory.peak")]);
    files.into_iter().find(|file| file.exists())
}

/// The hog dies of it, the call tells which limit it met and how that is known, and the limit was kept.
fn check_hog(settings: Value, code: &str, how: &str, who: &str) {
    let hostile = Hostile::new(User::Ourselves, settings);
    if !has_groups(&hostile) {
        return;
    }
    for _ in 0..ROUNDS {
        let (error, peak) = feed(&hostile, code);
        println!("{who}: {peak} MB at the most, {LIMIT} allowed: {}", error["limit"]);
        check_limit(&error, "`maxMemoryMb`", how);
        assert!(peak <= LIMIT * SLACK / 100, "{who}: {peak} MB of {LIMIT}");
        if peak >= LIMIT / 4 {
            return;
        }
    }
    panic!("{who}: it was never seen to have much");
}

fn python() -> Value {
    json!({ "limits": { "maxMemoryMb": LIMIT } })
}

fn node() -> Value {
    json!({ "command": "node", "args": ["server.mjs"], "limits": { "maxMemoryMb": LIMIT } })
}

// req: SB-02, SB-03
#[test]
fn a_node_hog_in_a_group_has_what_it_may_and_no_more() {
    check_hog(node(), "const held = []; for (;;) held.push(new Array(1e5).fill({}));", "", "node, objects");
    check_hog(node(), "const held = []; for (;;) held.push(Buffer.alloc(1 << 20, 1));", "", "node, buffers");
}

// req: SB-02, SB-03
#[test]
fn a_python_hog_in_a_group_has_what_it_may_and_no_more() {
    let code = "held = []
try:
    while True: held.append(b'x' * (1 << 20))
except MemoryError as e: print(repr(e), file=sys.stderr, flush=True); os._exit(1)";
    check_hog(python(), code, "", "python");
}

// req: SB-02, SB-03
#[test]
fn in_a_group_memory_that_could_be_shared_counts_too() {
    let code = "import mmap\nheld = []\nfor _ in range(1000): held.append(mmap.mmap(-1, 1 << 20)); held[-1].write(b'x' * (1 << 20))";
    check_hog(python(), code, "cgroup", "python, shared memory");
}

// req: SB-02, SB-03
#[test]
fn in_a_group_all_processes_count_together() {
    // Each has half of what is allowed; all begin when all are there.
    let code = "import time
r, w = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        os.close(w); os.read(r, 1)
        held = [b'x' * (1 << 20) for _ in range(100)]
        time.sleep(600)
os.close(r); os.close(w); time.sleep(600)";
    check_hog(python(), code, "cgroup", "python, six processes");
}
