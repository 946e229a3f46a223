//! Tools that are known from an earlier run, and servers that start at their first call.

use std::fs;
use std::path::PathBuf;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::support::{Bascule, demo_program, eventually, with_settings};

/// A server that starts when the file `go` exists.
fn held(entry: &Value) -> Value {
    let mut args = vec![json!("-c"), json!(r#"while [ ! -e go ]; do sleep 0.02; done; exec "$0" "$@""#)];
    args.push(entry["command"].clone());
    args.extend(entry["args"].as_array().cloned().unwrap_or_default());
    with_settings(entry.clone(), json!({ "command": "sh", "args": args }))
}

fn hold(bridge: &ServeProcess) {
    fs::remove_file(bridge.bascule.folder().join("go")).unwrap();
}

fn release(bridge: &ServeProcess) {
    fs::write(bridge.bascule.folder().join("go"), "").unwrap();
}

fn tools(client: &Client) -> (Vec<String>, Value) {
    let listed = client.request("tools/list", &json!({}))["result"].take();
    let names =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    (
        names.filter(|name| name != "execute_code").collect(),
        listed["_meta"]["bascule/fromLastListing"].clone(),
    )
}

fn listing_file(bridge: &ServeProcess) -> Option<PathBuf> {
    listing_files(bridge).into_iter().next()
}

fn listing_files(bridge: &ServeProcess) -> Vec<PathBuf> {
    let folder = bridge.bascule.data_folder().join("bascule/listings");
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|own| own == "json")).collect()
}

/// Waits until the listing that contains `text` is stored.
fn wait_for_listing(bridge: &ServeProcess, text: &str) {
    eventually("the listing is stored", || {
        listing_file(bridge)
            .and_then(|file| fs::read_to_string(file).ok())
            .is_some_and(|own| own.contains(text))
    });
}

// req: US-03
#[test]
fn starting_server_has_the_tools_of_its_last_listing() {
    let script = |tools: &[&str]| {
        Script::new()
            .capabilities(json!({ "tools": {}, "prompts": {} }))
            .instructions("be kind")
            .tools(tools.iter().copied())
            .calls("kept", [Behaviour::text("called")])
    };
    let server = ScriptedStdio::new(script(&["kept", "gone", "secret"]));
    let entry = with_settings(held(&server.entry()), json!({ "deniedTools": ["secret"] }));
    let mut bridge = ServeProcess::start(json!({ "s": entry }));
    release(&bridge);
    wait_for_listing(&bridge, "kept");
    // Also after a violent end.
    bridge.signal("KILL");
    bridge.wait_for_exit();
    hold(&bridge);
    server.set_script(script(&["kept", "new"]));

    bridge.start_again();
    let client = Client::connect(bridge.address(), "/mcp");
    let mut stream = client.open_stream();
    let initialized: Value = serde_json::from_str(&client.initialize_response).unwrap();
    assert!(initialized["result"]["capabilities"]["prompts"].is_object(), "{initialized:#}");
    assert!(initialized["result"]["instructions"].as_str().unwrap().contains("be kind"));
    assert_eq!(tools(&client), (vec!["s__kept".into(), "s__gone".into()], json!(["s"])));
    let status = bridge.server_status("s");
    assert_eq!((&status["health"], &status["fromLastListing"]), (&json!("starting"), &json!(true)));
    let (_, listed) = bridge.bascule.run_json(&["tools"]);
    assert_eq!((listed[0]["id"].as_str(), &listed[0]["fromLastListing"]), (Some("s:kept"), &json!(true)));

    let events = bridge.events();
    std::thread::scope(|scope| {
        let call = |id: &'static str, tool: &str| {
            let (client, params) = (client.clone(), json!({ "name": tool, "arguments": {} }).to_string());
            scope.spawn(move || client.send_request(id, "tools/call", &params).last_message())
        };
        let (kept, gone) = (call("1", "s__kept"), call("2", "s__gone"));
        release(&bridge);
        let result = |response: String| serde_json::from_str::<Value>(&response).unwrap();
        assert_eq!(result(kept.join().unwrap())["result"]["content"][0]["text"], "called");
        assert_eq!(result(gone.join().unwrap())["error"]["code"], -32602, "the tool is gone");
    });
    let refreshed = events.wait_for_event("tools.refreshed");
    assert_eq!((&refreshed["added"], &refreshed["removed"]), (&json!(["new"]), &json!(["gone"])));
    while !stream.next_message().contains("tools/list_changed") {}
    assert_eq!(tools(&client), (vec!["s__kept".into(), "s__new".into()], Value::Null));
    assert_eq!(bridge.server_status("s")["fromLastListing"], Value::Null);
    assert_eq!(bridge.server_status("s")["restarts"], 0);
}

