//! Real servers that still work in the tightest possible sandbox.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{START, node, python};
use crate::support::{Bascule, test_env, text};

fn confined(mut entry: Value, sandbox: Value) -> Value {
    entry["sandbox"] = sandbox;
    entry
}

/// Checks that the server is healthy and restricted to the listed files.
fn check_confined(bascule: &Bascule) {
    let (code, report) = bascule.run_json(&["check"]);
    let server = &report["servers"][0];
    assert_eq!((code, &server["health"]), (0, &json!("healthy")), "{report:#}");
    assert!(server["confinement"]["inForce"].to_string().contains("only listed files"), "{report:#}");
}

// req: SB-04
#[test]
fn file_server_works_with_listed_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (inside, outside) = (root.join("inside"), root.join("outside"));
    for place in [&inside, &outside] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("poem.txt"), "one\ntwo\n").unwrap();
    }
    // The server is configured with both folders; only the sandbox denies the second.
    let modules = test_env("node/node_modules");
    let entry = node("server-filesystem", &[inside.to_str().unwrap(), outside.to_str().unwrap()]);
    let sandbox = json!({ "read": [modules, inside], "write": [inside] });
    let bascule = Bascule::with_server("files", confined(entry, sandbox));
    check_confined(&bascule);
    let written = inside.join("new.txt");
    let write = |path: &Path| json!({ "path": path, "content": "geschrieben" }).to_string();
    bascule.call("files:write_file", &write(&written));
    assert_eq!(fs::read_to_string(written).unwrap(), "geschrieben");
    let read = bascule.call("files:read_text_file", &json!({ "path": inside.join("poem.txt") }).to_string());
    assert_eq!(text(&read), "one\ntwo\n");
    for (tool, arguments) in [
        ("files:write_file", write(&outside.join("new.txt"))),
        ("files:read_text_file", json!({ "path": outside.join("poem.txt") }).to_string()),
    ] {
        let (code, document) = bascule.run_json(&["call", tool, &arguments]);
        assert_eq!(code, 1, "{document:#}");
        assert!(text(&document["result"]).contains("EACCES"), "{document:#}");
    }
    assert!(!outside.join("new.txt").exists());
}

// req: SB-04
#[test]
fn strict_file_server_reads_only_its_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::write(root.join("poem.txt"), "one\ntwo\n").unwrap();
    let modules = test_env("node/node_modules");
    // The sandbox grants named paths only, so the modules are named in an option that Node ignores.
    let mut entry = node("server-filesystem", &[root.to_str().unwrap()]);
    entry["args"].as_array_mut().unwrap().insert(0, json!(format!("--title={}", modules.display())));
    let bascule = Bascule::with_server("files", confined(entry, json!("strict")));
    let read = bascule.call("files:read_text_file", &json!({ "path": root.join("poem.txt") }).to_string());
    assert_eq!(text(&read), "one\ntwo\n");
    let write = json!({ "path": root.join("poem.txt"), "content": "x" }).to_string();
    let (code, document) = bascule.run_json(&["call", "files:write_file", &write]);
    assert_eq!(code, 1, "{document:#}");
    assert!(text(&document["result"]).contains("EACCES"), "{document:#}");
}

// req: SB-04
#[test]
fn strict_time_server_works_without_network() {
    let entry = python("mcp-server-time", &["--local-timezone", "Etc/UTC"]);
    let bascule = Bascule::with_server("time", confined(entry, json!("strict")));
    check_confined(&bascule);
    let arguments =
        json!({ "source_timezone": "Asia/Kolkata", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let answer = bascule.call("time:convert_time", &arguments.to_string());
    assert!(text(&answer).contains("+3.5h"), "{answer:#}");
}

fn sqlite(folder: &Path) -> Value {
    let database = folder.join("data/birds.db");
    fs::create_dir_all(folder.join("data")).unwrap();
    let program = test_env("sqlite/bin/mcp-server-sqlite");
    json!({ "command": program, "args": ["--db-path", database], "cwd": folder.join("data"), "startTimeoutMs": START })
}

/// Creates, fills and queries a table. Every call starts a new process, so the data is in the file.
fn check_database(bascule: &Bascule) {
    let query = |text: &str| json!({ "query": text }).to_string();
    bascule.call("sqlite:create_table", &query("CREATE TABLE birds (name TEXT, weight INTEGER)"));
    bascule.call("sqlite:write_query", &query("INSERT INTO birds VALUES ('wren', 9), ('heron', 1500)"));
    let found = bascule.call("sqlite:read_query", &query("SELECT name FROM birds WHERE weight > 100"));
    assert_eq!(text(&found), "[{'name': 'heron'}]");
    let tables = bascule.call("sqlite:list_tables", "{}");
    assert_eq!(text(&tables), "[{'name': 'birds'}]");
}

// req: SB-04, BR-04
#[test]
fn database_server_works_in_standard_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    check_database(&Bascule::with_server("sqlite", sqlite(folder.path())));
    assert!(folder.path().join("data/birds.db").exists());
}

// req: SB-04
#[test]
fn database_server_works_with_only_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = json!({ "read": [test_env("sqlite")], "write": [folder.path().join("data")] });
    check_database(&Bascule::with_server("sqlite", confined(sqlite(folder.path()), sandbox)));
}

/// Environment with which `uv` uses the package registry of `pip`.
fn registry() -> Value {
    let index = |name: &str| {
        let output = Command::new(test_env("uv/bin/pip")).args(["config", "get", name]).output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (output.status.success() && !answer.is_empty()).then_some(answer)
    };
    let index = index("global.index-url").or_else(|| std::env::var("PIP_INDEX_URL").ok());
    let inherited =
        ["SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];
    let mut env: serde_json::Map<String, Value> = inherited
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), json!(std::env::var(name).ok()?))))
        .collect();
    env.extend(index.map(|index| ("UV_DEFAULT_INDEX".to_owned(), json!(index))));
    Value::Object(env)
}

// req: SB-04, US-02
#[test]
fn uvx_installs_and_runs_server() {
    let entry = json!({
        "command": test_env("uv/bin/uvx"),
        "args": ["mcp-server-time", "--local-timezone", "Etc/UTC"],
        "env": registry(),
        "startTimeoutMs": START,
    });
    let bascule = Bascule::with_server("time", entry);
    for _ in ["a cold cache", "a warm one"] {
        let now = bascule.call("time:get_current_time", r#"{"timezone":"Asia/Tokyo"}"#);
        assert!(text(&now).contains("Asia/Tokyo"), "{now:#}");
    }
    assert!(bascule.file_of("time", ".cache/uv").is_some(), "the download cache is missing");
}
