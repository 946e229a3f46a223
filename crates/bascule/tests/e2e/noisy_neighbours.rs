//! Ten servers under one roof, four of which behave as badly as they can: the others must not feel it.

#![allow(clippy::print_stdout, reason = "figures that are seen are worth a look: `--nocapture`")]

use std::time::{Duration, Instant};

use bascule::McpBridgeAdapter;
use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::embedded::{call, call_with_timeout, confined, terminate};
use crate::support::demo_server;

const GOOD: usize = 6;
/// How often each good server is called in a round.
const CALLS: usize = 50;
/// The machine may have other things to do: one good round of so many is enough.
const ROUNDS: usize = 6;
/// How many times longer a call may take beside bad neighbours.
const SLOWER: f64 = 5.0;

fn good_servers() -> Map<String, Value> {
    (0..GOOD).map(|n| (format!("good{n}"), demo_server("counter"))).collect()
}

/// Answers nobody's questions, says what is no message, and answers the right one last.
fn liar() -> ScriptedStdio {
    let lie =
        Behaviour::echo().after_stray_response().after_line("no JSON {").after_line(r#"{"id":7,"result":"#);
    ScriptedStdio::new(
        Script::new().tools(["x"]).junk_between(["junk", "{}", "[]"]).calls("x", [lie.twice()]),
    )
}

fn all_servers(liar: &ScriptedStdio) -> Map<String, Value> {
    let hangs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/hostile.py");
    let mut servers = good_servers();
    servers.insert("floods".into(), demo_server("trouble"));
    servers.insert("lies".into(), liar.entry());
    servers.insert(
        "hangs".into(),
        json!({ "command": "python3", "args": [hangs], "cancelGraceMs": 100, "reconnectBackoffMs": 10 }),
    );
    servers.insert("dawdles".into(), demo_server("trouble"));
    servers
}

/// Calls the bad ones for as long as anybody lets it.
async fn misbehave(bridge: &McpBridgeAdapter) {
    let again = async |tool: &str, arguments: &str, patience: u64| loop {
        let _ = call_with_timeout(bridge, tool, arguments, Some(Duration::from_millis(patience))).await;
        // Where it fails at once it is asked again, but not without end.
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let dawdling = (0..8).map(|_| again("dawdles:sleep", r#"{"ms":200}"#, 10_000));
    tokio::join!(
        again("floods:junk", r#"{"lines":10000}"#, 10_000),
        again("floods:flood_stderr", r#"{"kb":100000}"#, 10_000),
        again("lies:x", "{}", 1_000),
        again("hangs:try", r#"{"code":"import time; time.sleep(600)"}"#, 100),
        join_all(dawdling),
    );
}

/// The middle one of all the times that the good servers took, called side by side.
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

async fn round() -> (f64, f64) {
    let bridge = confined(good_servers().into()).await;
    let alone = median(&bridge).await;
    terminate(&bridge).await;
    let liar = liar();
    let bridge = confined(all_servers(&liar).into()).await;
    let together = tokio::select! {
        () = misbehave(&bridge) => unreachable!("it does not end"),
        together = async {
            // They need a moment to get going.
            tokio::time::sleep(Duration::from_millis(300)).await;
            median(&bridge).await
        } => together,
    };
    terminate(&bridge).await;
    (alone, together)
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_bad_servers_of_ten_do_not_slow_the_others_down() {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (alone, together) = round().await;
        println!("median {alone:.2} ms among good servers, {together:.2} ms beside bad ones");
        best = best.min(together / alone);
        if best < SLOWER {
            return;
        }
    }
    panic!("calls took {best:.1} times as long at the best");
}
