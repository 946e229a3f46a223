//! Sessions begin, are kept apart and end, and their processes with them.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::client::{Client, connect, hello, posted};
use super::{Bridge, TOGETHER, alone, call, extended, has_begun, parsed};
use crate::fleet::serving::{Serving, children};
use crate::support::{eventually, is_running};

fn own() -> Bridge {
    Bridge::with(
        Script::new().tools(["t", "hold"]).calls("hold", [Behaviour::silence()]),
        json!({ "session": "per-client" }),
    )
}

// req: GW-04
#[test]
fn each_client_has_a_process_that_ends_with_its_session() {
    let bridge = own();
    let clients: Vec<_> = (0..3).map(|_| bridge.alone()).collect();
    let together = bridge.together();
    for client in &clients {
        assert_eq!(client.call("t", &json!({}))["result"]["isError"], false);
    }
    assert_eq!(together.call("s__t", &json!({}))["result"]["isError"], false);
    let started = bridge.server.started();
    assert_eq!(started.len(), 5, "the bridge's own, and one for each client");
    let running = || started.iter().filter(|pid| is_running(**pid)).count();
    assert_eq!(running(), 5);
    clients[0].leave();
    eventually("its process ends", || running() == 4);
    assert_eq!(clients[0].post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 404);
    together.leave();
    eventually("its process ends", || running() == 3);
    assert_eq!(clients[1].call("t", &json!({}))["result"]["isError"], false, "the others go on");
}

// req: GW-04
#[test]
fn at_the_end_no_process_is_left() {
    let script = Script::new().tools(["hold"]).calls("hold", [Behaviour::silence()]);
    let server = ScriptedStdio::new(script);
    let entry = extended(server.entry(), json!({ "session": "per-client" }));
    let mut serving = Serving::start_with(json!({ "s": entry }), &["--grace-ms", "1000"]);
    let clients: Vec<_> = (0..3).map(|_| Client::begin(serving.address(), &alone("s"))).collect();
    let mut hears = clients[0].listen();
    std::thread::scope(|scope| {
        let client = &clients[1];
        let holding = scope
            .spawn(move || client.request("1", "tools/call", &call("hold", &json!({})).to_string()).last());
        server.wait_for("\"hold\"");
        serving.signal("TERM");
        assert_eq!(hears.next(), None, "who listens is told that it is over");
        assert!(parsed(&holding.join().unwrap())["error"].is_object(), "who waits is told too");
        assert!(serving.wait().success());
    });
    assert!(server.started().iter().all(|pid| !is_running(*pid)));
    assert_eq!(children(serving.pid()), Vec::<u32>::new());
}

// req: GW-04
#[test]
fn a_session_is_good_for_its_own_place_only() {
    let bridge = Bridge::of(Script::new().tools(["t"]));
    let client = bridge.alone();
    let elsewhere = Client { path: TOGETHER.into(), ..client.clone() };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(elsewhere.post(ping).status, 404);
    assert_eq!(elsewhere.bare("GET").status, 404);
    assert_eq!(elsewhere.bare("DELETE").status, 404);
    let unknown = Client { session: "no-such".into(), ..client.clone() };
    assert_eq!(unknown.post(ping).status, 404);
    assert_eq!(parsed(&client.post(ping).last())["result"], json!({}));
}

// req: GW-01
#[test]
fn a_server_alone_introduces_itself_and_one_that_is_unknown_is_named() {
    let info = r#"{"name":"own","version":"1.0","x":1.50}"#;
    let script = Script::new()
        .instructions("be kind")
        .server_info(info)
        .capabilities(r#"{"tools":{},"x-new":{"a":-0}}"#);
    let bridge = Bridge::of(script);
    let client = bridge.alone();
    assert!(
        client.welcome.contains(info) && client.welcome.contains(r#""x-new":{"a":-0}"#),
        "{}",
        client.welcome
    );
    assert_eq!(parsed(&client.welcome)["result"]["instructions"], "be kind");
    let together = parsed(&bridge.together().welcome);
    assert_eq!(together["result"]["serverInfo"]["name"], "bascule");
    let mut exchange =
        super::client::post(bridge.address, &alone("nobody"), &[], &super::client::hello(&json!({})));
    let refused = parsed(&exchange.last());
    assert!(refused["error"]["message"].as_str().unwrap().contains("nobody"), "{refused}");
}

// req: GW-04
#[test]
fn a_server_that_comes_back_knows_what_its_clients_want() {
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "logging": {}, "resources": { "subscribe": true } }))
        .tools(["t"])
        .on("resources/subscribe", done);
    let bridge = Bridge::with(script, json!({ "reconnectBackoffMs": 10 }));
    let client = bridge.alone();
    client.ask("resources/subscribe", &json!({ "uri": "x://1" }));
    client.ask("logging/setLevel", &json!({ "level": "warning" }));
    bridge.server.kill();
    eventually("it is back", || bridge.server.started().len() == 2);
    let count = |method: &str| bridge.server.methods().iter().filter(|own| *own == method).count();
    eventually("it knows again", || count("resources/subscribe") == 2 && count("logging/setLevel") == 2);
}

