//! `bascule serve` reports on stderr what happens to its servers, and `bascule status` why one is down.

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::serve_process::ServeProcess;
use super::{with_fast_reconnect, with_settings};
use crate::support::demo_server;

/// A server that complains and exits.
fn broken_server(max_retries: u32) -> Value {
    let script = "echo 'the licence is missing' >&2; exit 3";
    let entry = json!({ "command": "sh", "args": ["-c", script], "maxRetries": max_retries });
    with_fast_reconnect(entry)
}

fn lines_with(bridge: &ServeProcess, part: &str) -> Vec<String> {
    bridge.stderr().lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

// req: US-01
#[test]
fn reports_starts_and_failures_once() {
    let servers = json!({
        "clock": demo_server("clock"),
        "broken": broken_server(4),
        "gone": with_settings(json!({ "command": "./none" }), json!({ "reconnectBackoffMs": 30_000 })),
    });
    for bridge in [ServeProcess::start(servers.clone()), ServeProcess::start_stdio(servers.clone())] {
        bridge.wait_for_stderr("starting 3 servers: broken, clock, gone");
        bridge.wait_for_stderr("server `clock` is up: 3 tools, process ");
        bridge.wait_for_stderr("given up after 4 attempts: `bascule refresh broken` tries again");
        bridge.wait_for_stderr("could not start server `gone`");
        let broken = lines_with(&bridge, "could not start server `broken`");
        assert_eq!(broken.len(), 2, "equal failures are counted: {broken:#?}");
        let reason = "; the end of its stderr: the licence is missing; ";
        assert!(
            broken.iter().all(|line| line.contains("exit code 3") && line.contains(reason)),
            "{broken:#?}"
        );
        let gone = lines_with(&bridge, "`gone`");
        assert!(
            gone.len() == 1 && gone[0].contains("./none") && gone[0].contains("; attempt 1 is in "),
            "{gone:#?}"
        );
    }
}

// req: US-01
#[test]
fn reports_stray_output_of_retried_server_once() {
    let entry =
        json!({ "command": "sh", "args": ["-c", "echo hello from a banner; exit 3"], "maxRetries": 4 });
    let bridge = ServeProcess::start(json!({ "banner": with_fast_reconnect(entry) }));
    bridge.wait_for_stderr("given up after 4 attempts");
    let told = lines_with(&bridge, "ignored a line on stdout");
    assert!(told.len() == 1 && told[0].contains("hello from a banner"), "{told:#?}");
}

// req: US-01
#[test]
fn reports_loss_return_and_reload() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let bridge = ServeProcess::start(
        json!({ "s": with_fast_reconnect(server.entry()), "clock": demo_server("clock") }),
    );
    bridge.bascule.call("s:x", "{}");
    server.kill();
    bridge.wait_for_stderr("server `s` is back after ");
    let lost = lines_with(&bridge, "server `s` is down");
    assert!(
        lost.len() == 1 && lost[0].contains("SIGKILL") && lost[0].contains("; attempt 1 is in "),
        "{lost:#?}"
    );
    bridge.configure(&json!({ "s": with_fast_reconnect(server.entry()), "counter": demo_server("counter") }));
    bridge.wait_for_stderr("configuration reloaded: added counter; removed clock; 1 unchanged");
    bridge.wait_for_stderr("server `counter` is up: ");
}

// req: US-01
#[test]
fn status_shows_cause_stderr_and_next_attempt() {
    let late = with_settings(broken_server(9), json!({ "reconnectBackoffMs": 30_000 }));
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let lost = with_settings(server.entry(), json!({ "reconnectBackoffMs": 30_000 }));
    let bridge = ServeProcess::start(json!({ "broken": late, "gone": broken_server(0), "lost": lost }));
    bridge.bascule.call("lost:x", "{}");
    server.kill();
    for name in ["broken", "lost"] {
        bridge.wait_for_stderr(&format!("server `{name}`"));
    }
    bridge.wait_for_stderr("server `lost` is down");
    bridge.wait_for_stderr("`bascule refresh gone` tries again");
    let broken = bridge.server_status("broken");
    assert_eq!(
        (&broken["health"], &broken["neverStarted"]),
        (&json!("degraded"), &json!(true)),
        "{broken:#}"
    );
    assert_eq!((&broken["stderr"], &broken["attempt"]), (&json!("the licence is missing"), &json!(1)));
    assert!(broken["retryAfterMs"].as_u64().unwrap() <= 30_000, "{broken:#}");
    assert_eq!(bridge.server_status("lost")["neverStarted"], json!(null));
    let status = bridge.bascule.run(&["status"]).stdout;
    let expected = [
        "broken  cannot start    0 tools  attempt 1 in ",
        "gone    cannot start    0 tools  given up: `bascule refresh gone` tries again",
        "lost    degraded         1 tool  attempt 1 in ",
        "  could not start server `broken`: ",
        "  stderr | the licence is missing",
    ];
    assert!(expected.iter().all(|part| status.contains(part)), "{status}");
}

// req: US-01
#[test]
fn status_watch_prints_every_attempt() {
    let bridge = ServeProcess::start(json!({ "broken": broken_server(1_000) }));
    let watching = bridge.follow(&["status", "--watch", "--json"]);
    for least in [1, 3] {
        watching.find_json(|status| status["servers"][0]["attempt"].as_u64().is_some_and(|own| own >= least));
    }
}

// req: US-01, BR-05, BR-10
#[test]
fn failed_start_is_retryable_while_it_is_tried_again() {
    let late = with_settings(broken_server(9), json!({ "reconnectBackoffMs": 30_000 }));
    let bridge = ServeProcess::start(json!({ "late": late, "gone": broken_server(0) }));
    bridge.wait_for_stderr("`bascule refresh gone` tries again");
    bridge.wait_for_stderr("could not start server `late`");
    let error = bridge.bascule.call_error("late:x", "{}");
    assert_eq!((&error["code"], &error["retryable"]), (&json!("PROVIDER_INIT_FAILED"), &json!(true)));
    assert!(error["retryAfterMs"].as_u64().is_some_and(|wait| wait <= 30_000), "{error:#}");
    let error = bridge.bascule.call_error("gone:x", "{}");
    assert_eq!((&error["retryable"], &error["retryAfterMs"]), (&json!(false), &json!(null)), "{error:#}");
}
