//! Servers that fail to start.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{check, scripted, scripted_with};
use crate::support::Bascule;

const START_FAILED: &str = "PROVIDER_INIT_FAILED not_sent false";
/// The next start may be quicker.
const START_TIMED_OUT: &str = "PROVIDER_INIT_FAILED not_sent true";

/// Checks the error of a call to a server that cannot be started.
#[track_caller]
fn check_start_error(entry: Value, parts: &[&str]) {
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, START_FAILED, parts);
    assert_eq!((&error["server"], &error["tool"]), (&json!("s"), &json!("s:x")));
}

/// Error of a call when `initialize` gets this answer.
fn after_initialize(answer: Behaviour) -> Value {
    let (bascule, _server) = scripted(Script::new().tools(["x"]).on("initialize", [answer]));
    bascule.call_error("s:x", "{}")
}

// req: BR-05
#[test]
fn names_missing_command() {
    check_start_error(json!({ "command": "no-such-program" }), &["`s`", "`no-such-program`", "No such file"]);
    check_start_error(json!({ "command": "/" }), &["could not start `/`", "it is a folder"]);
}

// req: BR-05
#[test]
fn hints_at_arguments_inside_the_command() {
    let parts = ["`sh -c x`", "No such file", r#""command": "sh", "args": ["-c", "x"]"#];
    check_start_error(json!({ "command": "sh -c x" }), &parts);
}

// req: BR-05
#[test]
fn names_programs_that_cannot_be_executed() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        json!({ "command": path })
    };
    check_start_error(script("a.sh", "#!/bin/sh\n", 0o644), &["a.sh`: it is not executable: run `chmod +x "]);
    check_start_error(
        script("b", "#!/no/such/program\n", 0o755),
        &["`/no/such/program`, which does not exist"],
    );
}

// req: BR-05
#[test]
fn names_programs_that_are_no_servers() {
    check_start_error(json!({ "command": "cat" }), &["`cat` returns its input", "it is no MCP server"]);
    let echo = json!({ "command": "echo", "args": ["hello \u{1b}[31m there"] });
    let parts = [
        "`echo` ended without an answer (exit code 0)",
        "no MCP server",
        "it printed `hello \u{fffd}[31m there`",
    ];
    check_start_error(echo, &parts);
    check_start_error(json!({ "command": "true" }), &["`true` ended without an answer (exit code 0)"]);
}

