//! `bascule serve` reloads its configuration file when it changes.

use std::fs;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::held_server::HeldServer;
use super::serve_process::{LineStream, ServeProcess, config_text, spawn};
use super::with_fast_reconnect;
use crate::support::demo_server;
use crate::support::{eventually, is_running, text, wait_for_output};

fn echo_server() -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["x"]))
}

/// Waits for `tools.available` with these tools. A file that is written slowly may be read twice and announced twice.
fn wait_for_tools(events: &LineStream, tools: &[&str]) {
    let is_available = |event: &Value| event["type"] == "provider.mcp.tools.available";
    events.find_json(|event| is_available(event) && event["body"]["tools"] == json!(tools));
}

// req: BR-13
#[test]
fn reloads_written_and_replaced_file() {
    let (kept, added, other) = (echo_server(), echo_server(), echo_server());
    let bridge = ServeProcess::start(json!({ "kept": kept.entry() }));
    bridge.bascule.call("kept:x", "{}");
    let (events, pid) = (bridge.events(), bridge.server_status("kept")["pid"].clone());

    bridge.configure(&json!({ "kept": kept.entry(), "added": added.entry() }));
    wait_for_tools(&events, &["added:x", "kept:x"]);
    bridge.bascule.call("added:x", "{}");

    let draft = bridge.bascule.folder().join("mcp.json.new");
    fs::write(&draft, config_text(&json!({ "kept": kept.entry(), "added": other.entry() }))).unwrap();
    fs::rename(draft, bridge.config_file()).unwrap();
    eventually("the replaced server exits", || !is_running(added.started()[0]));
    wait_for_tools(&events, &["added:x", "kept:x"]);
    bridge.bascule.call("added:x", "{}");
    assert_eq!(other.started().len(), 1);

    bridge.configure(&json!({ "kept": kept.entry() }));
    wait_for_tools(&events, &["kept:x"]);
    eventually("the removed server exits", || !is_running(other.started()[0]));
    assert_eq!(bridge.bascule.call_error("added:x", "{}")["code"], "TOOL_NOT_FOUND");
    assert_eq!(
        (bridge.server_status("kept")["pid"].clone(), kept.started().len()),
        (pid, 1),
        "the unchanged server keeps its process"
    );
    let replayed = bridge.follow(&["events", "provider.mcp.tools.available", "--replay", "100", "--json"]);
    for tools in [&["added:x", "kept:x"][..], &["added:x", "kept:x"], &["kept:x"]] {
        wait_for_tools(&replayed, tools);
    }
    bridge.signal("HUP");
    wait_for_tools(&replayed, &["kept:x"]);
    assert_eq!(kept.started().len(), 1);
}

// req: BR-13
#[test]
fn reloads_on_sighup() {
    let server = echo_server();
    let bridge = ServeProcess::start(json!({ "clock": demo_server("clock") }));
    let events = bridge.events();
    // Writes through a hard link in a folder that is not watched.
    let elsewhere = tempfile::tempdir_in(bridge.bascule.folder()).unwrap();
    let alias = elsewhere.path().join("alias.json");
    fs::hard_link(bridge.config_file(), &alias).unwrap();
    fs::write(&alias, config_text(&json!({ "clock": demo_server("clock"), "s": server.entry() }))).unwrap();
    bridge.signal("HUP");
    events.wait_for_event("tools.available");
    bridge.bascule.call("s:x", "{}");
}