// req: GW-04
#[test]
fn a_reload_loses_no_call_and_no_wish_of_clients_with_processes_of_their_own() {
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "logging": {}, "resources": { "subscribe": true } }))
        .tools(["ask"])
        .calls("ask", [Behaviour::asking([json!({ "method": "roots/list" })])])
        .on("resources/subscribe", done);
    let server = ScriptedStdio::new(script);
    let serving = Serving::start(json!({ "s": server.entry() }));
    has_begun(&server);
    let client = Client::able(serving.address(), &alone("s"), &json!({ "roots": {} }));
    client.ask("resources/subscribe", &json!({ "uri": "x://1" }));
    client.ask("logging/setLevel", &json!({ "level": "warning" }));
    let mut exchange = client.request("1", "tools/call", &call("ask", &json!({})).to_string());
    let question = exchange.until("roots/list");
    let before = server.started();
    serving.configure(&json!({ "s": extended(server.entry(), json!({ "timeoutMs": 29_000 })) }));
    let count = |method: &str| server.methods().iter().filter(|own| *own == method).count();
    eventually("the new one knows", || count("resources/subscribe") == 2 && count("logging/setLevel") == 2);
    eventually("the bridge's and the client's are there, twice", || server.started().len() == 4);
    client.reply(&question, r#"{"roots":[]}"#);
    let answers = exchange.result()["structuredContent"]["answers"].clone();
    assert_eq!(answers[0]["result"], json!({ "roots": [] }), "the call goes on where it began");
    eventually("the old ones end", || before.iter().all(|pid| !is_running(*pid)));
    // One that is configured no more is gone.
    serving.configure(&json!({}));
    eventually("nothing is left of it", || server.started().iter().all(|pid| !is_running(*pid)));
}

// req: GW-01
#[test]
fn a_server_that_starts_late_is_announced() {
    let server =
        ScriptedStdio::new(Script::new().capabilities(json!({ "tools": {}, "prompts": {} })).tools(["t"]));
    let (usual, folder) = (server.entry(), tempfile::tempdir().unwrap());
    let go = folder.path().join("go");
    let wait = r#"while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@""#;
    let late = json!({
        "command": "sh", "args": ["-c", wait, go, usual["command"], usual["args"][0]], "startTimeoutMs": 120_000,
    });
    let serving = Serving::start(json!({ "s": late }));
    // It begins without the server, which it has waited for in vain.
    let client = Client::begin(serving.address(), TOGETHER);
    let mut hears = client.listen();
    std::fs::write(go, "").unwrap();
    let mut heard = [(); 2].map(|()| parsed(&hears.some())["method"].as_str().unwrap().to_owned());
    heard.sort();
    assert_eq!(heard, ["notifications/prompts/list_changed", "notifications/tools/list_changed"]);
    assert_eq!(client.ask("tools/list", &json!({}))["result"]["tools"][0]["name"], "s__t");
}

/// A bridge whose clients may be silent for so long only, with a server that has a process for each.
fn impatient(idle_ms: u32) -> (ScriptedStdio, Serving) {
    let server = ScriptedStdio::new(Script::new().tools(["t"]));
    let entry = extended(server.entry(), json!({ "session": "per-client" }));
    let text = json!({ "mcpServers": { "s": entry }, "bascule": { "sessionIdleMs": idle_ms } });
    let serving = Serving::start_configured(&text.to_string(), &[]);
    has_begun(&server);
    (server, serving)
}

// req: GW-04
#[test]
fn a_client_that_is_silent_for_long_is_gone_and_its_process_too() {
    let (server, serving) = impatient(3000);
    let client = Client::begin(serving.address(), &alone("s"));
    let own = server.started()[1];
    eventually("its process ends", || !is_running(own));
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 404);
}

// req: GW-04
#[test]
fn an_open_stream_keeps_alive_only_who_answers() {
    // Long enough that nobody who answers is late on a busy machine.
    let (server, serving) = impatient(6000);
    let [quick, dead] = [(); 2].map(|()| Client::begin(serving.address(), &alone("s")));
    let (mut hears, mut hears_nothing) = (quick.listen(), dead.listen());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut answered = 0;
            while !is_over.load(Ordering::Relaxed) {
                let ping = hears.until("ping");
                quick.reply(&ping, "{}");
                answered += 1;
            }
            answered
        });
        let pinged = hears_nothing.until("ping");
        assert_eq!(hears_nothing.next(), None, "it is cut off: {pinged}");
        assert_eq!(dead.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 404);
        is_over.store(true, Ordering::Relaxed);
        assert!(answering.join().unwrap() > 1, "it was asked for as long as the other was, and longer");
    });
    assert_eq!(quick.call("t", &json!({}))["result"]["isError"], false);
    eventually("the other's process ends", || {
        server.started().iter().filter(|pid| is_running(**pid)).count() == 2
    });
}

// req: GW-04
#[test]
fn an_id_that_is_in_use_is_refused() {
    let bridge = own();
    let client = bridge.alone();
    std::thread::scope(|scope| {
        let held =
            scope.spawn(|| client.request("7", "tools/call", &call("hold", &json!({})).to_string()).last());
        bridge.server.wait_for("\"hold\"");
        let refused = parsed(&client.request("7", "tools/call", &call("t", &json!({})).to_string()).last());
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        client.notify("notifications/cancelled", &json!({ "requestId": 7 }));
        bridge.server.wait_for("notifications/cancelled");
        held.join().unwrap();
    });
}

// req: GW-04
#[test]
fn who_goes_away_before_it_has_begun_leaves_nothing_behind() {
    let slow = Behaviour::usual().after_delay(Duration::from_secs(20));
    let script = Script::new().tools(["t"]).on("initialize", [Behaviour::usual(), slow]);
    let bridge = Bridge::with(script, json!({ "session": "per-client" }));
    eventually("the bridge's own is there", || bridge.server.methods().iter().any(|own| own == "tools/list"));
    let mut stream = connect(bridge.address);
    stream.write_all(posted(&alone("s"), &[], &hello(&json!({}))).as_bytes()).unwrap();
    eventually("its process starts", || bridge.server.started().len() == 2);
    drop(stream);
    eventually("its process ends", || !is_running(bridge.server.started()[1]));
}
