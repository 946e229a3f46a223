//! Routing of cancellations, log messages, list changes and resource updates to the right peer.

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::Client;
use super::{AGGREGATE_PATH, ScriptedBridge, parse, passthrough_path};
use crate::fleet::serve_process::ServeProcess;
use crate::support::eventually;

/// Starts a bridge with two servers that never answer calls of `hold`.
fn two_servers() -> (ScriptedStdio, ScriptedStdio, ServeProcess) {
    let server =
        || ScriptedStdio::new(Script::new().tools(["hold", "t"]).calls("hold", [Behaviour::silence()]));
    let (a, b) = (server(), server());
    let bridge = ServeProcess::start(json!({ "a": a.entry(), "b": b.entry() }));
    (a, b, bridge)
}

fn messages_with_method(server: &ScriptedStdio, method: &str) -> Vec<Value> {
    let lines = server.received().into_iter().map(|line| parse(&line));
    lines.filter(|message| message["method"] == method).collect()
}

// req: BR-12
#[test]
fn sends_only_reading_requests_again_after_crash() {
    let request = |method: &str| {
        let behaviours = [Behaviour::exit(3), Behaviour::result(json!({}))];
        let capabilities = json!({ "tools": {}, "prompts": {}, "completions": {} });
        let bridge = ScriptedBridge::start(Script::new().capabilities(capabilities).on(method, behaviours));
        let response = bridge.passthrough_client().request(method, &json!({ "name": "x" }));
        (response["result"].is_object(), messages_with_method(&bridge.server, method).len())
    };
    assert_eq!(request("prompts/get"), (true, 2));
    assert_eq!(request("completion/complete"), (false, 1));
}

// req: GW-04
#[test]
fn routes_cancellation_to_right_server_with_upstream_id() {
    let (a, b, bridge) = two_servers();
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let other = Client::connect(bridge.address(), &passthrough_path("a"));
    let hold = |tool: &str, mark: &str| json!({ "name": tool, "arguments": { "mark": mark } }).to_string();
    // Two clients use the same id at one server.
    let _held = other.send_request("9", "tools/call", &hold("hold", "other"));
    let mut cancelled_response = std::thread::scope(|scope| {
        let calling = scope.spawn(|| client.send_request("9", "tools/call", &hold("a__hold", "mine")));
        let mine = parse(&a.wait_for("\"mine\""));
        a.wait_for("\"other\"");
        client.notify("notifications/cancelled", &json!({ "requestId": 9, "reason": "enough" }));
        let cancelled = parse(&a.wait_for("notifications/cancelled"));
        assert_eq!(cancelled["params"]["requestId"], mine["id"]);
        calling.join().unwrap()
    });
    // A client that still reads receives an error.
    assert!(parse(&cancelled_response.last_message())["error"].is_object());
    assert_eq!(
        messages_with_method(&a, "notifications/cancelled").len(),
        1,
        "the call of the other client is not cancelled"
    );
    assert_eq!(messages_with_method(&b, "notifications/cancelled").len(), 0);
    // An unknown id cancels nothing.
    client.notify("notifications/cancelled", &json!({ "requestId": 10 }));
    assert_eq!(client.call("a__t", &json!({}))["result"]["isError"], false);
    assert_eq!(messages_with_method(&a, "notifications/cancelled").len(), 1);
}

/// A server whose tool logs at two levels.
fn logging_server() -> Script {
    let log = |level: &str| json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": level, "data": level } });
    let logs = Behaviour::text("done").after_line(log("debug")).after_line(log("error"));
    Script::new().capabilities(json!({ "logging": {}, "tools": {} })).tools(["t"]).calls("t", [logs])
}

fn logged_levels(client: &Client, tool: &str) -> Vec<Value> {
    let mut response = client.send_request("1", "tools/call", &json!({ "name": tool }).to_string());
    let mut levels = Vec::new();
    while let Some(message) = response.next() {
        let message = parse(&message);
        if message["method"] == "notifications/message" {
            levels.push(message["params"]["level"].clone());
        }
    }
    levels
}

