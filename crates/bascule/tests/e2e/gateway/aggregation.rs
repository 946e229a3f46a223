//! Names and URIs of many servers at one endpoint: each leads back to its server.

use std::time::Duration;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::Client;
use super::{AGGREGATE_PATH, parse};
use crate::fleet::serve_process::ServeProcess;
use crate::support::test_env;

/// A server with tools, prompts, resources and completions whose answers contain its name.
fn server_with_everything(own: &str) -> ScriptedStdio {
    let page = |n: u32, last: bool| {
        let listed = json!([{ "uri": format!("x://{own}/{n}"), "name": "r", "x": 1 }, { "uri": "x://both", "name": "b" }]);
        let mut page = json!({ "resources": listed });
        if !last {
            page["nextCursor"] = json!(format!("{own} {n}"));
        }
        Behaviour::result(page)
    };
    let templates = json!({ "resourceTemplates": [{ "uriTemplate": "x://both/{id}", "name": "t" }] });
    let prompts = json!({ "prompts": [{ "name": "greet", "arguments": [{ "name": "who" }] }] });
    ScriptedStdio::new(
        Script::new()
            .capabilities(json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} }))
            .tools(["same", own, "with.dot"])
            .calls("same", [Behaviour::text(own)])
            .calls("with.dot", [Behaviour::text(own)])
            .on("resources/list", [page(1, false), page(2, true)])
            .on("resources/templates/list", [Behaviour::result(templates)])
            .on("prompts/list", [Behaviour::result(prompts)])
            .on("prompts/get", [Behaviour::result(json!({ "messages": [], "own": own }))])
            .on("resources/read", [Behaviour::result(json!({ "contents": [], "own": own }))])
            .on("completion/complete", [Behaviour::result(json!({ "completion": { "values": [own] } }))]),
    )
}

