//! Recall on intents of our own over the tools of 25 real servers.

use super::{K, Tools, real_catalogs, recall};

const INTENTS: &str = include_str!("intents.txt");

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
