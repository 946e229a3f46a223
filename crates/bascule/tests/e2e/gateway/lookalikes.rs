//! Calls that another decoder could read as other calls.

use bascule_testkit::Script;
use serde_json::json;

use super::ScriptedBridge;
use super::client::Client;

/// A server with a denied tool, and a tool whose schema restricts a path.
fn start() -> ScriptedBridge {
    let path = json!({ "type": "string", "pattern": "^/safe/" });
    let options = json!({ "type": "object", "properties": { "path": path } });
    let properties = json!({ "path": path, "options": { "type": "array", "items": options } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["path"] });
    let script = Script::new().tools(["delete_all"]).tool(json!({ "name": "read", "inputSchema": schema }));
    ScriptedBridge::start_with(script, json!({ "deniedTools": ["delete*"] }))
}

/// Sends messages, in which `read` stands for the tool, and expects an error with this text for each.
fn check(bridge: &ScriptedBridge, client: &Client, tool: &str, messages: &[(&str, &str)]) {
    for (message, expected) in messages {
        let body = message.replace("\"read\"", &format!("\"{tool}\""));
        let answer = client.post(&format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#)).last_message();
        assert!(
            answer.contains(expected)
                && !answer.contains("\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"{"),
            "{body}: {answer}"
        );
    }
    let received = bridge.server.received();
    assert!(
        received.iter().all(|line| !line.contains("tools/call") && !line.contains("delete_all")),
        "{received:?}"
    );
}

// req: BR-04, BR-14
#[test]
fn refuses_members_that_differ_in_letter_case_or_occur_twice() {
    let bridge = start();
    let messages = [
        (
            r#""method":"tools/call","params":{"name":"read","name\u0000":"delete_all","arguments":{"path":"/safe/x"}}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"},"arguments\u0000":{"path":"/etc/shadow"}}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"}},"params\u0000":{"name":"delete_all"}"#,
            "may be read as",
        ),
        (
            r#""method":"resources/list","method\u0000":"tools/call","params":{"name":"delete_all"}"#,
            "may be read as",
        ),
        (r#""method":"tools/call\u0000","params":{"name":"delete_all"}"#, "may be read as"),
        (r#""method":"toolſ/call","params":{"name":"delete_all"}"#, "may be read as"),
        (r#""method":"TOOLS/call","params":{"name":"delete_all"}"#, "may be read as"),
        (r#""method":"/tools//call","params":{"name":"delete_all"}"#, "may be read as"),
        (
            r#""method":"tools/call","params":{"name":"read","Name":"delete_all","arguments":{"path":"/safe/x"}}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","\u004eAME":"delete_all","arguments":{"path":"/safe/x"}}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"},"Arguments":{"path":"/etc/shadow"}}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"},"argumentſ":{"path":"/etc/shadow"}}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","name":"delete_all","arguments":{"path":"/safe/x"}}"#,
            "-32602",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"},"arguments":{"path":"/etc/shadow"}}"#,
            "occurs twice",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"}},"Params":{"name":"delete_all"}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"}},"PARAMS":{"name":"delete_all"}"#,
            "may be read as",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x"}},"params":{"name":"delete_all"}"#,
            "duplicate",
        ),
        (
            r#""method":"resources/list","Method":"tools/call","params":{"name":"delete_all"}"#,
            "may be read as",
        ),
        (
            r#""method":"resources/list","\u004dethod":"tools/call","params":{"name":"delete_all"}"#,
            "may be read as",
        ),
    ];
    check(&bridge, &bridge.passthrough_client(), "read", &messages);
    check(&bridge, &bridge.aggregate_client(), "s__read", &messages);
}

// req: BR-04
#[test]
fn refuses_arguments_that_the_validator_cannot_read() {
    let bridge = start();
    let deep = format!(
        r#""method":"tools/call","params":{{"name":"read","arguments":{{"path":"/etc/shadow","x":{}{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let messages = [
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x","options":[{"path":"/safe/x","Path":"/etc/shadow"}]}}"#,
            "only in letter case",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x","path\u0000":"/etc/shadow"}}"#,
            "control character",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/etc/shadow","x":1e999}}"#,
            "out of range",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/etc/shadow","x":"\ud800"}}"#,
            "hex escape",
        ),
        (&deep, "recursion limit"),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/etc/shadow","path":"/safe/x"}}"#,
            "occurs twice",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x","path":"/etc/shadow"}}"#,
            "occurs twice",
        ),
        (
            r#""method":"tools/call","params":{"name":"read","arguments":{"path":"/safe/x","Path":"/etc/shadow"}}"#,
            "only in letter case",
        ),
    ];
    check(&bridge, &bridge.passthrough_client(), "read", &messages);
    check(&bridge, &bridge.aggregate_client(), "s__read", &messages);
    let valid = bridge.passthrough_client().call("read", &json!({ "path": "/safe/x", "other": [1.5e300] }));
    assert_eq!(valid["result"]["isError"], false, "{valid}");
}
