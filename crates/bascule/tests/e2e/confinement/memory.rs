//! Memory limits of Node and Python servers, measured from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::hostile_server::{HostileServer, User, users};
use super::limits::check_limit;
use crate::support::{CommandOutput, TIMEOUT, children, text};

/// In MB.
const LIMIT: u64 = 200;
/// Highest accepted peak where only the watchdog enforces the limit, in percent of the limit. A busy machine delays it.
const MAX_PEAK_PERCENT: u64 = 150;

struct HogRun {
    output: CommandOutput,
    /// Highest memory of the server's tree that was measured, in MB.
    peak: u64,
}

impl HogRun {
    fn result(&self) -> String {
        text(&self.output.document()["result"])
    }
}

/// Runs code that allocates too much, and measures all processes until the command ends.
fn run_hog(hostile: &HostileServer, code: &str) -> HogRun {
    let mut command = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string(), "--json"]);
    let mut bridge = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut peak, begin) = (0, Instant::now());
    while bridge.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < TIMEOUT, "the command does not end");
        peak = peak.max(servers_kb(bridge.id()));
        std::thread::sleep(Duration::from_millis(2));
    }
    HogRun { output: CommandOutput::from(bridge.wait_with_output().unwrap()), peak: peak >> 10 }
}

/// Memory of all servers of a bridge, in kB. Shared memory counts once.
fn servers_kb(bridge: u32) -> u64 {
    let mut tree: Vec<u32> = children(bridge);
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(children(*pid));
        next += 1;
    }
    tree.into_iter().map(proportional_kb).sum()
}

/// A process's proportional share of memory that no file backs, in kB.
fn proportional_kb(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let of =
        |name: &str| rollup.lines().filter(|line| line.starts_with(name)).find_map(kilobytes).unwrap_or(0);
    of("Pss_Anon:") + of("Pss_Shmem:")
}

fn kilobytes(line: &str) -> Option<u64> {
    line.split_whitespace().nth(1)?.parse().ok()
}

fn check_peak(run: &HogRun, label: &str) {
    println!("{label}: peak {} MB, limit {LIMIT} MB", run.peak);
    assert!(run.peak <= LIMIT * MAX_PEAK_PERCENT / 100, "{label}: {} MB of {LIMIT}", run.peak);
    assert!(
        run.peak > LIMIT / 20,
        "{label}: only {} MB were measured: the code did not run, or was not observed",
        run.peak
    );
}

fn node(user: User) -> HostileServer {
    let limits = json!({ "maxMemoryMb": LIMIT });
    HostileServer::new(user, json!({ "command": "node", "args": ["server.mjs"], "limits": limits }))
}

fn python(user: User) -> HostileServer {
    HostileServer::new(user, json!({ "limits": { "maxMemoryMb": LIMIT } }))
}

/// The server dies, the error names the limit, and the tree stayed within it.
fn check_hog(hostile: &HostileServer, code: &str, label: &str) {
    let run = run_hog(hostile, code);
    check_died(&run, label);
    check_peak(&run, label);
}

/// A server whose allocations fail may survive. A control group does not refuse memory, but kills it at the limit.
fn check_refused_or_killed(run: &HogRun, result: &str, label: &str) {
    match run.output.code {
        Some(0) => assert_eq!(run.result(), result, "{label}"),
        _ => check_died(run, label),
    }
    check_peak(run, label);
}

fn check_died(run: &HogRun, label: &str) {
    assert_eq!(run.output.code, Some(3), "{label}: {:?}", run.output);
    check_limit(&run.output.document()["error"], "`maxMemoryMb`", "");
}

// req: SB-02, SB-03
#[test]
fn node_server_that_hoards_objects_dies_within_limit() {
    let code = "const held = []; for (;;) held.push(new Array(1e5).fill({}));";
    for user in users() {
        check_hog(&node(user), code, "node, objects");
    }
}

// req: SB-02, SB-03
#[test]
fn node_server_that_hoards_buffers_dies_within_limit() {
    let code = "const held = []; for (;;) held.push(Buffer.alloc(1 << 20, 1));";
    for user in users() {
        check_hog(&node(user), code, "node, buffers");
    }
}

// req: SB-02, SB-03
#[test]
fn node_server_that_retries_small_allocations_dies_within_limit() {
    // Small pieces leave no memory for Node itself in the end.
    let code = "const held = []; for (;;) try { held.push(Buffer.alloc(1 << 16, 1)); } catch (refused) {}";
    for user in users() {
        check_hog(&node(user), code, "node, buffers again and again");
    }
}

