//! `bascule serve` and the commands that look at it, poke it, or let it work for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::held::Held;
use super::serving::{Serving, begin, children, finish};
use super::{count, eager, signal, with};
use crate::commands::demo;
use crate::support::{Bascule, eventually, is_running, text};

fn silent() -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["x", "y"]).calls("x", [Behaviour::silence()]))
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

// req: BR-08
#[test]
fn status_tells_programs_how_every_server_is() {
    let serving = Serving::start(
        json!({ "clock": demo("clock"), "gone": eager(json!({ "command": "./none", "maxRetries": 0 })) }),
    );
    let events = serving.events();
    events.until(|event| event["body"]["server"] == "clock" && event["body"]["to"] == "healthy");
    serving.events().event("reconnect.exhausted");
    let status = serving.status();
    assert_eq!(keys(&status), ["servers"]);
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
    let people = serving.bascule.run(&["status"]);
    assert!(
        people.stdout.contains("clock  healthy") && people.stdout.contains("gone   unavailable"),
        "{people:?}"
    );
}

// req: BR-08
#[test]
fn status_can_be_watched() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let serving = Serving::start(json!({ "s": eager(server.entry()) }));
    let watching = serving.lines(&["status", "--watch", "--json"]);
    let health = |health: &'static str| move |status: &Value| status["servers"][0]["health"] == health;
    watching.until(health("healthy"));
    server.kill();
    watching.until(health("degraded"));
    let back = watching.until(health("healthy"));
    assert_eq!(back["servers"][0]["restarts"], 1);
}

#[test]
fn whoever_stops_reading_ends_the_watch() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let serving = Serving::start(json!({ "s": eager(server.entry()) }));
    let mut watching = begin(&serving.bascule, &["status", "--watch", "--json"]);
    drop(watching.stdout.take());
    eventually("it ends when there is something to say", || {
        serving.bascule.run(&["refresh"]);
        watching.try_wait().unwrap().is_some()
    });
}

// req: BR-07
#[test]
fn events_are_told_as_they_happen_and_as_they_happened() {
    let serving = Serving::start(json!({ "counter": demo("counter") }));
    serving.bascule.call("counter:increment", "{}");
    let late = serving.lines(&["events", "provider.mcp.tool.*", "--replay", "5", "--json"]);
    let told = late.until(|_| true);
    assert_eq!(told["type"], "provider.mcp.tool.completed", "nothing else fits the pattern: {told:#}");
    assert_eq!(told["body"]["tool"], "counter:increment");
    let live = serving.lines(&["events", "--json", "--replay", "1"]);
    live.event("tool.completed");
    serving.bascule.call_error("counter:nothing", "{}");
    assert_eq!(live.event("tool.failed")["code"], "TOOL_NOT_FOUND");
    assert_eq!(late.event("tool.failed")["code"], "TOOL_NOT_FOUND");
    let wrong = serving.bascule.run(&["events", "a..b", "--json"]);
    assert_eq!(
        (wrong.code, &wrong.document()["error"]["code"]),
        (Some(3), &json!("INVALID_INPUT")),
        "{wrong:?}"
    );
}

// req: BR-09
#[test]
fn refresh_lists_tools_again_and_starts_what_was_given_up() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]).exit_at_start(1));
    let entry = with(eager(server.entry()), json!({ "maxRetries": 0 }));
    let serving = Serving::start(json!({ "s": entry, "clock": demo("clock") }));
    let events = serving.events();
    events.event("reconnect.exhausted");
    let failed = serving.bascule.run(&["refresh", "s", "--json"]);
    assert_eq!((failed.code, &failed.document()["error"]["code"]), (Some(3), &json!("PROVIDER_INIT_FAILED")));
    server.change(Script::new().tools(["x"]));
    let (code, status) = serving.bascule.json(&["refresh"]);
    assert_eq!((code, &status["servers"][1]["health"]), (0, &json!("healthy")), "{status:#}");
    server.change(Script::new().tools(["x", "y"]));
    let (_, status) = serving.bascule.json(&["refresh", "s"]);
    assert_eq!(status["servers"][1]["tools"], 2);
    let refreshed = events.until(|event| event["body"]["added"] == json!(["y"]));
    assert_eq!(refreshed["body"]["server"], "s");
    assert_eq!(serving.bascule.json(&["refresh", "nobody"]).0, 3);
}

