//! Log lines of the program and of the client library.

use std::process::Command;

use bascule_client::{CallToolOptions, ConnectOptions, call_tool, connect_to_server};
use bascule_testkit::{Behaviour, Script, ScriptedHttp, ScriptedStdio};
use serde_json::json;

use crate::support::{Bascule, CommandOutput, with_settings};

/// Log lines of the call.
fn call_lines(output: &CommandOutput) -> Vec<&str> {
    output.stderr.lines().filter(|line| line.contains("tool=")).collect()
}

// req: BR-06
#[test]
fn call_log_lines_have_the_correlation_id() {
    let bascule = Bascule::with_demo_servers();
    for (tool, message) in [
        ("clock:now", "call completed"),
        ("trouble:fail", "call completed"),
        ("trouble:crash", "call failed"),
    ] {
        let output = bascule.run(&["call", tool, "-v", "--correlation-id", "trace-me"]);
        let lines = call_lines(&output);
        assert!(lines.iter().any(|line| line.contains(message)), "{output:?}");
        assert!(lines.iter().all(|line| line.contains("correlation_id=trace-me")), "{output:?}");
    }
    let output = bascule.run(&["call", "clock:now", "{\"timezone\":1}"]);
    assert!(call_lines(&output).iter().all(|line| line.contains("correlation_id=")), "{output:?}");
}

// req: BR-06, TR-01
#[test]
fn log_lines_of_failed_calls_have_no_secrets() {
    let error = json!({ "code": -32000, "message": "refused: Authorization: Bearer hunter2, pin=1234, key=s3cret-value" });
    let server = ScriptedStdio::new(Script::new().tools(["x"]).calls("x", [Behaviour::error(error)]));
    let entry = with_settings(server.entry(), json!({ "env": { "KEY": "s3cret-value" } }));
    for traces in [json!({ "redact": ["pin"] }), json!({ "off": true })] {
        let is_on = traces["off"].is_null();
        let text = json!({ "mcpServers": { "s": entry }, "bascule": { "traces": traces } }).to_string();
        let output = Bascule::with_text(&text).run(&["call", "s:x", "{}", "-v"]);
        let line = call_lines(&output).into_iter().find(|line| line.contains("call failed"));
        let line = line.unwrap_or_else(|| panic!("{output:?}"));
        assert!(line.contains("Authorization: Bearer ***"), "{line}");
        assert!(!line.contains("hunter2") && !line.contains("s3cret-value"), "{line}");
        assert_eq!(line.contains("pin=***"), is_on, "names of the configuration: {line}");
    }
}

#[test]
fn log_lines_have_a_prefix_and_no_arguments() {
    let output = Bascule::with_demo_servers().run(&[
        "call",
        "notes:add_note",
        r#"{"title":"s3cret","text":"s3cret"}"#,
        "-vvv",
    ]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let has_prefix = |line: &str| line.starts_with("[bascule] ") || line.starts_with("[mcp-bridge] ");
    assert!(!output.stderr.is_empty() && output.stderr.lines().all(has_prefix), "{output:?}");
    assert!(!output.stderr.contains("s3cret"), "{output:?}");
}

#[test]
fn log_level_is_configurable() {
    let bascule = Bascule::with_demo_servers();
    assert_eq!(bascule.run(&["call", "clock:now"]).stderr, "");
    let mut command = bascule.command(&["call", "clock:now"]);
    let output = CommandOutput::from(command.env("BASCULE_LOG", "info").output().unwrap());
    assert!(output.stderr.contains("[bascule] call completed"), "{output:?}");
}

// req: CL-05
#[test]
fn library_retries_over_http() {
    let script = Script::new().tools(["greet"]).calls(
        "greet",
        [
            Behaviour::error(serde_json::json!({ "code": -32603, "message": "not\nyet" })),
            Behaviour::text("hello"),
        ],
    );
    let server = ScriptedHttp::start(script);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bridge = connect_to_server(&server.url(), ConnectOptions::default()).await.unwrap();
        assert_eq!(
            call_tool(&bridge, "greet", "{}", CallToolOptions::default()).await.unwrap().text(),
            "hello"
        );
        bridge.close().await;
    });
}

// req: CL-02, CL-09
#[test]
fn library_logs_to_stderr_by_default() {
    // Runs the test above in a process of its own to read its stdout and stderr.
    let test = "commands::logs::library_retries_over_http";
    let mut rerun = Command::new(std::env::current_exe().unwrap());
    let output = CommandOutput::from(rerun.args(["--exact", test, "--nocapture"]).output().unwrap());
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines: Vec<&str> =
        output.stderr.lines().filter_map(|line| line.strip_prefix("[mcp-bridge] ")).collect();
    let url = lines[0].strip_prefix("connecting to ").unwrap();
    assert_eq!(
        lines[1..],
        [
            &format!("connected to {url}"),
            "callTool greet attempt 1/3",
            "retrying in 1000ms (error: not yet (JSON-RPC error -32603))",
            "callTool greet attempt 2/3",
        ]
    );
    assert!(!output.stdout.contains("mcp-bridge") && !output.stdout.contains("greet attempt"), "{output:?}");
}
