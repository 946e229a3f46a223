//! Tool definitions of real servers.

use std::path::Path;

use serde_json::Value;

/// Returns `count` tools of real servers, repeated under other names.
pub(super) fn real_tools(count: usize) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bascule-catalog/tests/catalogs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let tools: Vec<Value> = files
        .iter()
        .map(|file| serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap())
        .flat_map(|catalog| catalog["tools"].as_array().cloned().unwrap())
        .collect();
    let renamed = tools.iter().cycle().take(count).enumerate().map(|(n, tool)| {
        let mut tool = tool.clone();
        tool["name"] = format!("{}_{n}", tool["name"].as_str().unwrap()).into();
        tool
    });
    renamed.collect()
}
