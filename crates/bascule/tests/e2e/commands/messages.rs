//! The words of errors and warnings: the same mistake is reported alike by every command.

use serde_json::{Value, json};

use super::{check_output, demo_with};
use crate::fleet::serve_process::ServeProcess;
use crate::support::{Bascule, demo_server};

// req: BR-05
#[test]
fn refresh_and_call_report_an_unknown_server_alike() {
    let bridge = ServeProcess::start(json!({ "notes": demo_server("notes") }));
    let (refreshed, refresh) = bridge.bascule.run_json(&["refresh", "nots"]);
    let (called, call) = bridge.bascule.run_json(&["call", "nots:x"]);
    assert_eq!((refreshed, called), (3, 3));
    for error in [&refresh["error"], &call["error"]] {
        assert_eq!(error["code"], "TOOL_NOT_FOUND", "{error}");
        assert_eq!(error["message"], "there is no server `nots`; did you mean `notes`?");
        assert_eq!(error["server"], "nots");
    }
}

// req: BR-05
#[test]
fn events_explains_a_bad_pattern() {
    let bascule = Bascule::with_demo_servers();
    let output = bascule.run(&["events", "provider..x"]);
    check_output(&output, 2, "", "`provider..x` is no pattern of events: ");
    check_output(&output, 2, "", "empty segment");
    check_output(&output, 2, "", "example: `provider.mcp.tool.*`");
}

// req: BR-04
#[test]
fn script_tools_that_match_nothing_fail_with_the_nearest_names() {
    let bascule = Bascule::with_demo_servers();
    let run = |tools: &str| {
        let output = bascule.run_with_input(&["run", "-", "--tools", tools, "--json"], "return 1");
        (output.code, output.document()["error"].clone())
    };
    let (code, error) = run("notes:serch*");
    assert_eq!((code, &error["code"]), (Some(3), &json!("TOOL_NOT_FOUND")), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("no tool matches `notes:serch*`; near it are `notes:search_notes`"),
        "{message}"
    );
    assert_eq!(error["nearest"][0], "notes:search_notes");
    assert_eq!(run("nothing*:*").1["code"], "TOOL_NOT_FOUND");
    assert_eq!(run("notes:*,clock:*").0, Some(0));
}

fn with_disabled() -> Value {
    json!({ "clock": demo_server("clock"), "off": demo_with("notes", json!({ "disabled": true })) })
}

// req: BR-05
#[test]
fn disabled_servers_are_listed_as_disabled() {
    let bascule = Bascule::with_servers(with_disabled());
    check_output(&bascule.run(&["check"]), 0, "- off    disabled\n", "");
    let (_, report) = bascule.run_json(&["check"]);
    assert_eq!((&report["disabled"], report["servers"].as_array().unwrap().len()), (&json!(["off"]), 1));
    check_output(&bascule.run(&["tools"]), 0, "clock:now", "disabled: off\n");
    check_output(&bascule.run(&["tools", "off"]), 2, "", "server `off` is disabled in the configuration");
    check_output(&bascule.run(&["call", "off:x"]), 3, "", "server `off` is disabled in the configuration");
}

// req: BR-05
#[test]
fn running_bridge_lists_disabled_servers() {
    let bridge = ServeProcess::start(with_disabled());
    assert_eq!(bridge.status()["disabled"], json!(["off"]));
    check_output(&bridge.bascule.run(&["status"]), 0, "off    disabled\n", "");
    check_output(&bridge.bascule.run(&["refresh", "off"]), 3, "", "server `off` is disabled");
}

// req: BR-01
#[test]
fn settings_of_an_unknown_tool_are_a_warning() {
    let settings = json!({ "tools": { "serch_notes": { "timeoutMs": 5 }, "get_note": {} } });
    let bascule = Bascule::with_server("notes", demo_with("notes", settings));
    let warning = "`tools` of `notes`: no tool matches `serch_notes`; did you mean `search_notes`?";
    let output = bascule.run(&["check"]);
    check_output(&output, 0, "✓ notes", warning);
    let (_, report) = bascule.run_json(&["check"]);
    assert_eq!(report["servers"][0]["warnings"], json!([warning]));
}

// req: BR-01
#[test]
fn warnings_are_not_printed_as_errors() {
    let bascule = Bascule::with_text(r#"{"mcpServer": {}, "mcpServers": 7}"#);
    let output = bascule.run(&["check"]);
    assert_eq!(
        output.stderr,
        "mcp.json:1:2: warning: mcpServer: unknown key, did you mean `mcpServers`?\n\
         error: mcp.json:1:33: mcpServers: must be an object, is a number\n"
    );
    let (_, document) = bascule.run_json(&["check"]);
    let severities: Vec<&Value> = document["error"]["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| &problem["severity"])
        .collect();
    assert_eq!(severities, ["warning", "error"]);
    let warned = Bascule::with_text(r#"{"mcpServers": {}, "x": 1}"#);
    assert_eq!(warned.run_json(&["check"]).1["warnings"][0]["severity"], "warning");
}

// req: BR-01
#[test]
fn reads_variables_of_a_file() {
    let entry = json!({
        "command": "sh", "args": ["-c", "echo \"$A $B\" >&2; exit 3"],
        "env": { "B": "own" }, "envFile": "${workspaceFolder}/my.env",
    });
    let bascule = Bascule::with_server("s", entry);
    let missing = bascule.run(&["check"]);
    check_output(&missing, 2, "", "mcpServers.s.envFile: could not use `");
    std::fs::write(bascule.folder().join("my.env"), "A='from file'\nB=hidden\n").unwrap();
    let error = bascule.call_error("s:x", "{}");
    assert_eq!(error["stderr"], "*** own", "values of the file are secret: {error}");
}

// req: BR-05
#[test]
fn log_lines_spell_codes_as_json_does() {
    let output = Bascule::with_demo_servers().run(&["call", "trouble:crash", "-vv"]);
    check_output(&output, 3, "", "code=PROVIDER_CRASHED");
    check_output(&output, 3, "", "face=cli");
    check_output(&output, 3, "", "to=healthy");
}