// req: GW-04
#[test]
fn filters_logs_by_level_of_each_client() {
    let bridge = ScriptedBridge::start(logging_server());
    let (quiet, verbose) = (bridge.passthrough_client(), bridge.aggregate_client());
    assert_eq!(quiet.request("logging/setLevel", &json!({ "level": "error" }))["result"], json!({}));
    assert_eq!(verbose.request("logging/setLevel", &json!({ "level": "debug" }))["result"], json!({}));
    assert_eq!(logged_levels(&quiet, "t"), ["error"]);
    assert_eq!(logged_levels(&verbose, "s__t"), ["debug", "error"]);
    // The server receives the lowest level of all clients.
    assert_eq!(quiet.request("logging/setLevel", &json!({ "level": "alert" }))["result"], json!({}));
    let sent = messages_with_method(&bridge.server, "logging/setLevel");
    let levels: Vec<_> = sent.iter().map(|message| message["params"]["level"].as_str().unwrap()).collect();
    // A client that has set no level counts as `info`.
    assert_eq!(levels, ["info", "debug", "debug"]);
    assert!(quiet.request("logging/setLevel", &json!({ "level": "loud" }))["error"].is_object());
}

// req: GW-04
#[test]
fn announces_changed_list_once_to_concerned_clients() {
    let change = |method: &str| json!({ "jsonrpc": "2.0", "method": method });
    let a = Script::new()
        .capabilities(json!({ "tools": { "listChanged": true }, "prompts": {}, "resources": {} }));
    let a = a.tools(["t", "change"]).on("prompts/list", [Behaviour::result(json!({ "prompts": [] }))]);
    // One write, so that the messages arrive together on a busy machine too.
    let many = vec![change("notifications/tools/list_changed").to_string(); 20].join("\n");
    let changing = Behaviour::text("changed").after_line(change("notifications/prompts/list_changed"));
    let a = a.calls("change", [changing.after_line(many)]);
    let server = ScriptedStdio::new(a.clone());
    let b = ScriptedStdio::new(Script::new().tools(["t"]));
    let bridge = ServeProcess::start(json!({ "a": server.entry(), "b": b.entry() }));
    let address = bridge.address();
    let (at_a, at_b, at_all) = (
        Client::connect(address, &passthrough_path("a")),
        Client::connect(address, &passthrough_path("b")),
        Client::connect(address, AGGREGATE_PATH),
    );
    at_all.request("prompts/list", &json!({}));
    let (mut stream_a, mut stream_b, mut stream_all) =
        (at_a.open_stream(), at_b.open_stream(), at_all.open_stream());
    server.set_script(a.tools(["new"]));
    assert_eq!(at_a.call("change", &json!({}))["result"]["isError"], false);
    for stream in [&mut stream_a, &mut stream_all] {
        stream.wait_for_method("notifications/prompts/list_changed");
        stream.wait_for_method("notifications/tools/list_changed");
    }
    let names = |client: &Client| -> Vec<String> {
        let tools = client.request("tools/list", &json!({}))["result"]["tools"].clone();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&at_a).contains(&"new".to_owned()));
    assert!(names(&at_all).contains(&"a__new".to_owned()));
    // The next message on each stream is the one for the change of `b`.
    b.set_script(Script::new().tools(["t", "other"]));
    assert_eq!(bridge.bascule.run(&["refresh", "b"]).code, Some(0));
    assert_eq!(parse(&stream_b.next_message())["method"], "notifications/tools/list_changed");
    assert_eq!(parse(&stream_all.next_message())["method"], "notifications/tools/list_changed");
    assert!(names(&at_all).contains(&"b__other".to_owned()));
    at_a.end_session();
    assert_eq!(stream_a.next(), None, "a client of `a` receives nothing of `b`, and nothing twice");
}

