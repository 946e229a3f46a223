//! Processes that commands start and stop.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::check_output;
use crate::support::{
    Bascule, CommandOutput, children, demo_program, demo_server, eventually, is_running, signal,
    wait_for_output,
};

/// A server that creates the file `started` in its home and exits.
fn marker_server() -> Value {
    json!({ "command": "sh", "args": ["-c", "touch ~/started; exit 1"] })
}

fn with_marker_server() -> Bascule {
    Bascule::with_servers(json!({ "notes": demo_server("notes"), "marker": marker_server() }))
}

fn was_started(bascule: &Bascule) -> bool {
    bascule.file_of("marker", "started").is_some()
}

#[test]
fn starts_only_needed_servers() {
    let bascule = with_marker_server();
    let note = r#"{"id":1}"#;
    for typed in [&["call", "notes:get_note", note][..], &["tools", "notes"], &["describe", "notes:get_note"]]
    {
        check_output(&bascule.run(typed), 0, "", "");
    }
    for typed in
        [&["call", "nobody:x"][..], &["tools", "nobody"], &["call", "notes:get_note", "{"], &["--help"]]
    {
        assert_ne!(bascule.run(typed).code, Some(101), "{typed:?}");
    }
    assert!(!was_started(&bascule));
    check_output(&bascule.run(&["tools"]), 0, "notes:get_note", "missing:");
    assert!(was_started(&bascule), "`tools` starts every server");
}

#[test]
fn does_not_start_disabled_server() {
    let mut off = marker_server();
    off["disabled"] = true.into();
    let bascule = Bascule::with_servers(json!({ "notes": demo_server("notes"), "marker": off }));
    check_output(&bascule.run(&["check"]), 0, "1 server\n", "");
    let error = bascule.call_error("marker:x", "{}");
    assert!(error["message"].as_str().unwrap().contains("disabled"), "{error}");
    assert!(!was_started(&bascule));
}

// req: BR-11
#[test]
fn stops_servers_and_their_children() {
    let script = r#"sleep 600 & echo $! > ~/grandchild; exec "$0" notes"#;
    let entry = json!({ "command": "sh", "args": ["-c", script, demo_program()] });
    let bascule = Bascule::with_server("notes", entry);
    let (_, report) = bascule.run_json(&["check"]);
    let pid = report["servers"][0]["pid"].as_u64().unwrap() as u32;
    let grandchild =
        fs::read_to_string(bascule.file_of("notes", "grandchild").unwrap()).unwrap().trim().parse().unwrap();
    assert!(!is_running(pid), "the server still runs");
    eventually("the child of the server exits", || !is_running(grandchild));
}

/// Reads stderr until a line contains this.
fn read_until(stderr: &mut impl BufRead, part: &str) {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "exited without `{part}` on stderr");
    }
}

// req: BR-11
#[test]
fn interrupted_call_exits_with_130_and_stops_server() {
    let bascule = Bascule::with_server("trouble", demo_server("trouble"));
    let mut child = bascule.command(&["call", "trouble:sleep", r#"{"ms":600000}"#, "-vv"]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut stderr, "notifications/progress");
    let [server] = children(child.id())[..] else { panic!("expected one server") };
    assert!(is_running(server));
    signal(child.id(), "INT");
    let output = wait_for_output(child);
    assert_eq!((output.code, output.stdout.as_str()), (Some(130), ""), "{output:?}");
    assert!(!is_running(server));
    read_until(&mut stderr, "interrupted");
}

/// Starts a call, waits until the server has received this text, and sends the signal.
fn interrupt_call(script: Script, received: &str, name: &str) -> (CommandOutput, ScriptedStdio) {
    let server = ScriptedStdio::new(script);
    let bascule = Bascule::with_server("scripted", server.entry());
    let typed = ["call", "scripted:wait", "--json", "--correlation-id", "mine"];
    let child = bascule.command(&typed).spawn().unwrap();
    server.wait_for(received);
    signal(child.id(), name);
    (wait_for_output(child), server)
}

fn check_interrupted((output, server): (CommandOutput, ScriptedStdio)) {
    let error = &output.document()["error"];
    assert_eq!((output.code, &error["code"]), (Some(130), &json!("CANCELLED")), "{output:?}");
    // The server has received the call, so the tool may have run.
    assert_eq!(
        (&error["delivery"], &error["correlationId"]),
        (&json!("unknown"), &json!("mine")),
        "{output:?}"
    );
    assert!(server.started().iter().all(|pid| !is_running(*pid)), "the server still runs");
}

// req: BR-11
#[test]
fn interrupted_call_is_cancelled_at_server() {
    let waits = || Script::new().tools(["wait"]).calls("wait", [Behaviour::silence()]);
    let (output, server) = interrupt_call(waits(), "tools/call", "INT");
    server.wait_for("notifications/cancelled");
    check_interrupted((output, server));
    check_interrupted(interrupt_call(waits(), "tools/call", "TERM"));
}

// req: BR-11
#[test]
fn interrupt_during_server_start_exits_with_130() {
    // The server never answers; it and its child must exit.
    let script = "sleep 600 & cd; echo $$ $! > pids.new; mv pids.new pids; exec sleep 600";
    let bascule = Bascule::with_server("slow", json!({ "command": "sh", "args": ["-c", script] }));
    let child = bascule.command(&["call", "slow:x", "--json"]).spawn().unwrap();
    eventually("the server is started", || bascule.file_of("slow", "pids").is_some());
    let pids: Vec<u32> = fs::read_to_string(bascule.file_of("slow", "pids").unwrap())
        .unwrap()
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    signal(child.id(), "INT");
    let output = wait_for_output(child);
    assert_eq!(
        (output.code, &output.document()["error"]["code"]),
        (Some(130), &json!("CANCELLED")),
        "{output:?}"
    );
    assert_eq!(output.document()["error"]["delivery"], "not_sent");
    eventually("the server and its child exit", || pids.iter().all(|pid| !is_running(*pid)));
}

#[test]
fn fails_if_result_cannot_be_written() {
    let bascule = Bascule::with_demo_servers();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = wait_for_output(bascule.command(&["tools", "--json"]).stdout(full).spawn().unwrap());
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("could not write the result"), "{output:?}");
}

#[test]
fn tolerates_closed_stdout_and_stderr() {
    let bascule = Bascule::with_demo_servers();
    for typed in
        [&["tools", "--json"][..], &["tools"], &["check"], &["--help"], &["call", "notes:nothing", "--json"]]
    {
        let mut child = bascule.command(typed).spawn().unwrap();
        drop(child.stdout.take());
        let output = wait_for_output(child);
        assert!(matches!(output.code, Some(0 | 3)), "{typed:?}: {output:?}");
        assert!(!output.stderr.contains("panicked"), "{typed:?}: {output:?}");
    }
    let mut child = bascule.command(&["call", "notes"]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(wait_for_output(child).code, Some(2), "a closed stderr changes the exit code");
}
