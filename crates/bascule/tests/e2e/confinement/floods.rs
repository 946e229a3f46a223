//! Servers that never stop talking, beside one that has something to say.

use std::fs;

use bascule::McpBridgeAdapter;
use serde_json::{Value, json};

use super::hostile::{Hostile, alone, bridge_alone, users};
use crate::embedded::{call, terminate};
use crate::support::text;

/// In MB: what the bridge may come to hold, given that a message may have 64 MiB.
const BRIDGE_MAY_HOLD: u64 = 200;

/// How often the neighbour is called while the other floods.
const CALLS: usize = 50;

/// In milliseconds: how long a call may take that would never end, and one that will, on a busy machine.
const ENDLESS: u64 = 3_000;
const LONG: u64 = 100_000;

/// Runs one scenario in a process of its own, as every user: two servers, one of which floods. Its calls may take
/// so long.
fn with_neighbour(test: &str, limit: u64, scenario: impl AsyncFnOnce(McpBridgeAdapter)) {
    if alone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(async {
            let bridge = bridge_alone().await;
            scenario(bridge).await;
            let most = most_held();
            println!("the bridge held {most} MB at the most");
            assert!(most < BRIDGE_MAY_HOLD, "{most} MB");
        });
    }
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let flooding = json!({ "timeoutMs": limit, "limits": { "maxExecutionMs": limit } });
        hostile.configure(&json!({ "flooding": flooding, "neighbour": {} }));
        hostile.run_alone(&format!("confinement::floods::{test}"));
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
    }
}

/// The most that this process ever held, in MB.
fn most_held() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn code(code: &str) -> String {
    json!({ "code": code }).to_string()
}

async fn neighbour_answers(bridge: &McpBridgeAdapter) {
    for n in 0..CALLS {
        let answer = call(bridge, "neighbour:try", &code(&format!("print({n} + 1)"))).await.unwrap();
        assert_eq!(text(&answer), (n + 1).to_string());
    }
}

/// A flood in the middle of a call. It has begun when the file is there.
async fn flood(bridge: &McpBridgeAdapter, how: &str) -> Value {
    let begun = std::env::current_dir().unwrap().join("work/begun");
    let flooding = code(&format!("open('begun', 'w').close()\n{how}"));
    let flooding = call(bridge, "flooding:try", &flooding);
    let meanwhile = async {
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
        neighbour_answers(bridge).await;
    };
    tokio::join!(flooding, meanwhile).0.unwrap_err()
}

fn check(error: &Value, code: &str, said: &str) {
    assert_eq!(error["code"], code, "{error:#}");
    assert!(error["message"].as_str().unwrap().contains(said), "{error:#}");
}

const CHUNK: &str = "chunk = b'All work and no play. ' * 3000\n";

// req: BR-12, SB-06
#[test]
fn an_endless_stderr_harms_nobody() {
    with_neighbour("an_endless_stderr_harms_nobody", ENDLESS, async |bridge| {
        let error = flood(&bridge, &format!("{CHUNK}while True: os.write(2, chunk)")).await;
        check(&error, "PROVIDER_TIMEOUT", "`maxExecutionMs`");
        assert!(error["stderr"].as_str().is_none_or(|kept| kept.len() <= 8 << 10), "{error:#}");
        neighbour_answers(&bridge).await;
        terminate(&bridge).await;
    });
}

// req: BR-12, SB-06
#[test]
fn a_server_that_floods_stderr_from_another_thread_still_answers() {
    with_neighbour("a_server_that_floods_stderr_from_another_thread_still_answers", LONG, async |bridge| {
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
        neighbour_answers(&bridge).await;
        terminate(&bridge).await;
    });
}

// req: BR-12, SB-06
#[test]
fn an_endless_line_on_stdout_harms_nobody() {
    with_neighbour("an_endless_line_on_stdout_harms_nobody", ENDLESS, async |bridge| {
        let error = flood(&bridge, &format!("{CHUNK}while True: os.write(1, chunk)")).await;
        check(&error, "PROVIDER_TIMEOUT", "`maxExecutionMs`");
        neighbour_answers(&bridge).await;
        terminate(&bridge).await;
    });
}

// req: BR-12, SB-06
#[test]
fn a_hundred_megabytes_without_a_line_break_and_then_the_end_are_told() {
    with_neighbour(
        "a_hundred_megabytes_without_a_line_break_and_then_the_end_are_told",
        LONG,
        async |bridge| {
            let error =
                flood(&bridge, &format!("{CHUNK}for _ in range(1600): os.write(1, chunk)\nos._exit(4)"))
                    .await;
            check(&error, "OUTCOME_UNKNOWN", "longer than 67108864 bytes");
            neighbour_answers(&bridge).await;
            terminate(&bridge).await;
        },
    );
}
