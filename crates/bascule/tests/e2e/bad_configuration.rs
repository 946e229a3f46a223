//! Invalid, missing and unusual configuration files.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Bascule, CommandOutput, demo_program, demo_server};

/// Runs a command that must fail with exit code 2 and empty stdout. Returns stderr.
#[track_caller]
fn run_refused(bascule: &Bascule, arguments: &[&str]) -> String {
    let CommandOutput { code, stdout, stderr } = bascule.run(arguments);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    stderr
}

/// Checks that every command reports exactly these problems, as text and as JSON.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let bascule = Bascule::with_text(text);
    for arguments in [&["check"][..], &["tools"], &["describe", "a:x"], &["call", "a:x"]] {
        let stderr = run_refused(&bascule, arguments);
        for line in expected {
            assert!(stderr.contains(line), "{arguments:?}: no `{line}` in\n{stderr}");
        }
        let (code, document) = bascule.run_json(arguments);
        assert_eq!((code, &document["error"]["code"]), (2, &json!("CONFIG_INVALID")));
        let problems = document["error"]["problems"].as_array().unwrap();
        let texts: Vec<_> = problems.iter().map(|problem| problem["text"].as_str().unwrap()).collect();
        assert_eq!(texts, expected);
    }
}

/// An entry of a server that works.
fn clock() -> Value {
    demo_server("clock")
}

