//! No process survives the end of a command, a crash of the server or the death of the bridge.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, quoted, users};
use crate::support::{CommandOutput, eventually, is_running};

/// Python that starts a grandchild in its own session, a daemon by a double fork, and a child that ignores SIGTERM.
const SPAWN: &str = "
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

/// Python that starts these processes, writes their pids to a file, and then runs `code`.
fn spawn_then(hostile: &HostileServer, code: &str) -> String {
    let pids = quoted(&hostile.path("work/pids"));
    format!(
        "{SPAWN}\nopen({pids} + '.new', 'w').write(' '.join(map(str, pids + [os.getpid()])))\nos.rename({pids} + '.new', {pids})\n{code}"
    )
}

/// Waits for the pids of all started processes and the server.
fn spawned_pids(hostile: &HostileServer) -> Vec<u32> {
    let file = hostile.path("work/pids");
    eventually("the processes are started", || file.exists());
    let pids: Vec<u32> =
        fs::read_to_string(file).unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 4);
    pids
}

fn call(hostile: &HostileServer, code: &str) -> Command {
    let mut command = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn wait_until_gone(pids: &[u32]) {
    eventually(&format!("all of {pids:?} are gone"), || !pids.iter().any(|pid| is_running(*pid)));
}

// req: SB-05
#[test]
fn no_process_survives_command() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        assert!(call(&hostile, &spawn_then(&hostile, "")).status().unwrap().success());
        // Checked immediately: the command must not end before they do.
        let left: Vec<u32> = spawned_pids(&hostile).into_iter().filter(|pid| is_running(*pid)).collect();
        assert_eq!(left, [] as [u32; 0], "as {user:?}");
    }
}

// req: SB-05
#[test]
fn no_process_survives_server_crash() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let crash = spawn_then(&hostile, "os.abort()");
        assert_eq!(call(&hostile, &crash).status().unwrap().code(), Some(3));
        wait_until_gone(&spawned_pids(&hostile));
    }
}

/// Kills the bridge with SIGKILL, and waits until no process of it or its servers is left.
fn kill_and_wait(hostile: &HostileServer, mut bridge: Child) {
    let before = hostile.processes();
    bridge.kill().unwrap();
    let begin = Instant::now();
    bridge.wait().unwrap();
    eventually("no process is left", || hostile.processes().is_empty());
    println!("{} processes were gone {:?} after the bridge", before.len(), begin.elapsed());
}

// req: BR-11, SB-05
#[test]
fn no_process_survives_killed_bridge() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let bridge = call(&hostile, &spawn_then(&hostile, "import time; time.sleep(600)")).spawn().unwrap();
        let pids = spawned_pids(&hostile);
        assert!(pids.iter().all(|pid| is_running(*pid)));
        kill_and_wait(&hostile, bridge);
        wait_until_gone(&pids);
    }
}

// req: BR-11, SB-05
#[test]
fn no_nested_daemon_survives_killed_bridge() {
    // Daemons, each in its own session, with children and grandchildren.
    let daemons = "
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
        let hostile = HostileServer::new(user, json!({}));
        let bridge = call(&hostile, &format!("{daemons}\nimport time; time.sleep(600)")).spawn().unwrap();
        // The bridge, the jail, the server, and five times seven daemons.
        eventually("the daemons are started", || hostile.processes().len() >= 3 + 35);
        kill_and_wait(&hostile, bridge);
    }
}

// req: BR-11, SB-05
#[test]
fn no_endless_forker_survives_killed_bridge() {
    // Every process forks and then exits, so that a scan may miss all of them. All hold one lock.
    let forker = "
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
        let hostile = HostileServer::new(user, json!({}));
        let bridge = call(&hostile, forker).spawn().unwrap();
        eventually("they run", || hostile.path("work/running").exists());
        let held = fs::File::open(hostile.path("work/held")).unwrap();
        assert!(held.try_lock().is_err());
        kill_and_wait(&hostile, bridge);
        eventually("no process holds the lock", || held.try_lock().is_ok());
    }
}

// req: BR-11, SB-05
#[test]
fn no_starting_server_survives_killed_bridge() {
    for user in users() {
        let script = "setsid sleep 600 & touch started; exec sleep 600";
        let hostile = HostileServer::new(user, json!({ "command": "sh", "args": ["-c", script] }));
        let bridge = call(&hostile, "").spawn().unwrap();
        eventually("it starts", || hostile.path("work/started").exists());
        kill_and_wait(&hostile, bridge);
    }
}

/// The code ignores SIGTERM and the end of stdin.
fn check_stubborn(settings: Value, code: &str) {
    for user in users() {
        let hostile = HostileServer::new(user, settings.clone());
        let ran = hostile.command(&["call", "h:try", &json!({ "code": code }).to_string()]).output().unwrap();
        let ran = CommandOutput::from(ran);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        // Checked immediately: the command must not end before the server does.
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
        let pid = ran.stdout.trim().parse().unwrap();
        assert!(!is_running(pid), "as {user:?}");
    }
}

// req: BR-11, SB-05
#[test]
fn server_that_ignores_sigterm_ends_with_command() {
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
fn reports_exit_of_confined_server() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
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
