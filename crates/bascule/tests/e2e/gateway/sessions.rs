//! Sessions begin, are kept apart and end, and their processes with them.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::client::Client;
use super::{Bridge, TOGETHER, alone, call, extended, parsed};
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
