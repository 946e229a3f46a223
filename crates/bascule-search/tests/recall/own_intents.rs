//! Recall on intents of our own over the tools of 25 real servers.

use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::support::{K, Tools, parse_tools, recall};

const INTENTS: &str = include_str!("intents.txt");

#[derive(Deserialize)]
struct Listing {
    server: String,
    tools: Vec<Box<RawValue>>,
}

/// Reads the tools of 25 real servers.
fn real_catalogs() -> Tools {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bascule-catalog/tests/catalogs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let Listing { server, tools } = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        (server, parse_tools(tools))
    };
    Tools::new(files.iter().map(read).collect())
}

struct LabelledIntent {
    text: &'static str,
    /// Each group needs one of its tools.
    groups: Vec<Vec<String>>,
}

fn intents() -> Vec<LabelledIntent> {
    let lines = INTENTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let intents = lines.map(|line| {
        let (text, tools) = line.split_once(" => ").unwrap();
        let group = |tools: &str| tools.trim().split('/').map(str::to_owned).collect();
        LabelledIntent { text, groups: tools.split(',').map(group).collect() }
    });
    intents.collect()
}

fn mean_recall(tools: &Tools, intents: &[&LabelledIntent]) -> f64 {
    let mut sum = 0.0;
    for intent in intents {
        let ranked = tools.search(intent.text, 2 * K);
        let reached = recall(&ranked, &intent.groups);
        if reached < 1.0 {
            println!("{reached:.2} {} {:?}: {:?}", intent.text, intent.groups, &ranked[..K]);
        }
        sum += reached;
    }
    sum / intents.len() as f64
}

// req: SE-01
#[test]
fn labels_name_existing_tools() {
    let (tools, intents) = (real_catalogs(), intents());
    assert!(intents.len() >= 200, "{}", intents.len());
    for id in intents.iter().flat_map(|intent| intent.groups.iter().flatten()) {
        assert!(tools.has(id), "{id}");
    }
}

// req: SE-01
#[test]
fn finds_tools_for_one_step() {
    let intents = intents();
    let single: Vec<_> = intents.iter().filter(|intent| intent.groups.len() == 1).collect();
    let reached = mean_recall(&real_catalogs(), &single);
    println!("recall@{K} of {} single intents: {reached:.3}", single.len());
    assert!(reached >= 0.66, "{reached:.3}");
}

// req: SE-01
#[test]
fn finds_tools_for_several_steps() {
    let intents = intents();
    let multiple: Vec<_> = intents.iter().filter(|intent| intent.groups.len() > 1).collect();
    let reached = mean_recall(&real_catalogs(), &multiple);
    println!("recall@{K} of {} intents of several steps: {reached:.3}", multiple.len());
    assert!(reached >= 0.83, "{reached:.3}");
}