fn list(client: &Client, method: &str, field: &str, key: &str) -> Vec<String> {
    let listed = client.request(method, &json!({}));
    let items = listed["result"][field].as_array().unwrap_or_else(|| panic!("{listed}"));
    items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

// req: US-03, BR-12
#[test]
fn listing_does_not_wait_for_a_late_server() {
    let server = |name: &str, late: bool| {
        let prompts = Behaviour::result(json!({ "prompts": [{ "name": name }] }));
        let first = if late { prompts.clone().after_delay(Duration::from_secs(8)) } else { prompts.clone() };
        let script = Script::new().capabilities(json!({ "tools": {}, "prompts": {} }));
        ScriptedStdio::new(script.on("prompts/list", [first, prompts]))
    };
    let (prompt, late) = (server("prompt", false), server("late", true));
    let bridge = ServeProcess::start(json!({ "a": prompt.entry(), "b": late.entry() }));
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    // A client that connects while a server starts is notified of its prompts.
    client.request("tools/list", &json!({}));
    let mut stream = client.open_stream();
    let listed = client.request("prompts/list", &json!({}))["result"].take();
    assert_eq!(listed["prompts"], json!([{ "name": "a__prompt" }]));
    let missing = &listed["_meta"]["bascule/missing"][0];
    assert_eq!(missing["server"], "b", "{listed:#}");
    assert!(missing["why"].as_str().unwrap().contains("did not respond to `prompts/list`"), "{listed:#}");
    assert_eq!(client.request("prompts/list", &json!({}))["result"], listed, "nobody waits for it again");
    while !stream.next_message().contains("prompts/list_changed") {}
    assert_eq!(list(&client, "prompts/list", "prompts", "name"), ["a__prompt", "b__late"]);
}

// req: GW-02
#[test]
fn name_stays_with_its_server_when_another_starts_late() {
    let server = |tool: &str, own: &str| {
        let prompts = json!({ "prompts": [{ "name": tool }] });
        ScriptedStdio::new(
            Script::new()
                .capabilities(json!({ "tools": {}, "prompts": {} }))
                .tools([tool])
                .calls(tool, [Behaviour::text(own)])
                .on("prompts/list", [Behaviour::result(prompts)])
                .on("prompts/get", [Behaviour::result(json!({ "messages": [], "own": own }))]),
        )
    };
    // Both names would be `q__b__c`, and `q` is the first by name.
    let (early, late) = (server("c", "early"), server("b__c", "late"));
    let bridge = ServeProcess::start(json!({ "q__b": early.entry() }));
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let mut stream = client.open_stream();
    let owner_of = |name: &str| client.call(name, &json!({}))["result"]["content"][0]["text"].clone();
    let prompt_of = |name: &str| {
        client.request("prompts/get", &json!({ "name": name, "arguments": {} }))["result"]["own"].clone()
    };
    assert_eq!(list(&client, "tools/list", "tools", "name")[0], "q__b__c");
    assert_eq!(list(&client, "prompts/list", "prompts", "name"), ["q__b__c"]);
    bridge.configure(&json!({ "q": late.entry(), "q__b": early.entry() }));
    while !stream.next_message().contains("tools/list_changed") {}
    let mut tools = list(&client, "tools/list", "tools", "name");
    tools.retain(|name| name.starts_with("q__b__c"));
    assert_eq!((tools.len(), tools[1].as_str()), (2, "q__b__c"));
    assert_eq!((owner_of("q__b__c"), owner_of(&tools[0])), (json!("early"), json!("late")));
    let prompts = list(&client, "prompts/list", "prompts", "name");
    assert_eq!((prompts.len(), prompts[1].as_str()), (2, "q__b__c"));
    assert_eq!((prompt_of("q__b__c"), prompt_of(&prompts[0])), (json!("early"), json!("late")));
}

// req: GW-02
#[test]
fn routes_listed_names_to_their_server() {
    let (a, b) = (server_with_everything("a"), server_with_everything("b"));
    // `q__b` and `q` both have a tool whose aggregate name would be `q__b__c`.
    let c = ScriptedStdio::new(Script::new().tools(["c"]).calls("c", [Behaviour::text("a__b")]));
    let d = ScriptedStdio::new(Script::new().tools(["b__c"]).calls("b__c", [Behaviour::text("d")]));
    let servers = json!({ "a": a.entry(), "b": b.entry(), "q__b": c.entry(), "q": d.entry() });
    let bridge = ServeProcess::start(servers);
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let mut tools = list(&client, "tools/list", "tools", "name");
    assert_eq!(tools.pop().as_deref(), Some("execute_code"), "the tool of the bridge comes last");
    assert_eq!(tools[..2], ["a__same", "a__a"]);
    assert!(tools.iter().all(
        |name| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    ));
    assert_eq!(tools.iter().collect::<std::collections::HashSet<_>>().len(), 8, "{tools:?}");
    let owners: Vec<_> = tools
        .iter()
        .map(|tool| client.call(tool, &json!({}))["result"]["content"][0]["text"].clone())
        .collect();
    assert_eq!(owners[0], "a");
    let clashing = tools.iter().zip(&owners).filter(|(tool, _)| tool.starts_with("q__b__c"));
    let mut clashing: Vec<_> = clashing.map(|(_, owner)| owner.as_str().unwrap()).collect();
    clashing.sort_unstable();
    assert_eq!(clashing, ["a__b", "d"]);

    assert_eq!(list(&client, "prompts/list", "prompts", "name"), ["a__greet", "b__greet"]);
    for own in ["a", "b"] {
        let name = format!("{own}__greet");
        assert_eq!(
            client.request("prompts/get", &json!({ "name": name, "arguments": {} }))["result"]["own"],
            own
        );
        let reference = json!({ "ref": { "type": "ref/prompt", "name": name }, "argument": { "name": "who", "value": "" } });
        assert_eq!(
            client.request("completion/complete", &reference)["result"]["completion"]["values"][0],
            own
        );
    }
    assert!(a.wait_for("prompts/get").contains(r#""name":"greet""#));
    assert!(client.request("prompts/get", &json!({ "name": "a__nothing" }))["error"].is_object());

    for template in list(&client, "resources/templates/list", "resourceTemplates", "uriTemplate") {
        let own = template.strip_prefix("bascule://").unwrap().split('/').next().unwrap().to_owned();
        let uri = template.replace("{id}", "7");
        assert_eq!(client.request("resources/read", &json!({ "uri": uri }))["result"]["own"], own.as_str());
        let reference = json!({ "ref": { "type": "ref/resource", "uri": template }, "argument": { "name": "id", "value": "" } });
        assert_eq!(
            client.request("completion/complete", &reference)["result"]["completion"]["values"][0],
            own.as_str()
        );
    }
    assert!(a.wait_for("x://both/7").contains(r#""uri":"x://both/7""#));
}

// req: GW-02
#[test]
fn lists_resources_of_all_pages_in_stable_order() {
    let (a, b) = (server_with_everything("a"), server_with_everything("b"));
    let text = format!(r#"{{"mcpServers":{{"b":{},"a":{}}}}}"#, b.entry(), a.entry());
    let bridge = ServeProcess::start_with_config(&text, &[]);
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let uris = list(&client, "resources/list", "resources", "uri");
    let expected = ["x://b/1", "bascule://b/x://both", "x://b/2", "bascule://b/x://both"];
    assert_eq!(uris[..4], expected, "servers are listed in the order of the configuration");
    assert!(
        a.received().iter().any(|line| line.contains(r#""cursor":"a 1""#)),
        "the server receives its own cursor"
    );
    for (uri, own) in
        [("x://b/1", "b"), ("x://a/2", "a"), ("bascule://a/x://both", "a"), ("bascule://b/x://both", "b")]
    {
        // Restarts the pages.
        a.set_script(single_page_script("a"));
        b.set_script(single_page_script("b"));
        assert_eq!(client.request("resources/read", &json!({ "uri": uri }))["result"]["own"], own, "{uri}");
    }
    // An unlisted URI is requested from every server.
    assert_eq!(client.request("resources/read", &json!({ "uri": "x://hidden" }))["result"]["own"], "b");
}

/// Like [`server_with_everything`], with one page of resources.
fn single_page_script(own: &str) -> Script {
    let listed = json!([{ "uri": format!("x://{own}/1"), "name": "r" }, { "uri": format!("x://{own}/2"), "name": "r" }]);
    Script::new()
        .capabilities(json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} }))
        .on("resources/list", [Behaviour::result(json!({ "resources": listed }))])
        .on("resources/read", [Behaviour::result(json!({ "contents": [], "own": own }))])
}

// req: GW-02, GW-04
#[test]
fn rewrites_uri_in_resource_updates() {
    let server = || {
        let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "x://both", "x": 1 }, "y": 2 });
        ScriptedStdio::new(
            Script::new()
                .capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }))
                .tools(["touch"])
                .calls("touch", [Behaviour::text("").after_line(updated)])
                .on(
                    "resources/list",
                    [Behaviour::result(json!({ "resources": [{ "uri": "x://both", "name": "b" }] }))],
                )
                .on("resources/subscribe", [Behaviour::result(json!({}))]),
        )
    };
    let (a, b) = (server(), server());
    let bridge = ServeProcess::start(json!({ "a": a.entry(), "b": b.entry() }));
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let mut stream = client.open_stream();
    let subscribed = client.request("resources/subscribe", &json!({ "uri": "bascule://b/x://both" }));
    assert_eq!(subscribed["result"], json!({}));
    client.call("a__touch", &json!({}));
    client.call("b__touch", &json!({}));
    let updated = parse(&stream.next_message());
    assert_eq!(updated["params"], json!({ "uri": "bascule://b/x://both", "x": 1 }));
    assert_eq!(updated["y"], 2, "members that JSON-RPC does not define are kept");
}

