//! Server messages during calls of the command line, which cannot receive them.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{ScriptedBridge, call, parse};

fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

// req: GW-04
#[test]
fn sends_logs_of_command_line_call_to_no_client() {
    let log = |level: &str| notification("notifications/message", &json!({ "level": level, "data": "x" }));
    let script = Script::new()
        .capabilities(json!({ "logging": {}, "tools": {} }))
        .tools(["log", "hold"])
        .calls("log", [Behaviour::text("done").after_line(log("info")).after_line(log("error"))])
        .calls("hold", [Behaviour::silence()]);
    let bridge = ScriptedBridge::start(script);
    let client = bridge.passthrough_client();
    let mut stream = client.open_stream();
    let call_by_command = || assert_eq!(bridge.process.bascule.run(&["call", "s:log"]).code, Some(0));
    call_by_command();
    // A call of a client under way does not receive the logs either.
    let mut held = std::thread::scope(|scope| {
        let calling =
            scope.spawn(|| client.send_request("9", "tools/call", &call("hold", &json!({})).to_string()));
        bridge.server.wait_for("\"hold\"");
        call_by_command();
        client.notify("notifications/cancelled", &json!({ "requestId": 9 }));
        calling.join().unwrap()
    });
    let first = parse(&held.next_message());
    assert!(first["error"].is_object(), "{first}");
    client.end_session();
    assert_eq!(stream.next(), None);
}

// req: GW-04
#[test]
fn sends_logs_to_calling_client_after_command_line_call() {
    let log = notification("notifications/message", &json!({ "level": "error", "data": "x" }));
    let script = Script::new()
        .capabilities(json!({ "logging": {}, "tools": {} }))
        .tools(["log"])
        .calls("log", [Behaviour::text("done").after_line(log)]);
    let bridge = ScriptedBridge::start(script);
    let client = bridge.passthrough_client();
    assert_eq!(bridge.process.bascule.run(&["call", "s:log"]).code, Some(0));
    let mut response = client.send_request("1", "tools/call", &call("log", &json!({})).to_string());
    response.wait_for_method("notifications/message");
}