// req: US-03
#[test]
fn lazy_server_starts_at_its_first_call_and_stops_when_idle() {
    let server = ScriptedStdio::new(Script::new().tools(["t"]));
    let settings = json!({ "start": "lazy", "idleStopMs": 300 });
    let mut bridge = ServeProcess::start(json!({ "s": with_settings(server.entry(), settings) }));
    bridge.wait_for_stderr("] 1 lazy server: s");
    // It must be started once: nobody knows its tools.
    eventually("the idle server is stopped", || bridge.server_status("s")["health"] == "stopped");
    let status = bridge.server_status("s");
    assert!(status["cause"].as_str().unwrap().contains("300 ms without calls"), "{status:#}");
    assert_eq!((&status["tools"], &status["fromLastListing"]), (&json!(1), &Value::Null));
    assert_eq!(server.started().len(), 1);
    bridge.signal("TERM");
    bridge.wait_for_exit();

    bridge.start_again();
    let client = Client::connect(bridge.address(), "/mcp");
    assert_eq!(tools(&client), (vec!["s__t".into()], json!(["s"])));
    let status = bridge.server_status("s");
    assert_eq!(status["health"], "stopped", "{status:#}");
    assert!(status["cause"].as_str().unwrap().contains("first call"), "{status:#}");
    assert_eq!(bridge.bascule.run(&["describe", "s:t"]).code, Some(0));
    assert_eq!(server.started().len(), 1, "listing and describing start nothing");
    let events = bridge.events();
    let called = client.call("s__t", &json!({}));
    assert_eq!(called["result"]["isError"], false, "{called:#}");
    assert_eq!(server.started().len(), 2);
    eventually("the idle server is stopped", || bridge.server_status("s")["health"] == "stopped");
    assert_eq!(tools(&client), (vec!["s__t".into()], Value::Null));
    bridge.bascule.call("s:t", "{}");
    assert_eq!(server.started().len(), 3);
    let stopped = events.find_json(|event| event["body"]["to"] == "stopped");
    assert_eq!(stopped["type"], "provider.mcp.health.changed");
    assert_eq!(bridge.server_status("s")["restarts"], 0);
    eventually("the idle server is stopped", || bridge.server_status("s")["health"] == "stopped");
    assert_eq!(bridge.bascule.run(&["refresh", "s"]).code, Some(0));
    assert_eq!(server.started().len(), 4);
}

// req: US-03
#[test]
fn lazy_server_with_a_subscribed_client_is_not_idle() {
    let server = || {
        let done = [Behaviour::result(json!({}))];
        let script = Script::new().capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }));
        let script = script.tools(["t"]).on("resources/subscribe", done.clone());
        ScriptedStdio::new(script.on("resources/unsubscribe", done))
    };
    let (subscribed, idle) = (server(), server());
    let lazy =
        |server: &ScriptedStdio| with_settings(server.entry(), json!({ "start": "lazy", "idleStopMs": 300 }));
    let bridge = ServeProcess::start(json!({ "subscribed": lazy(&subscribed), "idle": lazy(&idle) }));
    let client = Client::connect(bridge.address(), "/servers/subscribed/mcp");
    let uri = json!({ "uri": "x://1" });
    assert_eq!(client.request("resources/subscribe", &uri)["result"], json!({}));
    // Without the subscription, the other server would be stopped before this one.
    bridge.bascule.call("idle:t", "{}");
    eventually("the idle server is stopped", || bridge.server_status("idle")["health"] == "stopped");
    assert_eq!(bridge.server_status("subscribed")["health"], "healthy");
    assert_eq!(client.request("resources/unsubscribe", &uri)["result"], json!({}));
    eventually("the other one is idle now", || bridge.server_status("subscribed")["health"] == "stopped");
}

// req: US-03
#[test]
fn changed_server_and_damaged_file_have_no_last_listing() {
    let server = ScriptedStdio::new(Script::new().tools(["t"]));
    let lazy =
        |entry: Value, extra: Value| with_settings(with_settings(entry, json!({ "start": "lazy" })), extra);
    let mut bridge = ServeProcess::start(json!({ "s": lazy(server.entry(), json!({})) }));
    wait_for_listing(&bridge, "The tool t");
    let first = listing_file(&bridge);
    bridge.signal("TERM");
    bridge.wait_for_exit();
    bridge.configure(&json!({ "s": lazy(server.entry(), json!({ "env": { "KIND": "other" } })) }));
    bridge.start_again();
    eventually("the changed server starts at once", || server.started().len() == 2);
    eventually("its listing is stored", || {
        listing_files(&bridge).iter().any(|file| Some(file) != first.as_ref())
    });
    bridge.signal("TERM");
    bridge.wait_for_exit();
    for file in fs::read_dir(bridge.bascule.data_folder().join("bascule/listings")).unwrap().flatten() {
        fs::write(file.path(), "{\"version\":1,").unwrap();
    }
    bridge.start_again();
    bridge.wait_for_stderr("ignoring the last listing");
    eventually("the server without a last listing starts at once", || server.started().len() == 3);
}

// req: US-03
#[test]
fn server_of_another_configuration_has_no_part_in_a_last_listing() {
    // The same words may run another program there: `npx` prefers the packages of its folder.
    let server = ScriptedStdio::new(Script::new().tools(["poisoned"]));
    let entry = json!({ "s": with_settings(server.entry(), json!({ "start": "lazy", "cwd": "/" })) });
    let (other, mut bridge) = (ServeProcess::start(entry.clone()), ServeProcess::start(entry));
    wait_for_listing(&other, "poisoned");
    wait_for_listing(&bridge, "poisoned");
    bridge.signal("TERM");
    bridge.wait_for_exit();
    let (own, foreign) = (listing_file(&bridge).unwrap(), listing_file(&other).unwrap());
    fs::remove_file(&own).unwrap();
    fs::copy(&foreign, own.with_file_name(foreign.file_name().unwrap())).unwrap();
    assert_eq!(server.started().len(), 2);
    bridge.start_again();
    eventually("the server without a listing of its own starts at once", || server.started().len() == 3);
}

// req: US-03
#[test]
fn one_shot_command_starts_a_lazy_server() {
    let entry = json!({ "command": demo_program(), "args": ["clock"], "start": "lazy" });
    let bascule = Bascule::with_server("clock", entry);
    for _ in 0..2 {
        let (code, tools) = bascule.run_json(&["tools"]);
        assert_eq!((code, &tools[0]["fromLastListing"]), (0, &Value::Null));
    }
    bascule.call("clock:now", "{}");
}
