//! Measures the check on `tests/agent-mistakes`: scripts that fail, with the tools of real servers.

use std::path::{Path, PathBuf};

use bascule_script::wire::{Init, InjectedTool};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::support::{run_with, structured};

/// The names of the servers in the scripts, and of their saved lists of tools.
const SERVERS: [(&str, &str); 6] = [
    ("files", "filesystem"),
    ("git", "git"),
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("time", "time"),
    ("everything", "everything"),
];

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn tools_of((server, file): (&str, &str)) -> Vec<InjectedTool> {
    let text = project(&format!("crates/bascule-catalog/tests/catalogs/{file}.json"));
    let listing: Value = serde_json::from_str(&std::fs::read_to_string(text).unwrap()).unwrap();
    let raw = |schema: &Value| -> Option<Box<RawValue>> {
        (!schema.is_null()).then(|| to_raw_value(schema).unwrap())
    };
    let listing = listing.get("result").unwrap_or(&listing);
    let tools = listing.get("tools").unwrap_or(listing).as_array().unwrap();
    let tool = |tool: &Value| InjectedTool {
        server: server.into(),
        name: tool["name"].as_str().unwrap().into(),
        input_schema: raw(&tool["inputSchema"]),
        output_schema: raw(&tool["outputSchema"]),
        ..InjectedTool::default()
    };
    tools.iter().map(tool).collect()
}

fn with_real_tools(init: &mut Init) {
    init.tool_definitions = SERVERS.into_iter().flat_map(tools_of).collect();
    init.context = Some(to_raw_value(&json!({ "place": "/data", "repo": "/data/repo" })).unwrap());
}

fn scripts(folder: &str) -> Vec<(String, String)> {
    let read = |path: PathBuf| {
        (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap())
    };
    let files = std::fs::read_dir(project(folder)).unwrap().map(|entry| entry.unwrap().path());
    files.map(read).collect()
}

// req: CM-14
#[test]
fn stops_most_mistakes_of_agents_before_the_first_call() {
    let scripts = scripts("tests/agent-mistakes");
    assert!(scripts.len() >= 30);
    let is_stopped = |code: &str| {
        let ran = run_with(code, with_real_tools, |_| Some(structured(&json!({}))));
        let error = ran.completed.error;
        ran.calls.is_empty() && error.is_some_and(|error| error.message.contains("before any call"))
    };
    let missed: Vec<&str> =
        scripts.iter().filter(|(_, code)| !is_stopped(code)).map(|(name, _)| name.as_str()).collect();
    assert!(missed.len() * 2 <= scripts.len(), "missed {} of {}: {missed:?}", missed.len(), scripts.len());
}
