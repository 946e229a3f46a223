//! Nothing survives: not the end of a command, not a crash, not the bridge's own violent death.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::hostile::{Hostile, quoted, users};
use crate::support::{eventually, is_running};

/// Starts a grandchild that leaves its session, a daemon by a double fork, and a child that ignores SIGTERM.
const LITTER: &str = "
import subprocess, signal
pids = [subprocess.Popen(['setsid', 'sleep', '600']).pid]
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0:
        for fd in range(0, 64):
            try: os.close(fd)
            except OSError: pass
        os.execvp('sleep', ['sleep', '600'])
    os.write(w, str(daemon).encode())
    os._exit(0)
os.wait()
pids.append(int(os.read(r, 20)))
pids.append(subprocess.Popen(['sh', '-c', 'trap : TERM; while :; do sleep 1; done']).pid)
";

fn litter_then(hostile: &Hostile, what: &str) -> String {
    let pids = quoted(&hostile.path("work/pids"));
    format!(
        "{LITTER}\nopen({pids} + '.new', 'w').write(' '.join(map(str, pids + [os.getpid()])))\nos.rename({pids} + '.new', {pids})\n{what}"
    )
}

/// The processes that were started, once they all are.
fn litter(hostile: &Hostile) -> Vec<u32> {
    let file = hostile.path("work/pids");
    eventually("the litter is there", || file.exists());
    let pids: Vec<u32> =
        fs::read_to_string(file).unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 4);
    pids
}

fn call(hostile: &Hostile, code: &str) -> Command {
    let mut command = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn all_are_gone(pids: &[u32]) {
    eventually(&format!("all of {pids:?} are gone"), || !pids.iter().any(|pid| is_running(*pid)));
}

// req: SB-05
#[test]
fn nothing_survives_the_end_of_a_command() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        assert!(call(&hostile, &litter_then(&hostile, "")).status().unwrap().success());
        // At once: the command must not end before they do.
        let left: Vec<u32> = litter(&hostile).into_iter().filter(|pid| is_running(*pid)).collect();
        assert_eq!(left, [] as [u32; 0], "as {user:?}");
    }
}

// req: SB-05
#[test]
fn nothing_survives_a_crash_of_the_server() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let crash = litter_then(&hostile, "os.abort()");
        assert_eq!(call(&hostile, &crash).status().unwrap().code(), Some(3));
        all_are_gone(&litter(&hostile));
    }
}

// req: BR-11, SB-05
#[test]
fn nothing_survives_when_the_bridge_is_killed() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let mut bridge: Child =
            call(&hostile, &litter_then(&hostile, "import time; time.sleep(600)")).spawn().unwrap();
        let pids = litter(&hostile);
        assert!(pids.iter().all(|pid| is_running(*pid)));
        bridge.kill().unwrap();
        bridge.wait().unwrap();
        all_are_gone(&pids);
    }
}

// req: SB-03
#[test]
fn the_end_of_a_confined_server_is_told_as_it_was() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        for (code, exit) in [("os._exit(7)", "exit code 7"), ("os.abort()", "signal 6, SIGABRT")] {
            let arguments =
                json!({ "code": format!("print('last words', file=sys.stderr, flush=True); {code}") });
            let ran = hostile.command(&["call", "h:try", &arguments.to_string(), "--json"]).output().unwrap();
            let document = crate::support::Ran::from(ran).document();
            let error = &document["error"];
            assert_eq!(
                (error["code"].as_str(), error["exit"].as_str()),
                (Some("PROVIDER_CRASHED"), Some(exit))
            );
            assert!(error["stderr"].as_str().unwrap().contains("last words"), "{error:#}");
        }
    }
}
