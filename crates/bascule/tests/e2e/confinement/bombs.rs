//! Fork bombs end with their server, whatever ends it, and starve no other process.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, quoted, users};
use super::limits::check_limit;
use crate::support::{CommandOutput, eventually};

/// Every form of `bomb.c`.
const FORMS: [&str; 7] = ["plain", "hop", "stubborn", "clone_parent", "vfork", "chain", "threads"];
/// A bomb of this size stays within the default limit of 128 processes, so that only the end of its server ends it.
const SMALL: u32 = 30;
/// A bomb of this size exceeds the limit.
const LARGE: u32 = 2000;
/// A bomb that is not killed ends by itself.
const SECONDS: u32 = 30;
/// The number of processes that a bomb has created when it counts as running.
const RUNNING: i32 = 100;

/// A home with a hostile server and the compiled bomb.
struct BombSite(HostileServer);

impl BombSite {
    fn new(hostile: HostileServer) -> Self {
        fs::copy(compiled_bomb(), hostile.path("work/bomb")).unwrap();
        Self(hostile)
    }

    /// Python that starts a bomb. Its zombies are not kept.
    fn start(&self, form: &str, max_live: u32) -> String {
        let bomb = quoted(&self.0.path("work/bomb"));
        format!(
            "import signal, subprocess, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([{bomb}, '{form}', '{max_live}', '{SECONDS}'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"
        )
    }

