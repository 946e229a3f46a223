//! What a server asks of a client reaches the one it can mean, and its answer the server; it is never guessed (GW-04).

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedHttp, ScriptedStdio};
use serde_json::{Value, json};

use super::client::{Client, Exchange};
use super::{Bridge, TOGETHER, alone, call, parsed};
use crate::fleet::serving::Serving;
use crate::support::eventually;

/// What a client can do for servers.
fn able() -> Value {
    json!({ "sampling": {}, "elicitation": {}, "roots": { "listChanged": true } })
}

fn sampling() -> Value {
    json!({ "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } })
}

fn asking() -> Script {
    let elicitation = json!({ "method": "elicitation/create", "params": { "message": "who?" } });
    Script::new()
        .tools(["ask", "hold"])
        .calls("ask", [Behaviour::asking([sampling(), elicitation, json!({ "method": "roots/list" })])])
        .calls("hold", [Behaviour::silence()])
}

/// Answers all three questions on the stream of the call.
fn converse(client: &Client, exchange: &mut Exchange, name: &str) -> Value {
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let question = exchange.until(method);
        client.reply(&question, &format!(r#"{{"by":"{name}","n":1.0}}"#));
    }
    exchange.result()["structuredContent"]["answers"].clone()
}

// req: GW-04
#[test]
fn a_server_is_answered_by_the_client_whose_call_it_works_at() {
    let bridge = Bridge::of(asking());
    let clients = [("/servers/s/mcp", "ask"), (TOGETHER, "s__ask")];
    let clients = clients.map(|(path, tool)| (Client::able(bridge.address, path, &able()), tool));
    for (number, (client, tool)) in clients.iter().enumerate() {
        let name = format!("client {number}");
        let mut exchange = client.request("1", "tools/call", &call(tool, &json!({})).to_string());
        let answers = converse(client, &mut exchange, &name);
        for (number, answer) in answers.as_array().unwrap().iter().enumerate() {
            assert_eq!(answer["result"]["by"], name.as_str(), "{answer}");
            assert!(answer["id"].as_str().unwrap().starts_with("asked-"), "{number}: under its own id");
        }
    }
    let lines = bridge.server.received();
    assert!(
        lines.iter().any(|line| line.ends_with(r#""result":{"by":"client 0","n":1.0}}"#)),
        "as it was spelled"
    );
    // Both can do the same for it, so they share a process; the bridge has its own.
    assert_eq!(bridge.server.started().len(), 2);
    for told in [json!({}), able()] {
        bridge.server.wait_until(|line| {
            let begun = parsed(line);
            begun["method"] == "initialize" && begun["params"]["capabilities"] == told
        });
    }
}

fn check_refused(answered: &Value) {
    let answers = answered["result"]["structuredContent"]["answers"].as_array().unwrap();
    for answer in answers {
        let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(said.contains(r#"session: "per-client""#), "{answer}");
    }
}

// req: GW-04
#[test]
fn over_http_a_question_comes_with_its_call_so_it_is_known_whose_it_is() {
    let server = ScriptedHttp::start(asking().session("s").sse([]));
    let serving = remote(&server);
    let clients = [(); 3].map(|()| Client::able(serving.address(), &alone("s"), &able()));
    // All are at it before the first is answered.
    let params = call("ask", &json!({})).to_string();
    let mut calls: Vec<_> = clients.iter().map(|client| client.request("1", "tools/call", &params)).collect();
    let first: Vec<_> = calls.iter_mut().map(|call| call.until("sampling/createMessage")).collect();
    for (number, (client, question)) in clients.iter().zip(&first).enumerate() {
        client.reply(question, &format!(r#"{{"by":"client {number}"}}"#));
    }
    for (number, (client, call)) in clients.iter().zip(&mut calls).enumerate() {
        let name = format!("client {number}");
        for method in ["elicitation/create", "roots/list"] {
            let question = call.until(method);
            client.reply(&question, &format!(r#"{{"by":"{name}"}}"#));
        }
        let answers = call.result()["structuredContent"]["answers"].clone();
        let by: Vec<_> = answers.as_array().unwrap().iter().map(|answer| &answer["result"]["by"]).collect();
        assert_eq!(by, [&name; 3], "{answers}");
    }
}

fn remote(server: &ScriptedHttp) -> Serving {
    Serving::start(json!({ "s": { "type": "http", "url": server.url() } }))
}

// req: GW-04
#[test]
fn over_http_what_comes_with_a_request_of_the_bridges_own_is_nobodys() {
    let listing = Behaviour::usual().after_log("of nobody").as_sse();
    let script = Script::new()
        .tools(["t"])
        .session("s")
        .on("tools/list", [Behaviour::usual(), listing])
        .calls("t", [Behaviour::text("done").after_log("of the call").after_list_changed().as_sse()]);
    let server = ScriptedHttp::start(script);
    let serving = remote(&server);
    let (client, events) = (Client::begin(serving.address(), &alone("s")), serving.events());
    let mut hears = client.listen();
    let mut exchange = client.request("1", "tools/call", &call("t", &json!({})).to_string());
    assert_eq!(exchange.until("notifications/message")["params"]["data"], "of the call");
    events.event("tools.refreshed");
    client.leave();
    let said: Vec<String> = std::iter::from_fn(|| hears.next()).collect();
    assert!(said.iter().all(|frame| !frame.contains("of nobody")), "{said:?}");
}

// req: GW-04
#[test]
fn over_http_a_question_to_a_client_that_has_left_is_refused() {
    let late = Behaviour::asking([sampling()]).after_delay(Duration::from_secs(1)).as_sse();
    let server = ScriptedHttp::start(Script::new().tools(["t"]).session("s").calls("t", [late]));
    let serving = remote(&server);
    let client = Client::able(serving.address(), &alone("s"), &able());
    let _exchange = client.request("1", "tools/call", &call("t", &json!({})).to_string());
    let posted = |part: &str| server.requests().iter().any(|request| request.body.contains(part));
    eventually("it is called", || posted("tools/call"));
    client.leave();
    eventually("the server is told", || posted("the client has left"));
}

// req: GW-04
#[test]
fn a_server_that_comes_back_is_never_asked_under_a_number_of_before() {
    let bridge = Bridge::with(asking().tools(["t"]), json!({ "reconnectBackoffMs": 10 }));
    let client = bridge.alone();
    client.call("t", &json!({}));
    bridge.server.kill();
    eventually("it is back", || bridge.server.started().len() == 2);
    eventually("it is healthy", || bridge.serving.server("s")["health"] == "healthy");
    client.call("t", &json!({}));
    let ids: Vec<Value> = bridge.server.received().iter().map(|line| parsed(line)["id"].clone()).collect();
    let mut numbers: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() == all && all >= 6, "{ids:?}");
}

// req: GW-04
#[test]
fn where_two_clients_have_calls_under_way_a_question_is_refused() {
    let script = asking().calls("hold", [Behaviour::asking([json!({ "method": "x/go-on" })])]);
    let bridge = Bridge::of(script);
    let [one, two] = [(); 2].map(|()| Client::able(bridge.address, &alone("s"), &able()));
    let mut held = one.request("1", "tools/call", &call("hold", &json!({})).to_string());
    let go_on = held.until("x/go-on");
    check_refused(&two.call("ask", &json!({})));
    one.reply(&go_on, "{}");
    held.result();
    // As soon as only one is left, it is asked again.
    let mut exchange = two.request("2", "tools/call", &call("ask", &json!({})).to_string());
    converse(&two, &mut exchange, "two");
}

// req: GW-04, GW-08
#[test]
fn what_a_server_asks_during_a_scripts_call_is_for_the_client_that_runs_the_script() {
    let script = asking().calls("hold", [Behaviour::asking([json!({ "method": "x/go-on" })])]);
    let bridge = Bridge::of(script);
    let [one, two] = [(); 2].map(|()| Client::able(bridge.address, TOGETHER, &able()));
    let code = call("execute_code", &json!({ "code": "return (await s.ask({})).answers" })).to_string();
    let mut exchange = one.request("1", "tools/call", &code);
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let question = exchange.until(method);
        one.reply(&question, r#"{"by":"one"}"#);
    }
    assert_eq!(exchange.result()["structuredContent"]["result"][0]["result"]["by"], "one");
    // While another client has a call there, it is nobody's: it is not guessed.
    let mut held = two.request("2", "tools/call", &call("s__hold", &json!({})).to_string());
    let go_on = held.until("x/go-on");
    let refused = one.request("3", "tools/call", &code).result();
    let said = refused["structuredContent"]["result"][0]["error"]["message"].as_str();
    assert!(said.is_some_and(|said| said.contains("per-client")), "{refused}");
    two.reply(&go_on, "{}");
    held.result();
}

// req: GW-04
#[test]
fn a_call_that_was_given_up_still_counts_until_the_server_answers_it() {
    // Long enough for all that must happen before it, on a busy machine too.
    let late = Duration::from_secs(15);
    let script = asking().calls("hold", [Behaviour::text("late").after_delay(late), Behaviour::silence()]);
    let bridge = Bridge::of(script);
    let [one, two] = [(); 2].map(|()| Client::able(bridge.address, &alone("s"), &able()));
    let give_up = |id: u32| {
        let held = std::thread::scope(|scope| {
            let params = call("hold", &json!({ "mark": format!("held {id}") })).to_string();
            let (one, id) = (&one, id.to_string());
            let holding = scope.spawn({
                let id = id.clone();
                move || one.request(&id, "tools/call", &params).last()
            });
            bridge.server.wait_for(&format!("held {id}"));
            one.notify("notifications/cancelled", &json!({ "requestId": id.parse::<u32>().unwrap() }));
            holding.join().unwrap()
        });
        assert!(parsed(&held)["error"].is_object(), "{held}");
    };
    give_up(1);
    check_refused(&two.call("ask", &json!({})));
    // It answers after all: from then on there is no doubt.
    eventually("the other is asked", || {
        let mut exchange = two.request("2", "tools/call", &call("ask", &json!({})).to_string());
        let first = parsed(&exchange.some());
        let is_asked = first["method"] == "sampling/createMessage";
        if is_asked {
            two.reply(&first, "{}");
            for method in ["elicitation/create", "roots/list"] {
                let question = exchange.until(method);
                two.reply(&question, "{}");
            }
            exchange.result();
        }
        is_asked
    });
    // One that never answers it: who has left is no reason to ask another.
    give_up(3);
    one.leave();
    check_refused(&two.call("ask", &json!({})));
}

// req: GW-04
#[test]
fn what_belongs_to_a_call_of_the_command_line_is_nobody_elses() {
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "CLI" } });
    let script = Script::new()
        .tools(["t", "u"])
        .calls("t", [Behaviour::asking([json!({ "method": "x/ask" })]).after_line(log)])
        .calls("u", [Behaviour::text("u").after_log("mine")]);
    let bridge = Bridge::of(script);
    let client = bridge.alone();
    let mut hears = client.listen();
    assert_eq!(client.call("u", &json!({}))["result"]["isError"], false);
    let called = bridge.serving.bascule.run(&["call", "s:t"]);
    assert!(called.stdout.contains("per-client"), "its question is refused: {called:?}");
    client.ask("x/unknown", &json!({}));
    client.leave();
    let heard: Vec<_> = std::iter::from_fn(|| hears.next()).collect();
    assert!(heard.iter().all(|message| !message.contains("CLI")), "{heard:?}");
}

// req: GW-04
#[test]
fn a_client_is_asked_only_what_it_said_it_can_be_asked() {
    let bridge = Bridge::of(asking());
    let client = Client::able(bridge.address, &alone("s"), &json!({ "roots": {} }));
    let mut exchange = client.request("1", "tools/call", &call("ask", &json!({})).to_string());
    let question = parsed(&exchange.some());
    assert_eq!(question["method"], "roots/list");
    client.reply(&question, "{}");
    let answers = exchange.result()["structuredContent"]["answers"].clone();
    assert_eq!([&answers[0]["error"]["code"], &answers[1]["error"]["code"]], [-32601, -32601]);
    assert_eq!(answers[2]["result"], json!({}));
}

// req: GW-04
#[test]
fn with_a_process_of_its_own_each_client_is_asked() {
    let bridge = Bridge::with(asking(), json!({ "session": "per-client" }));
    let clients: Vec<_> = (0..4).map(|_| Client::able(bridge.address, &alone("s"), &able())).collect();
    let mut exchanges: Vec<_> = std::thread::scope(|scope| {
        let asking = clients.iter().map(|client| {
            scope.spawn(|| client.request("1", "tools/call", &call("ask", &json!({})).to_string()))
        });
        asking.collect::<Vec<_>>().into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    for (number, (client, exchange)) in clients.iter().zip(&mut exchanges).enumerate() {
        let answers = converse(client, exchange, &format!("{number}"));
        assert!(
            answers.as_array().unwrap().iter().all(|answer| answer["result"]["by"] == format!("{number}"))
        );
    }
}

// req: GW-04
#[test]
fn a_client_with_several_calls_of_its_own_is_asked_whether_or_not_it_listens() {
    let bridge = Bridge::of(asking());
    let client = Client::able(bridge.address, &alone("s"), &able());
    std::thread::scope(|scope| {
        let holding =
            scope.spawn(|| client.request("1", "tools/call", &call("hold", &json!({})).to_string()));
        bridge.server.wait_for("\"hold\"");
        let mut exchange = client.request("2", "tools/call", &call("ask", &json!({})).to_string());
        converse(&client, &mut exchange, "me");
        client.notify("notifications/cancelled", &json!({ "requestId": 1 }));
        holding.join().unwrap();
    });
    // With a stream of its own it may be asked there.
    let mut hears = client.listen();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.request("3", "tools/call", &call("hold", &json!({ "mark": "again" })).to_string())
        });
        bridge.server.wait_for("\"again\"");
        let asking =
            scope.spawn(|| client.request("4", "tools/call", &call("ask", &json!({})).to_string()).result());
        for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
            let question = hears.until(method);
            client.reply(&question, "{}");
        }
        asking.join().unwrap();
        client.notify("notifications/cancelled", &json!({ "requestId": 3 }));
    });
}

// req: GW-04
#[test]
fn who_leaves_owes_no_answer() {
    let bridge = Bridge::of(asking());
    let client = Client::able(bridge.address, &alone("s"), &able());
    let mut exchange = client.request("1", "tools/call", &call("ask", &json!({})).to_string());
    exchange.until("sampling/createMessage");
    client.leave();
    let refused = parsed(&bridge.server.wait_until(|line| line.contains("asked-0")));
    assert!(refused["error"].is_object(), "{refused}");
    // A stranger cannot answer in its place.
    let other = Client::able(bridge.address, &alone("s"), &able());
    other.tell(r#"{"jsonrpc":"2.0","id":"bascule-1","result":{}}"#);
    assert!(!bridge.server.received().iter().any(|line| line.contains("asked-0") && line.contains("result")));
}

/// A server whose question carries a token of its own, the same as every other's.
fn asking_with_token() -> ScriptedStdio {
    let params = json!({ "messages": [], "_meta": { "progressToken": 1 } });
    let question = json!({ "method": "sampling/createMessage", "params": params });
    ScriptedStdio::new(Script::new().tools(["ask"]).calls("ask", [Behaviour::asking([question])]))
}

// req: GW-04
#[test]
fn progress_of_an_answer_reaches_the_server_that_asked() {
    let (a, b) = (asking_with_token(), asking_with_token());
    let serving = Serving::start(json!({ "a": a.entry(), "b": b.entry() }));
    let client = Client::able(serving.address(), TOGETHER, &able());
    let mut at_a = client.request("1", "tools/call", &call("a__ask", &json!({})).to_string());
    let asked_a = at_a.until("sampling/createMessage");
    let mut at_b = client.request("2", "tools/call", &call("b__ask", &json!({})).to_string());
    let asked_b = at_b.until("sampling/createMessage");
    let token = |question: &Value| question["params"]["_meta"]["progressToken"].clone();
    assert_ne!(token(&asked_a), token(&asked_b), "two tokens that are alike are told apart");
    let report = json!({ "progressToken": token(&asked_b), "progress": 5 });
    client.notify("notifications/progress", &report);
    let reported = parsed(&b.wait_for("notifications/progress"));
    assert_eq!(reported["params"], json!({ "progressToken": 1, "progress": 5 }));
    client.reply(&asked_b, "{}");
    client.reply(&asked_a, "{}");
    at_a.result();
    at_b.result();
    assert!(!a.methods().iter().any(|method| method == "notifications/progress"));
}

// req: GW-04
#[test]
fn changed_roots_are_told_to_the_servers_of_that_client() {
    let bridge = Bridge::of(asking());
    let client = Client::able(bridge.address, &alone("s"), &able());
    client.notify("notifications/roots/list_changed", &json!({}));
    bridge.server.wait_for("notifications/roots/list_changed");
}

// req: GW-04
#[test]
fn a_question_that_is_withdrawn_is_withdrawn_from_the_client() {
    let withdrawn = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "q", "reason": "late" }
    });
    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" });
    let asks = Behaviour::text("done").after_line(question).after_line(withdrawn);
    let bridge = Bridge::of(Script::new().tools(["t"]).calls("t", [asks]));
    let client = Client::able(bridge.address, &alone("s"), &able());
    let mut exchange = client.request("1", "tools/call", r#"{"name":"t"}"#);
    let asked = exchange.until("roots/list");
    let withdrawn = exchange.until("notifications/cancelled");
    assert_eq!(withdrawn["params"], json!({ "requestId": asked["id"], "reason": "late" }));
}

// req: GW-04
#[test]
fn a_process_of_ones_own_tells_of_its_changed_tools() {
    let change = [Behaviour::text("changed").after_list_changed()];
    let script = Script::new().tools(["change"]).calls("change", change);
    let bridge = Bridge::of(script.clone());
    let client = Client::able(bridge.address, &alone("s"), &able());
    let mut hears = client.listen();
    bridge.server.change(script.tools(["new"]));
    assert_eq!(client.call("change", &json!({}))["result"]["isError"], false);
    hears.until("notifications/tools/list_changed");
    assert_eq!(client.ask("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().len(), 2);
}

/// A server that shows a tool, and one that it denies, to those only who can do something for it.
fn choosy() -> Bridge {
    let script = Script::new()
        .tools(["plain"])
        .tool_for_the_able("ask")
        .tool_for_the_able("secret")
        .calls("ask", [Behaviour::asking([sampling()])]);
    Bridge::with(script, json!({ "deniedTools": ["secret"] }))
}

fn tool_names(client: &Client) -> Vec<String> {
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    // That one is the bridge's own.
    names.filter(|name| name != "execute_code").collect()
}

// req: GW-01, GW-04
#[test]
fn together_too_a_client_sees_the_tools_that_a_server_has_for_its_like() {
    let bridge = choosy();
    let unable = bridge.together();
    let client = Client::able(bridge.address, TOGETHER, &able());
    assert_eq!(tool_names(&client), ["s__plain", "s__ask"]);
    assert_eq!(tool_names(&unable), ["s__plain"]);
    let mut exchange = client.request("1", "tools/call", &call("s__ask", &json!({})).to_string());
    let question = exchange.until("sampling/createMessage");
    client.reply(&question, r#"{"by":"me"}"#);
    assert_eq!(exchange.result()["structuredContent"]["answers"][0]["result"]["by"], "me");
    assert!(unable.call("s__ask", &json!({}))["error"].is_object(), "who does not see it cannot call it");
    let denied = client.call("s__secret", &json!({}));
    assert_eq!(
        denied["result"]["_meta"]["bascule/error"]["code"], "POLICY_DENIED",
        "denied to all: {denied}"
    );
    let wrong = client.request("2", "tools/call", r#"{"name":"s__ask","arguments":[]}"#).result();
    assert_eq!(wrong["isError"], true, "arguments are checked: {wrong}");
}

// req: GW-04
#[test]
fn together_too_the_tools_that_changed_are_told_to_those_who_see_them() {
    let change = [Behaviour::text("changed").after_list_changed()];
    let script = Script::new().tools(["plain"]).tool_for_the_able("change").calls("change", change);
    let bridge = Bridge::of(script.clone());
    let client = Client::able(bridge.address, TOGETHER, &able());
    let mut hears = client.listen();
    assert_eq!(tool_names(&client), ["s__plain", "s__change"]);
    bridge.server.change(script.tool_for_the_able("new"));
    assert_eq!(client.call("s__change", &json!({}))["result"]["isError"], false);
    hears.until("notifications/tools/list_changed");
    assert_eq!(tool_names(&client), ["s__plain", "s__change", "s__new"]);
    assert_eq!(client.call("s__new", &json!({}))["result"]["isError"], false);
}

// req: GW-04
#[test]
fn each_spelling_of_the_same_abilities_is_the_same_audience() {
    let bridge = Bridge::of(asking());
    let spellings = [
        r#"{"sampling":{},"roots":{"listChanged":true}}"#,
        r#"{ "roots" : { "listChanged" : true } , "sampling" : { } }"#,
        r#"{"sampling":{"x-new":1},"roots":{"x":[],"listChanged":true},"x":{},"elicitation":null}"#,
        r#"{"s\u0061mpling":{"tools":false},"roots":{"listChanged":true}}"#,
    ];
    for spelling in spellings {
        let hello = super::client::hello(&json!("here")).replace("\"here\"", spelling);
        let mut begun = super::client::post(bridge.address, &alone("s"), &[], &hello);
        assert!(begun.header("mcp-session-id").is_some(), "{}", begun.last());
    }
    assert_eq!(bridge.server.started().len(), 2, "the bridge's own, and one for all of them");
    bridge.server.wait_for(r#""capabilities":{"roots":{"listChanged":true},"sampling":{}}"#);
}

// req: GW-04
#[test]
fn a_server_has_so_many_sessions_for_clients_and_no_more() {
    let bridge = Bridge::with(asking(), json!({ "session": "per-client", "maxSessions": 2 }));
    let clients = [(); 2].map(|()| Client::able(bridge.address, &alone("s"), &able()));
    let hello = super::client::hello(&able());
    let begin = |path: &str| super::client::post(bridge.address, path, &[], &hello).last();
    let refused = parsed(&begin(&alone("s")));
    let said = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(said.contains("`s`") && said.contains("maxSessions"), "{said}");
    // Together there may be other servers: this one is missing, and said to be.
    let third = Client::able(bridge.address, TOGETHER, &able());
    let listed = third.ask("tools/list", &json!({}));
    assert!(tool_names(&third).is_empty());
    assert_eq!(listed["result"]["_meta"]["bascule/missing"][0]["server"], "s", "{listed}");
    clients[0].leave();
    assert_eq!(tool_names(&third), ["s__ask", "s__hold"], "there is room again");
}

// req: GW-04
#[test]
fn what_a_server_that_died_had_asked_is_withdrawn() {
    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" });
    let script = Script::new().tools(["t"]).calls("t", [Behaviour::silence().after_line(question)]);
    let bridge = Bridge::with(script, json!({ "maxRetries": 0 }));
    let client = Client::able(bridge.address, &alone("s"), &able());
    let mut hears = client.listen();
    let mut exchange = client.request("1", "tools/call", r#"{"name":"t"}"#);
    let asked = exchange.until("roots/list");
    bridge.server.kill();
    // Where the question came, if that is open still; else on its own stream.
    let rest = std::iter::from_fn(|| exchange.next()).map(|message| parsed(&message));
    let withdrawn = rest.into_iter().find(|message| message["method"] == "notifications/cancelled");
    let withdrawn = withdrawn.unwrap_or_else(|| hears.until("notifications/cancelled"));
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
}

// req: GW-04
#[test]
fn where_each_call_has_its_own_process_nobody_is_asked() {
    let bridge = Bridge::with(asking(), json!({ "isolation": "per-call" }));
    let client = Client::able(bridge.address, &alone("s"), &able());
    let answered = client.call("ask", &json!({}));
    let answers = answered["result"]["structuredContent"]["answers"].as_array().unwrap();
    assert!(answers.iter().all(|answer| answer["error"]["code"] == -32601), "{answered}");
}