// req: BR-16
#[test]
fn commands_use_the_bridge_that_runs_unless_they_are_told_not_to() {
    let serving = Serving::start(json!({ "counter": demo("counter") }));
    let increment = |options: &[&str]| {
        let (code, document) = serving.bascule.json(&[&["call", "counter:increment"], options].concat());
        assert_eq!(code, 0, "{document:#}");
        document["result"]["structuredContent"]["value"].as_u64().unwrap()
    };
    assert_eq!((increment(&[]), increment(&[]), increment(&[])), (1, 2, 3), "one process keeps count");
    assert_eq!(increment(&["--no-daemon"]), 1, "another one begins");
    assert_eq!(increment(&[]), 4);
    let (alone, with_bridge) = (["tools", "--no-daemon"], ["tools"]);
    assert_eq!(serving.bascule.json(&alone), serving.bascule.json(&with_bridge));
    let describe = |also: &[&str]| serving.bascule.json(&[&["describe", "counter:increment"], also].concat());
    assert_eq!(describe(&[]), describe(&["--no-daemon"]));
    assert_eq!(children(serving.pid()).len(), 1);
}

// req: BR-04, BR-05
#[test]
fn errors_are_the_same_through_the_bridge_that_runs() {
    let serving = Serving::start(json!({ "notes": demo("notes"), "trouble": demo("trouble") }));
    for (tool, arguments) in
        [("notes:get_note", "{}"), ("notes:nothing", "{}"), ("nobody:x", "{}"), ("trouble:rpc_error", "{}")]
    {
        let typed = ["call", tool, arguments, "--correlation-id", "mine"];
        let own = serving.bascule.json(&[&typed[..], &["--no-daemon"]].concat());
        assert_eq!(serving.bascule.json(&typed), own, "{tool}");
    }
    assert_eq!(serving.bascule.run(&["call", "trouble:fail"]).code, Some(1));
}

// req: BR-17
#[test]
fn limits_hold_across_commands() {
    let limited = with(demo("counter"), json!({ "limits": { "ratePerSecond": 0.01 } }));
    let serving = Serving::start(json!({ "counter": limited }));
    serving.bascule.call("counter:increment", "{}");
    let error = serving.bascule.call_error("counter:increment", "{}");
    assert_eq!((&error["code"], &error["retryable"]), (&json!("RATE_LIMITED"), &json!(true)));
    assert!(error["retryAfterMs"].as_u64().is_some_and(|wait| wait > 0), "{error:#}");
}

#[test]
fn a_second_bridge_for_the_same_file_is_refused_and_the_first_goes_on() {
    let serving = Serving::start(json!({ "counter": demo("counter") }));
    serving.bascule.call("counter:increment", "{}");
    let second = finish(begin(&serving.bascule, &["serve", "--listen", "127.0.0.1:0", "-v"]));
    assert_eq!(second.code, Some(2), "{second:?}");
    assert!(
        second.stderr.contains("runs already") && second.stderr.contains(&serving.pid().to_string()),
        "{second:?}"
    );
    assert!(!second.stderr.contains("counter"), "it started nothing: {second:?}");
    let value = serving.bascule.call("counter:increment", "{}")["structuredContent"]["value"].clone();
    assert_eq!(value, 2);
}

#[test]
fn what_a_killed_bridge_left_behind_is_ignored() {
    let mut serving = Serving::start(json!({ "counter": demo("counter") }));
    serving.bascule.call("counter:increment", "{}");
    let (socket, server) = (serving.place("sock"), serving.server("counter")["pid"].as_u64().unwrap() as u32);
    serving.signal("KILL");
    serving.wait();
    assert!(socket.exists(), "nobody could take it away");
    eventually("its servers are gone", || !is_running(server));
    assert_eq!(serving.bascule.call("counter:increment", "{}")["structuredContent"]["value"], 1);
    let status = serving.bascule.run(&["status"]);
    assert!(status.code == Some(2) && status.stderr.contains("bascule serve"), "{status:?}");
    let mut next = begin(&serving.bascule, &["serve", "--listen", "127.0.0.1:0"]);
    eventually("the next one takes the place", || serving.bascule.run(&["status"]).code == Some(0));
    signal(next.id(), "TERM");
    assert!(next.wait().unwrap().success());
    assert!(!socket.exists(), "it takes its socket away");
}

