//! Recall on the sets in the folder `EVAL_DATA`, with the model in the folder `EVAL_MODEL` if there is one
//! (`make eval-search`).
//!
//! A set is a folder with `tools.json` (tools with their server) and `queries.json` (intents with the ids of the right tools, or
//! with groups of which one tool is enough).

#![allow(clippy::print_stdout, reason = "the measurements are printed")]
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod encoder;
mod support;

use std::path::Path;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;

use support::{K, Tools, parse_tools, recall};

#[derive(Deserialize)]
struct Query {
    text: String,
    gold: Vec<String>,
    gold_groups: Option<Vec<Vec<String>>>,
}

#[derive(Deserialize)]
struct ServerOf {
    server: String,
}

/// Sets with a known floor.
const FLOORS: [(&str, f64); 3] = [("metatool_single", 0.64), ("metatool_multi", 0.69), ("sealtools", 0.86)];

// req: SE-01
#[test]
fn recall_on_external_sets() {
    let folder = std::env::var_os("EVAL_DATA").expect("`EVAL_DATA` names the folder of the sets");
    let mut sets: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    sets.retain(|set| set.join("queries.json").is_file());
    sets.sort();
    let is_known = |set: &std::path::PathBuf| FLOORS.iter().any(|(name, _)| set.ends_with(name));
    assert!(sets.iter().any(is_known), "`EVAL_DATA` has none of {FLOORS:?}");
    for set in sets {
        let name = set.file_name().unwrap().to_string_lossy().into_owned();
        let reached = measure(&name, &set);
        let floor = FLOORS.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, floor)| *floor);
        assert!(reached >= floor, "recall@{K} of `{name}` is {reached:.3}, below {floor}");
    }
}

fn measure(name: &str, set: &Path) -> f64 {
    let tools = tools(set);
    let queries: Vec<Query> =
        serde_json::from_slice(&std::fs::read(set.join("queries.json")).unwrap()).unwrap();
    let (mut sum, mut count, started) = (0.0, 0, Instant::now());
    for query in &queries {
        let mut groups = match &query.gold_groups {
            Some(groups) => groups.clone(),
            None => query.gold.iter().map(|id| vec![id.clone()]).collect(),
        };
        groups.iter_mut().for_each(|group| group.retain(|id| tools.has(id)));
        groups.retain(|group| !group.is_empty());
        if !groups.is_empty() {
            sum += recall(&tools.search(&query.text, 20), &groups);
            count += 1;
        }
    }
    let reached = sum / f64::from(count);
    println!("{name}: recall@{K} {reached:.3} of {count} intents, {:.1?} in all", started.elapsed());
    reached
}

fn tools(set: &Path) -> Tools {
    let listed: Vec<Box<RawValue>> =
        serde_json::from_slice(&std::fs::read(set.join("tools.json")).unwrap()).unwrap();
    let mut servers: Vec<(String, Vec<Box<RawValue>>)> = Vec::new();
    for tool in listed {
        let ServerOf { server } = serde_json::from_str(tool.get()).unwrap();
        match servers.iter_mut().find(|(name, _)| *name == server) {
            Some((_, tools)) => tools.push(tool),
            None => servers.push((server, vec![tool])),
        }
    }
    let servers = servers.into_iter().map(|(name, tools)| (name, parse_tools(tools))).collect();
    Tools::new(servers)
}
