//! `bascule serve` and the commands that use a running bridge.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::held_server::HeldServer;
use super::serve_process::{ServeProcess, spawn};
use super::{count, with_fast_reconnect, with_settings};
use crate::support::demo_server;
use crate::support::{Bascule, children, eventually, is_running, signal, text, wait_for_output};

fn silent_server() -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["x", "y"]).calls("x", [Behaviour::silence()]))
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

// req: BR-08
#[test]
fn status_reports_every_server() {
    let bridge = ServeProcess::start(
        json!({ "clock": demo_server("clock"), "gone": with_fast_reconnect(json!({ "command": "./none", "maxRetries": 0 })) }),
    );
    let events = bridge.events();
    events.find_json(|event| event["body"]["server"] == "clock" && event["body"]["to"] == "healthy");
    bridge.events().wait_for_event("reconnect.exhausted");
    let status = bridge.status();
    assert_eq!(keys(&status), ["servers", "traces"]);
    let (clock, gone) = (&status["servers"][0], &status["servers"][1]);
    assert_eq!(keys(clock), ["confinement", "health", "name", "pid", "restarts", "tools"]);
    assert_eq!(
        (&clock["health"], &clock["tools"], &clock["restarts"]),
        (&json!("healthy"), &json!(3), &json!(0))
    );
    assert!(
        is_running(clock["pid"].as_u64().unwrap() as u32) && clock["confinement"].is_object(),
        "{clock:#}"
    );
    assert_eq!((&gone["health"], &gone["pid"]), (&json!("unavailable"), &json!(null)));
    assert!(gone["cause"].as_str().unwrap().contains("./none"), "{gone:#}");
    let plain = bridge.bascule.run(&["status"]);
    assert!(
        plain.stdout.contains("clock  healthy") && plain.stdout.contains("gone   cannot start"),
        "{plain:?}"
    );
}

// req: BR-08
#[test]
fn status_watch_prints_changes() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let bridge = ServeProcess::start(json!({ "s": with_fast_reconnect(server.entry()) }));
    let watching = bridge.follow(&["status", "--watch", "--json"]);
    let health = |health: &'static str| move |status: &Value| status["servers"][0]["health"] == health;
    watching.find_json(health("healthy"));
    server.kill();
    watching.find_json(health("degraded"));
    let restarted = watching.find_json(health("healthy"));
    assert_eq!(restarted["servers"][0]["restarts"], 1);
}

#[test]
fn status_watch_exits_when_stdout_closes() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let bridge = ServeProcess::start(json!({ "s": with_fast_reconnect(server.entry()) }));
    let mut watching = spawn(&bridge.bascule, &["status", "--watch", "--json"]);
    drop(watching.stdout.take());
    eventually("the watch exits at the next change", || {
        bridge.bascule.run(&["refresh"]);
        watching.try_wait().unwrap().is_some()
    });
}

// req: BR-07
#[test]
fn events_are_streamed_and_replayed() {
    let bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    bridge.bascule.call("counter:increment", "{}");
    let late = bridge.follow(&["events", "provider.mcp.tool.*", "--replay", "5", "--json"]);
    let first = late.find_json(|_| true);
    assert_eq!(first["type"], "provider.mcp.tool.completed", "only the pattern is replayed: {first:#}");
    assert_eq!(first["body"]["tool"], "counter:increment");
    let live = bridge.follow(&["events", "--json", "--replay", "1"]);
    live.wait_for_event("tool.completed");
    bridge.bascule.call_error("counter:nothing", "{}");
    assert_eq!(live.wait_for_event("tool.failed")["code"], "TOOL_NOT_FOUND");
    assert_eq!(late.wait_for_event("tool.failed")["code"], "TOOL_NOT_FOUND");
    let wrong = bridge.bascule.run(&["events", "a..b", "--json"]);
    assert_eq!((wrong.code, &wrong.document()["error"]["code"]), (Some(2), &json!("USAGE")), "{wrong:?}");
}

// req: BR-09
#[test]
fn refresh_lists_tools_and_restarts_given_up_server() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]).exit_at_start(1));
    let entry = with_settings(with_fast_reconnect(server.entry()), json!({ "maxRetries": 0 }));
    let bridge = ServeProcess::start(json!({ "s": entry, "clock": demo_server("clock") }));
    let events = bridge.events();
    events.wait_for_event("reconnect.exhausted");
    let failed = bridge.bascule.run(&["refresh", "s", "--json"]);
    assert_eq!((failed.code, &failed.document()["error"]["code"]), (Some(3), &json!("PROVIDER_INIT_FAILED")));
    server.set_script(Script::new().tools(["x"]));
    let (code, status) = bridge.bascule.run_json(&["refresh"]);
    assert_eq!((code, &status["servers"][1]["health"]), (0, &json!("healthy")), "{status:#}");
    server.set_script(Script::new().tools(["x", "y"]));
    let (_, status) = bridge.bascule.run_json(&["refresh", "s"]);
    assert_eq!(status["servers"][1]["tools"], 2);
    let refreshed = events.find_json(|event| event["body"]["added"] == json!(["y"]));
    assert_eq!(refreshed["body"]["server"], "s");
    assert_eq!(bridge.bascule.run_json(&["refresh", "unknown"]).0, 3);
}