// req: BR-05
#[test]
fn shows_stray_output_without_secrets() {
    let shell = r#"echo "using hunter2-secret"; cat > /dev/null"#;
    let entry = json!({
        "command": "sh", "args": ["-c", shell], "env": { "KEY": "hunter2-secret" }, "startTimeoutMs": 3000,
    });
    let bascule = Bascule::with_server("s", entry);
    let output = bascule.run(&["call", "s:x"]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("it printed `using ***` on stdout"), "{output:?}");
    assert!(output.stderr.contains(r#"text="using ***""#), "{output:?}");
    assert!(!output.stderr.contains("hunter2"), "{output:?}");
}

// req: BR-05
#[test]
fn hints_at_a_missing_variable() {
    let complaint = "echo 'Error: BRAVE_API_KEY environment variable is required' >&2; exit 1";
    let entry = |env: Value| json!({ "command": "sh", "args": ["-c", complaint], "env": env });
    let hint = r#"miss the environment variable `BRAVE_API_KEY`: servers inherit none of yours, add "env": { "BRAVE_API_KEY": "${BRAVE_API_KEY}" } to `s`"#;
    check_start_error(entry(json!({})), &["exit code 1", hint]);
    let error = Bascule::with_server("s", entry(json!({ "BRAVE_API_KEY": "x" }))).call_error("s:x", "{}");
    assert!(!error["message"].as_str().unwrap().contains("inherit"), "{error}");
}

// req: BR-02, BR-05
#[test]
fn shows_both_sides_of_a_refused_version() {
    let refusal = json!({
        "code": -32602, "message": "Unsupported protocol version",
        "data": { "supported": ["2024-10-07"], "requested": "2025-11-25" },
    });
    let error = after_initialize(Behaviour::error(refusal));
    let parts = [
        "Unsupported protocol version",
        "2024-10-07",
        "Bascule offered `2025-11-25` and supports `2024-11-05`",
    ];
    check(&error, START_FAILED, &parts);
    assert_eq!(error["providerError"]["data"]["supported"], json!(["2024-10-07"]));
}

// req: BR-05
#[test]
fn names_missing_working_directory() {
    check_start_error(json!({ "command": "sh", "cwd": "nowhere" }), &["folder `", "nowhere` does not exist"]);
}

// req: BR-05
// req: SB-06
#[test]
fn shows_stderr_and_exit_code_of_failed_start() {
    let (bascule, server) = scripted(Script::new().stderr("no licence found\n").exit_at_start(7));
    let error = bascule.call_error("s:x", "{}");
    check(&error, START_FAILED, &["`s`", "exit code 7"]);
    assert_eq!((&error["stderr"], &error["exit"]), (&json!("no licence found"), &json!("exit code 7")));
    assert_eq!(server.started().len(), 1, "a command starts the server once");
    let output = bascule.run(&["call", "s:x"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), ""));
    assert!(
        output.stderr.contains("exit code 7") && output.stderr.contains("stderr | no licence found"),
        "{output:?}"
    );
}

// req: BR-05
// req: SB-06
#[test]
fn every_command_shows_the_start_failure() {
    let (bascule, _server) = scripted(Script::new().stderr("no licence found\n").exit_at_start(7));
    for arguments in [&["tools"][..], &["describe", "s:x"], &["check"]] {
        let output = bascule.run(arguments);
        assert_eq!(output.code, Some(3), "{output:?}");
        let printed = output.stdout + &output.stderr;
        assert!(
            printed.contains("exit code 7") && printed.contains("no licence found"),
            "{arguments:?}: {printed}"
        );
    }
}

// req: BR-05
// req: CL-07
#[test]
fn initialize_times_out_without_cancellation() {
    let silent = Script::new().on("initialize", [Behaviour::silence()]).stderr("still thinking\n");
    let (bascule, server) = scripted_with(silent, json!({ "startTimeoutMs": 5000 }));
    let error = bascule.call_error("s:x", "{}");
    check(&error, START_TIMED_OUT, &["`initialize`", "5000 ms", "`startTimeoutMs`"]);
    assert_eq!(error["stderr"], "still thinking");
    assert_eq!(server.methods(), ["initialize"], "the protocol forbids to cancel `initialize`");
}

// req: BR-05
#[test]
fn tool_listing_times_out() {
    let silent = Script::new().on("tools/list", [Behaviour::silence()]);
    let (bascule, _server) = scripted_with(silent, json!({ "startTimeoutMs": 5000 }));
    check(&bascule.call_error("s:x", "{}"), START_TIMED_OUT, &["did not list its tools within 5000 ms"]);
}

// req: BR-05
#[test]
fn quotes_error_response_to_initialize() {
    let refusal = json!({ "code": -32000, "message": "licence expired" });
    let error = after_initialize(Behaviour::error(refusal));
    check(&error, START_FAILED, &["licence expired", "-32000"]);
}

// req: BR-02
#[test]
fn rejects_unknown_protocol_version() {
    let (bascule, server) = scripted(Script::new().tools(["x"]).version("1999-12-31"));
    check(&bascule.call_error("s:x", "{}"), START_FAILED, &["`1999-12-31`", "`2025-11-25`"]);
    assert_eq!(server.methods(), ["initialize"], "no further request is sent");
}

// req: BR-02
#[test]
fn accepts_every_supported_version() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (bascule, _server) = scripted(Script::new().tools(["x"]).version(version));
        let (code, document) = bascule.run_json(&["check"]);
        assert_eq!((code, &document["servers"][0]["protocolVersion"]), (0, &json!(version)));
    }
}

// req: BR-05
#[test]
fn reports_invalid_response_to_initialize() {
    for invalid in [json!(7), json!([]), json!({}), json!({ "protocolVersion": 20251125 })] {
        let error = after_initialize(Behaviour::result(invalid));
        check(&error, START_FAILED, &["`initialize`", "is invalid"]);
    }
    check(&after_initialize(Behaviour::result("{broken")), START_FAILED, &["not valid JSON-RPC"]);
}

// req: BR-05
// req: SB-06
#[test]
fn crash_during_tool_listing_is_a_failed_start() {
    let script = Script::new().stderr("out of cheese\n").on("tools/list", [Behaviour::exit(4)]);
    let error = scripted(script).0.call_error("s:x", "{}");
    check(&error, START_FAILED, &["`tools/list`", "exit code 4"]);
    assert_eq!(error["stderr"], "out of cheese");
}

// req: BR-05
// req: BR-12
#[test]
fn failed_server_does_not_affect_others() {
    let bascule = Bascule::with_servers(json!({
        "away": { "command": "no-such-program" },
        "clock": crate::support::demo_server("clock"),
    }));
    let output = bascule.run(&["tools", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.document().as_array().unwrap().iter().all(|tool| tool["server"] == "clock"));
    assert!(output.stderr.contains("missing") && output.stderr.contains("no-such-program"), "{output:?}");
    let (code, document) = bascule.run_json(&["check"]);
    let health = |at: usize| document["servers"][at]["health"].as_str().unwrap();
    assert_eq!((code, health(0), health(1)), (3, "unavailable", "healthy"));
}
