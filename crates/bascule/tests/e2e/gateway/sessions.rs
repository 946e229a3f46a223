//! Start, separation and end of sessions and of their server processes.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::json;

use super::client::{Client, connect, initialize_request, post_request};
use super::{
    AGGREGATE_PATH, ScriptedBridge, call, parse, passthrough_path, wait_for_first_process, with_settings,
};
use crate::fleet::serve_process::ServeProcess;
use crate::support::{children, eventually, is_running};

fn bridge_with_process_per_client() -> ScriptedBridge {
    ScriptedBridge::start_with(
        Script::new().tools(["t", "hold"]).calls("hold", [Behaviour::silence()]),
        json!({ "session": "per-client" }),
    )
}

// req: GW-04
#[test]
fn stops_process_of_client_when_session_ends() {
    let bridge = bridge_with_process_per_client();
    let clients: Vec<_> = (0..3).map(|_| bridge.passthrough_client()).collect();
    let aggregate = bridge.aggregate_client();
    for client in &clients {
        assert_eq!(client.call("t", &json!({}))["result"]["isError"], false);
    }
    assert_eq!(aggregate.call("s__t", &json!({}))["result"]["isError"], false);
    let started = bridge.server.started();
    assert_eq!(started.len(), 5, "one process for the bridge and one for each client");
    let running = || started.iter().filter(|pid| is_running(**pid)).count();
    assert_eq!(running(), 5);
    clients[0].end_session();
    eventually("the process of the client exits", || running() == 4);
    assert_eq!(clients[0].post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 404);
    aggregate.end_session();
    eventually("the process of the client exits", || running() == 3);
    assert_eq!(clients[1].call("t", &json!({}))["result"]["isError"], false, "the other sessions continue");
}

// req: GW-04
#[test]
fn leaves_no_process_after_shutdown() {
    let script = Script::new().tools(["hold"]).calls("hold", [Behaviour::silence()]);
    let server = ScriptedStdio::new(script);
    let entry = with_settings(server.entry(), json!({ "session": "per-client" }));
    let mut bridge = ServeProcess::start_with(json!({ "s": entry }), &["--grace-ms", "1000"]);
    let clients: Vec<_> = (0..3).map(|_| Client::connect(bridge.address(), &passthrough_path("s"))).collect();
    let mut stream = clients[0].open_stream();
    std::thread::scope(|scope| {
        let client = &clients[1];
        let holding = scope.spawn(move || {
            client.send_request("1", "tools/call", &call("hold", &json!({})).to_string()).last_message()
        });
        server.wait_for("\"hold\"");
        bridge.signal("TERM");
        assert_eq!(stream.next(), None, "the open stream ends");
        assert!(parse(&holding.join().unwrap())["error"].is_object(), "the pending call fails");
        assert!(bridge.wait_for_exit().success());
    });
    assert!(server.started().iter().all(|pid| !is_running(*pid)));
    assert_eq!(children(bridge.pid()), Vec::<u32>::new());
}

// req: GW-04
#[test]
fn rejects_session_at_another_endpoint() {
    let bridge = ScriptedBridge::start(Script::new().tools(["t"]));
    let client = bridge.passthrough_client();
    let elsewhere = Client { path: AGGREGATE_PATH.into(), ..client.clone() };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(elsewhere.post(ping).status, 404);
    assert_eq!(elsewhere.send_without_body("GET").status, 404);
    assert_eq!(elsewhere.send_without_body("DELETE").status, 404);
    let unknown = Client { session: "no-such".into(), ..client.clone() };
    assert_eq!(unknown.post(ping).status, 404);
    assert_eq!(parse(&client.post(ping).last_message())["result"], json!({}));
}

