//! Memory and process limits: a server over a limit is killed and the error names it; others are not affected.

use std::time::Duration;

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, users};
use crate::support::CommandOutput;

/// The normalised error of a call that must fail.
fn error(hostile: &HostileServer, code: &str) -> Value {
    let arguments = json!({ "code": code }).to_string();
    let ran =
        CommandOutput::from(hostile.command(&["call", "h:try", &arguments, "--json"]).output().unwrap());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    ran.document()["error"].clone()
}

pub fn check_limit(error: &Value, limit: &str, detail: &str) {
    let reported = error["limit"].as_str().unwrap_or_default();
    assert_eq!(error["code"], "PROVIDER_CRASHED", "{error:#}");
    assert!(reported.contains(limit) && reported.contains(detail), "{error:#}");
}

/// Grows in six children, so that no single process is over the limit.
const TREE: &str = "
import time
for _ in range(6):
    if os.fork() == 0:
        held = []
        for _ in range(40):
            held.append(os.urandom(1 << 20))
            time.sleep(0.2)
        time.sleep(600)
time.sleep(600)
";

// req: SB-02, SB-03
#[test]
fn tree_over_memory_limit_is_killed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxMemoryMb": 128 } }));
        let error = error(&hostile, TREE);
        check_limit(&error, "`maxMemoryMb` exceeded", "");
        assert_eq!(error["exit"], "signal 9, SIGKILL");
        // Between two checks it may grow: at this speed by a quarter at most.
        let used: u64 =
            error["limit"].as_str().unwrap().split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!((128..=160).contains(&used), "{used} MB of 128");
    }
}

// req: SB-02
#[test]
fn server_survives_refused_allocation() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxMemoryMb": 128 } }));
        let failed = hostile.attempt("held = bytearray(400 << 20)").unwrap_err();
        // The server is not killed and can report the failed allocation.
        assert!(failed.starts_with("MemoryError"), "{failed}");
    }
}

// req: SB-02, SB-03
#[test]
fn fork_bomb_is_killed() {
    let bomb = "
import time
while True:
    try: pid = os.fork()
    except OSError: time.sleep(0.01); continue
    if pid == 0: time.sleep(600)
";
    for user in users() {
        let hostile =
            HostileServer::new(user, json!({ "limits": { "maxProcesses": 40, "maxMemoryMb": 2000 } }));
        check_limit(&error(&hostile, bomb), "`maxProcesses` exceeded", "");
    }
}

// req: SB-02
#[test]
fn memory_shared_by_fork_counts_once() {
    let code = "import time; held = os.urandom(70 << 20)\npid = os.fork()\nif pid == 0: time.sleep(600)\ntime.sleep(0.5); os.kill(pid, 9); os.wait(); print('fine')";
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxMemoryMb": 128 } }));
        assert_eq!(hostile.expect_ok(code), "fine");
    }
}

// req: SB-03
#[test]
fn server_within_limits_is_not_affected() {
    let pause = Duration::from_millis(600).as_secs_f64();
    let code = format!(
        "import subprocess, time; held = os.urandom(70 << 20); subprocess.run(['sleep', '{pause}']); print('fine')"
    );
    for user in users() {
        let hostile =
            HostileServer::new(user, json!({ "limits": { "maxMemoryMb": 128, "maxProcesses": 10 } }));
        assert_eq!(hostile.expect_ok(&code), "fine");
    }
}
