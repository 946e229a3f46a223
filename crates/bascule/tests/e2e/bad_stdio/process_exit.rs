//! Servers that die, are killed, fall silent or linger, what is left of them, and what they get to know.

use std::thread;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::{check, entry_with, in_shell, scripted, scripted_with, tool_x};
use crate::embedded::{bridge, call, terminate};
use crate::support::{Bascule, eventually, is_running};

const CRASHED: &str = "PROVIDER_CRASHED unknown true";

/// What a call comes to that this happens to.
fn struck(bascule: &Bascule, server: &ScriptedStdio, blow: impl FnOnce()) -> Value {
    thread::scope(|scope| {
        let calling = scope.spawn(|| bascule.call_error("s:x", "{}"));
        server.wait_for("tools/call");
        blow();
        calling.join().unwrap()
    })
}

// req: BR-05
// req: SB-03
// req: SB-06
#[test]
fn a_server_that_dies_in_the_middle_of_a_call_tells_how() {
    let (bascule, _server) = scripted(tool_x([Behaviour::exit(3)]).stderr("out of cheese\n"));
    let error = bascule.call_error("s:x", "{}");
    check(&error, CRASHED, &["exit code 3"]);
    assert_eq!((&error["exit"], &error["stderr"]), (&json!("exit code 3"), &json!("out of cheese")));
    assert_eq!((&error["server"], &error["tool"]), (&json!("s"), &json!("s:x")));
    assert_eq!(error["attempts"], 1, "a call that may have run is not sent again");
}

// req: BR-05
// req: SB-03
#[test]
fn a_server_that_aborts_in_the_middle_of_a_call_tells_the_signal() {
    let error = scripted(tool_x([Behaviour::abort()])).0.call_error("s:x", "{}");
    check(&error, CRASHED, &["SIGABRT"]);
    assert_eq!(error["exit"], "signal 6, SIGABRT");
}

// req: BR-05
// req: SB-03
#[test]
fn a_server_that_is_killed_in_the_middle_of_a_call_has_crashed() {
    let (bascule, server) = scripted(tool_x([Behaviour::silence()]).stderr("busy\n"));
    let error = struck(&bascule, &server, || server.kill());
    check(&error, CRASHED, &["SIGKILL"]);
    assert_eq!((&error["exit"], &error["stderr"]), (&json!("signal 9, SIGKILL"), &json!("busy")));
}