// req: GW-01
#[test]
fn passes_server_info_through_and_names_unknown_server() {
    let info = r#"{"name":"own","version":"1.0","x":1.50}"#;
    let script = Script::new()
        .instructions("be kind")
        .server_info(info)
        .capabilities(r#"{"tools":{},"x-new":{"a":-0}}"#);
    let bridge = ScriptedBridge::start(script);
    let client = bridge.passthrough_client();
    assert!(
        client.initialize_response.contains(info)
            && client.initialize_response.contains(r#""x-new":{"a":-0}"#),
        "{}",
        client.initialize_response
    );
    assert_eq!(parse(&client.initialize_response)["result"]["instructions"], "be kind");
    let aggregate = parse(&bridge.aggregate_client().initialize_response);
    assert_eq!(aggregate["result"]["serverInfo"]["name"], "bascule");
    let mut response = super::client::post(
        bridge.address,
        &passthrough_path("nobody"),
        &[],
        &super::client::initialize_request(&json!({})),
    );
    let refused = parse(&response.last_message());
    assert!(refused["error"]["message"].as_str().unwrap().contains("nobody"), "{refused}");
}

// req: GW-04
#[test]
fn restores_subscriptions_and_log_level_after_restart() {
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "logging": {}, "resources": { "subscribe": true } }))
        .tools(["t"])
        .on("resources/subscribe", done);
    let bridge = ScriptedBridge::start_with(script, json!({ "reconnectBackoffMs": 10 }));
    let client = bridge.passthrough_client();
    client.request("resources/subscribe", &json!({ "uri": "x://1" }));
    client.request("logging/setLevel", &json!({ "level": "warning" }));
    bridge.server.kill();
    eventually("the server has restarted", || bridge.server.started().len() == 2);
    let count = |method: &str| bridge.server.methods().iter().filter(|own| *own == method).count();
    eventually("subscription and log level are restored", || {
        count("resources/subscribe") == 2 && count("logging/setLevel") == 2
    });
}

// req: GW-04
#[test]
fn reload_keeps_calls_subscriptions_and_log_level_of_clients() {
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "logging": {}, "resources": { "subscribe": true } }))
        .tools(["ask"])
        .calls("ask", [Behaviour::asking([json!({ "method": "roots/list" })])])
        .on("resources/subscribe", done);
    let server = ScriptedStdio::new(script);
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    wait_for_first_process(&server);
    let client = Client::with_capabilities(bridge.address(), &passthrough_path("s"), &json!({ "roots": {} }));
    client.request("resources/subscribe", &json!({ "uri": "x://1" }));
    client.request("logging/setLevel", &json!({ "level": "warning" }));
    let mut response = client.send_request("1", "tools/call", &call("ask", &json!({})).to_string());
    let request = response.wait_for_method("roots/list");
    let before = server.started();
    bridge.configure(&json!({ "s": with_settings(server.entry(), json!({ "timeoutMs": 29_000 })) }));
    let count = |method: &str| server.methods().iter().filter(|own| *own == method).count();
    eventually("the new process has subscription and log level", || {
        count("resources/subscribe") == 2 && count("logging/setLevel") == 2
    });
    eventually("the processes of the bridge and of the client are replaced", || server.started().len() == 4);
    client.respond(&request, r#"{"roots":[]}"#);
    let answers = response.result()["structuredContent"]["answers"].clone();
    assert_eq!(answers[0]["result"], json!({ "roots": [] }), "the call continues in the old process");
    eventually("the old processes exit", || before.iter().all(|pid| !is_running(*pid)));
    // A removed server is stopped.
    bridge.configure(&json!({}));
    eventually("all processes of the removed server exit", || {
        server.started().iter().all(|pid| !is_running(*pid))
    });
}

/// Starts a bridge whose server waits until the file exists.
fn bridge_with_late_server(server: &ScriptedStdio, go: &Path) -> ServeProcess {
    let entry = server.entry();
    let wait = r#"while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@""#;
    ServeProcess::start(json!({ "s": {
        "command": "sh", "args": ["-c", wait, go, entry["command"], entry["args"][0]], "startTimeoutMs": 120_000,
    } }))
}

// req: GW-01
#[test]
fn announces_server_that_starts_after_client() {
    let server =
        ScriptedStdio::new(Script::new().capabilities(json!({ "tools": {}, "prompts": {} })).tools(["t"]));
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let bridge = bridge_with_late_server(&server, &go);
    // The session starts without the server, after a bounded wait for it.
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let mut stream = client.open_stream();
    std::fs::write(go, "").unwrap();
    let mut methods = [(); 2].map(|()| parse(&stream.next_message())["method"].as_str().unwrap().to_owned());
    methods.sort();
    assert_eq!(methods, ["notifications/prompts/list_changed", "notifications/tools/list_changed"]);
    assert_eq!(client.request("tools/list", &json!({}))["result"]["tools"][0]["name"], "s__t");
}