// req: BR-01
#[test]
fn locates_syntax_errors() {
    check("{\n  \"mcpServers\": {\n", &["mcp.json:2:17: not JSON: this object is not closed"]);
    check("", &[r#"mcp.json:1:1: the file contains no JSON value: start with `{ "mcpServers": {} }`"#]);
    check("hello", &["mcp.json:1:1: not JSON: unexpected word"]);
    check("{\"mcpServers\": {}} x", &["mcp.json:1:20: not JSON: unexpected text after the end of the value"]);
    check("<html>\n</html>", &["mcp.json:1:1: not JSON: unexpected token"]);
}

// req: BR-01
#[test]
fn locates_wrong_types() {
    check("[]", &["mcp.json:1:1: must be an object, is a list"]);
    check("{}", &["mcp.json:1:1: neither `mcpServers` nor `servers` is present: add one of them"]);
    check(r#"{"mcpServers": []}"#, &["mcp.json:1:16: mcpServers: must be an object, is a list"]);
}

// req: BR-01
#[test]
fn reports_all_problems_with_line_and_column() {
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
fn json_output_locates_problems() {
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
fn problems_do_not_quote_secrets() {
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

/// Runs `check` in a folder with these files. Returns its exit code and output, with the folder as `~`.
fn check_with_files(files: &[&str], arguments: &[&str]) -> (i32, Value) {
    let bascule = Bascule::with_text("");
    fs::remove_file(bascule.folder().join("mcp.json")).unwrap();
    for file in files {
        let file = bascule.folder().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, r#"{"mcpServers": {}}"#).unwrap();
    }
    let folder = bascule.folder().to_str().unwrap().to_owned();
    let home = bascule
        .finding_config()
        .env("XDG_CONFIG_HOME", &format!("{folder}/xdg"))
        .env("HOME", &format!("{folder}/home"));
    let (code, document) = home.run_json(&[&["check"], arguments].concat());
    let shortened = document.to_string().replace(&folder, "~");
    (code, serde_json::from_str(&shortened).unwrap())
}

#[track_caller]
fn check_chosen_file(files: &[&str], arguments: &[&str], expected: &str) {
    let (code, document) = check_with_files(files, arguments);
    assert_eq!((code, &document["config"]), (0, &json!(expected)), "{document:#}");
}

// req: BR-01
#[test]
fn searches_files_in_documented_order() {
    let user_file = "xdg/bascule/mcp.json";
    check_chosen_file(
        &["mcp.json", ".mcp.json", user_file, "other.json"],
        &["--config", "other.json"],
        "other.json",
    );
    check_chosen_file(&["mcp.json", ".mcp.json", user_file], &[], "mcp.json");
    check_chosen_file(&[".mcp.json", user_file], &[], ".mcp.json");
    check_chosen_file(&[user_file, "home/.config/bascule/mcp.json"], &[], "~/xdg/bascule/mcp.json");
}

// req: BR-01
#[test]
fn lists_searched_files_if_none_exists() {
    let (code, document) = check_with_files(&["home/.config/bascule/mcp.json"], &[]);
    let message = document["error"]["message"].as_str().unwrap();
    assert_eq!((code, &document["error"]["code"]), (2, &json!("CONFIG_INVALID")));
    for part in [
        "no configuration file found",
        "  mcp.json\n",
        "  .mcp.json\n",
        "  ~/xdg/bascule/mcp.json\n",
        "--config",
    ] {
        assert!(message.contains(part), "no `{part}` in\n{message}");
    }
}

// req: BR-01
#[test]
fn unreadable_named_file_is_an_error() {
    let bascule = Bascule::with_server("c", clock());
    fs::create_dir(bascule.folder().join("folder")).unwrap();
    fs::write(bascule.folder().join("binary"), b"{\n\xff\xfe").unwrap();
    let stderr = |file| run_refused(&bascule, &["tools", "--config", file]);
    assert!(stderr("gone.json").contains("could not read the configuration `gone.json`: No such file"));
    assert!(stderr("folder").contains("`folder`: it is a directory, not a file"));
    assert!(stderr("binary").contains("`binary` is not UTF-8 text: line 2"));
}

// req: BR-01
#[test]
fn expands_environment_variables() {
    let entry = json!({ "command": "${PROGRAM}", "args": ["${SERVER:-clock}"], "cwd": "${FOLDER:-.}" });
    let bascule = Bascule::with_server("c", entry);
    let stderr = run_refused(&bascule, &["tools"]);
    assert!(stderr.contains("mcp.json:1:") && stderr.contains("`PROGRAM` is not set"), "{stderr}");
    let bascule = bascule.env("PROGRAM", demo_program().to_str().unwrap());
    assert_eq!(bascule.run(&["tools"]).code, Some(0));
    let bascule = bascule.env("FOLDER", "nowhere");
    assert!(bascule.call_error("c:x", "{}")["message"].as_str().unwrap().contains("nowhere` does not exist"));
}

// req: BR-01
#[test]
fn warns_of_unknown_keys_and_names_nearest() {
    let mut entry = clock();
    entry["timeoutMS"] = json!(5);
    entry["colour"] = json!("blue");
    let bascule = Bascule::with_server("c", entry);
    let output = bascule.run(&["tools", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.document().as_array().unwrap().is_empty());
    let warning =
        |key: &str| output.stderr.lines().find(|line| line.contains(key)).unwrap_or_default().to_owned();
    assert!(
        warning("timeoutMS").contains("warning") && warning("timeoutMS").contains("`timeoutMs`"),
        "{output:?}"
    );
    assert!(
        warning("colour").contains("unknown key") && warning("colour").starts_with("mcp.json:1:"),
        "{output:?}"
    );
    assert_eq!(bascule.run_json(&["check"]).1["warnings"].as_array().unwrap().len(), 2);
}

// req: BR-01
#[test]
fn accepts_comments_trailing_commas_and_servers_key() {
    let command = json!(demo_program());
    let bascule = Bascule::with_text(&format!(
        "{{ // where the servers are\n \"servers\": {{ \"c\": {{ \"command\": {command}, /* ours */ \"args\": [\"clock\",], }}, }}, }}"
    ));
    let output = bascule.run(&["check"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
}

// req: BR-01
#[test]
fn reports_disabled_server() {
    let bascule = Bascule::with_servers(json!({ "c": clock(), "off": { "disabled": true, "command": "x" } }));
    assert_eq!(bascule.run(&["check"]).code, Some(0));
    let error = bascule.call_error("off:x", "{}");
    assert_eq!(error["code"], "TOOL_NOT_FOUND");
    assert!(error["message"].as_str().unwrap().contains("disabled"), "{error:#}");
}

// req: GW-07
#[test]
fn refuses_file_of_another_user() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let bascule =
        Bascule::with_server("x", json!({ "command": "sh", "args": ["-c", "touch ran"], "sandbox": "off" }))
            .finding_config();
    let file = bascule.folder().join("mcp.json");
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        chown(&file, Some(65533), None).unwrap();
    } else {
        // Only root can give a file away.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    }
    for arguments in [&["tools"][..], &["check", "--config", "mcp.json"], &["serve", "--stdio"]] {
        let output = bascule.run(arguments);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains("who could run any command as you"), "{output:?}");
    }
    assert!(!bascule.folder().join("ran").exists());
}
