//! Many clients at once: responses do not mix, and slow readers do not block other clients.

use std::io::Write;
use std::sync::Barrier;
use std::time::Instant;

use bascule_testkit::{Behaviour, IdPosition, Script};
use serde_json::json;

use super::client::{Client, connect, post_request};
use super::{AGGREGATE_PATH, ScriptedBridge, parse, passthrough_path, peak_mb};
use crate::support::eventually;

// req: GW-04
#[test]
fn keeps_responses_of_a_hundred_clients_apart() {
    const CLIENTS: usize = 100;
    let script = Script::new()
        .tools(["t", "hold"])
        .calls("t", [Behaviour::echo().after_progress(20)])
        .calls("hold", [Behaviour::silence()]);
    let bridge =
        ScriptedBridge::start_with(script, json!({ "limits": { "maxConcurrent": 250, "maxQueue": 1000 } }));
    let ready = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (bridge, ready) = (&bridge, &ready);
            scope.spawn(move || run_client(bridge, number, ready));
        }
    });
    // Every client has cancelled its own held call. The server may still be reading the last notification.
    eventually("all cancellations have reached the server", || {
        held_and_cancelled(&bridge)[1].len() >= CLIENTS
    });
    let [held, cancelled] = held_and_cancelled(&bridge);
    assert_eq!((held.len(), held), (CLIENTS, cancelled));
}

/// Upstream ids of the held calls and of the cancelled calls, sorted.
fn held_and_cancelled(bridge: &ScriptedBridge) -> [Vec<String>; 2] {
    let lines: Vec<_> = bridge.server.received().iter().map(|line| parse(line)).collect();
    let held = lines.iter().filter(|line| line["params"]["name"] == "hold");
    let cancelled = lines.iter().filter(|line| line["method"] == "notifications/cancelled");
    let held: Vec<_> = held.map(|line| line["id"].to_string()).collect();
    let cancelled: Vec<_> = cancelled.map(|line| line["params"]["requestId"].to_string()).collect();
    [held, cancelled].map(|mut ids| {
        ids.sort();
        ids
    })
}

/// Makes three calls with progress beside a held call. All clients use the same ids; progress tokens are strings or numbers.
fn run_client(bridge: &ScriptedBridge, number: usize, ready: &Barrier) {
    let (path, prefix) = if number.is_multiple_of(2) {
        (passthrough_path("s"), "")
    } else {
        (AGGREGATE_PATH.to_owned(), "s__")
    };
    let client = Client::connect(bridge.address, &path);
    ready.wait();
    let mark = format!("mark {number}.");
    std::thread::scope(|scope| {
        let hold = json!({ "name": format!("{prefix}hold"), "arguments": { "mark": mark } }).to_string();
        let holding = scope.spawn({
            let client = &client;
            move || client.send_request("2", "tools/call", &hold).last_message()
        });
        for turn in 0..3 {
            let token = if number.is_multiple_of(3) {
                json!(number * 10 + turn)
            } else {
                json!(format!("token {number} {turn}"))
            };
            let params = json!({ "name": format!("{prefix}t"), "arguments": { "own": number, "turn": turn }, "_meta": { "progressToken": token } });
            let mut response = client.send_request("1", "tools/call", &params.to_string());
            for n in 1..=20 {
                let report = parse(&response.next_message());
                assert_eq!(report["params"], json!({ "progressToken": token, "progress": n, "total": 20 }));
            }
            let answer = parse(&response.next_message());
            assert_eq!(
                (&answer["id"], &answer["result"]["structuredContent"]),
                (&json!(1), &json!({ "own": number, "turn": turn }))
            );
        }
        bridge.server.wait_for(&mark);
        client.notify("notifications/cancelled", &json!({ "requestId": 2 }));
        assert!(parse(&holding.join().unwrap())["error"].is_object());
    });
    client.end_session();
}

// req: GW-04
#[test]
fn does_not_block_clients_behind_slow_readers() {
    let big = [Behaviour::big(8 << 20, IdPosition::Before)];
    let noisy = Behaviour::text("noise").after_progress(3000);
    let script = Script::new().tools(["t", "big", "noisy"]).calls("big", big).calls("noisy", [noisy]);
    let bridge = ScriptedBridge::start(script);
    let (slow, fast) = (bridge.passthrough_client(), bridge.passthrough_client());
    // Each connection requests more than socket buffers hold and never reads.
    let unread: Vec<_> = (0..8)
        .map(|n| {
            let tool = if n % 2 == 0 { "big" } else { "noisy" };
            let params = json!({ "name": tool, "arguments": { "n": n }, "_meta": { "progressToken": n } });
            let body =
                json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params }).to_string();
            let mut stream = connect(bridge.address);
            stream.write_all(post_request(&slow.path, &[&slow.session_header()], &body).as_bytes()).unwrap();
            stream
        })
        .collect();
    for n in 0..8 {
        bridge.server.wait_for(&format!(r#"{{"n":{n}}}"#));
    }
    let start = Instant::now();
    for n in 0..50 {
        assert_eq!(fast.call("t", &json!({ "n": n }))["result"]["structuredContent"]["n"], n);
    }
    println!(
        "50 calls beside 8 clients that do not read: {:?}; peak {} MB",
        start.elapsed(),
        peak_mb(bridge.process.pid())
    );
    assert!(peak_mb(bridge.process.pid()) < 250, "{} MB", peak_mb(bridge.process.pid()));
    drop(unread);
}
