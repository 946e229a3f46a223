//! Calls in processes of their own, which come from a pool and end with the call.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bascule::McpBridgeAdapter;
use bascule_model::ProviderAdapter;
use serde_json::{Value, json};

use super::{isolated, isolated_python, jails, marked, servers};
use crate::embedded::{call, call_with_timeout, terminate, within_timeout};
use crate::support::{TIMEOUT, is_running, text};

/// Waits without blocking the bridge, which runs on the same thread.
async fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "never came true: {condition}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for the process that is ready for the next call.
async fn ready_pid(bridge: &McpBridgeAdapter) -> u32 {
    let pid = || bridge.health()[0].pid;
    eventually("a process is ready", || pid().is_some()).await;
    pid().unwrap()
}

async fn wait_until_gone(pids: &[u32]) {
    eventually("the processes are gone", || !pids.iter().any(|pid| is_running(*pid))).await;
}

/// Terminates a bridge, after which none of its processes may exist.
async fn terminate_and_check(bridge: McpBridgeAdapter, mark: &str) {
    terminate(&bridge).await;
    assert_eq!(marked(mark), [] as [u32; 0]);
}

async fn python(bridge: &McpBridgeAdapter, code: &str) -> Result<Value, Value> {
    call(bridge, "s:try", &json!({ "code": code }).to_string()).await
}