// req: BR-16
#[test]
fn commands_use_running_bridge_unless_no_daemon() {
    let bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    let increment = |options: &[&str]| {
        let (code, document) = bridge.bascule.run_json(&[&["call", "counter:increment"], options].concat());
        assert_eq!(code, 0, "{document:#}");
        document["result"]["structuredContent"]["value"].as_u64().unwrap()
    };
    assert_eq!((increment(&[]), increment(&[]), increment(&[])), (1, 2, 3), "one process keeps the count");
    assert_eq!(increment(&["--no-daemon"]), 1, "`--no-daemon` starts another process");
    assert_eq!(increment(&[]), 4);
    let (without_bridge, with_bridge) = (["tools", "--no-daemon"], ["tools"]);
    assert_eq!(bridge.bascule.run_json(&without_bridge), bridge.bascule.run_json(&with_bridge));
    let describe =
        |also: &[&str]| bridge.bascule.run_json(&[&["describe", "counter:increment"], also].concat());
    assert_eq!(describe(&[]), describe(&["--no-daemon"]));
    assert_eq!(children(bridge.pid()).len(), 1);
}

// req: BR-04, BR-05
#[test]
fn errors_through_running_bridge_are_the_same() {
    let bridge =
        ServeProcess::start(json!({ "notes": demo_server("notes"), "trouble": demo_server("trouble") }));
    for (tool, arguments) in
        [("notes:get_note", "{}"), ("notes:nothing", "{}"), ("unknown:x", "{}"), ("trouble:rpc_error", "{}")]
    {
        let typed = ["call", tool, arguments, "--correlation-id", "mine"];
        let own = bridge.bascule.run_json(&[&typed[..], &["--no-daemon"]].concat());
        assert_eq!(bridge.bascule.run_json(&typed), own, "{tool}");
    }
    assert_eq!(bridge.bascule.run(&["call", "trouble:fail"]).code, Some(1));
}

// req: BR-17
#[test]
fn limits_hold_across_commands() {
    let limited = with_settings(demo_server("counter"), json!({ "limits": { "ratePerSecond": 0.01 } }));
    let bridge = ServeProcess::start(json!({ "counter": limited }));
    bridge.bascule.call("counter:increment", "{}");
    let error = bridge.bascule.call_error("counter:increment", "{}");
    assert_eq!((&error["code"], &error["retryable"]), (&json!("RATE_LIMITED"), &json!(true)));
    assert!(error["retryAfterMs"].as_u64().is_some_and(|wait| wait > 0), "{error:#}");
}

#[test]
fn second_bridge_for_same_file_exits() {
    let bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    bridge.bascule.call("counter:increment", "{}");
    let second = wait_for_output(spawn(&bridge.bascule, &["serve", "--listen", "127.0.0.1:0", "-v"]));
    assert_eq!(second.code, Some(2), "{second:?}");
    assert!(
        second.stderr.contains("already running") && second.stderr.contains(&bridge.pid().to_string()),
        "{second:?}"
    );
    assert!(!second.stderr.contains("counter"), "the second bridge started a server: {second:?}");
    let value = bridge.bascule.call("counter:increment", "{}")["structuredContent"]["value"].clone();
    assert_eq!(value, 2);
}

#[test]
fn ignores_socket_of_killed_bridge() {
    let mut bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    bridge.bascule.call("counter:increment", "{}");
    let (socket, server) =
        (bridge.socket_file("sock"), bridge.server_status("counter")["pid"].as_u64().unwrap() as u32);
    bridge.signal("KILL");
    bridge.wait_for_exit();
    assert!(socket.exists(), "a killed bridge cannot remove its socket");
    eventually("the server of the killed bridge exits", || !is_running(server));
    assert_eq!(bridge.bascule.call("counter:increment", "{}")["structuredContent"]["value"], 1);
    let status = bridge.bascule.run(&["status"]);
    assert!(status.code == Some(2) && status.stderr.contains("bascule serve"), "{status:?}");
    let mut next = spawn(&bridge.bascule, &["serve", "--listen", "127.0.0.1:0"]);
    eventually("the next bridge uses the socket", || bridge.bascule.run(&["status"]).code == Some(0));
    signal(next.id(), "TERM");
    assert!(next.wait().unwrap().success());
    assert!(!socket.exists(), "the bridge removes its socket");
}

