//! The declarations of the tools of 25 real servers, compared with the recorded ones.
//!
//! `BASCULE_BLESS=1 cargo test -p bascule-catalog --test typescript` records them again.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use bascule_catalog::{DeclaredServer, DeclaredTool, ServerTools, ToolFilter, declarations};
use bascule_model::{ServerName, ToolDefinition};
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct SavedList {
    tools: Vec<Box<RawValue>>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/catalogs")
}

fn catalogs() -> Vec<(String, ServerTools)> {
    let entries = fs::read_dir(folder()).expect("the folder of catalogs");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |file: PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let saved: SavedList = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let tools = saved.tools.into_iter().map(|raw| ToolDefinition::parse(raw).unwrap()).collect();
        (name.clone(), ServerTools::new(ServerName::parse(&name).unwrap(), ToolFilter::default(), tools))
    };
    files.into_iter().map(read).collect()
}

fn declare(name: &str, server: &ServerTools) -> String {
    let tools =
        server.tools().iter().map(|tool| DeclaredTool { name: tool.id().tool().into(), tool }).collect();
    declarations(&[DeclaredServer { name: name.into(), tools }])
}

// req: CM-08
#[test]
fn declarations_of_real_servers_are_as_recorded() {
    let is_recording = std::env::var_os("BASCULE_BLESS").is_some();
    let catalogs = catalogs();
    assert!(catalogs.len() >= 25);
    for (name, server) in &catalogs {
        let file = folder().join(format!("types/{name}.d.ts"));
        let declared = declare(name, server);
        if is_recording {
            fs::write(&file, &declared).unwrap();
        }
        let recorded = fs::read_to_string(&file).expect("the recorded declarations");
        assert!(declared == recorded, "the declarations of `{name}` changed: compare with BASCULE_BLESS=1");
    }
}
