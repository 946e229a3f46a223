//! Requests of servers to clients (sampling, elicitation, roots): routed to the client whose call caused them, or refused
//! if that is ambiguous.

use std::time::Duration;

use bascule_testkit::{Behaviour, IdPosition, Script, ScriptedHttp, ScriptedStdio};
use serde_json::{Value, json};

use super::client::{Client, HttpResponse};
use super::{AGGREGATE_PATH, ScriptedBridge, call, parse, passthrough_path};
use crate::fleet::serve_process::ServeProcess;
use crate::support::{eventually, with_settings};

/// Capabilities of a client that answers every request of a server.
fn full_capabilities() -> Value {
    json!({ "sampling": {}, "elicitation": {}, "roots": { "listChanged": true } })
}

fn sampling_request() -> Value {
    json!({ "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } })
}

/// A server whose tool `ask` sends three requests to the client; `hold` never answers.
fn asking_server() -> Script {
    let elicitation = json!({ "method": "elicitation/create", "params": { "message": "who?" } });
    Script::new()
        .tools(["ask", "hold"])
        .calls(
            "ask",
            [Behaviour::asking([sampling_request(), elicitation, json!({ "method": "roots/list" })])],
        )
        .calls("hold", [Behaviour::silence()])
}

/// Answers the three requests on the response stream of the call and returns what the server received.
fn answer_requests(client: &Client, response: &mut HttpResponse, name: &str) -> Value {
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let request = response.wait_for_method(method);
        client.respond(&request, &format!(r#"{{"by":"{name}","n":1.0}}"#));
    }
    response.result()["structuredContent"]["answers"].clone()
}

// req: GW-04
#[test]
fn routes_request_to_calling_client() {
    let bridge = ScriptedBridge::start(asking_server());
    let clients = [("/servers/s/mcp", "ask"), (AGGREGATE_PATH, "s__ask")];
    let clients = clients
        .map(|(path, tool)| (Client::with_capabilities(bridge.address, path, &full_capabilities()), tool));
    for (number, (client, tool)) in clients.iter().enumerate() {
        let name = format!("client {number}");
        let mut response = client.send_request("1", "tools/call", &call(tool, &json!({})).to_string());
        let answers = answer_requests(client, &mut response, &name);
        for (number, answer) in answers.as_array().unwrap().iter().enumerate() {
            assert_eq!(answer["result"]["by"], name.as_str(), "{answer}");
            assert!(
                answer["id"].as_str().unwrap().starts_with("asked-"),
                "{number}: the response has the server's id"
            );
        }
    }
    let lines = bridge.server.received();
    assert!(
        lines.iter().any(|line| line.ends_with(r#""result":{"by":"client 0","n":1.0}}"#)),
        "the result is forwarded byte for byte"
    );
    // Clients with equal capabilities share a process; the bridge has another one.
    assert_eq!(bridge.server.started().len(), 2);
    for capabilities in [json!({}), full_capabilities()] {
        bridge.server.wait_until(|line| {
            let message = parse(line);
            message["method"] == "initialize" && message["params"]["capabilities"] == capabilities
        });
    }
}

/// Checks that the bridge refused every request and named the setting that helps.
fn check_refused(answered: &Value) {
    let answers = answered["result"]["structuredContent"]["answers"].as_array().unwrap();
    for answer in answers {
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(message.contains(r#"session: "per-client""#), "{answer}");
    }
}

// req: GW-04
#[test]
fn routes_requests_of_http_server_by_response_stream() {
    let server = ScriptedHttp::start(asking_server().session("s").sse([]));
    let bridge = bridge_to(&server);
    let clients = [(); 3]
        .map(|()| Client::with_capabilities(bridge.address(), &passthrough_path("s"), &full_capabilities()));
    // All calls are under way before the first request is answered.
    let params = call("ask", &json!({})).to_string();
    let mut calls: Vec<_> =
        clients.iter().map(|client| client.send_request("1", "tools/call", &params)).collect();
    let first: Vec<_> = calls.iter_mut().map(|call| call.wait_for_method("sampling/createMessage")).collect();
    for (number, (client, request)) in clients.iter().zip(&first).enumerate() {
        client.respond(request, &format!(r#"{{"by":"client {number}"}}"#));
    }
    for (number, (client, call)) in clients.iter().zip(&mut calls).enumerate() {
        let name = format!("client {number}");
        for method in ["elicitation/create", "roots/list"] {
            let request = call.wait_for_method(method);
            client.respond(&request, &format!(r#"{{"by":"{name}"}}"#));
        }
        let answers = call.result()["structuredContent"]["answers"].clone();
        let by: Vec<_> = answers.as_array().unwrap().iter().map(|answer| &answer["result"]["by"]).collect();
        assert_eq!(by, [&name; 3], "{answers}");
    }
}

fn bridge_to(server: &ScriptedHttp) -> ServeProcess {
    ServeProcess::start(json!({ "s": { "type": "http", "url": server.url() } }))
}

// req: GW-04
#[test]
fn drops_messages_on_stream_of_bridge_request() {
    let listing = Behaviour::usual().after_log("of the bridge").as_sse();
    let script = Script::new()
        .tools(["t"])
        .session("s")
        .on("tools/list", [Behaviour::usual(), listing])
        .calls("t", [Behaviour::text("done").after_log("of the call").after_list_changed().as_sse()]);
    let server = ScriptedHttp::start(script);
    let bridge = bridge_to(&server);
    let (client, events) = (Client::connect(bridge.address(), &passthrough_path("s")), bridge.events());
    let mut stream = client.open_stream();
    let mut response = client.send_request("1", "tools/call", &call("t", &json!({})).to_string());
    assert_eq!(response.wait_for_method("notifications/message")["params"]["data"], "of the call");
    events.wait_for_event("tools.refreshed");
    client.end_session();
    let messages: Vec<String> = std::iter::from_fn(|| stream.next()).collect();
    assert!(messages.iter().all(|message| !message.contains("of the bridge")), "{messages:?}");
}

// req: GW-04
#[test]
fn refuses_request_of_http_server_after_client_left() {
    let late = Behaviour::asking([sampling_request()]).after_delay(Duration::from_secs(1)).as_sse();
    let server = ScriptedHttp::start(Script::new().tools(["t"]).session("s").calls("t", [late]));
    let bridge = bridge_to(&server);
    let client = Client::with_capabilities(bridge.address(), &passthrough_path("s"), &full_capabilities());
    let _exchange = client.send_request("1", "tools/call", &call("t", &json!({})).to_string());
    let received = |part: &str| server.requests().iter().any(|request| request.body.contains(part));
    eventually("the tool is called", || received("tools/call"));
    client.end_session();
    eventually("the server receives the refusal", || received("the client has disconnected"));
}

// req: GW-04
#[test]
fn does_not_reuse_request_ids_after_restart() {
    let bridge =
        ScriptedBridge::start_with(asking_server().tools(["t"]), json!({ "reconnectBackoffMs": 10 }));
    let client = bridge.passthrough_client();
    client.call("t", &json!({}));
    bridge.server.kill();
    eventually("the server has restarted", || bridge.server.started().len() == 2);
    eventually("the server is healthy", || bridge.process.server_status("s")["health"] == "healthy");
    client.call("t", &json!({}));
    let ids: Vec<Value> = bridge.server.received().iter().map(|line| parse(line)["id"].clone()).collect();
    let mut numbers: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() == all && all >= 6, "{ids:?}");
}

// req: GW-04
#[test]
fn refuses_request_while_two_clients_have_calls() {
    let script = asking_server().calls("hold", [Behaviour::asking([json!({ "method": "x/go-on" })])]);
    let bridge = ScriptedBridge::start(script);
    let [one, two] = [(); 2]
        .map(|()| Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities()));
    let mut held = one.send_request("1", "tools/call", &call("hold", &json!({})).to_string());
    let go_on = held.wait_for_method("x/go-on");
    check_refused(&two.call("ask", &json!({})));
    one.respond(&go_on, "{}");
    held.result();
    // With one call left, its client is asked.
    let mut response = two.send_request("2", "tools/call", &call("ask", &json!({})).to_string());
    answer_requests(&two, &mut response, "two");
}

// req: GW-04, GW-08
#[test]
fn routes_request_during_script_to_client_of_script() {
    let script = asking_server().calls("hold", [Behaviour::asking([json!({ "method": "x/go-on" })])]);
    let bridge = ScriptedBridge::start(script);
    let [one, two] =
        [(); 2].map(|()| Client::with_capabilities(bridge.address, AGGREGATE_PATH, &full_capabilities()));
    let code = call("execute_code", &json!({ "code": "return (await s.ask({})).answers" })).to_string();
    let mut response = one.send_request("1", "tools/call", &code);
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let request = response.wait_for_method(method);
        one.respond(&request, r#"{"by":"one"}"#);
    }
    assert_eq!(response.result()["structuredContent"]["result"][0]["result"]["by"], "one");
    // While another client has a call at the server, the request is refused.
    let mut held = two.send_request("2", "tools/call", &call("s__hold", &json!({})).to_string());
    let go_on = held.wait_for_method("x/go-on");
    let refused = one.send_request("3", "tools/call", &code).result();
    let message = refused["structuredContent"]["result"][0]["error"]["message"].as_str();
    assert!(message.is_some_and(|message| message.contains("per-client")), "{refused}");
    two.respond(&go_on, "{}");
    held.result();
}

// req: GW-04
#[test]
fn cancelled_call_counts_until_server_answers_it() {
    // Longer than the steps before it take on a busy machine.
    let late = Duration::from_secs(15);
    let script =
        asking_server().calls("hold", [Behaviour::text("late").after_delay(late), Behaviour::silence()]);
    let bridge = ScriptedBridge::start(script);
    let [one, two] = [(); 2]
        .map(|()| Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities()));
    let cancel_call = |id: u32| {
        let held = std::thread::scope(|scope| {
            let params = call("hold", &json!({ "mark": format!("held {id}") })).to_string();
            let (one, id) = (&one, id.to_string());
            let holding = scope.spawn({
                let id = id.clone();
                move || one.send_request(&id, "tools/call", &params).last_message()
            });
            bridge.server.wait_for(&format!("held {id}"));
            one.notify("notifications/cancelled", &json!({ "requestId": id.parse::<u32>().unwrap() }));
            holding.join().unwrap()
        });
        assert!(parse(&held)["error"].is_object(), "{held}");
    };
    cancel_call(1);
    check_refused(&two.call("ask", &json!({})));
    // After the late answer only one call is left.
    eventually("the client of the remaining call is asked", || {
        let mut response = two.send_request("2", "tools/call", &call("ask", &json!({})).to_string());
        let first = parse(&response.next_message());
        let is_asked = first["method"] == "sampling/createMessage";
        if is_asked {
            two.respond(&first, "{}");
            for method in ["elicitation/create", "roots/list"] {
                let request = response.wait_for_method(method);
                two.respond(&request, "{}");
            }
            response.result();
        }
        is_asked
    });
    // If the server never answers, the call counts even after its client has left.
    cancel_call(3);
    one.end_session();
    check_refused(&two.call("ask", &json!({})));
}

// req: GW-04
#[test]
fn call_of_unknown_outcome_counts() {
    // The response without an id may belong to another call: the server may still work on this one.
    let script = asking_server().calls("hold", [Behaviour::big(200_000, IdPosition::Missing)]);
    let bridge = ScriptedBridge::start_with(script, json!({ "limits": { "maxOutputBytes": 100_000 } }));
    let [one, two] = [(); 2]
        .map(|()| Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities()));
    let failed = one.call("hold", &json!({}));
    assert_eq!(failed["result"]["_meta"]["bascule/error"]["delivery"], "unknown", "{failed}");
    check_refused(&two.call("ask", &json!({})));
}

// req: GW-04
#[test]
fn sends_messages_of_command_line_call_to_no_client() {
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "CLI" } });
    let script = Script::new()
        .tools(["t", "u"])
        .calls("t", [Behaviour::asking([json!({ "method": "x/ask" })]).after_line(log)])
        .calls("u", [Behaviour::text("u").after_log("mine")]);
    let bridge = ScriptedBridge::start(script);
    let client = bridge.passthrough_client();
    let mut stream = client.open_stream();
    assert_eq!(client.call("u", &json!({}))["result"]["isError"], false);
    let called = bridge.process.bascule.run(&["call", "s:t"]);
    assert!(called.stdout.contains("a call of the command line"), "the request is not refused: {called:?}");
    client.request("x/unknown", &json!({}));
    client.end_session();
    let messages: Vec<_> = std::iter::from_fn(|| stream.next()).collect();
    assert!(messages.iter().all(|message| !message.contains("CLI")), "{messages:?}");
}

// req: GW-04
#[test]
fn sends_only_requests_the_client_supports() {
    let bridge = ScriptedBridge::start(asking_server());
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &json!({ "roots": {} }));
    let mut response = client.send_request("1", "tools/call", &call("ask", &json!({})).to_string());
    let request = parse(&response.next_message());
    assert_eq!(request["method"], "roots/list");
    client.respond(&request, "{}");
    let answers = response.result()["structuredContent"]["answers"].clone();
    assert_eq!([&answers[0]["error"]["code"], &answers[1]["error"]["code"]], [-32601, -32601]);
    assert_eq!(answers[2]["result"], json!({}));
}

// req: GW-04
#[test]
fn routes_concurrent_requests_with_process_per_client() {
    let bridge = ScriptedBridge::start_with(asking_server(), json!({ "session": "per-client" }));
    let clients: Vec<_> = (0..4)
        .map(|_| Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities()))
        .collect();
    let mut responses: Vec<_> = std::thread::scope(|scope| {
        let calling = clients.iter().map(|client| {
            scope.spawn(|| client.send_request("1", "tools/call", &call("ask", &json!({})).to_string()))
        });
        calling.collect::<Vec<_>>().into_iter().map(|call| call.join().unwrap()).collect()
    });
    for (number, (client, response)) in clients.iter().zip(&mut responses).enumerate() {
        let answers = answer_requests(client, response, &format!("{number}"));
        assert!(
            answers.as_array().unwrap().iter().all(|answer| answer["result"]["by"] == format!("{number}"))
        );
    }
}

// req: GW-04
#[test]
fn routes_request_to_client_with_several_calls() {
    let bridge = ScriptedBridge::start(asking_server());
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    std::thread::scope(|scope| {
        let holding =
            scope.spawn(|| client.send_request("1", "tools/call", &call("hold", &json!({})).to_string()));
        bridge.server.wait_for("\"hold\"");
        let mut response = client.send_request("2", "tools/call", &call("ask", &json!({})).to_string());
        answer_requests(&client, &mut response, "me");
        client.notify("notifications/cancelled", &json!({ "requestId": 1 }));
        holding.join().unwrap();
    });
    // With an open GET stream the request arrives there.
    let mut stream = client.open_stream();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.send_request("3", "tools/call", &call("hold", &json!({ "mark": "again" })).to_string())
        });
        bridge.server.wait_for("\"again\"");
        let calling = scope
            .spawn(|| client.send_request("4", "tools/call", &call("ask", &json!({})).to_string()).result());
        for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
            let request = stream.wait_for_method(method);
            client.respond(&request, "{}");
        }
        calling.join().unwrap();
        client.notify("notifications/cancelled", &json!({ "requestId": 3 }));
    });
}