// req: CL-07
#[test]
fn interrupting_a_call_cancels_it_in_the_bridge() {
    let server = silent();
    let serving = Serving::start(json!({ "s": server.entry() }));
    let events = serving.events();
    let calling = begin(&serving.bascule, &["call", "s:x", "--json", "--correlation-id", "mine"]);
    server.wait_for("tools/call");
    signal(calling.id(), "INT");
    let ran = finish(calling);
    assert_eq!((ran.code, &ran.document()["error"]["code"]), (Some(130), &json!("CANCELLED")), "{ran:?}");
    server.wait_for("notifications/cancelled");
    let failed = events.event("tool.failed");
    assert_eq!((&failed["code"], &failed["correlationId"]), (&json!("CANCELLED"), &json!("mine")));
    serving.bascule.call("s:y", "{}");
}

// req: CL-07
#[test]
fn a_caller_that_is_killed_has_left_too() {
    let server = silent();
    let serving = Serving::start(json!({ "s": server.entry() }));
    let mut calling = begin(&serving.bascule, &["call", "s:x"]);
    server.wait_for("tools/call");
    calling.kill().unwrap();
    calling.wait().unwrap();
    server.wait_for("notifications/cancelled");
}

// req: BR-11
#[test]
fn the_first_signal_lets_a_call_finish() {
    let server = Held::new();
    let mut serving = Serving::start(json!({ "s": server.entry() }));
    let watching = serving.events();
    let calling = begin(&serving.bascule, &["call", "s:x", "--json"]);
    let pid = server.wait_called();
    serving.signal("TERM");
    serving.wait_said("ending");
    while watching.next().is_some() {}
    server.release();
    let ran = finish(calling);
    assert_eq!((ran.code, text(&ran.document()["result"]).as_str()), (Some(0), "finished"), "{ran:?}");
    assert!(serving.wait().success());
    assert!(!is_running(pid));
}

// req: BR-11
#[test]
fn the_second_signal_ends_it_at_once() {
    let server = silent();
    let mut serving = Serving::start_with(
        json!({ "s": with(server.entry(), json!({ "timeoutMs": 600_000, "limits": { "maxExecutionMs": 600_000 } })) }),
        &["--grace-ms", "600000"],
    );
    let calling = begin(&serving.bascule, &["call", "s:x", "--json"]);
    server.wait_for("tools/call");
    serving.signal("INT");
    serving.wait_said("ending");
    serving.signal("INT");
    assert!(serving.wait().success());
    assert_eq!(finish(calling).code, Some(3));
    assert!(!is_running(server.started()[0]));
}

// req: BR-11
#[test]
fn the_grace_for_calls_is_bounded() {
    let server = silent();
    let mut serving = Serving::start_with(json!({ "s": server.entry() }), &["--grace-ms", "100"]);
    let calling = begin(&serving.bascule, &["call", "s:x", "--json"]);
    server.wait_for("tools/call");
    serving.signal("TERM");
    assert!(serving.wait().success());
    let ran = finish(calling);
    assert_eq!((ran.code, &ran.document()["error"]["delivery"]), (Some(3), &json!("unknown")), "{ran:?}");
    assert_eq!(count(&server.methods(), "tools/call"), 1);
}

// req: BR-11, SB-05
#[test]
fn nothing_survives_the_bridges_violent_death() {
    let script = r#"setsid sleep 600 & echo $! > grandchild.new; mv grandchild.new grandchild; exec "$0" __demo notes"#;
    let entry = json!({ "command": "sh", "args": ["-c", script, crate::support::program()] });
    let mut serving = Serving::start(json!({ "notes": entry, "clock": demo("clock") }));
    serving.bascule.call("notes:list_notes", "{}");
    serving.bascule.call("clock:now", "{}");
    let servers = serving.status()["servers"].as_array().unwrap().clone();
    let mut pids: Vec<u32> = servers.iter().map(|server| server["pid"].as_u64().unwrap() as u32).collect();
    pids.push(
        fs::read_to_string(serving.bascule.folder().join("grandchild")).unwrap().trim().parse().unwrap(),
    );
    assert!(pids.iter().all(|pid| is_running(*pid)), "{pids:?}");
    serving.signal("KILL");
    serving.wait();
    eventually("all are gone", || !pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn without_a_bridge_that_runs_there_is_nothing_to_look_at() {
    let bascule = Bascule::with_demo_servers();
    for command in ["status", "events", "refresh"] {
        let (code, document) = bascule.json(&[command]);
        assert_eq!((code, &document["error"]["code"]), (2, &json!("USAGE")), "{document:#}");
    }
}

#[test]
fn only_its_user_can_come_near_the_socket() {
    let serving = Serving::start(json!({}));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let (socket, token) = (serving.place("sock"), serving.place("token"));
    assert_eq!((mode(&socket), mode(&token)), (0o600, 0o600));
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
}
