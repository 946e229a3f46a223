//! What servers and clients say of one another's requests reaches the one right peer (GW-04).

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::Client;
use super::{Bridge, TOGETHER, alone, parsed};
use crate::fleet::serving::Serving;
use crate::support::eventually;

/// Two servers that hold every call of `hold`.
fn two() -> (ScriptedStdio, ScriptedStdio, Serving) {
    let server =
        || ScriptedStdio::new(Script::new().tools(["hold", "t"]).calls("hold", [Behaviour::silence()]));
    let (a, b) = (server(), server());
    let serving = Serving::start(json!({ "a": a.entry(), "b": b.entry() }));
    (a, b, serving)
}

fn of_method(server: &ScriptedStdio, method: &str) -> Vec<Value> {
    let lines = server.received().into_iter().map(|line| parsed(&line));
    lines.filter(|message| message["method"] == method).collect()
}

// req: GW-04
#[test]
fn a_cancellation_reaches_the_right_server_under_its_own_id() {
    let (a, b, serving) = two();
    let client = Client::begin(serving.address(), TOGETHER);
    let other = Client::begin(serving.address(), &alone("a"));
    let hold = |tool: &str, mark: &str| json!({ "name": tool, "arguments": { "mark": mark } }).to_string();
    // The same id at two servers, and from two clients at one.
    let _others = other.request("9", "tools/call", &hold("hold", "other"));
    let mut mine = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.request("9", "tools/call", &hold("a__hold", "mine")));
        let mine = parsed(&a.wait_for("\"mine\""));
        a.wait_for("\"other\"");
        client.notify("notifications/cancelled", &json!({ "requestId": 9, "reason": "enough" }));
        let cancelled = parsed(&a.wait_for("notifications/cancelled"));
        assert_eq!(cancelled["params"]["requestId"], mine["id"]);
        asking.join().unwrap()
    });
    // Whoever still reads learns that there will be no answer.
    assert!(parsed(&mine.last())["error"].is_object());
    assert_eq!(of_method(&a, "notifications/cancelled").len(), 1, "the other client's call goes on");
    assert_eq!(of_method(&b, "notifications/cancelled").len(), 0);
    // What is not under way is not cancelled.
    client.notify("notifications/cancelled", &json!({ "requestId": 10 }));
    assert_eq!(client.call("a__t", &json!({}))["result"]["isError"], false);
    assert_eq!(of_method(&a, "notifications/cancelled").len(), 1);
}

/// A server that logs at two levels when it is called.
fn talkative() -> Script {
    let log = |level: &str| json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": level, "data": level } });
    let says = Behaviour::text("done").after_line(log("debug")).after_line(log("error"));
    Script::new().capabilities(json!({ "logging": {}, "tools": {} })).tools(["t"]).calls("t", [says])
}

fn logged(client: &Client, tool: &str) -> Vec<Value> {
    let mut exchange = client.request("1", "tools/call", &json!({ "name": tool }).to_string());
    let mut levels = Vec::new();
    while let Some(message) = exchange.next() {
        let message = parsed(&message);
        if message["method"] == "notifications/message" {
            levels.push(message["params"]["level"].clone());
        }
    }
    levels
}

// req: GW-04
#[test]
fn each_client_has_its_own_log_level() {
    let bridge = Bridge::of(talkative());
    let (quiet, curious) = (bridge.alone(), bridge.together());
    assert_eq!(quiet.ask("logging/setLevel", &json!({ "level": "error" }))["result"], json!({}));
    assert_eq!(curious.ask("logging/setLevel", &json!({ "level": "debug" }))["result"], json!({}));
    assert_eq!(logged(&quiet, "t"), ["error"]);
    assert_eq!(logged(&curious, "s__t"), ["debug", "error"]);
    // The server was told the lowest that anybody wants.
    assert_eq!(quiet.ask("logging/setLevel", &json!({ "level": "alert" }))["result"], json!({}));
    let told = of_method(&bridge.server, "logging/setLevel");
    let levels: Vec<_> = told.iter().map(|told| told["params"]["level"].as_str().unwrap()).collect();
    // Who has set none wants the usual.
    assert_eq!(levels, ["info", "debug", "debug"]);
    assert!(quiet.ask("logging/setLevel", &json!({ "level": "loud" }))["error"].is_object());
}

// req: GW-04
#[test]
fn a_changed_list_is_told_to_those_it_concerns_and_once() {
    let change = |method: &str| json!({ "jsonrpc": "2.0", "method": method });
    let a = Script::new()
        .capabilities(json!({ "tools": { "listChanged": true }, "prompts": {}, "resources": {} }));
    let a = a.tools(["t", "change"]).on("prompts/list", [Behaviour::result(json!({ "prompts": [] }))]);
    // In one piece, so that they come in a row however busy the machine is.
    let many = vec![change("notifications/tools/list_changed").to_string(); 20].join("\n");
    let changing = Behaviour::text("changed").after_line(change("notifications/prompts/list_changed"));
    let a = a.calls("change", [changing.after_line(many)]);
    let server = ScriptedStdio::new(a.clone());
    let b = ScriptedStdio::new(Script::new().tools(["t"]));
    let serving = Serving::start(json!({ "a": server.entry(), "b": b.entry() }));
    let address = serving.address();
    let (at_a, at_b, at_all) = (
        Client::begin(address, &alone("a")),
        Client::begin(address, &alone("b")),
        Client::begin(address, TOGETHER),
    );
    at_all.ask("prompts/list", &json!({}));
    let (mut hears_a, mut hears_b, mut hears_all) = (at_a.listen(), at_b.listen(), at_all.listen());
    server.change(a.tools(["new"]));
    assert_eq!(at_a.call("change", &json!({}))["result"]["isError"], false);
    for hears in [&mut hears_a, &mut hears_all] {
        hears.until("notifications/prompts/list_changed");
        hears.until("notifications/tools/list_changed");
    }
    let names = |client: &Client| -> Vec<String> {
        let tools = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&at_a).contains(&"new".to_owned()));
    assert!(names(&at_all).contains(&"a__new".to_owned()));
    // The next that each of them hears is what another change makes.
    b.change(Script::new().tools(["t", "other"]));
    assert_eq!(serving.bascule.run(&["refresh", "b"]).code, Some(0));
    assert_eq!(parsed(&hears_b.some())["method"], "notifications/tools/list_changed");
    assert_eq!(parsed(&hears_all.some())["method"], "notifications/tools/list_changed");
    assert!(names(&at_all).contains(&"b__other".to_owned()));
    at_a.leave();
    assert_eq!(hears_a.next(), None, "nothing of `b` is told to who sees `a` alone, and nothing twice");
}

