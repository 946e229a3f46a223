//! Servers that go for memory, in Node and in Python, and how much of it they were seen to get.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::hostile::{Hostile, User, users};
use super::limits::check_limit;
use crate::support::{CommandOutput, TIMEOUT, children, text};

/// In MB: what the hogs may have.
const LIMIT: u64 = 200;
/// How far above its limit a tree may be seen where only the watchdog keeps it, in hundredths.
const SLACK: u64 = 125;

/// What a call came to, and the most that the server's tree was seen to hold at once, in MB.
struct Eaten {
    ran: CommandOutput,
    peak: u64,
}

impl Eaten {
    fn said(&self) -> String {
        text(&self.ran.document()["result"])
    }
}

/// Has a hog run this, and looks at all its processes until the command ends.
fn feed(hostile: &Hostile, code: &str) -> Eaten {
    let mut command = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string(), "--json"]);
    let mut bridge = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut peak, begin) = (0, Instant::now());
    while bridge.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < TIMEOUT, "the command does not end");
        peak = peak.max(held_below(bridge.id()));
        std::thread::sleep(Duration::from_millis(2));
    }
    Eaten { ran: CommandOutput::from(bridge.wait_with_output().unwrap()), peak: peak >> 10 }
}

/// What the servers of a bridge hold together, in kB. What several processes share counts once.
fn held_below(bridge: u32) -> u64 {
    let mut tree: Vec<u32> = children(bridge);
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(children(*pid));
        next += 1;
    }
    tree.into_iter().map(held_by).sum()
}

/// A process's share of memory that is no file's, in kB.
fn held_by(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let of =
        |name: &str| rollup.lines().filter(|line| line.starts_with(name)).find_map(kilobytes).unwrap_or(0);
    of("Pss_Anon:") + of("Pss_Shmem:")
}

fn kilobytes(line: &str) -> Option<u64> {
    line.split_whitespace().nth(1)?.parse().ok()
}

fn check_peak(eaten: &Eaten, who: &str) {
    println!("{who}: {} MB at the most, {LIMIT} allowed", eaten.peak);
    assert!(eaten.peak <= LIMIT * SLACK / 100, "{who}: {} MB of {LIMIT}", eaten.peak);
    assert!(
        eaten.peak > LIMIT / 20,
        "{who}: only {} MB were seen: it did not eat, or we did not look",
        eaten.peak
    );
}

fn node(user: User) -> Hostile {
    let limits = json!({ "maxMemoryMb": LIMIT });
    Hostile::new(user, json!({ "command": "node", "args": ["server.mjs"], "limits": limits }))
}

fn python(user: User) -> Hostile {
    Hostile::new(user, json!({ "limits": { "maxMemoryMb": LIMIT } }))
}

/// The hog dies of it, the call tells which limit it met, and the limit was kept.
fn check_hog(hostile: &Hostile, code: &str, who: &str) {
    let eaten = feed(hostile, code);
    check_died(&eaten, who);
    check_peak(&eaten, who);
}

/// A hog that is refused memory may live on; where memory is not refused but counted, it is ended at its limit.
fn check_refused_or_ended(eaten: &Eaten, said: &str, who: &str) {
    match eaten.ran.code {
        Some(0) => assert_eq!(eaten.said(), said, "{who}"),
        _ => check_died(eaten, who),
    }
    check_peak(eaten, who);
}

fn check_died(eaten: &Eaten, who: &str) {
    assert_eq!(eaten.ran.code, Some(3), "{who}: {:?}", eaten.ran);
    check_limit(&eaten.ran.document()["error"], "`maxMemoryMb`", "");
}

// req: SB-02, SB-03
#[test]
fn a_node_server_that_hoards_objects_dies_within_its_limit() {
    let code = "const held = []; for (;;) held.push(new Array(1e5).fill({}));";
    for user in users() {
        check_hog(&node(user), code, "node, objects");
    }
}

// req: SB-02, SB-03
#[test]
fn a_node_server_that_hoards_buffers_dies_within_its_limit() {
    let code = "const held = []; for (;;) held.push(Buffer.alloc(1 << 20, 1));";
    for user in users() {
        check_hog(&node(user), code, "node, buffers");
    }
}

// req: SB-02, SB-03
#[test]
fn a_node_server_that_goes_on_when_refused_dies_within_its_limit() {
    // Pieces so small that in the end there is no room left for Node's own.
    let code = "const held = []; for (;;) try { held.push(Buffer.alloc(1 << 16, 1)); } catch (refused) {}";
    for user in users() {
        check_hog(&node(user), code, "node, buffers again and again");
    }
}

// req: SB-02
#[test]
fn a_node_server_that_catches_every_refusal_stays_within_its_limit() {
    let code = "const held = []; let refused = 0;
        while (refused < 20) try { held.push(Buffer.alloc(16 << 20, 1)); } catch (e) { refused++; }
        return `${held.length > 0} ${refused}`;";
    for user in users() {
        let eaten = feed(&node(user), code);
        check_refused_or_ended(&eaten, "true 20", "node, large buffers again and again");
    }
}

/// Takes all it can get.
const HOARD: &str = "held = []\nwhile True: held.append(b'x' * (1 << 20))";

// req: SB-02, SB-03
#[test]
fn a_python_server_that_hoards_dies_within_its_limit() {
    // A tool's exception is its result; most servers end as this one does when there is no memory for more.
    let code = format!(
        "try:\n    exec({HOARD:?})\nexcept MemoryError as e: print(repr(e), file=sys.stderr, flush=True); os._exit(1)"
    );
    for user in users() {
        check_hog(&python(user), &code, "python");
    }
}

// req: SB-02
#[test]
fn a_python_server_that_catches_every_refusal_stays_within_its_limit() {
    let code = format!(
        "for _ in range(20):\n    try: exec({HOARD:?})\n    except MemoryError: pass\nprint('alive')"
    );
    for user in users() {
        let eaten = feed(&python(user), &code);
        check_refused_or_ended(&eaten, "alive", "python, again and again");
    }
}

// req: SB-02, SB-03
#[test]
fn a_tree_of_hogs_dies_of_its_limit() {
    // Each has half of what is allowed; all begin when all are there. No single process is over its limit, and what
    // they get together between two looks of the watchdog depends on the machine: the peak is told, not checked.
    let code = "import time
r, w = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        os.close(w); os.read(r, 1)
        held = [b'x' * (1 << 20) for _ in range(100)]
        time.sleep(600)
os.close(r); os.close(w); time.sleep(600)";
    for user in users() {
        let eaten = feed(&python(user), code);
        check_died(&eaten, "python, six processes");
        println!("python, six processes: {} MB at the most, {LIMIT} allowed", eaten.peak);
    }
}

// req: SB-02, SB-03
#[test]
fn memory_that_could_be_shared_counts_too() {
    let code = "import mmap\nheld = []\nfor _ in range(1000): held.append(mmap.mmap(-1, 1 << 20)); held[-1].write(b'x' * (1 << 20))";
    for user in users() {
        check_hog(&python(user), code, "python, shared memory");
    }
}
