//! Ten servers in one bridge, four of them faulty: the others must work. The bench `ratios` measures their latency.

use std::time::Duration;

use bascule::McpBridgeAdapter;
use bascule_model::{Health, ProviderAdapter, ServerName};
use bascule_testkit::{Behaviour, Script, ScriptedStdio, binary};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::embedded::{call, call_with_timeout, confined, terminate, within_timeout};
use crate::support::demo_server;

const GOOD: usize = 6;
/// Calls of each good server.
const CALLS: usize = 50;

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

/// Calls the good servers at once; every call must succeed.
async fn call_good_servers(bridge: &McpBridgeAdapter) {
    let each = (0..GOOD).map(|n| async move {
        for _ in 0..CALLS {
            call(bridge, &format!("good{n}:increment"), "{}").await.unwrap();
        }
    });
    join_all(each).await;
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
async fn faulty_servers_do_not_disturb_others() {
    let lying = lying_server();
    let bridge = confined(all_servers(&lying).into()).await;
    tokio::select! {
        () = call_faulty_servers(&bridge) => unreachable!("the loop is endless"),
        () = async {
            wait_for_calls(&lying, 20).await;
            call_good_servers(&bridge).await;
        } => {}
    }
    terminate(&bridge).await;
}