// req: GW-04
#[test]
fn updates_of_a_resource_reach_those_who_subscribed() {
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
    let bridge = Bridge::of(script);
    let (one, two, third) = (bridge.alone(), bridge.together(), bridge.alone());
    let (mut hears_one, mut hears_two, mut hears_third) = (one.listen(), two.listen(), third.listen());
    for client in [&one, &two] {
        assert_eq!(client.ask("resources/subscribe", &json!({ "uri": "x://1" }))["result"], json!({}));
    }
    third.call("touch", &json!({}));
    for hears in [&mut hears_one, &mut hears_two] {
        assert_eq!(parsed(&hears.some())["params"]["uri"], "x://1");
    }
    one.ask("resources/unsubscribe", &json!({ "uri": "x://1" }));
    assert_eq!(of_method(&bridge.server, "resources/unsubscribe").len(), 0, "somebody still wants it");
    third.call("touch", &json!({}));
    assert_eq!(parsed(&hears_two.some())["params"]["uri"], "x://1");
    two.ask("resources/unsubscribe", &json!({ "uri": "x://1" }));
    assert_eq!(of_method(&bridge.server, "resources/subscribe").len(), 1);
    assert_eq!(of_method(&bridge.server, "resources/unsubscribe").len(), 1);
    for (client, hears) in [(&one, &mut hears_one), (&two, &mut hears_two), (&third, &mut hears_third)] {
        client.leave();
        assert_eq!(hears.next(), None);
    }
}

// req: GW-04
#[test]
fn a_subscription_ends_with_the_last_of_its_clients() {
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .on("resources/subscribe", done.clone())
        .on("resources/unsubscribe", done);
    let bridge = Bridge::of(script);
    let (one, two) = (bridge.alone(), bridge.alone());
    for client in [&one, &two] {
        client.ask("resources/subscribe", &json!({ "uri": "x://1" }));
    }
    one.leave();
    two.leave();
    eventually("the server is told", || of_method(&bridge.server, "resources/unsubscribe").len() == 1);
}

// req: GW-04
#[test]
fn when_the_one_who_wants_to_hear_most_leaves_the_server_hears_of_it() {
    let script = Script::new().capabilities(json!({ "tools": {}, "logging": {} })).tools(["t"]);
    let bridge = Bridge::of(script);
    let [one, two] = [(); 2].map(|()| bridge.alone());
    let set = |client: &Client, level: &str| client.ask("logging/setLevel", &json!({ "level": level }));
    let told = || {
        let lines = bridge.server.received();
        let levels =
            lines.iter().map(|line| parsed(line)).filter(|line| line["method"] == "logging/setLevel");
        levels.map(|line| line["params"]["level"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    set(&one, "debug");
    set(&two, "error");
    one.leave();
    eventually("it is told what the other wants", || told() == ["debug", "debug", "error"]);
    set(&two, "debug");
    two.leave();
    eventually("it is told that nobody wants anything", || told()[3..] == ["debug", "info"]);
}

// req: GW-04
#[test]
fn an_update_of_a_part_is_told_to_who_subscribed_to_the_whole() {
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
    let bridge = Bridge::of(script);
    let client = bridge.alone();
    let mut hears = client.listen();
    client.ask("resources/subscribe", &json!({ "uri": "x://dir" }));
    client.call("touch", &json!({}));
    assert_eq!(hears.until("notifications/resources/updated")["params"]["uri"], "x://dir/child");
}

// req: GW-04
#[test]
fn listings_that_change_many_times_in_a_row_are_told_once() {
    let changed =
        json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed", "params": { "x": 1.0 } });
    // In one piece, so that they come in a row however busy the machine is.
    let chatty = Behaviour::text("done").after_line(vec![changed.to_string(); 100].join("\n"));
    let last = json!({ "jsonrpc": "2.0", "method": "notifications/x/list_changed" });
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "prompts": {} }))
        .tools(["chat", "last"])
        .calls("chat", [chatty])
        .calls("last", [Behaviour::text("").after_line(last)]);
    let bridge = Bridge::of(script);
    // It has to do with all servers from its beginning.
    let client = bridge.together();
    let mut hears = client.listen();
    client.call("s__chat", &json!({}));
    assert_eq!(parsed(&hears.some())["params"], json!({ "x": 1.0 }));
    client.call("s__last", &json!({}));
    let mut told = 1;
    while parsed(&hears.some())["method"] != "notifications/x/list_changed" {
        told += 1;
    }
    assert!(told < 20, "{told}");
}