// req: GW-04
#[test]
fn delivers_resource_updates_to_subscribers() {
    let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "x://1" } });
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .tools(["touch"])
        .calls("touch", [Behaviour::text("touched").after_line(updated)])
        .on(
            "resources/list",
            [Behaviour::result(json!({ "resources": [{ "uri": "x://1", "name": "one" }] }))],
        )
        .on("resources/subscribe", done.clone())
        .on("resources/unsubscribe", done);
    let bridge = ScriptedBridge::start(script);
    let (one, two, third) =
        (bridge.passthrough_client(), bridge.aggregate_client(), bridge.passthrough_client());
    let (mut stream_one, mut stream_two, mut stream_third) =
        (one.open_stream(), two.open_stream(), third.open_stream());
    for client in [&one, &two] {
        assert_eq!(client.request("resources/subscribe", &json!({ "uri": "x://1" }))["result"], json!({}));
    }
    third.call("touch", &json!({}));
    for stream in [&mut stream_one, &mut stream_two] {
        assert_eq!(parse(&stream.next_message())["params"]["uri"], "x://1");
    }
    one.request("resources/unsubscribe", &json!({ "uri": "x://1" }));
    assert_eq!(
        messages_with_method(&bridge.server, "resources/unsubscribe").len(),
        0,
        "another client is still subscribed"
    );
    third.call("touch", &json!({}));
    assert_eq!(parse(&stream_two.next_message())["params"]["uri"], "x://1");
    two.request("resources/unsubscribe", &json!({ "uri": "x://1" }));
    assert_eq!(messages_with_method(&bridge.server, "resources/subscribe").len(), 1);
    assert_eq!(messages_with_method(&bridge.server, "resources/unsubscribe").len(), 1);
    for (client, stream) in [(&one, &mut stream_one), (&two, &mut stream_two), (&third, &mut stream_third)] {
        client.end_session();
        assert_eq!(stream.next(), None);
    }
}

// req: GW-04
#[test]
fn asks_the_server_for_second_subscriber_until_the_first_is_confirmed() {
    let done = Behaviour::result(json!({}));
    let refused = Behaviour::error(json!({ "code": -32002, "message": "no such resource" }));
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .on("resources/subscribe", [Behaviour::silence(), refused, done]);
    let bridge = ScriptedBridge::start(script);
    let subscribe = |client: &Client| client.request("resources/subscribe", &json!({ "uri": "x://1" }));
    let [first, second, third, fourth] = std::array::from_fn(|_| bridge.passthrough_client());
    let _unanswered = {
        let (client, uri) = (first.clone(), json!({ "uri": "x://1" }).to_string());
        std::thread::spawn(move || client.send_request("1", "resources/subscribe", &uri))
    };
    bridge.server.wait_for("resources/subscribe");
    assert_eq!(subscribe(&second)["error"]["code"], -32002);
    assert_eq!(subscribe(&third)["result"], json!({}));
    assert_eq!(subscribe(&fourth)["result"], json!({}));
    let asked = messages_with_method(&bridge.server, "resources/subscribe");
    assert_eq!(asked.len(), 3, "the fourth is answered from the third");
}

// req: GW-04
#[test]
fn unsubscribes_when_last_client_leaves() {
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .on("resources/subscribe", done.clone())
        .on("resources/unsubscribe", done);
    let bridge = ScriptedBridge::start(script);
    let (one, two) = (bridge.passthrough_client(), bridge.passthrough_client());
    for client in [&one, &two] {
        client.request("resources/subscribe", &json!({ "uri": "x://1" }));
    }
    one.end_session();
    two.end_session();
    eventually("the bridge unsubscribes at the server", || {
        messages_with_method(&bridge.server, "resources/unsubscribe").len() == 1
    });
}

