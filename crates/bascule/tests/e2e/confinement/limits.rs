//! Limits on memory and processes: who goes beyond is ended and told so, who stays within is left alone.

use std::time::Duration;

use serde_json::{Value, json};

use super::hostile::{Hostile, users};
use crate::support::CommandOutput;

/// The normalised error of a call that must fail.
fn error(hostile: &Hostile, code: &str) -> Value {
    let arguments = json!({ "code": code }).to_string();
    let ran =
        CommandOutput::from(hostile.command(&["call", "h:try", &arguments, "--json"]).output().unwrap());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    ran.document()["error"].clone()
}

pub fn check_limit(error: &Value, limit: &str, how: &str) {
    let said = error["limit"].as_str().unwrap_or_default();
    assert_eq!(error["code"], "PROVIDER_CRASHED", "{error:#}");
    assert!(said.contains(limit) && said.contains(how), "{error:#}");
}

/// Grows in children, a little in each, so that no process alone is over its limit.
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
fn a_tree_that_is_over_its_memory_is_ended_and_told_so() {
    for user in users() {
        let hostile = Hostile::new(user, json!({ "limits": { "maxMemoryMb": 128 } }));
        let error = error(&hostile, TREE);
        check_limit(&error, "`maxMemoryMb` exceeded", "");
        assert_eq!(error["exit"], "signal 9, SIGKILL");
        // Between two looks it may grow on: by a quarter at the most, as slowly as it grows.
        let used: u64 =
            error["limit"].as_str().unwrap().split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!((128..=160).contains(&used), "{used} MB of 128");
    }
}

// req: SB-02
#[test]
fn much_too_much_at_once_is_refused_and_the_server_lives() {
    for user in users() {
        let hostile = Hostile::new(user, json!({ "limits": { "maxMemoryMb": 128 } }));
        let failed = hostile.attempt("held = bytearray(400 << 20)").unwrap_err();
        // Not ended: a server can tell its caller that this was too much.
        assert!(failed.starts_with("MemoryError"), "{failed}");
    }
}

// req: SB-02, SB-03
#[test]
fn a_fork_bomb_is_ended_and_told_so() {
    let bomb = "
import time
while True:
    try: pid = os.fork()
    except OSError: time.sleep(0.01); continue
    if pid == 0: time.sleep(600)
";
    for user in users() {
        let hostile = Hostile::new(user, json!({ "limits": { "maxProcesses": 40, "maxMemoryMb": 2000 } }));
        check_limit(&error(&hostile, bomb), "`maxProcesses` exceeded", "");
    }
}

// req: SB-02
#[test]
fn memory_that_a_fork_shares_is_counted_once() {
    let code = "import time; held = os.urandom(70 << 20)\npid = os.fork()\nif pid == 0: time.sleep(600)\ntime.sleep(0.5); os.kill(pid, 9); os.wait(); print('fine')";
    for user in users() {
        let hostile = Hostile::new(user, json!({ "limits": { "maxMemoryMb": 128 } }));
        assert_eq!(hostile.may(code), "fine");
    }
}

// req: SB-03
#[test]
fn a_server_within_its_limits_is_left_alone() {
    let pause = Duration::from_millis(600).as_secs_f64();
    let code = format!(
        "import subprocess, time; held = os.urandom(70 << 20); subprocess.run(['sleep', '{pause}']); print('fine')"
    );
    for user in users() {
        let hostile = Hostile::new(user, json!({ "limits": { "maxMemoryMb": 128, "maxProcesses": 10 } }));
        assert_eq!(hostile.may(&code), "fine");
    }
}
