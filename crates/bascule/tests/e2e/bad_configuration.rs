//! Configuration files that cannot be used, cannot be found, or are merely odd.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Bascule, CommandOutput, demo_program, demo_server};

/// What is on stderr when a file cannot be used; nothing else may be anywhere.
#[track_caller]
fn refused(bascule: &Bascule, arguments: &[&str]) -> String {
    let CommandOutput { code, stdout, stderr } = bascule.run(arguments);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    stderr
}

/// Checks that every one of these is said of a file, by all commands, and in JSON as well.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let bascule = Bascule::with_text(text);
    for arguments in [&["check"][..], &["tools"], &["describe", "a:x"], &["call", "a:x"]] {
        let said = refused(&bascule, arguments);
        for line in expected {
            assert!(said.contains(line), "{arguments:?}: no `{line}` in\n{said}");
        }
        let (code, document) = bascule.run_json(arguments);
        assert_eq!((code, &document["error"]["code"]), (2, &json!("CONFIG_INVALID")));
        let problems = document["error"]["problems"].as_array().unwrap();
        let texts: Vec<_> = problems.iter().map(|problem| problem["text"].as_str().unwrap()).collect();
        assert_eq!(texts, expected);
    }
}

/// A server that works, for files in which something else is the matter.
fn clock() -> Value {
    demo_server("clock")
}

