//! Servers that crash repeatedly under one bridge must leave no processes or descriptors behind.

use bascule_model::ProviderAdapter;
use serde_json::json;

use super::hostile_server::{HostileServer, bridge_in_home, is_single_test, users};
use crate::embedded::{call, terminate};
use crate::support::{children, eventually, open_descriptors};

const CRASHES: usize = 200;

/// Ways to end during a call: with an exit code, by a signal, and with daemons left behind.
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
fn repeated_crashes_leave_nothing_behind() {
    if is_single_test() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(crash_repeatedly());
    }
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        // `stillborn` exits before the handshake.
        let crashing = json!({ "args": ["-IS", "server.py"] });
        hostile.configure(&json!({ "h": crashing, "stillborn": { "command": "false" } }));
        hostile.run_as_user("confinement::crashes::repeated_crashes_leave_nothing_behind");
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
    }
}

async fn crash_repeatedly() {
    // The first crash creates everything that is kept, such as the watchdog and the runtime's threads.
    crash(0).await;
    let own = std::process::id();
    eventually("no child of the first crash is left", || children(own).is_empty());
    let before = open_descriptors();
    for n in 1..=CRASHES {
        crash(n).await;
    }
    eventually("no child is left, not even as a zombie", || children(own).is_empty());
    // The system may still be closing some.
    eventually("no descriptor is left", || open_descriptors().len() <= before.len());
    println!("{CRASHES} crashes; descriptors: {} before, {} after", before.len(), open_descriptors().len());
}

async fn crash(n: usize) {
    let bridge = bridge_in_home().await;
    let code = json!({ "code": ENDS[n % ENDS.len()] }).to_string();
    let error = call(&bridge, "h:try", &code).await.unwrap_err();
    assert_eq!(error["code"], "PROVIDER_CRASHED", "{error:#}");
    assert!(bridge.health()[1].pid.is_none());
    terminate(&bridge).await;
}
