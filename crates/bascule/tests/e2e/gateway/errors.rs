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
    let text = wrong["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("/n") && text.contains(&format!("`{prefix}strict`")), "{wrong}");
    assert_eq!(wrong["_meta"]["bascule/error"]["tool"], "s:strict");
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
    assert_eq!(misspelled["message"], "there is no tool `s__serch`; did you mean `s__search`?");
    assert_eq!(misspelled["data"]["bascule/error"]["nearest"], json!(["s__search"]));
    let other = client.call("other__search", &json!({}))["error"].clone();
    assert_eq!(
        (&other["code"], &other["message"]),
        (&json!(-32602), &json!("there is no tool `other__search`"))
    );
    let prefix = client.call("search", &json!({}))["error"].clone();
    assert_eq!(prefix["message"], "there is no tool `search`; did you mean `s__search`?");
    let alone = bridge.passthrough_client().call("serch", &json!({}))["error"].clone();
    assert_eq!(alone["message"], "there is no tool `serch`; did you mean `search`?");
}

// req: BR-04
#[test]
fn says_that_the_name_of_a_tool_is_missing() {
    let bridge = ScriptedBridge::start(Script::new().tools(["t"]));
    for client in [bridge.aggregate_client(), bridge.passthrough_client()] {
        for (params, problem) in [
            ("{}", "`name` is missing"),
            (r#"{"arguments":{}}"#, "`name` is missing"),
            (r#"{"name":5}"#, "`name` is not a string"),
            (r#"{"name":""}"#, "`name` is empty"),
        ] {
            let answer = super::parse(&client.send_request("1", "tools/call", params).last_message());
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(problem), "{params}: {answer}");
        }
    }
}

/// The id that the client gives, or the trace id of its `traceparent`.
fn check_correlation(client: &Client, prefix: &str, meta: &Value, id: &str) {
    let call = |tool: &str, arguments: Value| {
        let params = json!({ "name": format!("{prefix}{tool}"), "arguments": arguments, "_meta": meta });
        client.request("tools/call", &params)
    };
    for failed in [call("strict", json!({ "n": "x" })), call("hold", json!({}))] {
        assert_eq!(failed["result"]["_meta"]["bascule/error"]["correlationId"], id, "{failed}");
    }
    let unknown = call("nothing", json!({}));
    assert_eq!(unknown["error"]["data"]["bascule/error"]["correlationId"], id, "{unknown}");
    let nameless = client.request("tools/call", &json!({ "_meta": meta }));
    for refused in [unknown, nameless] {
        assert_eq!(refused["error"]["data"]["bascule/correlationId"], id, "{refused}");
    }
    let refused = call("refuse", json!({}));
    let own = json!({ "code": -31999, "message": "no", "data": { "n": 1.0 }, "x": [] });
    assert_eq!(refused["error"], own, "a server's own error does not change");
}

// req: BR-06
#[test]
fn errors_carry_the_id_of_the_client() {
    let bridge = ScriptedBridge::start_with(script(), json!({ "tools": { "hold": { "timeoutMs": 500 } } }));
    let events = bridge.process.events();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = json!({ "traceparent": format!("00-{trace}-00f067aa0ba902b7-01") });
    for (client, prefix) in [(bridge.passthrough_client(), ""), (bridge.aggregate_client(), "s__")] {
        check_correlation(&client, prefix, &json!({ "bascule/correlationId": "order-17" }), "order-17");
        check_correlation(&client, prefix, &parent, trace);
        let unnamed = client.call(&format!("{prefix}nothing"), &json!({}))["error"]["data"].clone();
        assert_eq!(unnamed["bascule/correlationId"].as_str().unwrap().len(), 32, "{unnamed}");
    }
    assert_eq!(events.wait_for_event("tool.failed")["correlationId"], "order-17");
    let unknown =
        bridge.aggregate_client().request("x/y", &json!({ "_meta": { "bascule/correlationId": "a" } }));
    assert_eq!(unknown["error"]["data"], json!({ "bascule/correlationId": "a" }));
}

// req: BR-01, GW-01
#[test]
fn hides_and_refuses_denied_tools_at_every_endpoint() {
    for filter in [json!({ "deniedTools": ["secret"] }), json!({ "allowedTools": ["search"] })] {
        let bridge = ScriptedBridge::start_with(Script::new().tools(["search", "secret"]), filter);
        let able = Client::with_capabilities(bridge.address, "/servers/s/mcp", &json!({ "roots": {} }));
        let clients = [(bridge.passthrough_client(), ""), (able, ""), (bridge.aggregate_client(), "s__")];
        for (client, prefix) in clients {
            let listed = client.request("tools/list", &json!({}))["result"]["tools"].to_string();
            assert!(listed.contains("search") && !listed.contains("secret"), "{listed}");
            let denied = client.call(&format!("{prefix}secret"), &json!({}))["result"].clone();
            assert_eq!(denied["_meta"]["bascule/error"]["code"], "POLICY_DENIED", "{denied}");
        }
        assert!(bridge.server.received().iter().all(|line| !line.contains(r#""name":"secret""#)));
    }
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