// req: BR-01
#[test]
fn what_is_not_json_is_refused_with_its_place() {
    check("{\n  \"mcpServers\": {\n", &["mcp.json:2:17: not JSON: this object is not closed"]);
    check("", &[r#"mcp.json:1:1: the file contains no JSON value: start with `{ "mcpServers": {} }`"#]);
    check("hello", &["mcp.json:1:1: not JSON: unexpected word"]);
    check("{\"mcpServers\": {}} x", &["mcp.json:1:20: not JSON: unexpected text after the end of the value"]);
    check("<html>\n</html>", &["mcp.json:1:1: not JSON: unexpected token"]);
}

// req: BR-01
#[test]
fn json_of_the_wrong_kind_is_refused_with_its_place() {
    check("[]", &["mcp.json:1:1: must be an object, is a list"]);
    check("{}", &["mcp.json:1:1: neither `mcpServers` nor `servers` is present: add one of them"]);
    check(r#"{"mcpServers": []}"#, &["mcp.json:1:16: mcpServers: must be an object, is a list"]);
}

// req: BR-01
#[test]
fn every_wrong_value_is_reported_at_once_with_its_line_and_column() {
    check(
        r#"{
  "mcpServers": {
    "a": { "command": "x", "timeoutMs": "soon" },
    "b": { "args": [] },
    "c d": { "url": "ftp://host/" }
  },
  "bascule": { "listen": 7420 }
}"#,
        &[
            r#"mcp.json:3:41: mcpServers.a.timeoutMs: must be a positive integer, is "soon""#,
            "mcp.json:4:10: mcpServers.b: missing `command` (to start a process) or `url` (to connect to a server)",
            r#"mcp.json:5:5: mcpServers["c d"]: server name `c d` may only contain letters, digits, `_` and `-`, and must not be empty"#,
            r#"mcp.json:5:21: mcpServers["c d"].url: must start with `http://` or `https://`"#,
            "mcp.json:7:26: bascule.listen: must be a string, is 7420",
        ],
    );
}

// req: BR-01
#[test]
fn a_problem_is_placed_in_json_too() {
    let bascule = Bascule::with_text("{\n \"mcpServers\": { \"a\": { \"command\": 7 } } }");
    let (code, document) = bascule.run_json(&["check"]);
    assert_eq!(code, 2);
    let problem = &document["error"]["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&json!(2), &json!(36)));
    assert_eq!(
        (&problem["path"], problem["message"].as_str().unwrap()),
        (&json!("mcpServers.a.command"), "must be a string, is 7")
    );
    assert_eq!(
        (&document["error"]["retryable"], &document["error"]["delivery"]),
        (&json!(false), &json!("not_sent"))
    );
}

// req: BR-01
#[test]
fn no_problem_quotes_a_secret() {
    let bascule = Bascule::with_text(
        r#"{"mcpServers": {
            "a": {"command": "x", "env": {"T": ["hunter2"], "U": "hunter2\u0000"}},
            "b": {"url": "http://me:hunter2@host/", "headers": {"T": "hunter2\n", "U": ["hunter2"]}}}}"#,
    );
    for arguments in [&["check"][..], &["check", "--json"], &["check", "-vvv"]] {
        let CommandOutput { code, stdout, stderr } = bascule.run(arguments);
        assert_eq!(code, Some(2));
        assert!(!stdout.contains("hunter2") && !stderr.contains("hunter2"), "{stdout}{stderr}");
    }
}

/// Which file `check` says it used, when these are there.
fn used(files: &[&str], arguments: &[&str]) -> (i32, Value) {
    let bascule = Bascule::with_text("");
    fs::remove_file(bascule.folder().join("mcp.json")).unwrap();
    for file in files {
        let file = bascule.folder().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, r#"{"mcpServers": {}}"#).unwrap();
    }
    let folder = bascule.folder().to_str().unwrap().to_owned();
    let home =
        bascule.env("XDG_CONFIG_HOME", &format!("{folder}/xdg")).env("HOME", &format!("{folder}/home"));
    let (code, document) = home.run_json(&[&["check"], arguments].concat());
    let shortened = document.to_string().replace(&folder, "~");
    (code, serde_json::from_str(&shortened).unwrap())
}

#[track_caller]
fn check_used(files: &[&str], arguments: &[&str], expected: &str) {
    let (code, document) = used(files, arguments);
    assert_eq!((code, &document["config"]), (0, &json!(expected)), "{document:#}");
}

// req: BR-01
#[test]
fn the_named_file_comes_first_then_here_then_the_users_own() {
    let own = "xdg/bascule/mcp.json";
    check_used(&["mcp.json", ".mcp.json", own, "other.json"], &["--config", "other.json"], "other.json");
    check_used(&["mcp.json", ".mcp.json", own], &[], "mcp.json");
    check_used(&[".mcp.json", own], &[], ".mcp.json");
    check_used(&[own, "home/.config/bascule/mcp.json"], &[], "~/xdg/bascule/mcp.json");
}

// req: BR-01
#[test]
fn where_there_is_none_the_places_are_listed() {
    let (code, document) = used(&["home/.config/bascule/mcp.json"], &[]);
    let said = document["error"]["message"].as_str().unwrap();
    assert_eq!((code, &document["error"]["code"]), (2, &json!("CONFIG_INVALID")));
    for part in [
        "no configuration file found",
        "  mcp.json\n",
        "  .mcp.json\n",
        "  ~/xdg/bascule/mcp.json\n",
        "--config",
    ] {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
}

// req: BR-01
#[test]
fn a_named_file_that_cannot_be_read_is_no_reason_to_look_elsewhere() {
    let bascule = Bascule::with_server("c", clock());
    fs::create_dir(bascule.folder().join("folder")).unwrap();
    fs::write(bascule.folder().join("binary"), b"{\n\xff\xfe").unwrap();
    let said = |file| refused(&bascule, &["tools", "--config", file]);
    assert!(said("gone.json").contains("could not read the configuration `gone.json`: No such file"));
    assert!(said("folder").contains("`folder`: it is a directory, not a file"));
    assert!(said("binary").contains("`binary` is not UTF-8 text: line 2"));
}

// req: BR-01
#[test]
fn variables_are_filled_in_from_the_environment() {
    let entry = json!({ "command": "${PROGRAM}", "args": ["${SERVER:-clock}"], "cwd": "${FOLDER:-.}" });
    let bascule = Bascule::with_server("c", entry);
    let said = refused(&bascule, &["tools"]);
    assert!(said.contains("mcp.json:1:") && said.contains("`PROGRAM` is not set"), "{said}");
    let bascule = bascule.env("PROGRAM", demo_program().to_str().unwrap());
    assert_eq!(bascule.run(&["tools"]).code, Some(0));
    let bascule = bascule.env("FOLDER", "nowhere");
    assert!(bascule.call_error("c:x", "{}")["message"].as_str().unwrap().contains("nowhere` does not exist"));
}

// req: BR-01
#[test]
fn an_unknown_key_is_a_warning_that_names_the_nearest() {
    let mut entry = clock();
    entry["timeoutMS"] = json!(5);
    entry["colour"] = json!("blue");
    let bascule = Bascule::with_server("c", entry);
    let ran = bascule.run(&["tools", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.document().as_array().unwrap().is_empty());
    let warned =
        |key: &str| ran.stderr.lines().find(|line| line.contains(key)).unwrap_or_default().to_owned();
    assert!(
        warned("timeoutMS").contains("warning") && warned("timeoutMS").contains("`timeoutMs`"),
        "{ran:?}"
    );
    assert!(
        warned("colour").contains("unknown key") && warned("colour").starts_with("mcp.json:1:"),
        "{ran:?}"
    );
    assert_eq!(bascule.run_json(&["check"]).1["warnings"].as_array().unwrap().len(), 2);
}

// req: BR-01
#[test]
fn comments_trailing_commas_and_vs_codes_spelling_are_fine() {
    let command = json!(demo_program());
    let bascule = Bascule::with_text(&format!(
        "{{ // where the servers are\n \"servers\": {{ \"c\": {{ \"command\": {command}, /* ours */ \"args\": [\"clock\",], }}, }}, }}"
    ));
    let ran = bascule.run(&["check"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}

// req: BR-01
#[test]
fn a_server_that_is_switched_off_is_not_started_and_said_to_be_so() {
    let bascule = Bascule::with_servers(json!({ "c": clock(), "off": { "disabled": true, "command": "x" } }));
    assert_eq!(bascule.run(&["check"]).code, Some(0));
    let error = bascule.call_error("off:x", "{}");
    assert_eq!(error["code"], "TOOL_NOT_FOUND");
    assert!(error["message"].as_str().unwrap().contains("disabled"), "{error:#}");
}
