//! Many clients at once: each gets its own, and one that is slow costs the others nothing.

use std::io::Write;
use std::sync::Barrier;
use std::time::Instant;

use bascule_testkit::{Behaviour, IdPlace, Script};
use serde_json::json;

use super::client::{Client, connect, posted};
use super::{Bridge, TOGETHER, alone, parsed, peak};
use crate::support::eventually;

// req: GW-04
#[test]
fn a_hundred_clients_do_not_cross() {
    const CLIENTS: usize = 100;
    let script = Script::new()
        .tools(["t", "hold"])
        .calls("t", [Behaviour::echo().after_progress(20)])
        .calls("hold", [Behaviour::silence()]);
    let bridge = Bridge::with(script, json!({ "limits": { "maxConcurrent": 250, "maxQueue": 1000 } }));
    let ready = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (bridge, ready) = (&bridge, &ready);
            scope.spawn(move || one_of_many(bridge, number, ready));
        }
    });
    // Each cancelled one call, and that one. The server may still have to read the last of it.
    eventually("all that was cancelled has reached the server", || {
        held_and_gone(&bridge)[1].len() >= CLIENTS
    });
    let [held, gone] = held_and_gone(&bridge);
    assert_eq!((held.len(), held), (CLIENTS, gone));
}

/// The ids of the calls that were held, and of those that were cancelled.
fn held_and_gone(bridge: &Bridge) -> [Vec<String>; 2] {
    let lines: Vec<_> = bridge.server.received().iter().map(|line| parsed(line)).collect();
    let held = lines.iter().filter(|line| line["params"]["name"] == "hold");
    let gone = lines.iter().filter(|line| line["method"] == "notifications/cancelled");
    let held: Vec<_> = held.map(|line| line["id"].to_string()).collect();
    let gone: Vec<_> = gone.map(|line| line["params"]["requestId"].to_string()).collect();
    [held, gone].map(|mut ids| {
        ids.sort();
        ids
    })
}

/// Every client uses the same ids; tokens are a string here and a number there.
fn one_of_many(bridge: &Bridge, number: usize, ready: &Barrier) {
    let (path, prefix) =
        if number.is_multiple_of(2) { (alone("s"), "") } else { (TOGETHER.to_owned(), "s__") };
    let client = Client::begin(bridge.address, &path);
    ready.wait();
    let mark = format!("mark {number}.");
    std::thread::scope(|scope| {
        let hold = json!({ "name": format!("{prefix}hold"), "arguments": { "mark": mark } }).to_string();
        let holding = scope.spawn({
            let client = &client;
            move || client.request("2", "tools/call", &hold).last()
        });
        for turn in 0..3 {
            let token = if number.is_multiple_of(3) {
                json!(number * 10 + turn)
            } else {
                json!(format!("token {number} {turn}"))
            };
            let params = json!({ "name": format!("{prefix}t"), "arguments": { "own": number, "turn": turn }, "_meta": { "progressToken": token } });
            let mut exchange = client.request("1", "tools/call", &params.to_string());
            for n in 1..=20 {
                let report = parsed(&exchange.some());
                assert_eq!(report["params"], json!({ "progressToken": token, "progress": n, "total": 20 }));
            }
            let answer = parsed(&exchange.some());
            assert_eq!(
                (&answer["id"], &answer["result"]["structuredContent"]),
                (&json!(1), &json!({ "own": number, "turn": turn }))
            );
        }
        bridge.server.wait_for(&mark);
        client.notify("notifications/cancelled", &json!({ "requestId": 2 }));
        assert!(parsed(&holding.join().unwrap())["error"].is_object());
    });
    client.leave();
}

// req: GW-04
#[test]
fn who_does_not_read_stalls_nobody() {
    let big = [Behaviour::big(8 << 20, IdPlace::Before)];
    let noisy = Behaviour::text("noise").after_progress(3000);
    let script = Script::new().tools(["t", "big", "noisy"]).calls("big", big).calls("noisy", [noisy]);
    let bridge = Bridge::of(script);
    let (slow, quick) = (bridge.alone(), bridge.alone());
    // Each of these asks for far more than sockets hold, and never reads.
    let deaf: Vec<_> = (0..8)
        .map(|n| {
            let tool = if n % 2 == 0 { "big" } else { "noisy" };
            let params = json!({ "name": tool, "arguments": { "n": n }, "_meta": { "progressToken": n } });
            let body =
                json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params }).to_string();
            let mut stream = connect(bridge.address);
            stream.write_all(posted(&slow.path, &[&slow.session_header()], &body).as_bytes()).unwrap();
            stream
        })
        .collect();
    for n in 0..8 {
        bridge.server.wait_for(&format!(r#"{{"n":{n}}}"#));
    }
    let begin = Instant::now();
    for n in 0..50 {
        assert_eq!(quick.call("t", &json!({ "n": n }))["result"]["structuredContent"]["n"], n);
    }
    println!("50 calls beside 8 deaf clients: {:?}; peak {} MB", begin.elapsed(), peak(bridge.serving.pid()));
    assert!(peak(bridge.serving.pid()) < 250, "{} MB", peak(bridge.serving.pid()));
    drop(deaf);
}