// req: SB-01
#[tokio::test]
async fn calls_share_no_state() {
    let (bridge, mark) = isolated("counter", json!({})).await;
    for _ in 0..5 {
        let answer = call(&bridge, "s:increment", r#"{"token":"t"}"#).await.unwrap();
        assert_eq!(answer["structuredContent"], json!({ "value": 1, "increments": 1 }));
    }
    terminate_and_check(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn call_has_own_process_which_ends_with_it() {
    let (bridge, mark) = isolated_python(json!({})).await;
    let mut pids = HashSet::new();
    for n in 1..=5 {
        let pid: u32 = text(&python(&bridge, "print(os.getpid())").await.unwrap()).parse().unwrap();
        assert_ne!(pid, std::process::id());
        assert!(pids.insert(pid) && pids.len() == n);
    }
    wait_until_gone(&pids.into_iter().collect::<Vec<_>>()).await;
    terminate_and_check(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn pool_replaces_taken_process() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": 3 })).await;
    eventually("three processes are ready", || jails(&mark).len() == 3).await;
    let before = jails(&mark);
    for _ in 0..2 {
        call(&bridge, "s:read", "{}").await.unwrap();
    }
    let fresh = || jails(&mark).into_iter().filter(|pid| !before.contains(pid)).count();
    // At least one was ready. A call that finds none starts its own process, which is not replaced.
    eventually("the taken process is replaced", || fresh() >= 1 && jails(&mark).len() == 3).await;
    terminate_and_check(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn no_process_waits_without_pool() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": 0 })).await;
    eventually("no process runs", || marked(&mark).is_empty()).await;
    assert_eq!(bridge.health()[0].pid, None);
    for _ in 0..2 {
        let answer = call(&bridge, "s:increment", "{}").await.unwrap();
        assert_eq!(answer["structuredContent"]["value"], 1);
    }
    eventually("no process runs after the calls", || marked(&mark).is_empty()).await;
    terminate_and_check(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn pool_skips_dead_process() {
    let (bridge, mark) = isolated("counter", json!({})).await;
    let waiting = ready_pid(&bridge).await;
    let killed = std::process::Command::new("kill").args(["-9", &waiting.to_string()]).status().unwrap();
    assert!(killed.success());
    eventually("the bridge notices its end", || bridge.health()[0].pid != Some(waiting)).await;
    assert_eq!(
        call(&bridge, "s:increment", "{}").await.unwrap()["structuredContent"]["value"],
        1,
        "the call is not affected"
    );
    terminate_and_check(bridge, &mark).await;
}

// req: SB-03
#[tokio::test]
async fn process_is_killed_after_time_limit() {
    let (bridge, mark) =
        isolated("trouble", json!({ "tools": { "silence": { "limits": { "maxExecutionMs": 300 } } } })).await;
    for _ in 0..2 {
        let pid = ready_pid(&bridge).await;
        let error = call(&bridge, "s:silence", "{}").await.unwrap_err();
        assert_eq!((&error["code"], &error["delivery"]), (&json!("PROVIDER_TIMEOUT"), &json!("unknown")));
        assert!(error["message"].as_str().unwrap().contains("`maxExecutionMs`"), "{error:#}");
        wait_until_gone(&[pid]).await;
    }
    call(&bridge, "s:junk", "{}").await.unwrap();
    terminate_and_check(bridge, &mark).await;
}

// req: SB-03
#[tokio::test]
async fn process_that_ignores_signals_is_killed_at_callers_deadline() {
    let (bridge, mark) = isolated_python(json!({})).await;
    let pid = ready_pid(&bridge).await;
    let ignores_signals = json!({ "code": "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nif os.fork() == 0: os.setsid()\ntime.sleep(600)" });
    let error =
        call_with_timeout(&bridge, "s:try", &ignores_signals.to_string(), Some(Duration::from_secs(3))).await;
    assert_eq!(error.unwrap_err()["code"], "PROVIDER_TIMEOUT");
    wait_until_gone(&[pid]).await;
    eventually("only the waiting process is left", || jails(&mark).len() == 1).await;
    terminate_and_check(bridge, &mark).await;
}

// req: SB-03, SB-05
#[tokio::test]
async fn process_of_cancelled_call_is_killed() {
    let (bridge, mark) = isolated("trouble", json!({})).await;
    let pid = ready_pid(&bridge).await;
    let cancelled = tokio::time::timeout(Duration::from_secs(2), call(&bridge, "s:silence", "{}")).await;
    assert!(cancelled.is_err());
    wait_until_gone(&[pid]).await;
    terminate_and_check(bridge, &mark).await;
}

// req: SB-03
#[tokio::test]
async fn crash_fails_one_call_only() {
    let (bridge, mark) = isolated("trouble", json!({})).await;
    for _ in 0..3 {
        let error = call(&bridge, "s:crash", r#"{"code":7}"#).await.unwrap_err();
        assert_eq!((&error["code"], &error["exit"]), (&json!("PROVIDER_CRASHED"), &json!("exit code 7")));
        assert!(error["stderr"].as_str().unwrap().contains("crashing with code 7"), "{error:#}");
        call(&bridge, "s:junk", "{}").await.unwrap();
    }
    terminate_and_check(bridge, &mark).await;
}

// req: SB-02, SB-03
#[tokio::test]
async fn tool_has_own_memory_limit() {
    let limits = |mb: u32| json!({ "limits": { "maxMemoryMb": mb } });
    let (bridge, mark) =
        isolated_python(json!({ "limits": { "maxMemoryMb": 400 }, "tools": { "also": limits(80) } })).await;
    let hoard = |mb: u32| {
        let code = format!(
            "try: held = [b'x' * (1 << 20) for _ in range({mb})]; print(len(held))\nexcept MemoryError: os._exit(9)"
        );
        json!({ "code": code }).to_string()
    };
    for _ in 0..2 {
        assert_eq!(text(&call(&bridge, "s:try", &hoard(250)).await.unwrap()), "250");
        assert_eq!(text(&call(&bridge, "s:also", &hoard(20)).await.unwrap()), "20");
        let error = call(&bridge, "s:also", &hoard(250)).await.unwrap_err();
        assert_eq!(error["code"], "PROVIDER_CRASHED", "{error:#}");
    }
    terminate_and_check(bridge, &mark).await;
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_have_own_processes() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": 2 })).await;
    let calls = (0..20).map(|_| call(&bridge, "s:increment", "{}"));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap()["structuredContent"], json!({ "value": 1, "increments": 1 }));
    }
    eventually("the used processes are gone", || jails(&mark).len() == 2).await;
    terminate_and_check(bridge, &mark).await;
}

// req: SB-05, BR-11
#[tokio::test]
async fn termination_ends_calls_in_flight_and_their_processes() {
    let (bridge, mark) = isolated("trouble", json!({ "poolSize": 3 })).await;
    let calls = futures_util::future::join_all((0..3).map(|_| call(&bridge, "s:silence", "{}")));
    let end = async {
        eventually("all processes run", || servers(&mark).len() == 6).await;
        terminate(&bridge).await;
        marked(&mark)
    };
    let (ended, left) = within_timeout(async { tokio::join!(calls, end) }).await;
    assert_eq!(left, [] as [u32; 0], "after `terminate`");
    let describe = |error: &Value| format!("{} {}", error["code"], error["delivery"]).replace('"', "");
    let outcomes: Vec<String> = ended.iter().map(|ended| describe(ended.as_ref().unwrap_err())).collect();
    // One process was ready and had its call. Another may have been in its handshake.
    assert_eq!(outcomes[0], "OUTCOME_UNKNOWN unknown");
    assert!(
        outcomes
            .iter()
            .all(|outcome| *outcome == "PROVIDER_UNAVAILABLE not_sent"
                || *outcome == "OUTCOME_UNKNOWN unknown"),
        "{outcomes:?}"
    );
}

// req: SB-05, BR-11
#[tokio::test]
async fn termination_during_start_leaves_no_process() {
    for _ in 0..10 {
        let (bridge, mark) = isolated("counter", json!({ "poolSize": 4 })).await;
        // The pool is being filled, and another process is being started for a call.
        let calls = futures_util::future::join_all((0..3).map(|_| call(&bridge, "s:read", "{}")));
        let end = async {
            tokio::task::yield_now().await;
            terminate(&bridge).await;
            marked(&mark)
        };
        let (_, left) = within_timeout(async { tokio::join!(calls, end) }).await;
        assert_eq!(left, [] as [u32; 0]);
    }
}