    fn call(&self, code: &str) -> Command {
        let mut command = self.0.command(&["call", "h:try", &json!({ "code": code }).to_string(), "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// `struct state` of the bomb.
    fn state(&self) -> [i32; 3] {
        let bytes = fs::read(self.0.path("work/state")).unwrap_or_default();
        let field = |index: usize| bytes.get(4 * index..4 * index + 4).map(|bytes| bytes.try_into().unwrap());
        [0, 1, 2].map(|index| field(index).map_or(0, i32::from_ne_bytes))
    }

    fn births(&self) -> i32 {
        self.state()[1]
    }

    fn wait_until_running(&self) {
        eventually("the bomb runs", || self.births() >= RUNNING);
    }

    /// Waits until no process of the bomb is left, and checks that it did not end by itself.
    fn expect_end(&self, label: &str) {
        let held = fs::File::open(self.0.path("work/held")).unwrap();
        eventually("no process of the bomb is left", || held.try_lock().is_ok());
        let [_, births, survived] = self.state();
        println!("{label}: {births} processes were born");
        assert!(births > 0, "{label}");
        assert_eq!(survived, 0, "{label}: the bomb ended by itself");
    }
}

fn compiled_bomb() -> PathBuf {
    static BOMB: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let bomb = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bomb-{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/confinement/bomb.c");
        let done = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&bomb).arg(source).status();
        assert!(done.expect("`cc` is installed").success());
        bomb
    };
    BOMB.get_or_init(compile).clone()
}

/// Runs a bomb within the limits, then kills the bridge with SIGKILL.
fn check_killed_bridge(form: &str, settings: &Value) {
    for user in users() {
        let site = BombSite::new(HostileServer::new(user, settings.clone()));
        let code = site.start(form, SMALL) + "time.sleep(600)";
        let mut bridge = site.call(&code).spawn().unwrap();
        site.wait_until_running();
        bridge.kill().unwrap();
        bridge.wait().unwrap();
        site.expect_end(&format!("{form} as {user:?}"));
        eventually("no process is left", || site.0.processes().is_empty());
    }
}

// req: BR-11, SB-05, SB-08
#[test]
fn plain_bomb_ends_with_killed_bridge() {
    check_killed_bridge("plain", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_of_double_forks_ends_with_killed_bridge() {
    check_killed_bridge("hop", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_that_blocks_signals_ends_with_killed_bridge() {
    check_killed_bridge("stubborn", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_of_siblings_ends_with_killed_bridge() {
    check_killed_bridge("clone_parent", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_by_vfork_ends_with_killed_bridge() {
    check_killed_bridge("vfork", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_whose_processes_live_a_moment_ends_with_killed_bridge() {
    check_killed_bridge("chain", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_of_threads_ends_with_killed_bridge() {
    check_killed_bridge("threads", &json!({}));
}

// req: BR-11, SB-05, SB-08
#[test]
fn unconfined_bomb_ends_with_killed_bridge() {
    check_killed_bridge("hop", &json!({ "sandbox": "off" }));
    check_killed_bridge("threads", &json!({ "sandbox": "off" }));
}

// req: SB-02, SB-03, SB-08
#[test]
fn bomb_over_process_limit_is_killed_and_reported() {
    for user in users() {
        for form in FORMS {
            let site = BombSite::new(HostileServer::new(user, json!({})));
            let ran = site.call(&(site.start(form, LARGE) + "time.sleep(600)")).output().unwrap();
            let ran = CommandOutput::from(ran);
            assert_eq!(ran.code, Some(3), "{ran:?}");
            check_limit(&ran.document()["error"], "`maxProcesses` exceeded", "the limit is 128");
            site.expect_end(&format!("{form} as {user:?}"));
            let [_, births, _] = site.state();
            assert!(form == "chain" || births < LARGE as i32, "{form} as {user:?}: {births} were born");
        }
    }
}

/// Python that waits until the bomb runs.
const WAIT: &str = "
import struct
while len(state := open('state', 'rb').read()) < 12 or struct.unpack('3i', state)[1] < 100: time.sleep(0.01)
";

/// Starts a small bomb, runs `then` in the server, and expects that all has ended with the command.
fn check_end_of_command(form: &str, then: &str, code: i32) {
    for user in users() {
        let site = BombSite::new(HostileServer::new(user, json!({})));
        // The file must exist before it is read.
        fs::write(site.0.path("work/state"), "").unwrap();
        fs::write(site.0.path("work/held"), "").unwrap();
        site.0.configure(&json!({ "h": {} }));
        let ran = site.call(&format!("{}{WAIT}{then}", site.start(form, SMALL))).output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{form} as {user:?}: {ran:?}");
        site.expect_end(&format!("{form} as {user:?}"));
        // Checked immediately: the command must not end before the processes do.
        assert_eq!(site.0.processes(), [] as [u32; 0], "{form} as {user:?}");
    }
}

// req: BR-11, SB-05, SB-08
#[test]
fn bomb_ends_with_stopped_server() {
    check_end_of_command("hop", "", 0);
    check_end_of_command("stubborn", "", 0);
}

// req: SB-05, SB-08
#[test]
fn bomb_ends_with_crashed_server() {
    check_end_of_command("hop", "os.abort()", 3);
    check_end_of_command("chain", "os._exit(1)", 3);
}

// req: SB-05, SB-08
#[test]
fn bomb_that_starts_after_server_closed_its_pipes_ends_with_server() {
    for user in users() {
        let site = BombSite::new(HostileServer::new(user, json!({})));
        // The bomb is a grandchild's, which waits for the end of its own pipe from the server.
        let code = format!(
            "
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() > 0: os._exit(0)
    os.close(w)
    os.read(r, 1)
    os.closerange(0, 3)
    {}
    os._exit(0)
import time
os.close(r)
os.closerange(0, 3)
os.close(w)
time.sleep(600)",
            site.start("hop", SMALL).trim_end().replace('\n', "\n    ")
        );
        let ran = site.call(&code).output().unwrap();
        assert_eq!(ran.status.code(), Some(3), "as {user:?}: {ran:?}");
        site.expect_end(&format!("as {user:?}"));
        assert_eq!(site.0.processes(), [] as [u32; 0], "as {user:?}");
    }
}

// req: BR-13, SB-05, SB-08
#[test]
fn bomb_ends_with_server_that_reload_removes() {
    for user in users() {
        let site = BombSite::new(HostileServer::new(user, json!({})));
        let mut serve = site.0.command(&["serve", "--auth", "none", "--listen", "127.0.0.1:0"]);
        let mut serve = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the bridge serves", || site.0.command(&["status"]).output().unwrap().status.success());
        assert!(site.call(&site.start("hop", SMALL)).output().unwrap().status.success());
        site.wait_until_running();
        site.0.configure(&json!({ "other": {} }));
        site.expect_end(&format!("as {user:?}"));
        assert!(serve.try_wait().unwrap().is_none(), "the bridge has ended");
        serve.kill().unwrap();
        serve.wait().unwrap();
        eventually("no process is left", || site.0.processes().is_empty());
    }
}

// req: SB-02
#[test]
fn threads_are_limited() {
    let code = "
import threading, time
threading.stack_size(64 << 10)
started = 0
try:
    while started < 1000: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); started += 1
except RuntimeError: pass
print(started)";
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxProcesses": 10 } }));
        // 16 for each process. Without a control group the kernel counts all threads of the user, and other tests start and end
        // some meanwhile.
        let mut rounds: Vec<u32> = Vec::new();
        while !rounds.last().is_some_and(|started| (100..=160).contains(started)) {
            assert!(rounds.len() < 5 && !rounds.contains(&1_000), "as {user:?}: {rounds:?}");
            rounds.push(hostile.expect_ok(code).parse().unwrap());
        }
    }
}

/// Computes in small units until `stop` is set.
fn work(units: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut value = units.fetch_add(1, Ordering::Relaxed);
        for _ in 0..10_000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Sets the flag also if the test fails: the thread that reads it must end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// req: SB-08, BR-12
#[test]
fn bomb_does_not_starve_other_process() {
    for user in users() {
        for form in ["plain", "hop"] {
            let site = BombSite::new(HostileServer::new(user, json!({})));
            let (units, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| work(&units, &stop));
                let _stop = StopOnDrop(&stop);
                // Counted from here: a bomb may end before a test sees it begin. One that nothing stops has millions of births.
                let before = units.load(Ordering::Relaxed);
                let mut call = site.call(&(site.start(form, LARGE) + "time.sleep(600)")).spawn().unwrap();
                eventually("the bomb begins", || site.births() > 0);
                site.expect_end(&format!("{form} as {user:?}"));
                let done = units.load(Ordering::Relaxed) - before;
                call.wait().unwrap();
                let births = u64::try_from(site.births()).unwrap();
                println!("{form} as {user:?}: {done} units of work beside {births} processes");
                assert!(done * 100 >= births, "{form} as {user:?}: {done} units beside {births} processes");
            });
        }
    }
}
