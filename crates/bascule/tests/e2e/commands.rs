//! Output and exit codes of the commands, with the demo servers.
//!
//! `processes` tests child processes, `logs` the log lines, `messages` the words of errors, `shell` completions and terminals,
//! `library` the bridge as a library, `search` the search for tools.

mod encoder;
pub(crate) mod library;
mod logs;
mod messages;
mod processes;
mod search;
mod shell;
mod tokens;
mod types;

use serde_json::{Value, json};

use crate::support::{Bascule, CommandOutput, demo_server, text, with_settings};

/// Returns the configuration entry of a demo server with more settings.
fn demo_with(name: &str, settings: Value) -> Value {
    with_settings(demo_server(name), settings)
}

/// Configures a server that works and one that cannot be started.
fn with_missing_server() -> Bascule {
    Bascule::with_servers(json!({ "notes": demo_server("notes"), "gone": { "command": "./not-there" } }))
}

fn check_output(output: &CommandOutput, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(output.code, Some(code), "{output:?}");
    assert!(output.stdout.contains(stdout), "`{stdout}` is not on stdout: {output:?}");
    assert!(output.stderr.contains(stderr), "`{stderr}` is not on stderr: {output:?}");
}

fn strings(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

// req: BR-03
#[test]
fn check_prints_every_server() {
    let output = Bascule::with_demo_servers().run(&["check"]);
    check_output(&output, 0, "mcp.json: 4 servers\n", "");
    for line in ["✓ notes    5 tools", "✓ clock    3 tools", "✓ counter  3 tools", "✓ trouble  10 tools"]
    {
        assert!(output.stdout.contains(line), "{output:?}");
    }
    assert!(
        output.stdout.contains("bascule-demo-notes") && output.stdout.contains("confinement of"),
        "{output:?}"
    );
    assert_eq!(output.stderr, "");
}

// req: BR-02, BR-03
#[test]
fn check_reports_every_server_as_json() {
    let (code, report) = Bascule::with_demo_servers().run_json(&["check"]);
    assert_eq!((code, &report["ok"], &report["config"]), (0, &json!(true), &json!("mcp.json")));
    assert_eq!(report["servers"].as_array().unwrap().len(), 4);
    for server in report["servers"].as_array().unwrap() {
        assert_eq!((&server["health"], &server["restarts"]), (&json!("healthy"), &json!(0)), "{server}");
        assert_eq!(server["protocolVersion"], "2025-11-25");
        assert_eq!(
            server["serverInfo"]["name"],
            format!("bascule-demo-{}", server["name"].as_str().unwrap())
        );
        assert!(server["pid"].is_u64() && server["confinement"].is_object(), "{server}");
    }
}

// req: BR-05, BR-12
#[test]
fn check_continues_after_failed_server() {
    let bascule = with_missing_server();
    let output = bascule.run(&["check"]);
    check_output(&output, 3, "✓ notes  5 tools", "");
    assert!(output.stdout.contains("✗ gone   could not start server `gone`: could not start"), "{output:?}");
    let (code, report) = bascule.run_json(&["check"]);
    assert_eq!((code, &report["ok"]), (3, &json!(false)));
    let gone = report["servers"].as_array().unwrap().iter().find(|server| server["name"] == "gone").unwrap();
    assert_eq!((&gone["health"], &gone["tools"]), (&json!("unavailable"), &json!(0)), "{gone}");
    assert_eq!(gone["error"]["code"], "PROVIDER_INIT_FAILED");
    assert!(gone["cause"].as_str().unwrap().contains("not-there"), "{gone}");
}

// req: BR-03
#[test]
fn tools_are_listed_in_file_order() {
    let (notes, clock) = (demo_server("notes"), demo_server("clock"));
    let bascule = Bascule::with_text(&format!(r#"{{"mcpServers":{{"notes":{notes},"clock":{clock}}}}}"#));
    let output = bascule.run(&["tools"]);
    check_output(
        &output,
        0,
        "notes:search_notes    Finds notes by words in title, tags and text, best first\n",
        "",
    );
    let shown: Vec<&str> = output.stdout.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        (shown.len(), shown[0], shown[5], output.stderr.as_str()),
        (8, "notes:add_note", "clock:now", "")
    );
    let (code, tools) = bascule.run_json(&["tools"]);
    assert_eq!((code, strings(&tools, "id")), (0, shown.iter().map(|id| (*id).to_owned()).collect()));
}

// req: BR-03
#[test]
fn tools_of_one_server_have_schemas() {
    let (code, tools) = Bascule::with_demo_servers().run_json(&["tools", "counter"]);
    assert_eq!(
        (code, strings(&tools, "id")),
        (0, ["increment", "read", "seen"].map(|t| format!("counter:{t}")).into())
    );
    let read = &tools[1];
    assert_eq!(keys(read), ["description", "id", "inputSchema", "name", "outputSchema", "server"]);
    assert_eq!((&read["server"], &read["name"]), (&json!("counter"), &json!("read")));
    assert_eq!(read["outputSchema"]["required"], json!(["value", "increments"]));
    let (_, tools) = Bascule::with_demo_servers().run_json(&["tools", "trouble"]);
    assert_eq!(
        keys(&tools[1]),
        ["description", "id", "inputSchema", "name", "server"],
        "`crash` has no output schema"
    );
}

#[test]
fn tools_reports_missing_server() {
    let output = with_missing_server().run(&["tools", "--json"]);
    assert_eq!((output.code, output.document().as_array().unwrap().len()), (Some(0), 5));
    assert!(output.stderr.contains("missing: could not start server `gone`"), "{output:?}");
}

#[test]
fn unknown_server_is_a_usage_error_with_suggestion() {
    let bascule = Bascule::with_demo_servers();
    check_output(&bascule.run(&["tools", "nots"]), 2, "", "there is no server `nots`; did you mean `notes`?");
    let (code, document) = bascule.run_json(&["tools", "nots"]);
    assert_eq!((code, &document["error"]["code"]), (2, &json!("USAGE")));
    assert!(document["error"]["message"].as_str().unwrap().contains("did you mean `notes`?"), "{document}");
}

// req: BR-03
#[test]
fn describe_shows_schemas_and_limits() {
    let limits = json!({ "timeoutMs": 1234, "tools": { "now": { "limits": { "maxExecutionMs": 567 } } } });
    let bascule = Bascule::with_server("clock", demo_with("clock", limits));
    let output = bascule.run(&["describe", "clock:now"]);
    check_output(&output, 0, "clock:now\nReturns the current time in UTC or another time zone\n", "");
    check_output(
        &output,
        0,
        "a call may take 567 ms in total, and 1234 ms without a progress notification",
        "",
    );
    let (code, tool) = bascule.run_json(&["describe", "clock:now"]);
    assert_eq!((code, &tool["limits"]), (0, &json!({ "timeoutMs": 1234, "maxExecutionMs": 567 })));
    let (_, tools) = bascule.run_json(&["tools"]);
    for key in ["id", "server", "name", "description", "inputSchema", "outputSchema"] {
        assert_eq!(tool[key], tools[0][key], "{key}");
    }
    assert_eq!(tool["definition"]["annotations"]["readOnlyHint"], true);
    let (code, missing) = bascule.run_json(&["describe", "clock:nov"]);
    assert_eq!((code, &missing["error"]["code"]), (3, &json!("TOOL_NOT_FOUND")));
    assert_eq!(missing["error"]["nearest"][0], "clock:now");
}

// req: BR-06, BR-16
#[test]
fn call_returns_result_with_correlation_id() {
    let bascule = Bascule::with_demo_servers();
    let (code, document) = bascule.run_json(&["call", "notes:get_note", r#"{"id":2}"#]);
    assert_eq!((code, keys(&document)), (0, vec!["correlationId", "durationMs", "result", "tool"]));
    assert_eq!((&document["tool"], document["durationMs"].is_f64()), (&json!("notes:get_note"), true));
    assert_eq!(document["correlationId"].as_str().unwrap().len(), 32);
    let note = &document["result"]["structuredContent"];
    assert_eq!((&note["title"], &note["tags"]), (&json!("Tower Bridge"), &json!(["bridge"])));
    check_output(
        &bascule.run(&["call", "trouble:junk", r#"{"lines":0}"#]),
        0,
        "printed 0 lines of junk\n",
        "",
    );
    let note = note.to_string();
    assert_eq!(bascule.run(&["call", "notes:get_note", r#"{"id":2}"#]).stdout, format!("{note}\n"));
}

// req: BR-07
#[test]
fn tool_error_exits_with_code_one() {
    let bascule = Bascule::with_demo_servers();
    let (code, document) = bascule.run_json(&["call", "trouble:fail"]);
    assert_eq!((code, &document["result"]["isError"]), (1, &json!(true)));
    assert_eq!(text(&document["result"]), "this tool always fails");
    let output = bascule.run(&["call", "trouble:fail"]);
    check_output(&output, 1, "this tool always fails\n", "the tool reported failure\n");
}

#[test]
fn reads_arguments_from_stdin() {
    let bascule = Bascule::with_demo_servers();
    let note = json!({ "title": "é".repeat(50_000), "text": "from\nstdin" }).to_string();
    let output = bascule.run_with_input(&["call", "notes:add_note", "-", "--json"], &format!("\n {note} \n"));
    let added = &output.document()["result"]["structuredContent"];
    assert_eq!((output.code, &added["id"], &added["text"]), (Some(0), &json!(4), &json!("from\nstdin")));
}

// req: BR-04
#[test]
fn invalid_json_arguments_are_a_usage_error() {
    let bascule = Bascule::with_demo_servers();
    for typed in ["{", "", "{}{}", "{'id':1}", "nonsense"] {
        let (code, document) = bascule.run_json(&["call", "notes:list_notes", typed]);
        let error = &document["error"];
        assert_eq!(
            (code, &error["code"], &error["delivery"]),
            (2, &json!("INVALID_INPUT"), &json!("not_sent"))
        );
        assert!(error["message"].as_str().unwrap().contains("not JSON"), "{typed}: {error}");
    }
    let output = bascule.run_with_input(&["call", "notes:list_notes", "-", "--json"], "{\"id\"");
    assert_eq!((output.code, &output.document()["error"]["code"]), (Some(2), &json!("INVALID_INPUT")));
    check_output(&bascule.run(&["call", "notes:list_notes", "{"]), 2, "", "not JSON");
}

// req: BR-04
#[test]
fn arguments_must_be_an_object() {
    let bascule = Bascule::with_demo_servers();
    for typed in ["[]", "7", "null", "\"text\"", "[{}]"] {
        let (code, document) = bascule.run_json(&["call", "trouble:fail", typed]);
        let error = &document["error"];
        assert_eq!((code, &error["code"]), (2, &json!("INVALID_INPUT")), "{typed}");
        assert_eq!(
            error["violations"],
            json!([{ "pointer": "", "message": "the arguments must be an object" }])
        );
    }
}

// req: BR-04
#[test]
fn reports_all_violations_without_sending() {
    let bascule = Bascule::with_demo_servers();
    let error = bascule.call_error("notes:add_note", r#"{"title":"","tags":["a",7,true],"colour":"red"}"#);
    assert_eq!((&error["code"], &error["delivery"]), (&json!("INVALID_INPUT"), &json!("not_sent")));
    assert_eq!((&error["server"], &error["tool"]), (&json!("notes"), &json!("notes:add_note")));
    assert!(error["attempts"].is_null(), "{error}");
    let mut pointers = strings(&error["violations"], "pointer");
    pointers.sort();
    assert_eq!(pointers, ["/colour", "/tags/1", "/tags/2", "/text", "/title"], "{error}");
    let output = bascule.run(&["call", "notes:get_note", r#"{"id":"2"}"#]);
    check_output(&output, 3, "", "/id: must be an integer, is a string");
    check_output(&output, 3, "", "the tool did not run");
}

// req: BR-04
#[test]
fn unknown_tool_error_suggests_nearest() {
    let bascule = Bascule::with_demo_servers();
    let error = bascule.call_error("notes:serch_notes", "{}");
    assert_eq!(
        (&error["code"], &error["nearest"][0]),
        (&json!("TOOL_NOT_FOUND"), &json!("notes:search_notes"))
    );
    let error = bascule.call_error("nots:search_notes", "{}");
    assert_eq!(
        (&error["code"], &error["nearest"]),
        (&json!("TOOL_NOT_FOUND"), &json!(["notes:search_notes"]))
    );
    check_output(&bascule.run(&["call", "notes:serch_notes"]), 3, "", "`notes:search_notes`");
}

// req: BR-05
#[test]
fn tool_of_failed_server_reports_start_failure() {
    let error = with_missing_server().call_error("gone:x", "{}");
    assert_eq!((&error["code"], &error["server"]), (&json!("PROVIDER_INIT_FAILED"), &json!("gone")));
    assert!(error["correlationId"].is_string(), "{error}");
    let (code, document) = with_missing_server().run_json(&["describe", "gone:x"]);
    assert_eq!((code, &document["error"]["code"]), (3, &json!("PROVIDER_INIT_FAILED")));
    let (code, document) = with_missing_server().run_json(&["tools", "gone"]);
    assert_eq!((code, &document["error"]["code"]), (3, &json!("PROVIDER_INIT_FAILED")));
}

// req: BR-01
#[test]
fn filtered_tools_are_neither_listed_nor_called() {
    let filters = json!({ "allowedTools": ["*_note", "list_notes"], "deniedTools": ["delete*"] });
    let bascule = Bascule::with_server("notes", demo_with("notes", filters));
    let (_, tools) = bascule.run_json(&["tools"]);
    assert_eq!(strings(&tools, "name"), ["add_note", "get_note", "list_notes"]);
    for tool in ["notes:delete_note", "notes:search_notes"] {
        let error = bascule.call_error(tool, r#"{"id":1,"query":"x"}"#);
        assert_eq!(
            (&error["code"], &error["delivery"]),
            (&json!("POLICY_DENIED"), &json!("not_sent")),
            "{tool}"
        );
    }
    assert_eq!(
        bascule.call("notes:list_notes", "{}")["structuredContent"]["notes"].as_array().unwrap().len(),
        3
    );
}

fn check_call_error(arguments: &[&str], expected: &str) -> Value {
    let (code, document) = Bascule::with_demo_servers().run_json(arguments);
    let error = &document["error"];
    let summary =
        format!("{} {} {} {}", error["code"], error["retryable"], error["delivery"], error["attempts"]);
    assert_eq!((code, summary.replace('"', "").as_str()), (3, expected), "{document}");
    error.clone()
}

// req: BR-04, BR-05
#[test]
fn each_fault_has_its_error_code() {
    let lie = check_call_error(&["call", "trouble:lie"], "INVALID_OUTPUT false answered 1");
    assert_eq!(lie["violations"][0]["pointer"], "/value");
    assert_eq!(lie["result"]["structuredContent"]["value"], "not a number", "the error contains the result");
    let fault = check_call_error(&["call", "trouble:rpc_error"], "PROVIDER_ERROR false answered 1");
    assert_eq!(fault["providerError"]["code"], -32050);
    let crash =
        check_call_error(&["call", "trouble:crash", r#"{"code":7}"#], "PROVIDER_CRASHED true unknown 1");
    assert_eq!(
        (&crash["exit"], &crash["stderr"]),
        (&json!("exit code 7"), &json!("trouble: crashing with code 7, as asked"))
    );
    let abort = check_call_error(&["call", "trouble:abort"], "PROVIDER_CRASHED true unknown 1");
    assert!(abort["exit"].as_str().unwrap().contains("SIGABRT"), "{abort}");
    // The timeout includes the start of the server.
    let call = ["call", "trouble:silence", "--timeout-ms", "8000"];
    check_call_error(&call, "PROVIDER_TIMEOUT true unknown 1");
}

// req: BR-01, BR-05
#[test]
fn progress_restarts_only_the_idle_timeout() {
    let sleeper = |settings| Bascule::with_server("trouble", demo_with("trouble", settings));
    let slept = sleeper(json!({ "timeoutMs": 5000 })).call("trouble:sleep", r#"{"ms":7000}"#);
    assert!(slept["structuredContent"]["sleptMs"].as_u64().unwrap() >= 7000, "{slept}");
    let error = sleeper(json!({ "limits": { "maxExecutionMs": 500 } }))
        .call_error("trouble:sleep", r#"{"ms":600000}"#);
    assert_eq!(error["code"], "PROVIDER_TIMEOUT");
    assert!(error["message"].as_str().unwrap().contains("within 500 ms (`maxExecutionMs`)"), "{error}");
    let error = sleeper(json!({ "timeoutMs": 500 })).call_error("trouble:silence", "{}");
    assert!(error["message"].as_str().unwrap().contains("within 500 ms (`timeoutMs`)"), "{error}");
}

// req: BR-06
#[test]
fn returns_given_correlation_id() {
    let bascule = Bascule::with_demo_servers();
    let (_, document) = bascule.run_json(&["call", "clock:now", "--correlation-id", "order-66"]);
    assert_eq!(document["correlationId"], "order-66");
    let (_, document) =
        bascule.run_json(&["call", "clock:now", "{\"timezone\":1}", "--correlation-id", "order-67"]);
    assert_eq!(
        (&document["error"]["correlationId"], &document["error"]["code"]),
        (&json!("order-67"), &json!("INVALID_INPUT"))
    );
    let (code, document) = bascule.run_json(&["call", "clock:now", "--correlation-id", "with space"]);
    assert_eq!((code, &document["error"]["code"]), (2, &json!("USAGE")));
}

// req: BR-05
#[test]
fn call_runs_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("increments");
    let env = json!({ "BASCULE_DEMO_COUNTER_FILE": file });
    let entry = demo_with("counter", json!({ "env": env, "cwd": folder.path() }));
    let counted = Bascule::with_server("counter", entry).call("counter:increment", r#"{"by":5}"#);
    assert_eq!(counted["structuredContent"], json!({ "value": 5, "increments": 1 }));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "{\"by\":5}\n");
}

#[test]
fn accepts_options_in_any_position() {
    let bascule = Bascule::with_demo_servers();
    let config = bascule.folder().join("mcp.json");
    let config = config.to_str().unwrap();
    let elsewhere = Bascule::with_text("not the one that is meant");
    for typed in [
        &["--config", config, "--json", "call", "clock:now", "{}", "--correlation-id", "x"][..],
        &["call", "--correlation-id", "x", "clock:now", "--json", "{}", "--config", config],
        &["--json", "call", "--timeout-ms=60000", "clock:now", "--correlation-id=x", "--config", config],
        &[
            "call",
            "clock:now",
            "{}",
            "--correlation-id",
            "x",
            "--timeout-ms",
            "60000",
            "--config",
            config,
            "--json",
        ],
    ] {
        let output = elsewhere.run(typed);
        assert_eq!((output.code, &output.document()["correlationId"]), (Some(0), &json!("x")), "{typed:?}");
    }
}

#[test]
fn every_failure_prints_one_json_document() {
    let (good, bad) = (Bascule::with_demo_servers(), Bascule::with_text("{ \"mcpServers\": 7 }"));
    for (bascule, typed, code, name) in [
        (&good, &[][..], 2, "USAGE"),
        (&good, &["call"], 2, "USAGE"),
        (&good, &["cal", "notes:list_notes"], 2, "USAGE"),
        (&good, &["tools", "--frob"], 2, "USAGE"),
        (&good, &["call", "notes"], 2, "USAGE"),
        (&good, &["call", ":x"], 2, "USAGE"),
        (&good, &["call", "notes:list_notes", "--timeout-ms", "0"], 2, "USAGE"),
        (&good, &["call", "notes:list_notes", "{}", "{}"], 2, "USAGE"),
        (&good, &["check", "--config", "not-there.json"], 2, "CONFIG_INVALID"),
        (&bad, &["check"], 2, "CONFIG_INVALID"),
        (&good, &["describe", "notes:nothing"], 3, "TOOL_NOT_FOUND"),
        (&good, &["call", "trouble:crash"], 3, "PROVIDER_CRASHED"),
    ] {
        let (found, document) = bascule.run_json(typed);
        assert_eq!((found, &document["error"]["code"]), (code, &json!(name)), "{typed:?}: {document}");
        assert!(!document["error"]["message"].as_str().unwrap().is_empty(), "{typed:?}");
    }
}

#[test]
fn only_results_go_to_stdout() {
    let bascule = Bascule::with_demo_servers();
    for typed in [&["call", "notes:nothing"][..], &["call", "notes"], &["tools", "nots"], &["cal"], &[]] {
        let output = bascule.run(typed);
        assert_eq!(output.stdout, "", "{typed:?}");
        assert!(!output.stderr.is_empty(), "{typed:?}");
    }
    let output = bascule.run(&["call", "trouble:junk", "--json", "-vv"]);
    assert_eq!(text(&output.document()["result"]), "printed 3 lines of junk");
    assert!(output.stderr.contains("ignored a line on stdout that is not a valid message"), "{output:?}");
}

#[test]
fn prints_help_and_version() {
    let bascule = Bascule::with_text("help needs no configuration");
    for (command, word) in [
        ("check", "connect"),
        ("tools", "[SERVER]"),
        ("describe", "<SERVER:TOOL>"),
        ("call", "--correlation-id <ID>"),
    ] {
        for flag in ["--help", "-h"] {
            let output = bascule.run(&[command, flag]);
            check_output(&output, 0, word, "");
            check_output(&output, 0, &format!("Usage: bascule {command}"), "");
            assert!(output.stdout.contains("--config <FILE>") && output.stderr.is_empty(), "{output:?}");
        }
    }
    let output = bascule.run(&["--help"]);
    for command in ["check", "tools", "describe", "call"] {
        check_output(&output, 0, &format!("  {command} "), "");
    }
    assert!(!output.stdout.contains("__"), "{output:?}");
    assert_eq!(bascule.run(&["--version"]).stdout, format!("bascule {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn prints_no_escape_codes_without_terminal() {
    let bascule = Bascule::with_demo_servers().env("TERM", "xterm-256color").env("COLORTERM", "truecolor");
    // The last command makes the server return an escape code.
    let painted = r#"{"timezone":"\u001b[31mred"}"#;
    for typed in [
        &["check"][..],
        &["tools"],
        &["describe", "clock:now"],
        &["call", "trouble:sleep", r#"{"ms":300}"#],
        &["call", "trouble:fail"],
        &["call", "trouble:lie", "-vv"],
        &["call", "notes:nothing"],
        &["--help"],
        &["nonsense"],
        &["call", "clock:now", painted],
    ] {
        let output = bascule.run(typed);
        assert!(
            !output.stdout.contains('\u{1b}') && !output.stderr.contains('\u{1b}'),
            "{typed:?}: {output:?}"
        );
        assert!(!output.stderr.contains('\r'), "{typed:?}: {output:?}");
    }
}