// req: BR-05
#[test]
fn an_answer_given_with_the_last_breath_counts() {
    let bascule = Bascule::with_server("s", in_shell(r#"answer '{"content":[]}'; exit 1"#, "hasty"));
    assert_eq!(bascule.call("s:x", "{}"), json!({ "content": [] }));
}

// req: BR-10
#[tokio::test]
async fn a_call_to_a_server_that_has_died_fails_at_once() {
    let server = ScriptedStdio::new(tool_x([Behaviour::exit(3)]).stderr("out of cheese\n"));
    let bridge = bridge(entry_with(&server, json!({ "reconnectBackoffMs": 30_000 }))).await;
    check(&call(&bridge, "s:x", "{}").await.unwrap_err(), CRASHED, &[]);
    let error = call(&bridge, "s:x", "{}").await.unwrap_err();
    check(&error, "PROVIDER_UNAVAILABLE not_sent true", &["`s` is down", "exit code 3"]);
    assert_eq!(error["stderr"], "out of cheese");
    terminate(&bridge).await;
}

// req: BR-05
// req: SB-05
#[test]
fn a_server_that_closes_its_stdout_and_lives_on_is_given_up_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let entry = in_shell(r#"echo $$ > "$0"; read -r call; exec sleep 600 >&-"#, file.to_str().unwrap());
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, "OUTCOME_UNKNOWN unknown false", &["closed its output"]);
    let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert!(!is_running(pid), "{pid} is still there");
}

// req: BR-05
// req: CL-07
#[test]
fn silence_meets_the_deadline_and_is_cancelled_at_the_server() {
    let (bascule, server) = scripted_with(tool_x([Behaviour::silence()]), json!({ "timeoutMs": 300 }));
    let error = bascule.call_error("s:x", "{}");
    check(&error, "PROVIDER_TIMEOUT unknown true", &["s:x", "300 ms", "`timeoutMs`"]);
    let read = |part| serde_json::from_str::<Value>(&server.wait_for(part)).unwrap();
    let (called, cancelled) = (read("tools/call"), read("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], called["id"]);
    let count = |method: &str| server.methods().iter().filter(|own| *own == method).count();
    assert_eq!((count("tools/call"), count("notifications/cancelled")), (1, 1));
}

// req: SB-05
// req: BR-11
#[test]
fn no_process_is_left_after_a_command_whatever_became_of_the_call() {
    let (long, late) = (json!({}), json!({ "timeoutMs": 300 }));
    let late_start = json!({ "startTimeoutMs": 5000 });
    let endings = [
        (tool_x([Behaviour::text("fine")]), &long, 0),
        (tool_x([Behaviour::silence()]), &late, 3),
        (tool_x([Behaviour::exit(1)]), &long, 3),
        (tool_x([Behaviour::text("fine")]).outlives_stdin(), &long, 0),
        (Script::new().on("initialize", [Behaviour::silence()]).outlives_stdin(), &late_start, 3),
        (Script::new().on("tools/list", [Behaviour::silence()]).outlives_stdin(), &late_start, 3),
    ];
    for (script, times, code) in endings {
        let (bascule, server) = scripted_with(script, times.clone());
        let ran = bascule.run(&["call", "s:x"]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let left: Vec<u32> = server.started().into_iter().filter(|pid| is_running(*pid)).collect();
        assert!(left.is_empty() && server.started().len() == 1, "{left:?} of {:?}", server.started());
    }
}

// req: SB-05
#[test]
fn what_a_server_started_itself_goes_with_it() {
    let server = ScriptedStdio::new(tool_x([Behaviour::text("fine"), Behaviour::exit(1)]));
    let (folder, command) = (tempfile::tempdir().unwrap(), server.entry());
    let file = folder.path().join("pids");
    // A wrapper such as `npx`: the server is its child, and something else runs beside it.
    let wrapper = r#"sleep 600 & echo $! >> "$0"; "$@""#;
    let args = json!(["-c", wrapper, file, command["command"], command["args"][0]]);
    let bascule = Bascule::with_server("s", json!({ "command": "sh", "args": args }));
    for code in [0, 3] {
        assert_eq!(bascule.run(&["call", "s:x"]).code, Some(code));
    }
    let beside = std::fs::read_to_string(file).unwrap();
    let all: Vec<u32> = beside.lines().map(|pid| pid.parse().unwrap()).chain(server.started()).collect();
    // They are no children of ours, nor any more of the program's: nobody can wait for the moment they are gone.
    eventually(&format!("none of {all:?} is left"), || !all.iter().any(|pid| is_running(*pid)));
}

// req: SB-04
#[test]
fn a_server_gets_the_safe_variables_and_those_configured_and_no_other() {
    const SAFE: [&str; 12] = [
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
        "TMPDIR",
    ];
    let (server, folder) = (ScriptedStdio::new(tool_x([])), tempfile::tempdir().unwrap());
    let file = folder.path().join("environment");
    let command = server.entry();
    // The system's own account: what the shell was started with, and not what it added.
    let script = r#"tr '\0' '\n' < /proc/$$/environ > "$0"; exec "$@""#;
    let args = json!(["-c", script, file, command["command"], command["args"][0]]);
    let entry =
        json!({ "command": "sh", "args": args, "env": { "TOKEN": "${SOURCE}", "HOME": "/elsewhere" } });
    let bascule = Bascule::with_server("s", entry).env("SOURCE", "hunter2").env("SECRET", "swordfish");
    bascule.call("s:x", "{}");
    let got = std::fs::read_to_string(file).unwrap();
    let names: Vec<&str> = got.lines().filter_map(|line| line.split('=').next()).collect();
    assert!(names.iter().all(|name| SAFE.contains(name) || *name == "TOKEN"), "{names:?}");
    assert!(got.contains("TOKEN=hunter2\n") && names.contains(&"PATH"), "{names:?}");
    assert!(got.contains("HOME=/elsewhere\n"), "what is configured wins");
}

// req: SB-04
#[test]
fn a_configured_variable_is_not_shown_to_anybody() {
    let server = ScriptedStdio::new(tool_x([Behaviour::exit(1)]));
    let entry = entry_with(&server, json!({ "env": { "TOKEN": "hunter2" } }));
    let bascule = Bascule::with_server("s", entry);
    for arguments in [&["call", "s:x", "-vvv"][..], &["check", "-vvv", "--json"], &["tools", "-vvv"]] {
        let ran = bascule.run(arguments);
        assert!(!ran.stdout.contains("hunter2") && !ran.stderr.contains("hunter2"), "{ran:?}");
    }
}