// req: GW-04
#[test]
fn refuses_pending_request_when_client_leaves() {
    let bridge = ScriptedBridge::start(asking_server());
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    let mut response = client.send_request("1", "tools/call", &call("ask", &json!({})).to_string());
    response.wait_for_method("sampling/createMessage");
    client.end_session();
    let refused = parse(&bridge.server.wait_until(|line| line.contains("asked-0")));
    assert!(refused["error"].is_object(), "{refused}");
    // Another client cannot answer in its place.
    let other = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    other.post_accepted(r#"{"jsonrpc":"2.0","id":"bascule-1","result":{}}"#);
    assert!(!bridge.server.received().iter().any(|line| line.contains("asked-0") && line.contains("result")));
}

/// A server whose request carries the same progress token as that of every other server.
fn server_with_progress_token() -> ScriptedStdio {
    let params = json!({ "messages": [], "_meta": { "progressToken": 1 } });
    let request = json!({ "method": "sampling/createMessage", "params": params });
    ScriptedStdio::new(Script::new().tools(["ask"]).calls("ask", [Behaviour::asking([request])]))
}

// req: GW-04
#[test]
fn routes_progress_to_requesting_server() {
    let (a, b) = (server_with_progress_token(), server_with_progress_token());
    let bridge = ServeProcess::start(json!({ "a": a.entry(), "b": b.entry() }));
    let client = Client::with_capabilities(bridge.address(), AGGREGATE_PATH, &full_capabilities());
    let mut at_a = client.send_request("1", "tools/call", &call("a__ask", &json!({})).to_string());
    let asked_a = at_a.wait_for_method("sampling/createMessage");
    let mut at_b = client.send_request("2", "tools/call", &call("b__ask", &json!({})).to_string());
    let asked_b = at_b.wait_for_method("sampling/createMessage");
    let token = |request: &Value| request["params"]["_meta"]["progressToken"].clone();
    assert_ne!(token(&asked_a), token(&asked_b), "equal tokens of two servers are made distinct");
    let report = json!({ "progressToken": token(&asked_b), "progress": 5 });
    client.notify("notifications/progress", &report);
    let reported = parse(&b.wait_for("notifications/progress"));
    assert_eq!(reported["params"], json!({ "progressToken": 1, "progress": 5 }));
    client.respond(&asked_b, "{}");
    client.respond(&asked_a, "{}");
    at_a.result();
    at_b.result();
    assert!(!a.methods().iter().any(|method| method == "notifications/progress"));
}

// req: GW-04
#[test]
fn forwards_roots_list_changed() {
    let bridge = ScriptedBridge::start(asking_server());
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    client.notify("notifications/roots/list_changed", &json!({}));
    bridge.server.wait_for("notifications/roots/list_changed");
}

// req: GW-04
#[test]
fn forwards_cancellation_of_request_to_client() {
    let cancellation = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "q", "reason": "late" }
    });
    let [kept, request] = ["p", "q"].map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" }));
    let cancelled_request =
        Behaviour::text("done").after_line(kept).after_line(request).after_line(cancellation);
    let bridge = ScriptedBridge::start(Script::new().tools(["t"]).calls("t", [cancelled_request]));
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    let mut response = client.send_request("1", "tools/call", r#"{"name":"t"}"#);
    response.wait_for_method("roots/list");
    let asked = response.wait_for_method("roots/list");
    let cancelled = response.wait_for_method("notifications/cancelled");
    assert_eq!(cancelled["params"], json!({ "requestId": asked["id"], "reason": "late" }));
    let rest: Vec<String> = std::iter::from_fn(|| response.next()).collect();
    assert!(!rest.concat().contains("notifications/cancelled"), "the other request stays: {rest:?}");
}

