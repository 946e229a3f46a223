//! npm `@modelcontextprotocol/server-filesystem` and `-memory`: servers with persistent effects.

use std::fs;
use std::path::PathBuf;

use bascule_model::{Health, ProviderAdapter};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{check_catalog, check_rejected, list_directly, node};
use crate::commands::library::{call, start};
use crate::support::{Bascule, text};

/// A folder that the server may use, and one that it may not.
struct Files {
    _folder: TempDir,
    inside: PathBuf,
    outside: PathBuf,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (inside, outside) = (root.join("inside"), root.join("outside"));
        for place in [&inside, &outside] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("poem.txt"), "one\ntwo\nthree\n").unwrap();
        }
        Self { _folder: folder, inside, outside }
    }

    fn entry(&self) -> Value {
        node("server-filesystem", &[self.inside.to_str().unwrap()])
    }

    fn bascule(&self) -> Bascule {
        Bascule::with_server("files", self.entry())
    }
}

// req: BR-03
#[test]
fn catalog_of_file_server_matches() {
    let files = Files::new();
    check_catalog(&files.bascule(), "files", "secure-filesystem-server", &list_directly(&files.entry()));
}

// req: BR-04
#[test]
fn reads_and_writes_files() {
    let files = Files::new();
    let bascule = files.bascule();
    let poem = json!({ "path": files.inside.join("poem.txt"), "head": 2 }).to_string();
    let read = bascule.call("files:read_text_file", &poem);
    assert_eq!((text(&read), &read["structuredContent"]["content"]), ("one\ntwo".into(), &json!("one\ntwo")));
    let new = files.inside.join("new.txt");
    bascule.call("files:write_file", &json!({ "path": new, "content": "geschrieben: é\n" }).to_string());
    assert_eq!(fs::read_to_string(&new).unwrap(), "geschrieben: é\n");
    let edit = json!({ "path": new, "edits": [{ "oldText": "é", "newText": "e" }] }).to_string();
    let edited = bascule.run(&["call", "files:edit_file", &edit]);
    assert!(edited.code == Some(0) && edited.stdout.contains("+geschrieben: e"), "{edited:?}");
    assert_eq!(fs::read_to_string(&new).unwrap(), "geschrieben: e\n");
    check_rejected(&bascule, "files:write_file", r#"{"path":7}"#, &["/content", "/path"]);
    check_rejected(&bascule, "files:read_multiple_files", r#"{"paths":[]}"#, &["/paths"]);
}

// req: BR-07
#[test]
fn refusal_of_server_is_an_error_result() {
    let files = Files::new();
    let bascule = files.bascule();
    let target = files.outside.join("new.txt");
    let (code, document) = bascule.run_json(&[
        "call",
        "files:write_file",
        &json!({ "path": target, "content": "x" }).to_string(),
    ]);
    assert_eq!((code, &document["result"]["isError"]), (1, &json!(true)), "{document}");
    assert!(text(&document["result"]).contains("outside allowed directories"), "{document}");
    assert!(!target.exists());
    let output = bascule.run(&[
        "call",
        "files:read_text_file",
        &json!({ "path": files.inside.join("gone") }).to_string(),
    ]);
    assert!(output.code == Some(1) && output.stdout.contains("ENOENT"), "{output:?}");
}

// req: BR-01
#[test]
fn denied_tools_are_hidden_and_not_called() {
    let files = Files::new();
    let mut entry = files.entry();
    entry["allowedTools"] = json!(["read_*", "write_*", "list_directory"]);
    entry["deniedTools"] = json!(["*write*", "read_file"]);
    let bascule = Bascule::with_server("files", entry);
    let (_, tools) = bascule.run_json(&["tools"]);
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read_text_file", "read_media_file", "read_multiple_files", "list_directory"]);
    let target = files.inside.join("new.txt");
    let error =
        bascule.call_error("files:write_file", &json!({ "path": target, "content": "x" }).to_string());
    assert_eq!((&error["code"], target.exists()), (&json!("POLICY_DENIED"), false));
}

fn memory(file: &std::path::Path) -> Value {
    let mut entry = node("server-memory", &[]);
    entry["env"] = json!({ "MEMORY_FILE_PATH": file });
    entry["cwd"] = json!(file.parent());
    entry
}

// req: BR-03
#[test]
fn catalog_of_memory_server_matches() {
    let folder = tempfile::tempdir().unwrap();
    let entry = memory(&folder.path().join("memory.jsonl"));
    let bascule = Bascule::with_server("memory", entry.clone());
    check_catalog(&bascule, "memory", "memory-server", &list_directly(&entry));
    check_rejected(
        &bascule,
        "memory:create_entities",
        r#"{"entities":[{"name":1,"observations":"x"}]}"#,
        &["/entities/0/entityType", "/entities/0/name", "/entities/0/observations"],
    );
}

// req: BR-16
#[tokio::test]
async fn memory_persists_across_calls_and_processes() {
    let folder = tempfile::tempdir().unwrap();
    let bascule = Bascule::with_server("memory", memory(&folder.path().join("memory.jsonl")));
    let (bridge, _) = start(bascule.folder()).await;
    let pid = bridge.health()[0].pid;

    let bridge_entity = json!({ "name": "Tower Bridge", "entityType": "bascule", "observations": ["opens"] });
    let river = json!({ "name": "Thames", "entityType": "river", "observations": [] });
    let made = call(&bridge, "memory:create_entities", json!({ "entities": [bridge_entity, river] })).await;
    assert_eq!(made["structuredContent"]["entities"].as_array().unwrap().len(), 2);
    let crosses = json!({ "from": "Tower Bridge", "to": "Thames", "relationType": "crosses" });
    call(&bridge, "memory:create_relations", json!({ "relations": [crosses] })).await;
    let more = json!({ "entityName": "Tower Bridge", "contents": ["opens", "closes"] });
    let added = call(&bridge, "memory:add_observations", json!({ "observations": [more] })).await;
    assert_eq!(added["structuredContent"]["results"][0]["addedObservations"], json!(["closes"]));
    let graph = call(&bridge, "memory:read_graph", json!({})).await["structuredContent"].clone();
    assert_eq!(
        (&graph["entities"][0]["observations"], &graph["relations"]),
        (&json!(["opens", "closes"]), &json!([crosses]))
    );
    let found = call(&bridge, "memory:search_nodes", json!({ "query": "closes" })).await;
    assert_eq!(found["structuredContent"]["entities"][0]["name"], "Tower Bridge");
    assert_eq!(
        (bridge.health()[0].pid, bridge.health()[0].health),
        (pid, Health::Healthy),
        "all calls ran in one process"
    );
    bridge.terminate().await;

    assert_eq!(bascule.call("memory:read_graph", "{}")["structuredContent"], graph);
}
