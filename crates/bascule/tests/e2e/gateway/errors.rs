//! How what goes wrong looks to an MCP client.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::client::Client;
use super::{Bridge, TOGETHER, alone};
use crate::fleet::serving::Serving;
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

    let refused = client.request("1", "tools/call", &format!(r#"{{"name":"{prefix}refuse"}}"#)).last();
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
        let answer = super::parsed(&client.request("1", "tools/call", params).last());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
}

// req: BR-05, GW-01
#[test]
fn errors_are_spelled_for_clients() {
    let bridge = Bridge::with(
        script(),
        json!({ "tools": { "hold": { "timeoutMs": 500 } }, "reconnectBackoffMs": 10 }),
    );
    for (client, prefix) in [(bridge.alone(), ""), (bridge.together(), "s__")] {
        check(&client, prefix);
        eventually("it is back", || bridge.server.started().last().is_some_and(|pid| is_running(*pid)));
        eventually("it is healthy", || bridge.serving.server("s")["health"] == "healthy");
    }
    let refused = bridge.alone().request("1", "x/refuse", "{}").last();
    assert_eq!(refused, r#"{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"","data":null}}"#);
    let unknown = bridge.together().ask("x/refuse", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

// req: BR-05, GW-02
#[test]
fn a_tool_that_is_kept_back_or_misspelled_is_said_to_be() {
    let bridge =
        Bridge::with(Script::new().tools(["search", "secret"]), json!({ "deniedTools": ["secret"] }));
    let client = bridge.together();
    let denied = client.call("s__secret", &json!({}))["result"].clone();
    assert_eq!(denied["_meta"]["bascule/error"]["code"], "POLICY_DENIED", "{denied}");
    let misspelled = client.call("s__serch", &json!({}))["error"].clone();
    assert_eq!(misspelled["code"], -32602, "{misspelled}");
    assert!(misspelled["message"].as_str().unwrap().contains("search"), "{misspelled}");
    assert_eq!(client.call("other__search", &json!({}))["error"]["code"], -32602);
}

// req: BR-05, GW-02
#[test]
fn a_server_that_is_down_is_said_to_be() {
    let servers = json!({ "gone": { "command": "false", "maxRetries": 0 }, "s": { "command": crate::support::program(), "args": ["__demo", "clock"] } });
    let serving = Serving::start(servers);
    let client = Client::begin(serving.address(), TOGETHER);
    eventually("it is given up", || serving.server("gone")["health"] == "unavailable");
    let listed = client.ask("tools/list", &json!({}))["result"].clone();
    let missing = &listed["_meta"]["bascule/missing"][0];
    assert_eq!(missing["server"], "gone", "{listed}");
    assert!(!missing["why"].as_str().unwrap().is_empty());
    assert!(!listed["tools"].as_array().unwrap().is_empty(), "the others are there");
    let called = client.call("gone__x", &json!({}))["result"].clone();
    let error = &called["_meta"]["bascule/error"];
    assert_eq!(
        (&called["isError"], &error["code"]),
        (&json!(true), &json!("PROVIDER_INIT_FAILED")),
        "{called}"
    );
    let body = super::client::hello(&json!({}));
    let refused = super::parsed(&super::client::post(serving.address(), &alone("gone"), &[], &body).last());
    assert_eq!(refused["error"]["data"]["bascule/error"]["server"], "gone", "{refused}");
}

// req: GW-04
#[test]
fn what_a_shared_server_wrote_to_stderr_is_not_told_to_clients() {
    let script = Script::new().stderr("about another\n").tools(["t"]).calls("t", [Behaviour::exit(3)]);
    for (session, is_told) in [("shared", false), ("per-client", true)] {
        let bridge = Bridge::with(script.clone(), json!({ "session": session, "maxRetries": 0 }));
        let failed = bridge.alone().call("t", &json!({}));
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        assert_eq!(failed.to_string().contains("about another"), is_told, "{session}: {failed}");
    }
}

// req: GW-04
#[test]
fn a_call_is_checked_however_it_is_disguised() {
    let bridge = Bridge::with(Script::new().tools(["denied", "t"]), json!({ "deniedTools": ["denied"] }));
    let client = bridge.alone();
    let params = json!({ "name": "denied", "arguments": {} });
    client.notify("tools/call", &params);
    client.notify("Tools/Call ", &params);
    assert_eq!(client.ask("TOOLS/call", &params)["error"]["code"], -32601);
    assert_eq!(client.ask(" tools/call", &params)["error"]["code"], -32601);
    let without_id =
        client.post(r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(without_id.status, 400);
    assert_eq!(client.call("t", &json!({}))["result"]["isError"], false);
    assert!(!bridge.server.received().iter().any(|line| line.contains("denied")));
}