// req: CL-07
#[test]
fn interrupting_a_command_cancels_its_call() {
    let server = silent_server();
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let events = bridge.events();
    let calling = spawn(&bridge.bascule, &["call", "s:x", "--json", "--correlation-id", "mine"]);
    server.wait_for("tools/call");
    signal(calling.id(), "INT");
    let output = wait_for_output(calling);
    assert_eq!(
        (output.code, &output.document()["error"]["code"]),
        (Some(130), &json!("CANCELLED")),
        "{output:?}"
    );
    server.wait_for("notifications/cancelled");
    let failed = events.wait_for_event("tool.failed");
    assert_eq!((&failed["code"], &failed["correlationId"]), (&json!("CANCELLED"), &json!("mine")));
    bridge.bascule.call("s:y", "{}");
}

// req: CL-07
#[test]
fn killing_a_command_cancels_its_call() {
    let server = silent_server();
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let mut calling = spawn(&bridge.bascule, &["call", "s:x"]);
    server.wait_for("tools/call");
    calling.kill().unwrap();
    calling.wait().unwrap();
    server.wait_for("notifications/cancelled");
}

// req: BR-11
#[test]
fn first_signal_waits_for_calls() {
    let server = HeldServer::new();
    let mut bridge = ServeProcess::start(json!({ "s": server.entry() }));
    let watching = bridge.events();
    let calling = spawn(&bridge.bascule, &["call", "s:x", "--json"]);
    let pid = server.wait_for_call();
    bridge.signal("TERM");
    bridge.wait_for_stderr("stopping: calls in flight may finish");
    while watching.next_line().is_some() {}
    server.release();
    let output = wait_for_output(calling);
    assert_eq!(
        (output.code, text(&output.document()["result"]).as_str()),
        (Some(0), "finished"),
        "{output:?}"
    );
    assert!(bridge.wait_for_exit().success());
    assert!(!is_running(pid));
}

// req: BR-11
#[test]
fn second_signal_exits_immediately() {
    let server = silent_server();
    let mut bridge = ServeProcess::start_with(
        json!({ "s": with_settings(server.entry(), json!({ "timeoutMs": 600_000, "limits": { "maxExecutionMs": 600_000 } })) }),
        &["--grace-ms", "600000"],
    );
    let calling = spawn(&bridge.bascule, &["call", "s:x", "--json"]);
    server.wait_for("tools/call");
    bridge.signal("INT");
    bridge.wait_for_stderr("stopping: calls in flight may finish");
    bridge.signal("INT");
    assert!(bridge.wait_for_exit().success());
    assert_eq!(wait_for_output(calling).code, Some(3));
    assert!(!is_running(server.started()[0]));
}

// req: BR-11
#[test]
fn grace_period_for_calls_is_bounded() {
    let server = silent_server();
    let mut bridge = ServeProcess::start_with(json!({ "s": server.entry() }), &["--grace-ms", "100"]);
    let calling = spawn(&bridge.bascule, &["call", "s:x", "--json"]);
    server.wait_for("tools/call");
    bridge.signal("TERM");
    assert!(bridge.wait_for_exit().success());
    let output = wait_for_output(calling);
    assert_eq!(
        (output.code, &output.document()["error"]["delivery"]),
        (Some(3), &json!("unknown")),
        "{output:?}"
    );
    assert_eq!(count(&server.methods(), "tools/call"), 1);
}

// req: BR-11, SB-05
#[test]
fn killed_bridge_leaves_no_process() {
    let script =
        r#"setsid sleep 600 & echo $! > ~/grandchild.new; mv ~/grandchild.new ~/grandchild; exec "$0" notes"#;
    let entry = json!({ "command": "sh", "args": ["-c", script, crate::support::demo_program()] });
    let mut bridge = ServeProcess::start(json!({ "notes": entry, "clock": demo_server("clock") }));
    bridge.bascule.call("notes:list_notes", "{}");
    bridge.bascule.call("clock:now", "{}");
    let servers = bridge.status()["servers"].as_array().unwrap().clone();
    let mut pids: Vec<u32> = servers.iter().map(|server| server["pid"].as_u64().unwrap() as u32).collect();
    let grandchild = bridge.bascule.file_of("notes", "grandchild").unwrap();
    pids.push(fs::read_to_string(grandchild).unwrap().trim().parse().unwrap());
    assert!(pids.iter().all(|pid| is_running(*pid)), "{pids:?}");
    bridge.signal("KILL");
    bridge.wait_for_exit();
    eventually("all processes exit", || !pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn status_commands_fail_without_running_bridge() {
    let bascule = Bascule::with_demo_servers();
    for command in ["status", "events", "refresh"] {
        let (code, document) = bascule.run_json(&[command]);
        assert_eq!((code, &document["error"]["code"]), (2, &json!("USAGE")), "{document:#}");
    }
}

#[test]
fn socket_is_private_to_its_user() {
    let bridge = ServeProcess::start(json!({}));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let (socket, token) = (bridge.socket_file("sock"), bridge.socket_file("token"));
    assert_eq!((mode(&socket), mode(&token)), (0o600, 0o600));
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
}
