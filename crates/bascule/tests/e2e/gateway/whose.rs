//! Whose it is what a server says unasked, where that is easily mistaken (GW-04).

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{Bridge, call, parsed};

fn told(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

// req: GW-04
#[test]
fn what_a_call_of_the_command_line_logs_is_told_to_no_client() {
    let line = |level: &str| told("notifications/message", &json!({ "level": level, "data": "x" }));
    let script = Script::new()
        .capabilities(json!({ "logging": {}, "tools": {} }))
        .tools(["log", "hold"])
        .calls("log", [Behaviour::text("done").after_line(line("info")).after_line(line("error"))])
        .calls("hold", [Behaviour::silence()]);
    let bridge = Bridge::of(script);
    let client = bridge.alone();
    let mut hears = client.listen();
    let by_command = || assert_eq!(bridge.serving.bascule.run(&["call", "s:log"]).code, Some(0));
    by_command();
    // Nor is it taken for a part of what a client does meanwhile.
    let mut held = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.request("9", "tools/call", &call("hold", &json!({})).to_string()));
        bridge.server.wait_for("\"hold\"");
        by_command();
        client.notify("notifications/cancelled", &json!({ "requestId": 9 }));
        asking.join().unwrap()
    });
    let first = parsed(&held.some());
    assert!(first["error"].is_object(), "{first}");
    client.leave();
    assert_eq!(hears.next(), None);
}

// req: GW-04
#[test]
fn what_a_clients_own_call_logs_is_told_to_it_after_the_command_line_has_called() {
    let line = told("notifications/message", &json!({ "level": "error", "data": "x" }));
    let script = Script::new()
        .capabilities(json!({ "logging": {}, "tools": {} }))
        .tools(["log"])
        .calls("log", [Behaviour::text("done").after_line(line)]);
    let bridge = Bridge::of(script);
    let client = bridge.alone();
    assert_eq!(bridge.serving.bascule.run(&["call", "s:log"]).code, Some(0));
    let mut exchange = client.request("1", "tools/call", &call("log", &json!({})).to_string());
    exchange.until("notifications/message");
}

// req: GW-04
#[test]
fn an_update_of_a_part_reaches_those_who_subscribed_to_the_whole() {
    let update = |uri: &str| told("notifications/resources/updated", &json!({ "uri": uri }));
    let parts = ["x://dir/child", "x://dir?page=2", "x://dir#end", "x://directory", "x://dir"];
    let touch = parts.iter().fold(Behaviour::text("touched"), |touch, uri| touch.after_line(update(uri)));
    let done = [Behaviour::result(json!({}))];
    let script = Script::new()
        .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
        .tools(["touch"])
        .calls("touch", [touch])
        .on("resources/subscribe", done);
    let bridge = Bridge::of(script);
    let (alone, together, other) = (bridge.alone(), bridge.together(), bridge.alone());
    let subscriptions =
        [(&alone, "x://dir"), (&together, "bascule://s/x://dir"), (&other, "x://directory/of/others")];
    let mut hear = subscriptions.map(|(client, uri)| {
        assert_eq!(client.ask("resources/subscribe", &json!({ "uri": uri }))["result"], json!({}));
        client.listen()
    });
    alone.call("touch", &json!({}));
    for (hears, (_, own)) in hear.iter_mut().zip(subscriptions).take(2) {
        for rest in ["/child", "?page=2", "#end", ""] {
            assert_eq!(parsed(&hears.some())["params"]["uri"], format!("{own}{rest}"));
        }
    }
    for (hears, (client, _)) in hear.iter_mut().zip(subscriptions) {
        client.leave();
        assert_eq!(hears.next(), None);
    }
}