// req: SB-02
#[test]
fn node_server_that_catches_failed_allocations_stays_within_limit() {
    let code = "const held = []; let refused = 0;
        while (refused < 20) try { held.push(Buffer.alloc(16 << 20, 1)); } catch (e) { refused++; }
        return `${held.length > 0} ${refused}`;";
    for user in users() {
        let run = run_hog(&node(user), code);
        check_refused_or_killed(&run, "true 20", "node, large buffers again and again");
    }
}

/// Python that allocates until it fails.
const HOARD: &str = "held = []\nwhile True: held.append(b'x' * (1 << 20))";

// req: SB-02, SB-03
#[test]
fn python_server_that_hoards_dies_within_limit() {
    // `hostile.py` returns an exception as a result. Most servers would exit without memory, so this code does.
    let code = format!(
        "try:\n    exec({HOARD:?})\nexcept MemoryError as e: print(repr(e), file=sys.stderr, flush=True); os._exit(1)"
    );
    for user in users() {
        check_hog(&python(user), &code, "python");
    }
}

// req: SB-02
#[test]
fn python_server_that_catches_failed_allocations_stays_within_limit() {
    let code = format!(
        "for _ in range(20):\n    try: exec({HOARD:?})\n    except MemoryError: pass\nprint('alive')"
    );
    for user in users() {
        let run = run_hog(&python(user), &code);
        check_refused_or_killed(&run, "alive", "python, again and again");
    }
}

// req: SB-02, SB-03
#[test]
fn process_tree_over_limit_dies() {
    // No single process is over the limit, and the growth between two checks of the watchdog depends on the machine: the peak
    // is printed, not checked.
    for user in users() {
        let run = run_hog(&python(user), SIX_PROCESSES);
        check_died(&run, "python, six processes");
        println!("python, six processes: peak {} MB, limit {LIMIT} MB", run.peak);
    }
}

// req: SB-02, SB-03
#[test]
fn shared_memory_counts() {
    let code = "import mmap\nheld = []\nfor _ in range(1000): held.append(mmap.mmap(-1, 1 << 20)); held[-1].write(b'x' * (1 << 20))";
    for user in users() {
        check_hog(&python(user), code, "python, shared memory");
    }
}

/// Starts six processes, each of which allocates half of the limit. All begin at the same time.
pub(super) const SIX_PROCESSES: &str = "import time
r, w = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        os.close(w); os.read(r, 1)
        held = [b'x' * (1 << 20) for _ in range(100)]
        time.sleep(600)
os.close(r); os.close(w); time.sleep(600)";

/// A package manager that keeps much memory while it waits for the server.
const LAUNCHER: &str = "#!/usr/bin/python3
import subprocess
held = b'x' * (300 << 20)
subprocess.run(['/usr/bin/python3', 'server.py'])
";

fn launched(user: User, launcher: &str) -> HostileServer {
    let hostile = HostileServer::new(user, json!({ "limits": { "maxMemoryMb": LIMIT } }));
    let program = hostile.path(launcher);
    fs::write(&program, LAUNCHER).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    hostile.configure(&json!({
        "h": { "command": program, "args": [], "limits": { "maxMemoryMb": LIMIT } },
    }));
    hostile
}

// req: SB-02, US-05
#[test]
fn memory_of_package_manager_does_not_count() {
    for user in users() {
        let hostile = launched(user, "npx");
        // Long enough for the watchdog to look.
        assert_eq!(hostile.expect_ok("import time; time.sleep(0.5); print('alive')"), "alive");
        let run = run_hog(&hostile, "held = []\nwhile True: held.append(b'x' * (1 << 20))");
        check_refused_or_killed_by_limit(&run);
    }
}

/// Python reports a refused allocation as a `MemoryError`.
fn check_refused_or_killed_by_limit(run: &HogRun) {
    match run.output.code {
        Some(1) => assert!(run.result().contains("MemoryError"), "{:?}", run.output),
        _ => check_died(run, "server of a package manager"),
    }
    assert!(run.peak <= (300 + LIMIT) * MAX_PEAK_PERCENT / 100, "{} MB", run.peak);
}

// req: SB-02
#[test]
fn memory_of_another_launcher_counts() {
    for user in users() {
        let hostile = launched(user, "launcher");
        let run = run_hog(&hostile, "import time; time.sleep(60)");
        assert!(run.output.stdout.contains("`maxMemoryMb` exceeded"), "{:?}", run.output);
    }
}
