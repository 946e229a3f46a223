//! What is logged, where, and under which name.

use std::process::Command;

use bascule_client::{CallToolOptions, ConnectOptions, call_tool, connect_to_server};
use bascule_testkit::{Behaviour, Script, ScriptedHttp};

use crate::support::{Bascule, CommandOutput};

/// The lines about one call.
fn lines_of_the_call(ran: &CommandOutput) -> Vec<&str> {
    ran.stderr.lines().filter(|line| line.contains("tool=")).collect()
}

// req: BR-06
#[test]
fn every_log_line_of_a_call_carries_its_correlation_id() {
    let bascule = Bascule::with_demo_servers();
    for (tool, said) in [
        ("clock:now", "call completed"),
        ("trouble:fail", "call completed"),
        ("trouble:crash", "call failed"),
    ] {
        let ran = bascule.run(&["call", tool, "-v", "--correlation-id", "trace-me"]);
        let lines = lines_of_the_call(&ran);
        assert!(lines.iter().any(|line| line.contains(said)), "{ran:?}");
        assert!(lines.iter().all(|line| line.contains("correlation_id=trace-me")), "{ran:?}");
    }
    let ran = bascule.run(&["call", "clock:now", "{\"timezone\":1}"]);
    assert!(lines_of_the_call(&ran).iter().all(|line| line.contains("correlation_id=")), "{ran:?}");
}

#[test]
fn log_lines_are_told_apart_and_hold_no_arguments() {
    let ran = Bascule::with_demo_servers().run(&[
        "call",
        "notes:add_note",
        r#"{"title":"s3cret","text":"s3cret"}"#,
        "-vvv",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ours = |line: &str| line.starts_with("[bascule] ") || line.starts_with("[mcp-bridge] ");
    assert!(!ran.stderr.is_empty() && ran.stderr.lines().all(ours), "{ran:?}");
    assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
}

#[test]
fn how_much_is_logged_is_the_callers_choice() {
    let bascule = Bascule::with_demo_servers();
    assert_eq!(bascule.run(&["call", "clock:now"]).stderr, "");
    let mut command = bascule.command(&["call", "clock:now"]);
    let ran = CommandOutput::from(command.env("BASCULE_LOG", "info").output().unwrap());
    assert!(ran.stderr.contains("[bascule] call completed"), "{ran:?}");
}

// req: CL-05
#[test]
fn the_library_tries_again_over_http() {
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
fn without_logger_and_subscriber_the_librarys_lines_go_to_stderr_and_never_to_stdout() {
    // The test above, in a process whose two streams can be read.
    let speaker = "commands::logs::the_library_tries_again_over_http";
    let mut this = Command::new(std::env::current_exe().unwrap());
    let ran = CommandOutput::from(this.args(["--exact", speaker, "--nocapture"]).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().filter_map(|line| line.strip_prefix("[mcp-bridge] ")).collect();
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
    assert!(!ran.stdout.contains("mcp-bridge") && !ran.stdout.contains("greet attempt"), "{ran:?}");
}
