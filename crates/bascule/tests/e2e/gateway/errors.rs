//! Failures as MCP clients see them.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::client::Client;
use super::{AGGREGATE_PATH, ScriptedBridge, passthrough_path};
use crate::fleet::serve_process::ServeProcess;
use crate::support::{eventually, is_running};

fn script() -> Script {
    let strict = json!({
        "name": "strict",
        "inputSchema": { "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] },
    });
    Script::new()
        .tool(strict)
        .tools(["refuse", "die", "hold", "fail", "lie"])
        .calls("refuse", [Behaviour::error(r#"{"code":-31999,"message":"no","data":{"n":1.0},"x":[]}"#)])
        .calls("die", [Behaviour::exit(3)])
        .calls("hold", [Behaviour::silence()])
        .calls("fail", [Behaviour::result(r#"{"content":[],"isError":true}"#)])
        .on("x/refuse", [Behaviour::error(r#"{"code":5,"message":"","data":null}"#)])
}

fn check(client: &Client, prefix: &str) {
    let call = |tool: &str, arguments: Value| client.call(&format!("{prefix}{tool}"), &arguments);
    let wrong = call("strict", json!({ "n": "x" }))["result"].clone();
    assert_eq!(wrong["isError"], true);
    assert!(wrong["content"][0]["text"].as_str().unwrap().contains("/n"), "{wrong}");
    assert_eq!(wrong["structuredContent"]["violations"][0]["pointer"], "/n");

    let unknown = call("nothing", json!({}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("nothing"));

    let refused =
        client.send_request("1", "tools/call", &format!(r#"{{"name":"{prefix}refuse"}}"#)).last_message();
    assert_eq!(
        refused,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-31999,"message":"no","data":{"n":1.0},"x":[]}}"#
    );

    assert_eq!(call("fail", json!({}))["result"], json!({ "content": [], "isError": true }));

    let late = call("hold", json!({}))["result"].clone();
    assert_eq!(
        (&late["isError"], &late["_meta"]["bascule/error"]["code"]),
        (&json!(true), &json!("PROVIDER_TIMEOUT"))
    );
    assert!(!late["content"][0]["text"].as_str().unwrap().is_empty());

    let died = call("die", json!({}))["result"].clone();
    let error = &died["_meta"]["bascule/error"];
    assert_eq!((&died["isError"], &error["code"]), (&json!(true), &json!("PROVIDER_CRASHED")), "{died}");
    assert_eq!((&error["server"], &error["delivery"]), (&json!("s"), &json!("unknown")), "{error}");

    for params in ["{}", r#"{"name":5}"#, "[]", r#"{"name":""}"#] {
        let answer = super::parse(&client.send_request("1", "tools/call", params).last_message());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
}

// req: BR-05, GW-01
#[test]
fn maps_failures_to_json_rpc_errors_and_tool_results() {
    let bridge = ScriptedBridge::start_with(
        script(),
        json!({ "tools": { "hold": { "timeoutMs": 500 } }, "reconnectBackoffMs": 10 }),
    );
    for (client, prefix) in [(bridge.passthrough_client(), ""), (bridge.aggregate_client(), "s__")] {
        check(&client, prefix);
        eventually("the server has restarted", || {
            bridge.server.started().last().is_some_and(|pid| is_running(*pid))
        });
        eventually("the server is healthy", || bridge.process.server_status("s")["health"] == "healthy");
    }
    let refused = bridge.passthrough_client().send_request("1", "x/refuse", "{}").last_message();
    assert_eq!(refused, r#"{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"","data":null}}"#);
    let unknown = bridge.aggregate_client().request("x/refuse", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

// req: BR-05, GW-02
#[test]
fn reports_denied_and_misspelled_tools() {
    let bridge = ScriptedBridge::start_with(
        Script::new().tools(["search", "secret"]),
        json!({ "deniedTools": ["secret"] }),
    );
    let client = bridge.aggregate_client();
    let denied = client.call("s__secret", &json!({}))["result"].clone();
    assert_eq!(denied["_meta"]["bascule/error"]["code"], "POLICY_DENIED", "{denied}");
    let misspelled = client.call("s__serch", &json!({}))["error"].clone();
    assert_eq!(misspelled["code"], -32602, "{misspelled}");
    assert!(misspelled["message"].as_str().unwrap().contains("search"), "{misspelled}");
    assert_eq!(client.call("other__search", &json!({}))["error"]["code"], -32602);
}

// req: BR-05, GW-02
#[test]
fn reports_server_that_did_not_start() {
    let servers =
        json!({ "gone": { "command": "false", "maxRetries": 0 }, "s": crate::support::demo_server("clock") });
    let bridge = ServeProcess::start(servers);
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    eventually("the bridge has given up the server", || {
        bridge.server_status("gone")["health"] == "unavailable"
    });
    let listed = client.request("tools/list", &json!({}))["result"].clone();
    let missing = &listed["_meta"]["bascule/missing"][0];
    assert_eq!(missing["server"], "gone", "{listed}");
    assert!(!missing["why"].as_str().unwrap().is_empty());
    assert!(!listed["tools"].as_array().unwrap().is_empty(), "the tools of the other server are listed");
    let called = client.call("gone__x", &json!({}))["result"].clone();
    let error = &called["_meta"]["bascule/error"];
    assert_eq!(
        (&called["isError"], &error["code"]),
        (&json!(true), &json!("PROVIDER_INIT_FAILED")),
        "{called}"
    );
    let body = super::client::initialize_request(&json!({}));
    let refused = super::parse(
        &super::client::post(bridge.address(), &passthrough_path("gone"), &[], &body).last_message(),
    );
    assert_eq!(refused["error"]["data"]["bascule/error"]["server"], "gone", "{refused}");
}

// req: GW-04
#[test]
fn hides_stderr_of_shared_server_from_clients() {
    let script = Script::new().stderr("about another\n").tools(["t"]).calls("t", [Behaviour::exit(3)]);
    for (session, is_shown) in [("shared", false), ("per-client", true)] {
        let bridge =
            ScriptedBridge::start_with(script.clone(), json!({ "session": session, "maxRetries": 0 }));
        let failed = bridge.passthrough_client().call("t", &json!({}));
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        assert_eq!(failed.to_string().contains("about another"), is_shown, "{session}: {failed}");
    }
}

// req: GW-04
#[test]
fn checks_calls_with_disguised_method_names() {
    let bridge = ScriptedBridge::start_with(
        Script::new().tools(["denied", "t"]),
        json!({ "deniedTools": ["denied"] }),
    );
    let client = bridge.passthrough_client();
    let params = json!({ "name": "denied", "arguments": {} });
    client.notify("tools/call", &params);
    for method in ["Tools/Call ", "TOOLS/call", " tools/call", "tools/call\\u0000"] {
        for id in [r#""id":1,"#, ""] {
            let response =
                client.post(&format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#));
            assert_eq!(response.status, 400, "{method}");
        }
    }
    let without_id =
        client.post(r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(without_id.status, 400);
    assert_eq!(client.call("t", &json!({}))["result"]["isError"], false);
    assert!(!bridge.server.received().iter().any(|line| line.contains("denied")));
}
