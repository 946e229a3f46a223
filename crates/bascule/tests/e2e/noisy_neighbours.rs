//! Ten servers in one bridge, four of them faulty: the latency of the others must not suffer.

#![allow(clippy::print_stdout, reason = "measured figures, visible with `--nocapture`")]

use std::time::{Duration, Instant};

use bascule::McpBridgeAdapter;
use bascule_model::{Health, ProviderAdapter, ServerName};
use bascule_testkit::{Behaviour, Script, ScriptedStdio, binary};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::embedded::{call, call_with_timeout, confined, terminate, within_timeout};
use crate::support::demo_server;

const GOOD: usize = 6;
/// Calls of each good server in a round.
const CALLS: usize = 50;
/// Maximum number of rounds. One good round is enough, because the machine may be busy.
const ROUNDS: usize = 6;
/// Allowed ratio of the latencies with and without faulty servers.
const MAX_RATIO: f64 = 5.0;

fn good_servers() -> Map<String, Value> {
    (0..GOOD).map(|n| (format!("good{n}"), demo_server("counter"))).collect()
}

/// A server that sends responses to unknown ids and invalid lines before the right response.
fn lying_server() -> ScriptedStdio {
    let lie =
        Behaviour::echo().after_stray_response().after_line("no JSON {").after_line(r#"{"id":7,"result":"#);
    ScriptedStdio::new(
        Script::new().tools(["x"]).junk_between(["junk", "{}", "[]"]).calls("x", [lie.twice()]),
    )
}

fn all_servers(lying: &ScriptedStdio) -> Map<String, Value> {
    let hangs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/hostile.py");
    let mut servers = good_servers();
    servers.insert("floods".into(), demo_server("trouble"));
    servers.insert("lies".into(), lying.entry());
    servers.insert(
        "hangs".into(),
        json!({ "command": "python3", "args": [hangs], "cancelGraceMs": 100, "reconnectBackoffMs": 10 }),
    );
    servers.insert("slow".into(), demo_server("trouble"));
    servers
}

/// Calls the faulty servers in an endless loop.
async fn call_faulty_servers(bridge: &McpBridgeAdapter) {
    let again = async |tool: &str, arguments: &str, timeout_ms: u64| loop {
        let _ = call_with_timeout(bridge, tool, arguments, Some(Duration::from_millis(timeout_ms))).await;
        // Limits the rate of calls that fail immediately.
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let slow = (0..8).map(|_| again("slow:sleep", r#"{"ms":200}"#, 10_000));
    tokio::join!(
        again("floods:junk", r#"{"lines":10000}"#, 10_000),
        again("floods:flood_stderr", r#"{"kb":100000}"#, 10_000),
        again("lies:x", "{}", 1_000),
        again("hangs:try", r#"{"code":"import time; time.sleep(600)"}"#, 100),
        join_all(slow),
    );
}

/// Median latency of concurrent calls to the good servers, in ms.
async fn median(bridge: &McpBridgeAdapter) -> f64 {
    let each = (0..GOOD).map(|n| async move {
        let mut times = Vec::new();
        for _ in 0..CALLS {
            let begin = Instant::now();
            call(bridge, &format!("good{n}:increment"), "{}").await.unwrap();
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        times
    });
    let mut times = join_all(each).await.concat();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Waits until a faulty server has received this many calls: by then all faults are under way.
async fn wait_for_calls(server: &ScriptedStdio, calls: usize) {
    let received = || server.methods().iter().filter(|method| *method == "tools/call").count();
    within_timeout(async {
        while received() < calls {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Median latencies without and with the faulty servers.
async fn round() -> (f64, f64) {
    let bridge = confined(good_servers().into()).await;
    let without = median(&bridge).await;
    terminate(&bridge).await;
    let lying = lying_server();
    let bridge = confined(all_servers(&lying).into()).await;
    let with = tokio::select! {
        () = call_faulty_servers(&bridge) => unreachable!("the loop is endless"),
        with = async {
            wait_for_calls(&lying, 20).await;
            median(&bridge).await
        } => with,
    };
    terminate(&bridge).await;
    (without, with)
}

// req: BR-12
#[tokio::test]
async fn flooding_server_and_its_neighbours_respond() {
    let mut servers = good_servers();
    for (n, line) in [
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":"x","result":{}}"#,
        "no JSON",
        "",
        " ",
    ]
    .into_iter()
    .enumerate()
    {
        let entry = json!({ "command": binary("echo-server"), "args": ["--flood", line] });
        servers.insert(format!("floods{n}"), entry);
    }
    let names: Vec<String> = servers.keys().cloned().collect();
    let bridge = confined(servers.into()).await;
    for _ in 0..20 {
        for name in &names {
            let tool = if name.starts_with("good") { "increment" } else { "echo" };
            let arguments = if tool == "echo" { r#"{"message":"m"}"# } else { "{}" };
            call(&bridge, &format!("{name}:{tool}"), arguments).await.unwrap();
        }
    }
    terminate(&bridge).await;
}

// A full pipe of these lines takes longer to read, at the permitted rate, than a server has for the response to a ping.
// req: BR-08, BR-12
#[tokio::test]
async fn flooding_server_is_not_taken_for_a_dead_one() {
    let entry = json!({ "command": binary("echo-server"), "args": ["--flood", "x"], "keepAliveMs": 1 });
    let bridge = confined(json!({ "floods": entry })).await;
    let floods = ServerName::parse("floods").unwrap();
    // A ping follows each refresh at once, and the next refresh waits for its end. The listing itself may come too late.
    for _ in 0..3 {
        let _ = within_timeout(bridge.refresh(&floods)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let health = bridge.health();
    assert_eq!((health[0].health, health[0].restarts), (Health::Healthy, 0), "{health:?}");
    terminate(&bridge).await;
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_servers_do_not_slow_down_others() {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (without, with) = round().await;
        println!("median latency: {without:.2} ms without faulty servers, {with:.2} ms with them");
        best = best.min(with / without);
        if best < MAX_RATIO {
            return;
        }
    }
    panic!("calls took {best:.1} times as long in the best round");
}
