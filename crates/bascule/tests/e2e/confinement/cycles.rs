//! Servers that crash, again and again, under one bridge that lives on: nothing of them may pile up.

use bascule_model::ProviderAdapter;
use serde_json::json;

use super::hostile::{Hostile, alone, bridge_alone, users};
use crate::embedded::{call, terminate};
use crate::support::{children, eventually, open_descriptors};

/// How often servers are connected to and crash.
const CYCLES: usize = 200;

/// Ways to go: in the middle of a call, with an exit code or a signal, and leaving daemons behind.
const ENDS: [&str; 4] = [
    "os._exit(3)",
    "os.abort()",
    "os.kill(os.getpid(), 9)",
    "
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execvp('sleep', ['sleep', '600'])
    os._exit(0)
os.wait()
import subprocess; subprocess.Popen(['sh', '-c', 'trap : TERM; sleep 600'])
os._exit(1)",
];

// req: BR-11, SB-05
#[test]
fn two_hundred_crashes_leave_nothing_behind() {
    if alone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(crash_again_and_again());
    }
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        // One that never gets so far as to be connected to.
        let crashing = json!({ "args": ["-IS", "server.py"] });
        hostile.configure(&json!({ "h": crashing, "stillborn": { "command": "false" } }));
        hostile.run_alone("confinement::cycles::two_hundred_crashes_leave_nothing_behind");
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
    }
}

async fn crash_again_and_again() {
    // What is made once and kept (the runtime's own, the watchdog) is there after the first.
    crash(0).await;
    let own = std::process::id();
    eventually("no child is left of the first", || children(own).is_empty());
    let before = open_descriptors();
    for n in 1..=CYCLES {
        crash(n).await;
    }
    eventually("no child is left, not even as a zombie", || children(own).is_empty());
    // What the system has still to close, it closes.
    eventually("no descriptor is left", || open_descriptors().len() <= before.len());
    println!("{CYCLES} crashes; descriptors: {} before, {} after", before.len(), open_descriptors().len());
}

async fn crash(n: usize) {
    let bridge = bridge_alone().await;
    let code = json!({ "code": ENDS[n % ENDS.len()] }).to_string();
    let error = call(&bridge, "h:try", &code).await.unwrap_err();
    assert_eq!(error["code"], "PROVIDER_CRASHED", "{error:#}");
    assert!(bridge.health()[1].pid.is_none());
    terminate(&bridge).await;
}
