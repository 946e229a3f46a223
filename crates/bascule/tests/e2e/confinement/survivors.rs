//! Nothing survives: not the end of a command, not a crash, not the bridge's own violent death.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::hostile::{Hostile, quoted, users};
use crate::support::{CommandOutput, eventually, is_running};

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

/// Kills the bridge as violently as can be, and waits until nothing is left that it or its servers started.
fn kill_and_wait(hostile: &Hostile, mut bridge: Child) {
    let before = hostile.processes();
    bridge.kill().unwrap();
    let begin = Instant::now();
    bridge.wait().unwrap();
    eventually("nothing is left", || hostile.processes().is_empty());
    println!("{} processes were gone {:?} after the bridge", before.len(), begin.elapsed());
}

// req: BR-11, SB-05
#[test]
fn nothing_survives_when_the_bridge_is_killed() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let bridge = call(&hostile, &litter_then(&hostile, "import time; time.sleep(600)")).spawn().unwrap();
        let pids = litter(&hostile);
        assert!(pids.iter().all(|pid| is_running(*pid)));
        kill_and_wait(&hostile, bridge);
        all_are_gone(&pids);
    }
}

// req: BR-11, SB-05
#[test]
fn no_brood_survives_when_the_bridge_is_killed() {
    // Daemons, each in a session of its own, each with children and theirs.
    let brood = "
def daemon(depth):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if depth > 0: daemon(depth - 1); daemon(depth - 1)
            os.execvp('sleep', ['sleep', '600'])
        os._exit(0)
    os.wait()
for _ in range(5): daemon(2)
";
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let bridge = call(&hostile, &format!("{brood}\nimport time; time.sleep(600)")).spawn().unwrap();
        // The bridge, the jail, the server, and five times seven daemons.
        eventually("the brood is there", || hostile.processes().len() >= 3 + 35);
        kill_and_wait(&hostile, bridge);
    }
}

// req: BR-11, SB-05
#[test]
fn what_forks_without_end_does_not_survive_when_the_bridge_is_killed() {
    // Every process has a child and then ends, so that whoever looks sees others, or none. All hold one lock.
    let runner = "
import fcntl, time
held = open('held', 'w')
fcntl.flock(held, fcntl.LOCK_EX)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork() > 0: os._exit(0)
open('running', 'w').close()
time.sleep(600)
";
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let bridge = call(&hostile, runner).spawn().unwrap();
        eventually("they run", || hostile.path("work/running").exists());
        let held = fs::File::open(hostile.path("work/held")).unwrap();
        assert!(held.try_lock().is_err());
        kill_and_wait(&hostile, bridge);
        eventually("nobody holds the lock", || held.try_lock().is_ok());
    }
}

// req: BR-11, SB-05
#[test]
fn a_server_that_was_still_starting_does_not_survive_when_the_bridge_is_killed() {
    for user in users() {
        let script = "setsid sleep 600 & touch started; exec sleep 600";
        let hostile = Hostile::new(user, json!({ "command": "sh", "args": ["-c", script] }));
        let bridge = call(&hostile, "").spawn().unwrap();
        eventually("it starts", || hostile.path("work/started").exists());
        kill_and_wait(&hostile, bridge);
    }
}

/// Does not end when its stdin does, nor when it is asked to.
fn check_stubborn(settings: Value, code: &str) {
    for user in users() {
        let hostile = Hostile::new(user, settings.clone());
        let ran = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string()]).output().unwrap();
        let ran = CommandOutput::from(ran);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        // At once: the command must not end before the server does.
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
        let pid = ran.stdout.trim().parse().unwrap();
        assert!(!is_running(pid), "as {user:?}");
    }
}

// req: BR-11, SB-05
#[test]
fn a_server_that_ignores_sigterm_and_the_end_of_its_input_is_gone_with_the_command() {
    let python = "
import signal, threading, time
for name in ('SIGTERM', 'SIGINT', 'SIGHUP'): signal.signal(getattr(signal, name), signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(600,)).start()
print(os.getpid())";
    check_stubborn(json!({}), python);
    let node = "
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, () => {});
setInterval(() => {}, 1000);
return process.pid;";
    check_stubborn(json!({ "command": "node", "args": ["server.mjs"] }), node);
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
            let document = CommandOutput::from(ran).document();
            let error = &document["error"];
            assert_eq!(
                (error["code"].as_str(), error["exit"].as_str()),
                (Some("PROVIDER_CRASHED"), Some(exit))
            );
            assert!(error["stderr"].as_str().unwrap().contains("last words"), "{error:#}");
        }
    }
}
