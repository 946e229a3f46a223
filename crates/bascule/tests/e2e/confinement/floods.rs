//! Servers that write without end, beside one that behaves.

use std::fs;

use bascule::McpBridgeAdapter;
use serde_json::{Value, json};

use super::hostile_server::{HostileServer, bridge_in_home, is_single_test, users};
use crate::embedded::{call, terminate};
use crate::support::text;

/// In MB. A message may have 64 MiB.
const MAX_BRIDGE_MEMORY: u64 = 200;

/// Calls to the neighbour while the other server floods.
const CALLS: usize = 50;

/// Timeouts in milliseconds: for a call that never ends, and for one that does on a busy machine.
const SHORT: u64 = 3_000;
const LONG: u64 = 100_000;

/// Runs a scenario with two servers, one of which floods, in a process of its own as every user. `timeout` applies to
/// calls of the flooding server.
fn with_neighbour(test: &str, timeout: u64, scenario: impl AsyncFnOnce(McpBridgeAdapter)) {
    if is_single_test() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(async {
            let bridge = bridge_in_home().await;
            scenario(bridge).await;
            let peak = peak_memory();
            println!("peak memory of the bridge: {peak} MB");
            assert!(peak < MAX_BRIDGE_MEMORY, "{peak} MB");
        });
    }
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let flooding = json!({ "timeoutMs": timeout, "limits": { "maxExecutionMs": timeout } });
        hostile.configure(&json!({ "flooding": flooding, "neighbour": {} }));
        hostile.run_as_user(&format!("confinement::floods::{test}"));
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
    }
}

/// Peak memory of this process, in MB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn code(code: &str) -> String {
    json!({ "code": code }).to_string()
}

async fn check_neighbour(bridge: &McpBridgeAdapter) {
    for n in 0..CALLS {
        let answer = call(bridge, "neighbour:try", &code(&format!("print({n} + 1)"))).await.unwrap();
        assert_eq!(text(&answer), (n + 1).to_string());
    }
}

/// Floods during a call, and checks the neighbour after the flood has begun, which a file indicates.
async fn flood(bridge: &McpBridgeAdapter, flood: &str) -> Value {
    let begun = std::env::current_dir().unwrap().join("work/begun");
    let flooding = code(&format!("open('begun', 'w').close()\n{flood}"));
    let flooding = call(bridge, "flooding:try", &flooding);
    let meanwhile = async {
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
        check_neighbour(bridge).await;
    };
    tokio::join!(flooding, meanwhile).0.unwrap_err()
}

fn check(error: &Value, code: &str, message: &str) {
    assert_eq!(error["code"], code, "{error:#}");
    assert!(error["message"].as_str().unwrap().contains(message), "{error:#}");
}

const CHUNK: &str = "chunk = b'All work and no play. ' * 3000\n";

// req: BR-12, SB-06
#[test]
fn endless_stderr_harms_no_other_server() {
    with_neighbour("endless_stderr_harms_no_other_server", SHORT, async |bridge| {
        let error = flood(&bridge, &format!("{CHUNK}while True: os.write(2, chunk)")).await;
        check(&error, "PROVIDER_TIMEOUT", "`maxExecutionMs`");
        assert!(error["stderr"].as_str().is_none_or(|kept| kept.len() <= 8 << 10), "{error:#}");
        check_neighbour(&bridge).await;
        terminate(&bridge).await;
    });
}

// req: BR-12, SB-06
#[test]
fn server_answers_while_its_thread_floods_stderr() {
    with_neighbour("server_answers_while_its_thread_floods_stderr", LONG, async |bridge| {
        let begin = "
import threading
def flood():
    while True: os.write(2, b'All work and no play.\\n' * 3000)
threading.Thread(target=flood, daemon=True).start()";
        call(&bridge, "flooding:try", &code(begin)).await.unwrap();
        for _ in 0..5 {
            let answer = call(&bridge, "flooding:try", &code("print('dry')")).await.unwrap();
            assert_eq!(text(&answer), "dry");
        }
        check_neighbour(&bridge).await;
        terminate(&bridge).await;
    });
}

// req: BR-12, SB-06
#[test]
fn endless_stdout_line_harms_no_other_server() {
    with_neighbour("endless_stdout_line_harms_no_other_server", SHORT, async |bridge| {
        let error = flood(&bridge, &format!("{CHUNK}while True: os.write(1, chunk)")).await;
        check(&error, "PROVIDER_TIMEOUT", "`maxExecutionMs`");
        check_neighbour(&bridge).await;
        terminate(&bridge).await;
    });
}

// req: BR-12, SB-06
#[test]
fn overlong_line_before_exit_is_reported() {
    with_neighbour("overlong_line_before_exit_is_reported", LONG, async |bridge| {
        let error =
            flood(&bridge, &format!("{CHUNK}for _ in range(1600): os.write(1, chunk)\nos._exit(4)")).await;
        check(&error, "OUTCOME_UNKNOWN", "longer than 67108864 bytes");
        check_neighbour(&bridge).await;
        terminate(&bridge).await;
    });
}