// req: GW-04
#[test]
fn raises_log_level_when_most_verbose_client_leaves() {
    let script = Script::new().capabilities(json!({ "tools": {}, "logging": {} })).tools(["t"]);
    let bridge = ScriptedBridge::start(script);
    let [one, two] = [(); 2].map(|()| bridge.passthrough_client());
    let set = |client: &Client, level: &str| client.request("logging/setLevel", &json!({ "level": level }));
    let sent = || {
        let lines = bridge.server.received();
        let levels = lines.iter().map(|line| parse(line)).filter(|line| line["method"] == "logging/setLevel");
        levels.map(|line| line["params"]["level"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    set(&one, "debug");
    set(&two, "error");
    one.end_session();
    eventually("the server receives the level of the other client", || sent() == ["debug", "debug", "error"]);
    set(&two, "debug");
    two.end_session();
    eventually("the server receives the default level", || sent()[3..] == ["debug", "info"]);
}

// req: GW-04
#[test]
fn delivers_updates_of_sub_resources_to_subscribers_of_the_parent() {
    let update = |uri: &str| json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } });
    let parts = ["x://dir/child", "x://dir?page=2", "x://dir#end", "x://directory", "x://dir"];
    let touch = parts.iter().fold(Behaviour::text("touched"), |touch, uri| touch.after_line(update(uri)));
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .tools(["touch"])
        .calls("touch", [touch])
        .on("resources/subscribe", done);
    let bridge = ScriptedBridge::start(script);
    let (passthrough, aggregate, other) =
        (bridge.passthrough_client(), bridge.aggregate_client(), bridge.passthrough_client());
    let subscriptions =
        [(&passthrough, "x://dir"), (&aggregate, "bascule://s/x://dir"), (&other, "x://directory/of/others")];
    let mut streams = subscriptions.map(|(client, uri)| {
        assert_eq!(client.request("resources/subscribe", &json!({ "uri": uri }))["result"], json!({}));
        client.open_stream()
    });
    passthrough.call("touch", &json!({}));
    for (stream, (_, subscribed)) in streams.iter_mut().zip(subscriptions).take(2) {
        for rest in ["/child", "?page=2", "#end", ""] {
            assert_eq!(parse(&stream.next_message())["params"]["uri"], format!("{subscribed}{rest}"));
        }
    }
    for (stream, (client, _)) in streams.iter_mut().zip(subscriptions) {
        client.end_session();
        assert_eq!(stream.next(), None);
    }
}

// req: GW-04
#[test]
fn does_not_deliver_updates_of_resources_with_a_longer_name() {
    let updated = |uri: &str| {
        let params = json!({ "uri": uri });
        json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params })
    };
    let touch = Behaviour::text("").after_line(updated("x://directory")).after_line(updated("x://dir/child"));
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .tools(["touch"])
        .calls("touch", [touch])
        .on("resources/subscribe", [Behaviour::result(json!({}))]);
    let bridge = ScriptedBridge::start(script);
    let client = bridge.passthrough_client();
    let mut stream = client.open_stream();
    client.request("resources/subscribe", &json!({ "uri": "x://dir" }));
    client.call("touch", &json!({}));
    assert_eq!(stream.wait_for_method("notifications/resources/updated")["params"]["uri"], "x://dir/child");
}

// req: GW-04
#[test]
fn coalesces_bursts_of_list_changed() {
    let changed =
        json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed", "params": { "x": 1.0 } });
    // One write, so that the messages arrive together on a busy machine too.
    let burst = Behaviour::text("done").after_line(vec![changed.to_string(); 100].join("\n"));
    let last = json!({ "jsonrpc": "2.0", "method": "notifications/x/list_changed" });
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "prompts": {} }))
        .tools(["burst", "last"])
        .calls("burst", [burst])
        .calls("last", [Behaviour::text("").after_line(last)]);
    let bridge = ScriptedBridge::start(script);
    // A client of the aggregate endpoint uses every server from the start.
    let client = bridge.aggregate_client();
    let mut stream = client.open_stream();
    client.call("s__burst", &json!({}));
    assert_eq!(parse(&stream.next_message())["params"], json!({ "x": 1.0 }));
    client.call("s__last", &json!({}));
    let mut received = 1;
    while parse(&stream.next_message())["method"] != "notifications/x/list_changed" {
        received += 1;
    }
    assert!(received < 20, "{received}");
}