// req: GW-01, GW-04
#[test]
fn announces_listing_once_if_server_announces_it_too() {
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed", "x": 1 });
    let tools = json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] });
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "prompts": {} }))
        .on("tools/list", [Behaviour::result(tools).after_line(changed.clone())]);
    let server = ScriptedStdio::new(script);
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let bridge = bridge_with_late_server(&server, &go);
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let mut stream = client.open_stream();
    std::fs::write(go, "").unwrap();
    // Listings are announced together, in the order of their methods.
    assert_eq!(parse(&stream.next_message()), changed, "the server's own notification is forwarded");
    assert_eq!(parse(&stream.next_message())["method"], "notifications/tools/list_changed");
    client.end_session();
    assert_eq!(stream.next(), None);
}

/// A bridge that ends idle sessions after this time, with one server process per client.
fn bridge_with_idle_limit(idle_ms: u32) -> (ScriptedStdio, ServeProcess) {
    let server = ScriptedStdio::new(Script::new().tools(["t"]));
    let entry = with_settings(server.entry(), json!({ "session": "per-client" }));
    let text = json!({ "mcpServers": { "s": entry }, "bascule": { "sessionIdleMs": idle_ms } });
    let bridge = ServeProcess::start_with_config(&text.to_string(), &[]);
    wait_for_first_process(&server);
    (server, bridge)
}

// req: GW-04
#[test]
fn ends_idle_session_and_its_process() {
    let (server, bridge) = bridge_with_idle_limit(3000);
    let client = Client::connect(bridge.address(), &passthrough_path("s"));
    let client_process = server.started()[1];
    eventually("the process of the client exits", || !is_running(client_process));
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 404);
}

// req: GW-04
#[test]
fn open_stream_keeps_session_only_if_client_answers_pings() {
    // Long enough for timely answers on a busy machine.
    let (server, bridge) = bridge_with_idle_limit(6000);
    let [responsive, silent] = [(); 2].map(|()| Client::connect(bridge.address(), &passthrough_path("s")));
    let (mut answered_stream, mut silent_stream) = (responsive.open_stream(), silent.open_stream());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut answered = 0;
            while !is_over.load(Ordering::Relaxed) {
                let ping = answered_stream.wait_for_method("ping");
                responsive.respond(&ping, "{}");
                answered += 1;
            }
            answered
        });
        let ping = silent_stream.wait_for_method("ping");
        assert_eq!(silent_stream.next(), None, "the stream ends: {ping}");
        assert_eq!(silent.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 404);
        is_over.store(true, Ordering::Relaxed);
        assert!(answering.join().unwrap() > 1, "the responsive client is pinged repeatedly");
    });
    assert_eq!(responsive.call("t", &json!({}))["result"]["isError"], false);
    eventually("the process of the silent client exits", || {
        server.started().iter().filter(|pid| is_running(**pid)).count() == 2
    });
}

// req: GW-04
#[test]
fn rejects_request_id_in_use() {
    let bridge = bridge_with_process_per_client();
    let client = bridge.passthrough_client();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            client.send_request("7", "tools/call", &call("hold", &json!({})).to_string()).last_message()
        });
        bridge.server.wait_for("\"hold\"");
        let refused =
            parse(&client.send_request("7", "tools/call", &call("t", &json!({})).to_string()).last_message());
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        client.notify("notifications/cancelled", &json!({ "requestId": 7 }));
        bridge.server.wait_for("notifications/cancelled");
        held.join().unwrap();
    });
}

// req: GW-04
#[test]
fn stops_process_of_client_that_disconnects_during_start() {
    let slow = Behaviour::usual().after_delay(Duration::from_secs(20));
    let script = Script::new().tools(["t"]).on("initialize", [Behaviour::usual(), slow]);
    let bridge = ScriptedBridge::start_with(script, json!({ "session": "per-client" }));
    eventually("the bridge has initialized the server", || {
        bridge.server.methods().iter().any(|own| own == "tools/list")
    });
    let mut stream = connect(bridge.address);
    stream
        .write_all(post_request(&passthrough_path("s"), &[], &initialize_request(&json!({}))).as_bytes())
        .unwrap();
    eventually("the process of the client starts", || bridge.server.started().len() == 2);
    drop(stream);
    eventually("the process of the client exits", || !is_running(bridge.server.started()[1]));
}