// req: BR-13
#[test]
fn keeps_configuration_if_file_is_invalid() {
    let server = echo_server();
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    bridge.bascule.call("s:x", "{}");
    let good = fs::read_to_string(bridge.config_file()).unwrap();
    let good_name = bridge.bascule.folder().join("good.json");
    let events = bridge.events();
    for (broken, reason) in
        [("{ \"mcpServers\": {", "mcp.json:1"), (r#"{"mcpServers": {"s": {"command": 7}}}"#, "command")]
    {
        let before = bridge.stderr().len();
        fs::write(bridge.config_file(), broken).unwrap();
        eventually("the reason is logged", || {
            let logged = bridge.stderr()[before..].to_owned();
            logged.contains("configuration not reloaded") && logged.contains(reason)
        });
        let refused = events.wait_for_event("reload.refused");
        assert!(refused["cause"].as_str().unwrap().contains(reason), "{refused}");
        assert!(bridge.status()["refusedReload"].as_str().unwrap().contains(reason));
        // Commands find the bridge by the path of the file.
        bridge.bascule.call("s:x", "{}");
        assert_eq!(bridge.bascule.run_json(&["tools"]).1[0]["id"], "s:x");
    }
    fs::write(&good_name, &good).unwrap();
    fs::rename(good_name, bridge.config_file()).unwrap();
    bridge.events().wait_for_event("tools.available");
    bridge.bascule.call("s:x", "{}");
    assert_eq!(bridge.status()["refusedReload"], json!(null));
    assert_eq!(server.started().len(), 1, "the server was not restarted");
}

// req: US-01
#[test]
fn commands_find_bridge_whose_file_is_gone() {
    let server = echo_server();
    let mut bridge = ServeProcess::start(json!({ "s": server.entry() }));
    bridge.bascule.call("s:x", "{}");
    let events = bridge.events();
    fs::remove_file(bridge.config_file()).unwrap();
    events.wait_for_event("reload.refused");
    for names_config in [true, false] {
        bridge.bascule.names_config = names_config;
        assert_eq!(bridge.server_status("s")["health"], "healthy");
        bridge.bascule.call("s:x", "{}");
        bridge.events().wait_for_event("reload.refused");
        let commands: [&[&str]; 5] =
            [&["tools"], &["tools", "s"], &["describe", "s:x"], &["refresh"], &["refresh", "s"]];
        for command in commands {
            let (code, document) = bridge.bascule.run_json(command);
            assert_eq!(code, 0, "{command:?}: {document:#}");
        }
        let unknown = bridge.bascule.run(&["tools", "t"]);
        assert!(unknown.code == Some(2) && unknown.stderr.contains("the only one is `s`"), "{unknown:?}");
    }
    bridge.signal("KILL");
    bridge.wait_for_exit();
    assert_eq!(bridge.bascule.run(&["tools"]).code, Some(2));
}

// req: BR-13
#[test]
fn keeps_old_server_if_new_command_does_not_start() {
    let server = echo_server();
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    bridge.bascule.call("s:x", "{}");
    let events = bridge.events();
    bridge.configure(&json!({ "s": with_fast_reconnect(json!({ "command": "./not-there" })) }));
    bridge.wait_for_stderr("keeping the old configuration");
    assert!(bridge.stderr().contains("./not-there"), "{}", bridge.stderr());
    wait_for_tools(&events, &["s:x"]);
    bridge.bascule.call("s:x", "{}");
    assert_eq!(bridge.server_status("s")["health"], "healthy");
    assert_eq!(server.started().len(), 1);
}

// req: BR-13
#[test]
fn call_under_way_finishes_after_its_server_is_removed() {
    let (removed, kept) = (HeldServer::new(), HeldServer::new());
    let bridge = ServeProcess::start(json!({ "removed": removed.entry(), "kept": kept.entry() }));
    let calls = ["removed:x", "kept:x"].map(|tool| spawn(&bridge.bascule, &["call", tool, "--json"]));
    let pids = [removed.wait_for_call(), kept.wait_for_call()];
    let events = bridge.events();
    bridge.configure(&json!({ "kept": kept.entry() }));
    wait_for_tools(&events, &["kept:x"]);
    assert_eq!(pids.map(is_running), [true, true]);
    removed.release();
    kept.release();
    for call in calls {
        let output = wait_for_output(call);
        assert_eq!(
            (output.code, text(&output.document()["result"]).as_str()),
            (Some(0), "finished"),
            "{output:?}"
        );
    }
    eventually("the removed server exits", || !is_running(pids[0]));
    assert!(is_running(pids[1]));
}
