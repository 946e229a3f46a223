//! Calls that each have a process of their own: fresh, from a pool, and gone afterwards.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bascule::McpBridgeAdapter;
use bascule_model::ProviderAdapter;
use serde_json::{Value, json};

use super::{isolated, isolated_python, jails, marked, servers};
use crate::embedded::{call, call_with_timeout, terminate, within_timeout};
use crate::support::{TIMEOUT, is_running, text};

/// Waits without keeping the bridge, which shares our thread, from its work.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The process that is ready for the next call.
async fn ready(bridge: &McpBridgeAdapter) -> u32 {
    let pid = || bridge.health()[0].pid;
    eventually("a process is ready", || pid().is_some()).await;
    pid().unwrap()
}

async fn gone(pids: &[u32]) {
    eventually("it is gone", || !pids.iter().any(|pid| is_running(*pid))).await;
}

/// Ends a bridge: when that returns, no process of it is there any more.
async fn end(bridge: McpBridgeAdapter, mark: &str) {
    terminate(&bridge).await;
    assert_eq!(marked(mark), [] as [u32; 0]);
}

async fn python(bridge: &McpBridgeAdapter, code: &str) -> Result<Value, Value> {
    call(bridge, "s:try", &json!({ "code": code }).to_string()).await
}

// req: SB-01
#[tokio::test]
async fn every_call_begins_at_the_beginning() {
    let (bridge, mark) = isolated("counter", json!({})).await;
    for _ in 0..5 {
        let answer = call(&bridge, "s:increment", r#"{"token":"t"}"#).await.unwrap();
        assert_eq!(answer["structuredContent"], json!({ "value": 1, "increments": 1 }));
    }
    end(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn every_call_has_a_process_of_its_own_which_ends_with_it() {
    let (bridge, mark) = isolated_python(json!({})).await;
    let mut pids = HashSet::new();
    for n in 1..=5 {
        let pid: u32 = text(&python(&bridge, "print(os.getpid())").await.unwrap()).parse().unwrap();
        assert_ne!(pid, std::process::id());
        assert!(pids.insert(pid) && pids.len() == n);
    }
    gone(&pids.into_iter().collect::<Vec<_>>()).await;
    end(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn what_was_taken_from_the_pool_is_replaced() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": 3 })).await;
    eventually("three are ready", || jails(&mark).len() == 3).await;
    let before = jails(&mark);
    for _ in 0..2 {
        call(&bridge, "s:read", "{}").await.unwrap();
    }
    let fresh = || jails(&mark).into_iter().filter(|pid| !before.contains(pid)).count();
    // At least one was ready; a call that finds none has a process of its own, which no other takes the place of.
    eventually("what was taken is replaced", || fresh() >= 1 && jails(&mark).len() == 3).await;
    end(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn without_a_pool_nothing_waits() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": 0 })).await;
    eventually("nothing runs", || marked(&mark).is_empty()).await;
    assert_eq!(bridge.health()[0].pid, None);
    for _ in 0..2 {
        let answer = call(&bridge, "s:increment", "{}").await.unwrap();
        assert_eq!(answer["structuredContent"]["value"], 1);
    }
    eventually("nothing runs again", || marked(&mark).is_empty()).await;
    end(bridge, &mark).await;
}

// req: SB-01
#[tokio::test]
async fn a_process_that_died_while_it_waited_is_passed_over() {
    let (bridge, mark) = isolated("counter", json!({})).await;
    let waiting = ready(&bridge).await;
    let killed = std::process::Command::new("kill").args(["-9", &waiting.to_string()]).status().unwrap();
    assert!(killed.success());
    eventually("its end is noticed", || bridge.health()[0].pid != Some(waiting)).await;
    assert_eq!(
        call(&bridge, "s:increment", "{}").await.unwrap()["structuredContent"]["value"],
        1,
        "the call does not pay for it"
    );
    end(bridge, &mark).await;
}

// req: SB-03
#[tokio::test]
async fn over_time_the_process_is_killed() {
    let (bridge, mark) =
        isolated("trouble", json!({ "tools": { "silence": { "limits": { "maxExecutionMs": 300 } } } })).await;
    for _ in 0..2 {
        let pid = ready(&bridge).await;
        let error = call(&bridge, "s:silence", "{}").await.unwrap_err();
        assert_eq!((&error["code"], &error["delivery"]), (&json!("PROVIDER_TIMEOUT"), &json!("unknown")));
        assert!(error["message"].as_str().unwrap().contains("`maxExecutionMs`"), "{error:#}");
        gone(&[pid]).await;
    }
    call(&bridge, "s:junk", "{}").await.unwrap();
    end(bridge, &mark).await;
}

// req: SB-03
#[tokio::test]
async fn a_process_that_will_not_be_asked_is_killed_at_the_callers_deadline() {
    let (bridge, mark) = isolated_python(json!({})).await;
    let pid = ready(&bridge).await;
    let deaf = json!({ "code": "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nif os.fork() == 0: os.setsid()\ntime.sleep(600)" });
    let error = call_with_timeout(&bridge, "s:try", &deaf.to_string(), Some(Duration::from_secs(3))).await;
    assert_eq!(error.unwrap_err()["code"], "PROVIDER_TIMEOUT");
    gone(&[pid]).await;
    eventually("only what waits is left", || jails(&mark).len() == 1).await;
    end(bridge, &mark).await;
}

// req: SB-03, SB-05
#[tokio::test]
async fn a_process_whose_caller_left_is_killed() {
    let (bridge, mark) = isolated("trouble", json!({})).await;
    let pid = ready(&bridge).await;
    let leaving = tokio::time::timeout(Duration::from_secs(2), call(&bridge, "s:silence", "{}")).await;
    assert!(leaving.is_err());
    gone(&[pid]).await;
    end(bridge, &mark).await;
}

// req: SB-03
#[tokio::test]
async fn a_crash_costs_the_one_call() {
    let (bridge, mark) = isolated("trouble", json!({})).await;
    for _ in 0..3 {
        let error = call(&bridge, "s:crash", r#"{"code":7}"#).await.unwrap_err();
        assert_eq!((&error["code"], &error["exit"]), (&json!("PROVIDER_CRASHED"), &json!("exit code 7")));
        assert!(error["stderr"].as_str().unwrap().contains("crashing with code 7"), "{error:#}");
        call(&bridge, "s:junk", "{}").await.unwrap();
    }
    end(bridge, &mark).await;
}

// req: SB-02, SB-03
#[tokio::test]
async fn a_tool_has_a_memory_limit_of_its_own() {
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
    end(bridge, &mark).await;
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_calls_at_once_have_twenty_processes() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": 2 })).await;
    let calls = (0..20).map(|_| call(&bridge, "s:increment", "{}"));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap()["structuredContent"], json!({ "value": 1, "increments": 1 }));
    }
    eventually("what was used is gone", || jails(&mark).len() == 2).await;
    end(bridge, &mark).await;
}

// req: SB-05, BR-11
#[tokio::test]
async fn calls_under_way_end_with_the_bridge_and_so_do_their_processes() {
    let (bridge, mark) = isolated("trouble", json!({ "poolSize": 3 })).await;
    let calls = futures_util::future::join_all((0..3).map(|_| call(&bridge, "s:silence", "{}")));
    let end = async {
        eventually("all have theirs", || servers(&mark).len() == 6).await;
        terminate(&bridge).await;
        marked(&mark)
    };
    let (ended, left) = within_timeout(async { tokio::join!(calls, end) }).await;
    assert_eq!(left, [] as [u32; 0], "when `terminate` returns");
    let said = |error: &Value| format!("{} {}", error["code"], error["delivery"]).replace('"', "");
    let said: Vec<String> = ended.iter().map(|ended| said(ended.as_ref().unwrap_err())).collect();
    // One was surely ready, and had its call. Another may have been in the middle of its handshake.
    assert_eq!(said[0], "OUTCOME_UNKNOWN unknown");
    assert!(
        said.iter()
            .all(|said| *said == "PROVIDER_UNAVAILABLE not_sent" || *said == "OUTCOME_UNKNOWN unknown"),
        "{said:?}"
    );
}

// req: SB-05, BR-11
#[tokio::test]
async fn a_bridge_that_ends_while_processes_start_leaves_none() {
    for _ in 0..10 {
        let (bridge, mark) = isolated("counter", json!({ "poolSize": 4 })).await;
        // The pool is being filled, and one more is being started for a call.
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