// req: GW-04
#[test]
fn announces_tools_changed_in_own_process() {
    let change = [Behaviour::text("changed").after_list_changed()];
    let script = Script::new().tools(["change"]).calls("change", change);
    let bridge = ScriptedBridge::start(script.clone());
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    let mut stream = client.open_stream();
    bridge.server.set_script(script.tools(["new"]));
    assert_eq!(client.call("change", &json!({}))["result"]["isError"], false);
    stream.wait_for_method("notifications/tools/list_changed");
    assert_eq!(client.request("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().len(), 2);
}

/// A server that lists two tools, one of them denied, only for clients with capabilities.
fn bridge_with_capability_dependent_tools() -> ScriptedBridge {
    let script = Script::new()
        .tools(["plain"])
        .tool_for_capable_clients("ask")
        .tool_for_capable_clients("secret")
        .calls("ask", [Behaviour::asking([sampling_request()])]);
    ScriptedBridge::start_with(script, json!({ "deniedTools": ["secret"] }))
}

fn tool_names(client: &Client) -> Vec<String> {
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    // `execute_code` belongs to the bridge.
    names.filter(|name| name != "execute_code").collect()
}

// req: GW-01, GW-04
#[test]
fn aggregate_lists_tools_for_client_capabilities() {
    let bridge = bridge_with_capability_dependent_tools();
    let plain = bridge.aggregate_client();
    let client = Client::with_capabilities(bridge.address, AGGREGATE_PATH, &full_capabilities());
    assert_eq!(tool_names(&client), ["s__plain", "s__ask"]);
    assert_eq!(tool_names(&plain), ["s__plain"]);
    let mut response = client.send_request("1", "tools/call", &call("s__ask", &json!({})).to_string());
    let request = response.wait_for_method("sampling/createMessage");
    client.respond(&request, r#"{"by":"me"}"#);
    assert_eq!(response.result()["structuredContent"]["answers"][0]["result"]["by"], "me");
    assert!(plain.call("s__ask", &json!({}))["error"].is_object(), "an unlisted tool cannot be called");
    let denied = client.call("s__secret", &json!({}));
    assert_eq!(denied["result"]["_meta"]["bascule/error"]["code"], "POLICY_DENIED", "not denied: {denied}");
    let wrong = client.send_request("2", "tools/call", r#"{"name":"s__ask","arguments":[]}"#).result();
    assert_eq!(wrong["isError"], true, "arguments are not checked: {wrong}");
}

// req: GW-04
#[test]
fn aggregate_announces_tools_changed_in_own_process() {
    let change = [Behaviour::text("changed").after_list_changed()];
    let script = Script::new().tools(["plain"]).tool_for_capable_clients("change").calls("change", change);
    let bridge = ScriptedBridge::start(script.clone());
    let client = Client::with_capabilities(bridge.address, AGGREGATE_PATH, &full_capabilities());
    let mut stream = client.open_stream();
    assert_eq!(tool_names(&client), ["s__plain", "s__change"]);
    bridge.server.set_script(script.tool_for_capable_clients("new"));
    assert_eq!(client.call("s__change", &json!({}))["result"]["isError"], false);
    stream.wait_for_method("notifications/tools/list_changed");
    assert_eq!(tool_names(&client), ["s__plain", "s__change", "s__new"]);
    assert_eq!(client.call("s__new", &json!({}))["result"]["isError"], false);
}

// req: GW-04
#[test]
fn equal_capabilities_share_a_process_regardless_of_spelling() {
    let bridge = ScriptedBridge::start(asking_server());
    let spellings = [
        r#"{"sampling":{},"roots":{"listChanged":true}}"#,
        r#"{ "roots" : { "listChanged" : true } , "sampling" : { } }"#,
        r#"{"sampling":{"x-new":1},"roots":{"x":[],"listChanged":true},"x":{},"elicitation":null}"#,
        r#"{"s\u0061mpling":{"tools":false},"roots":{"listChanged":true}}"#,
    ];
    for spelling in spellings {
        let hello = super::client::initialize_request(&json!("here")).replace("\"here\"", spelling);
        let mut response = super::client::post(bridge.address, &passthrough_path("s"), &[], &hello);
        assert!(response.header("mcp-session-id").is_some(), "{}", response.last_message());
    }
    assert_eq!(bridge.server.started().len(), 2, "one process for the bridge and one for all clients");
    bridge.server.wait_for(r#""capabilities":{"roots":{"listChanged":true},"sampling":{}}"#);
}

// req: GW-04, BR-07
#[test]
fn limits_sessions_of_a_server() {
    let bridge =
        ScriptedBridge::start_with(asking_server(), json!({ "session": "per-client", "maxSessions": 2 }));
    let clients = [(); 2]
        .map(|()| Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities()));
    let hello = super::client::initialize_request(&full_capabilities());
    let begin = |path: &str| super::client::post(bridge.address, path, &[], &hello).last_message();
    let refused = parse(&begin(&passthrough_path("s")));
    let message = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(message.contains("`s`") && message.contains("maxSessions"), "{message}");
    // The aggregate endpoint works without the server and reports that it is missing.
    let third = Client::with_capabilities(bridge.address, AGGREGATE_PATH, &full_capabilities());
    let listed = third.request("tools/list", &json!({}));
    assert!(tool_names(&third).is_empty());
    assert_eq!(listed["result"]["_meta"]["bascule/missing"][0]["server"], "s", "{listed}");
    let events = bridge.process.events();
    let refused = third.call("s__ask", &json!({}));
    assert_eq!(refused["result"]["_meta"]["bascule/error"]["code"], "PROVIDER_UNAVAILABLE", "{refused}");
    let failed = events.wait_for_event("tool.failed");
    assert_eq!((&failed["tool"], &failed["code"]), (&json!("s:ask"), &json!("PROVIDER_UNAVAILABLE")));
    clients[0].end_session();
    assert_eq!(tool_names(&third), ["s__ask", "s__hold"], "a slot is free again");
}

// req: GW-04
#[test]
fn cancels_requests_of_crashed_server() {
    let request = json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" });
    let script = Script::new().tools(["t"]).calls("t", [Behaviour::silence().after_line(request)]);
    let bridge = ScriptedBridge::start_with(script, json!({ "maxRetries": 0 }));
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    let mut stream = client.open_stream();
    let mut response = client.send_request("1", "tools/call", r#"{"name":"t"}"#);
    let asked = response.wait_for_method("roots/list");
    bridge.server.kill();
    // The cancellation arrives on the response stream if that is still open, else on the GET stream.
    let rest = std::iter::from_fn(|| response.next()).map(|message| parse(&message));
    let cancelled = rest.into_iter().find(|message| message["method"] == "notifications/cancelled");
    let cancelled = cancelled.unwrap_or_else(|| stream.wait_for_method("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
}

// req: GW-04, BR-13
#[test]
fn cancels_requests_of_replaced_server() {
    let request = json!({ "jsonrpc": "2.0", "id": "q", "method": "x/ask" });
    let script = asking_server().calls("ask", [Behaviour::text("done").after_line(request)]);
    let server = ScriptedStdio::new(script);
    let bridge = ServeProcess::start_with(json!({ "s": server.entry() }), &["--grace-ms", "500"]);
    // A client without capabilities uses the bridge's own server.
    let client = Client::connect(bridge.address(), &passthrough_path("s"));
    let mut stream = client.open_stream();
    let mut response = client.send_request("1", "tools/call", r#"{"name":"ask"}"#);
    let asked = response.wait_for_method("x/ask");
    response.result();
    // A call of the command line keeps the replaced server until the end of the grace period.
    std::thread::scope(|scope| {
        scope.spawn(|| bridge.bascule.run(&["call", "s:hold"]));
        server.wait_for("\"hold\"");
        bridge.configure(&json!({ "s": with_settings(server.entry(), json!({ "timeoutMs": 50_000 })) }));
    });
    client.end_session();
    let cancelled = stream.wait_for_method("notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
}

// req: GW-04
#[test]
fn refuses_requests_with_process_per_call() {
    let bridge = ScriptedBridge::start_with(asking_server(), json!({ "isolation": "per-call" }));
    let client = Client::with_capabilities(bridge.address, &passthrough_path("s"), &full_capabilities());
    let answered = client.call("ask", &json!({}));
    let answers = answered["result"]["structuredContent"]["answers"].as_array().unwrap();
    assert!(answers.iter().all(|answer| answer["error"]["code"] == -32601), "{answered}");
}
