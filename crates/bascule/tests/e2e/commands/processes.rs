//! Which processes a command starts, and that none of them outlives it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::check_ran;
use crate::support::{
    Bascule, CommandOutput, children, demo_program, demo_server, eventually, is_running, signal,
    wait_for_output,
};

/// A server that says that it was started, and is of no further use.
fn witness() -> Value {
    json!({ "command": "sh", "args": ["-c", "touch started; exit 1"] })
}

fn with_witness() -> Bascule {
    Bascule::with_servers(json!({ "notes": demo_server("notes"), "witness": witness() }))
}

fn was_started(folder: &Path) -> bool {
    folder.join("started").exists()
}

#[test]
fn a_command_starts_only_the_servers_it_needs() {
    let bascule = with_witness();
    let note = r#"{"id":1}"#;
    for typed in [&["call", "notes:get_note", note][..], &["tools", "notes"], &["describe", "notes:get_note"]]
    {
        check_ran(&bascule.run(typed), 0, "", "");
    }
    for typed in
        [&["call", "nobody:x"][..], &["tools", "nobody"], &["call", "notes:get_note", "{"], &["--help"]]
    {
        assert_ne!(bascule.run(typed).code, Some(101), "{typed:?}");
    }
    assert!(!was_started(bascule.folder()));
    check_ran(&bascule.run(&["tools"]), 0, "notes:get_note", "missing:");
    assert!(was_started(bascule.folder()), "`tools` needs all");
}

#[test]
fn a_server_that_is_switched_off_is_not_started() {
    let mut off = witness();
    off["disabled"] = true.into();
    let bascule = Bascule::with_servers(json!({ "notes": demo_server("notes"), "witness": off }));
    check_ran(&bascule.run(&["check"]), 0, "1 server\n", "");
    let error = bascule.call_error("witness:x", "{}");
    assert!(error["message"].as_str().unwrap().contains("disabled"), "{error}");
    assert!(!was_started(bascule.folder()));
}

// req: BR-11
#[test]
fn nothing_a_command_started_outlives_it() {
    let script = r#"sleep 600 & echo $! > grandchild; exec "$0" notes"#;
    let entry = json!({ "command": "sh", "args": ["-c", script, demo_program()] });
    let bascule = Bascule::with_server("notes", entry);
    let (_, report) = bascule.run_json(&["check"]);
    let pid = report["servers"][0]["pid"].as_u64().unwrap() as u32;
    let grandchild = fs::read_to_string(bascule.folder().join("grandchild")).unwrap().trim().parse().unwrap();
    assert!(!is_running(pid), "the server runs on");
    eventually("the server's own child is gone", || !is_running(grandchild));
}

/// Lines of a running command's stderr until one contains this.
fn read_until(stderr: &mut impl BufRead, part: &str) {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "ended before it said `{part}`");
    }
}

// req: BR-11
#[test]
fn an_interrupted_call_ends_with_130_and_its_server_with_it() {
    let bascule = Bascule::with_server("trouble", demo_server("trouble"));
    let mut child = bascule.command(&["call", "trouble:sleep", r#"{"ms":600000}"#, "-vv"]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut stderr, "notifications/progress");
    let [server] = children(child.id())[..] else { panic!("one server runs") };
    assert!(is_running(server));
    signal(child.id(), "INT");
    let ran = wait_for_output(child);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(130), ""), "{ran:?}");
    assert!(!is_running(server));
    read_until(&mut stderr, "interrupted");
}

/// Starts a command, waits until its server has heard this, sends the signal.
fn interrupted(script: Script, heard: &str, name: &str) -> (CommandOutput, ScriptedStdio) {
    let server = ScriptedStdio::new(script);
    let bascule = Bascule::with_server("scripted", server.entry());
    let typed = ["call", "scripted:wait", "--json", "--correlation-id", "mine"];
    let child = bascule.command(&typed).spawn().unwrap();
    server.wait_for(heard);
    signal(child.id(), name);
    (wait_for_output(child), server)
}

fn check_interrupted((ran, server): (CommandOutput, ScriptedStdio)) {
    let error = &ran.document()["error"];
    assert_eq!((ran.code, &error["code"]), (Some(130), &json!("CANCELLED")), "{ran:?}");
    // The server had it: nobody knows whether the tool ran.
    assert_eq!((&error["delivery"], &error["correlationId"]), (&json!("unknown"), &json!("mine")), "{ran:?}");
    assert!(server.started().iter().all(|pid| !is_running(*pid)), "the server runs on");
}

// req: BR-11
#[test]
fn an_interrupted_call_is_cancelled_at_the_server() {
    let waits = || Script::new().tools(["wait"]).calls("wait", [Behaviour::silence()]);
    let (ran, server) = interrupted(waits(), "tools/call", "INT");
    server.wait_for("notifications/cancelled");
    check_interrupted((ran, server));
    check_interrupted(interrupted(waits(), "tools/call", "TERM"));
}

// req: BR-11
#[test]
fn a_command_may_be_interrupted_while_its_server_starts() {
    // Neither the server, which never answers, nor its own child may stay behind.
    let script = "sleep 600 & echo $$ $! > pids.new; mv pids.new pids; exec sleep 600";
    let bascule = Bascule::with_server("slow", json!({ "command": "sh", "args": ["-c", script] }));
    let child = bascule.command(&["call", "slow:x", "--json"]).spawn().unwrap();
    let file = bascule.folder().join("pids");
    eventually("the server is started", || file.exists());
    let pids: Vec<u32> =
        fs::read_to_string(file).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    signal(child.id(), "INT");
    let ran = wait_for_output(child);
    assert_eq!((ran.code, &ran.document()["error"]["code"]), (Some(130), &json!("CANCELLED")), "{ran:?}");
    assert_eq!(ran.document()["error"]["delivery"], "not_sent");
    eventually("the server and its child are gone", || pids.iter().all(|pid| !is_running(*pid)));
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let bascule = Bascule::with_demo_servers();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = wait_for_output(bascule.command(&["tools", "--json"]).stdout(full).spawn().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("could not write the result"), "{ran:?}");
}

#[test]
fn whoever_stops_reading_harms_nobody() {
    let bascule = Bascule::with_demo_servers();
    for typed in
        [&["tools", "--json"][..], &["tools"], &["check"], &["--help"], &["call", "notes:nothing", "--json"]]
    {
        let mut child = bascule.command(typed).spawn().unwrap();
        drop(child.stdout.take());
        let ran = wait_for_output(child);
        assert!(matches!(ran.code, Some(0 | 3)), "{typed:?}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{typed:?}: {ran:?}");
    }
    let mut child = bascule.command(&["call", "notes"]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(wait_for_output(child).code, Some(2), "nor does it matter who reads the errors");
}