fn everything() -> Value {
    let script = test_env("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    json!({ "command": "node", "args": [script], "startTimeoutMs": 60_000 })
}

// req: GW-01, GW-02
#[test]
fn distinguishes_two_instances_of_a_real_server() {
    let bridge = ServeProcess::start(json!({ "one": everything(), "two": everything() }));
    bridge.bascule.run(&["refresh"]);
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let tools = list(&client, "tools/list", "tools", "name");
    let of = |own: &str| tools.iter().filter(|tool| tool.starts_with(own)).count();
    assert!(of("one__") > 5 && of("one__") == of("two__"), "{tools:?}");
    assert_eq!(tools, list(&client, "tools/list", "tools", "name"), "the order is stable");
    let echoed = client.call("two__echo", &json!({ "message": "hi" }));
    assert_eq!(echoed["result"]["content"][0]["text"], "Echo: hi");
    for prompt in list(&client, "prompts/list", "prompts", "name")
        .iter()
        .filter(|name| name.ends_with("__simple-prompt"))
    {
        assert!(client.request("prompts/get", &json!({ "name": prompt }))["result"]["messages"].is_array());
    }
    let uris = list(&client, "resources/list", "resources", "uri");
    assert!(uris.iter().all(|uri| uri.starts_with("bascule://")), "{uris:?}");
    let read = client.request("resources/read", &json!({ "uri": uris[0] }));
    assert!(read["result"]["contents"].is_array(), "{read}");
    let templates = list(&client, "resources/templates/list", "resourceTemplates", "uriTemplate");
    assert!(!templates.is_empty() && templates.iter().all(|uri| uri.starts_with("bascule://")));
}

// req: GW-02
#[test]
fn resource_links_lead_to_their_server() {
    let server = |own: &str| {
        let links = json!([
            { "type": "resource_link", "uri": "x://both", "name": "n" },
            { "type": "resource", "resource": { "uri": format!("x://{own}"), "text": "" } },
            { "type": "resource_link", "uri": "x://unlisted", "name": "n" },
            { "type": "resource_link", "uri": "https://example.org/", "name": "n" },
            { "type": "resource_link", "uri": "bascule://a/x://both", "name": "n" },
            { "type": "x-new", "uri": "x://both" },
        ]);
        let listed =
            json!([{ "uri": "x://both", "name": "n" }, { "uri": format!("x://{own}"), "name": "n" }]);
        let contents = json!([{ "uri": "x://both", "text": own }, { "uri": "x://part", "text": own }]);
        let message =
            json!({ "role": "user", "content": { "type": "resource_link", "uri": "x://both", "name": "n" } });
        ScriptedStdio::new(
            Script::new()
                .capabilities(json!({ "tools": {}, "resources": {}, "prompts": {} }))
                .tools(["links"])
                .calls("links", [Behaviour::result(json!({ "content": links }))])
                .on("prompts/list", [Behaviour::result(json!({ "prompts": [{ "name": "p" }] }))])
                .on("prompts/get", [Behaviour::result(json!({ "messages": [message] }))])
                .on("resources/list", [Behaviour::result(json!({ "resources": listed }))])
                .on("resources/read", [Behaviour::result(json!({ "contents": contents }))]),
        )
    };
    let (a, b) = (server("a"), server("b"));
    let bridge = ServeProcess::start(json!({ "a": a.entry(), "b": b.entry() }));
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let links = |tool: &str| {
        let called = client.call(tool, &json!({}));
        let content = called["result"]["content"].as_array().unwrap().clone();
        let uri =
            |item: &Value| item.get("uri").unwrap_or(&item["resource"]["uri"]).as_str().unwrap().to_owned();
        content.iter().map(uri).collect::<Vec<_>>()
    };
    // Before the resources are listed, and after.
    let unlisted = ["bascule://b/x://both", "bascule://b/x://b", "bascule://b/x://unlisted"];
    let same = ["https://example.org/", "bascule://b/bascule://a/x://both", "x://both"];
    assert_eq!(links("b__links"), [unlisted, same].concat());
    list(&client, "resources/list", "resources", "uri");
    let listed = ["bascule://b/x://both", "x://b", "bascule://b/x://unlisted"];
    assert_eq!(links("b__links"), [listed, same].concat());
    for uri in listed {
        let read = client.request("resources/read", &json!({ "uri": uri }));
        assert_eq!(read["result"]["contents"][0]["text"], "b", "{uri}: {read}");
        assert_eq!(read["result"]["contents"][1]["uri"], "bascule://b/x://part");
    }
    let read = client.request("resources/read", &json!({ "uri": "bascule://b/x://both" }));
    assert_eq!(read["result"]["contents"][0]["uri"], "bascule://b/x://both", "the URI is the requested one");
    let prompt = client.request("prompts/get", &json!({ "name": "b__p" }));
    assert_eq!(prompt["result"]["messages"][0]["content"]["uri"], "bascule://b/x://both");
    let bare = client.request("resources/read", &json!({ "uri": "x://both" }));
    let message = bare["error"]["message"].as_str().unwrap_or_else(|| panic!("{bare}"));
    assert!(
        message.contains("bascule://a/x://both") && message.contains("bascule://b/x://both"),
        "{message}"
    );
}
