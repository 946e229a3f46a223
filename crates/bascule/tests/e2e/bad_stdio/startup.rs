//! Servers that do not get as far as being called.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{check, scripted, scripted_with};
use crate::support::Bascule;

const NEVER_STARTED: &str = "PROVIDER_INIT_FAILED not_sent false";

/// Calls a tool of a server that cannot be started.
#[track_caller]
fn check_start(entry: Value, parts: &[&str]) {
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, NEVER_STARTED, parts);
    assert_eq!((&error["server"], &error["tool"]), (&json!("s"), &json!("s:x")));
}

/// What a call comes to when `initialize` is answered so.
fn after_initialize(answer: Behaviour) -> Value {
    let (bascule, _server) = scripted(Script::new().tools(["x"]).on("initialize", [answer]));
    bascule.call_error("s:x", "{}")
}

// req: BR-05
#[test]
fn a_command_that_does_not_exist_is_named() {
    check_start(json!({ "command": "no-such-program" }), &["`s`", "`no-such-program`", "No such file"]);
    check_start(json!({ "command": "/" }), &["could not start `/`", "it is a folder"]);
}

// req: BR-05
#[test]
fn a_folder_that_does_not_exist_is_named_rather_than_the_command() {
    check_start(json!({ "command": "sh", "cwd": "nowhere" }), &["folder `", "nowhere` does not exist"]);
}

// req: BR-05
// req: SB-06
#[test]
fn a_server_that_exits_at_once_shows_its_last_words_and_its_code() {
    let (bascule, server) = scripted(Script::new().stderr("no licence found\n").exit_at_start(7));
    let error = bascule.call_error("s:x", "{}");
    check(&error, NEVER_STARTED, &["`s`", "exit code 7"]);
    assert_eq!((&error["stderr"], &error["exit"]), (&json!("no licence found"), &json!("exit code 7")));
    assert_eq!(server.started().len(), 1, "a one-shot command tries once");
    let ran = bascule.run(&["call", "s:x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""));
    assert!(
        ran.stderr.contains("exit code 7") && ran.stderr.contains("stderr | no licence found"),
        "{ran:?}"
    );
}

// req: BR-05
// req: SB-06
#[test]
fn every_command_shows_why_a_server_did_not_start() {
    let (bascule, _server) = scripted(Script::new().stderr("no licence found\n").exit_at_start(7));
    for arguments in [&["tools"][..], &["describe", "s:x"], &["check"]] {
        let ran = bascule.run(arguments);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let said = ran.stdout + &ran.stderr;
        assert!(said.contains("exit code 7") && said.contains("no licence found"), "{arguments:?}: {said}");
    }
}

// req: BR-05
// req: CL-07
#[test]
fn a_server_that_never_answers_initialize_is_given_up_and_not_cancelled() {
    let silent = Script::new().on("initialize", [Behaviour::silence()]).stderr("still thinking\n");
    let (bascule, server) = scripted_with(silent, json!({ "startTimeoutMs": 5000 }));
    let error = bascule.call_error("s:x", "{}");
    check(&error, NEVER_STARTED, &["`initialize`", "5000 ms", "`startTimeoutMs`"]);
    assert_eq!(error["stderr"], "still thinking");
    assert_eq!(server.methods(), ["initialize"], "the protocol forbids to cancel it");
}

// req: BR-05
#[test]
fn a_server_that_never_lists_its_tools_is_given_up() {
    let silent = Script::new().on("tools/list", [Behaviour::silence()]);
    let (bascule, _server) = scripted_with(silent, json!({ "startTimeoutMs": 5000 }));
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["did not list its tools within 5000 ms"]);
}

// req: BR-05
#[test]
fn an_error_in_answer_to_initialize_is_quoted() {
    let refusal = json!({ "code": -32000, "message": "licence expired" });
    let error = after_initialize(Behaviour::error(refusal));
    check(&error, NEVER_STARTED, &["licence expired", "-32000"]);
}

// req: BR-02
#[test]
fn a_server_of_an_unknown_version_is_refused_naming_both() {
    let (bascule, server) = scripted(Script::new().tools(["x"]).version("1999-12-31"));
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["`1999-12-31`", "`2025-11-25`"]);
    assert_eq!(server.methods(), ["initialize"], "nothing more is said to it");
}

// req: BR-02
#[test]
fn every_older_version_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (bascule, _server) = scripted(Script::new().tools(["x"]).version(version));
        let (code, document) = bascule.run_json(&["check"]);
        assert_eq!((code, &document["servers"][0]["protocolVersion"]), (0, &json!(version)));
    }
}

// req: BR-05
#[test]
fn nonsense_in_answer_to_initialize_is_called_so() {
    for nonsense in [json!(7), json!([]), json!({}), json!({ "protocolVersion": 20251125 })] {
        let error = after_initialize(Behaviour::result(nonsense));
        check(&error, NEVER_STARTED, &["`initialize`", "not understood"]);
    }
    check(&after_initialize(Behaviour::result("{broken")), NEVER_STARTED, &["not valid JSON-RPC"]);
}

// req: BR-05
// req: SB-06
#[test]
fn a_crash_while_the_tools_are_listed_is_a_failed_start() {
    let script = Script::new().stderr("out of cheese\n").on("tools/list", [Behaviour::exit(4)]);
    let error = scripted(script).0.call_error("s:x", "{}");
    check(&error, NEVER_STARTED, &["`tools/list`", "exit code 4"]);
    assert_eq!(error["stderr"], "out of cheese");
}

// req: BR-05
// req: BR-12
#[test]
fn a_server_that_cannot_be_started_keeps_no_other_from_its_work() {
    let bascule = Bascule::with_servers(json!({
        "away": { "command": "no-such-program" },
        "clock": crate::support::demo_server("clock"),
    }));
    let ran = bascule.run(&["tools", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.document().as_array().unwrap().iter().all(|tool| tool["server"] == "clock"));
    assert!(ran.stderr.contains("missing") && ran.stderr.contains("no-such-program"), "{ran:?}");
    let (code, document) = bascule.run_json(&["check"]);
    let health = |at: usize| document["servers"][at]["health"].as_str().unwrap();
    assert_eq!((code, health(0), health(1)), (3, "unavailable", "healthy"));
}
